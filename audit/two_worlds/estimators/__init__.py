"""Scores in, a valid lower bound on ε out: what an attack on canaries demonstrates."""

from .betting import betting
from .bound import LowerBound
from .clopper_pearson import clopper_pearson
from .fdp import gaussian_curve, one_run_fdp
from .finding import Finding, violation
from .gdp import gdp
from .mean_shift import one_run_shift
from .one_run import Guesses, one_run

__all__ = [
    "Finding",
    "Guesses",
    "LowerBound",
    "betting",
    "clopper_pearson",
    "gaussian_curve",
    "gdp",
    "one_run",
    "one_run_fdp",
    "one_run_shift",
    "violation",
]
