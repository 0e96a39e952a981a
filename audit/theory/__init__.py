"""The convergence bounds and optima of the papers behind the schemes, one module a paper (or chapter).

A formula returns a `Bound`: its value and the assumptions that do not hold at the given numbers. Where a paper
contradicts itself a `reading` argument says which version is meant. `recommend_…` functions return a `Recommendation`:
the setting where the bound is smallest. None of this is privacy accounting, and none of it was measured on a model.
"""

from . import component, decentralised, fednore, geometric, iteration, nbafl, reconstruction
from .bound import Bound, Recommendation

__all__ = [
    "Bound",
    "Recommendation",
    "component",
    "decentralised",
    "fednore",
    "geometric",
    "iteration",
    "nbafl",
    "reconstruction",
]
