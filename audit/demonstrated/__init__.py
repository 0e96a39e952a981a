"""Scores in, a valid lower bound on ε out: what an attack on canaries demonstrates."""

from .bound import Bound
from .ceilings import METHODS, Plan, ceiling, plan
from .clopper_pearson import clopper_pearson
from .fdp import fdp_p_value, gaussian_curve, one_run_fdp, profile_curve
from .finding import Finding, violation
from .gdp import gdp
from .one_run import Guesses, one_run
from .one_shot import null_cosine, one_shot
from .thresholds import Bonferroni, Calibrated, Fixed, MultiSplit, Split

__all__ = [
    "METHODS",
    "Bonferroni",
    "Bound",
    "Calibrated",
    "Finding",
    "Fixed",
    "Guesses",
    "MultiSplit",
    "Plan",
    "Split",
    "ceiling",
    "clopper_pearson",
    "fdp_p_value",
    "gaussian_curve",
    "gdp",
    "null_cosine",
    "one_run",
    "one_run_fdp",
    "one_shot",
    "plan",
    "profile_curve",
    "violation",
]
