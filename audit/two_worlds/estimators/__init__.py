"""Scores in, a valid lower bound on ε out: what an attack on canaries demonstrates."""

from .betting import betting
from .bound import LowerBound
from .ceilings import METHODS, DrawPlan, ceiling, plan_draws
from .clopper_pearson import clopper_pearson
from .fdp import gaussian_curve, one_run_fdp
from .finding import Finding, violation
from .gdp import gdp
from .mean_shift import one_run_shift
from .one_run import Guesses, one_run
from .one_shot import null_cosine, one_shot
from .thresholds import Bonferroni, Calibrated, Fixed, MultiSplit, Split

__all__ = [
    "METHODS",
    "Bonferroni",
    "Calibrated",
    "DrawPlan",
    "Finding",
    "Fixed",
    "Guesses",
    "LowerBound",
    "MultiSplit",
    "Split",
    "betting",
    "ceiling",
    "clopper_pearson",
    "gaussian_curve",
    "gdp",
    "null_cosine",
    "one_run",
    "one_run_fdp",
    "one_run_shift",
    "one_shot",
    "plan_draws",
    "violation",
]
