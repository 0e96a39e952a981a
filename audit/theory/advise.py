"""What the papers' own analysis would choose, scheme by scheme (`audit advise`)."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from math import isfinite
from typing import Any

from ...defenses.nearest import nearest
from .component import ComponentConstants
from .decentralised import DecentralisedConstants
from .fednore import FednoreConstants
from .formula import Recommendation
from .geometric import GeometricConstants
from .iteration import IterationConstants
from .nbafl import NbaflConstants
from .reconstruction import ReconstructionConstants


@dataclass(frozen=True)
class SchemeTheory:
    """The analysis of one scheme.

    Args:
        constants: the paper's constants, a dataclass.
        recommenders: its methods that give a `Recommendation` each.
        fixed: constants that the scheme itself decides.
        needed: constants that the analysis can do without but the scheme cannot.
        letters: the scheme's parameters whose names differ from the theory's, to the theory's names.
    """

    constants: type[Any]
    recommenders: tuple[str, ...]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    needed: frozenset[str] = frozenset()
    letters: Mapping[str, str] = field(default_factory=dict)

    def accepted(self) -> dict[str, bool]:
        """The names that the constants and the recommenders take; True where one must be given."""
        names = {
            f.name: (f.default is MISSING and f.default_factory is MISSING) or f.name in self.needed
            for f in fields(self.constants)
            if f.name not in self.fixed
        }
        for method in self.recommenders:
            for name, parameter in self._settings(method).items():
                names[name] = names.get(name, False) or parameter.default is parameter.empty
        return names

    def recommendations(self, parameters: Mapping[str, Any]) -> list[Recommendation]:
        """What every recommender says at these parameters, given by their accepted names."""
        kinds = {f.name: str(f.type) for f in fields(self.constants)}
        constants = self.constants(**_taken(parameters, kinds), **self.fixed)
        advised = []
        for method in self.recommenders:
            kinds = {name: str(parameter.annotation) for name, parameter in self._settings(method).items()}
            advised.append(getattr(constants, method)(**_taken(parameters, kinds)))
        return advised

    def _settings(self, method: str) -> dict[str, inspect.Parameter]:
        taken = inspect.signature(getattr(self.constants, method)).parameters
        return {name: parameter for name, parameter in taken.items() if name != "self"}


def _taken(parameters: Mapping[str, Any], kinds: Mapping[str, str]) -> dict[str, Any]:
    """The parameters among `kinds`; whole floats (all numbers of [theory] are floats) as int where the kind is int."""
    taken = {name: value for name, value in parameters.items() if name in kinds}
    whole = {
        n: int(v) for n, v in taken.items() if kinds[n].startswith("int") and isinstance(v, float) and v.is_integer()
    }
    return taken | whole


_ITERATION = ("recommend_local_steps", "recommend_rounds")
_ITERATION_LETTERS = {"zeta": "clip", "E": "local_steps", "mu": "convexity", "lam": "smoothness"}

_BY_SCHEME: dict[str, SchemeTheory] = {
    "geometric": SchemeTheory(
        GeometricConstants, ("recommend_rounds", "recommend_schedule"), letters={"ratio": "vartheta"}
    ),
    "nbafl": SchemeTheory(NbaflConstants, ("recommend_rounds", "recommend_participants"), letters={"mu": "proximal"}),
    "iteration-laplace": SchemeTheory(
        IterationConstants, _ITERATION, fixed={"mechanism": "laplace"}, letters=_ITERATION_LETTERS
    ),
    "iteration-gaussian": SchemeTheory(
        IterationConstants,
        _ITERATION,
        fixed={"mechanism": "gaussian"},
        needed=frozenset({"delta"}),
        letters=_ITERATION_LETTERS,
    ),
    "component": SchemeTheory(ComponentConstants, ("recommend_rounds",)),
    "fednore1": SchemeTheory(FednoreConstants, ("recommend_rounds",), letters={"lam": "strength"}),
    "anonymous-gossip": SchemeTheory(
        DecentralisedConstants, ("recommend_rounds", "recommend_participants"), needed=frozenset({"neighbours"})
    ),
    "anonymous-leader": SchemeTheory(
        DecentralisedConstants,
        ("recommend_rounds", "recommend_participants"),
        fixed={"neighbours": None, "eigenvalue": None},
    ),
    "ldp": SchemeTheory(ReconstructionConstants, ("recommend_noise",)),
}

SCHEMES = tuple(_BY_SCHEME)
"""The schemes whose papers analyse their convergence; for the others there is nothing to advise."""


def theory_of(scheme_name: str) -> SchemeTheory:
    """The analysis behind a scheme. Raises ValueError where there is none."""
    if scheme_name not in _BY_SCHEME:
        raise ValueError(
            f"There is no convergence theory for the scheme {scheme_name!r}, only for {', '.join(SCHEMES)}."
        )
    return _BY_SCHEME[scheme_name]


def scheme_advice(scheme_name: str, parameters: Mapping[str, Any]) -> list[Recommendation]:
    """The settings that the scheme's own analysis would choose, each with the assumptions that do not hold.

    parameters: plain numbers by the names of `theory_of(scheme_name).accepted()`: epsilon, delta, clip (parameter
    units), samples (records a client), clients, participants (clients a round), rounds …; and the constants of the
    analysis (smoothness, pl, convexity, lipschitz, dissimilarity, divergence, initial_gap …), which have defaults. No
    paper states its constants and none is measured here: every recommendation begins by naming the ones it used.

    Raises: ValueError for a scheme without theory, an unknown or a missing name, or an impossible value.

    >>> [rounds] = scheme_advice("component", {"epsilon": 2.0, "delta": 1e-5, "sigma": 26.0})
    >>> rounds.what, rounds.value
    ('rounds T', 108.0)
    """
    theory = theory_of(scheme_name)
    names = theory.accepted()
    for name in parameters:
        if name not in names:
            near = nearest(name, names)
            if near:
                hint = f"did you mean {near}?"
            else:
                hint = f"it takes {', '.join(names)}."
            raise ValueError(f"{name} is not a parameter of the theory of {scheme_name}: {hint}")
    missing = [name for name, needed in names.items() if needed and parameters.get(name) is None]
    if missing:
        raise ValueError(f"The theory of {scheme_name} also needs {', '.join(missing)}.")
    for name, value in parameters.items():
        unlimited = name in ("epsilon", "clip")  # without noise, without a clip
        if isinstance(value, float) and not unlimited and not isfinite(value):
            raise ValueError(f"{name} is {value}; expected a finite number.")
    return theory.recommendations(parameters)
