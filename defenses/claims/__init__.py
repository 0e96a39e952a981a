"""What the papers say of their own schemes: their closed formulas, written down literally, one file a paper.

Nothing here is proven. A claim is compared with what `audit.proven.accounting` proves from the releases.
"""

from .alpha_noise import NoiseSchedule, alpha_sigma
from .anonymous import anonymous_claimed_epsilon, anonymous_lemma3_failures, anonymous_variance
from .component import component_delta, component_epsilon, component_rounds
from .gaussian import moments_epsilon, rdp_gaussian, sampled_gaussian_epsilon, sampled_gaussians_epsilon
from .geometric import (
    geometric_adjusted_multiplier,
    geometric_epsilon,
    geometric_multiplier,
    geometric_series,
    geometric_tail,
)
from .iteration import (
    iteration_gaussian_epsilon,
    iteration_gaussian_std,
    iteration_laplace_epsilon,
    iteration_laplace_scale,
    iteration_sensitivity,
)
from .nbafl import nbafl_downlink_std, nbafl_epsilon, nbafl_round_budgets, nbafl_uplink_std

__all__ = [
    "NoiseSchedule",
    "alpha_sigma",
    "anonymous_claimed_epsilon",
    "anonymous_lemma3_failures",
    "anonymous_variance",
    "component_delta",
    "component_epsilon",
    "component_rounds",
    "geometric_adjusted_multiplier",
    "geometric_epsilon",
    "geometric_multiplier",
    "geometric_series",
    "geometric_tail",
    "iteration_gaussian_epsilon",
    "iteration_gaussian_std",
    "iteration_laplace_epsilon",
    "iteration_laplace_scale",
    "iteration_sensitivity",
    "moments_epsilon",
    "nbafl_downlink_std",
    "nbafl_epsilon",
    "nbafl_round_budgets",
    "nbafl_uplink_std",
    "rdp_gaussian",
    "sampled_gaussian_epsilon",
    "sampled_gaussians_epsilon",
]
