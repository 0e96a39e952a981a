"""The exact Gaussian curve, against mpmath with 60 digits and against dp_accounting in the ordinary range."""

import math

import mpmath
import pytest
from dp_accounting import get_epsilon_gaussian, get_sigma_gaussian
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_delta, gaussian_epsilon, gaussian_multiplier

DELTAS = (1e-300, 1e-100, 1e-10, 1e-5, 1e-3, 0.1, 0.5, 0.999)


def relative_error(multiplier: float, delta: float, epsilon: float) -> float:
    """By one Newton step from `epsilon`, in 60 digits, on δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)."""
    with mpmath.workdps(60):
        mu, at = 1 / mpmath.mpf(multiplier), mpmath.mpf(epsilon)
        tail = mpmath.exp(at) * mpmath.ncdf(-mu / 2 - at / mu)
        found = mpmath.ncdf(mu / 2 - at / mu) - tail
        return float(abs(found - mpmath.mpf(delta)) / tail / at)


@pytest.mark.parametrize("multiplier", [1e-8, 1 / 200, 1 / 100, 0.5, 0.999, 1.0, 1.001, 3.0, 100.0, 1e4, 1e8])
def test_epsilon_is_exact_from_no_noise_to_no_signal(multiplier):
    for delta in DELTAS:
        epsilon = gaussian_epsilon(multiplier, delta)
        if delta >= math.erf(1 / multiplier / math.sqrt(8)):
            assert epsilon == 0
        else:
            assert relative_error(multiplier, delta, epsilon) < 1e-13


@pytest.mark.parametrize("multiplier", [0.1, 0.3, 1.0, 4.0, 30.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_agrees_with_dp_accounting_in_the_ordinary_range(multiplier, delta):
    assert gaussian_epsilon(multiplier, delta) == pytest.approx(get_epsilon_gaussian(multiplier, delta), abs=1e-9)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 20.0, 7.7e4, 1e9])
@pytest.mark.parametrize("delta", [1e-30, 1e-5, 0.2])
def test_the_inverse_reaches_and_never_exceeds_the_target(epsilon, delta):
    multiplier = gaussian_multiplier(epsilon, delta)
    assert epsilon * (1 - 1e-9) <= gaussian_epsilon(multiplier, delta) <= epsilon
    if 0.1 <= epsilon <= 20:
        assert multiplier == pytest.approx(get_sigma_gaussian(epsilon, delta), rel=1e-9)


def test_delta_is_the_same_curve():
    for multiplier in (0.01, 0.7, 1.0, 5.0):
        epsilon = gaussian_epsilon(multiplier, 1e-5)
        assert gaussian_delta(multiplier=multiplier, epsilon=epsilon) == pytest.approx(1e-5, rel=1e-7)
    assert gaussian_delta(multiplier=1.0, epsilon=0.0) == pytest.approx(math.erf(1 / math.sqrt(8)))


def test_the_ends():
    assert gaussian_epsilon(0.0, 1e-5) == math.inf
    assert gaussian_epsilon(math.inf, 0.0) == 0
    assert gaussian_epsilon(1.0, 0.0) == math.inf
    assert gaussian_epsilon(1e-200, 1e-5) == math.inf
    assert gaussian_delta(multiplier=0.0, epsilon=5.0) == 1 and gaussian_delta(multiplier=2.0, epsilon=math.inf) == 0
    assert gaussian_epsilon(gaussian_multiplier(0.0, 1e-3), 1e-3) == 0


@pytest.mark.parametrize(
    "call, names",
    [
        (lambda: gaussian_epsilon(-1.0, 1e-5), "noise multiplier is -1.0"),
        (lambda: gaussian_epsilon(math.nan, 1e-5), "noise multiplier is nan"),
        (lambda: gaussian_epsilon(1.0, 1.0), "delta is 1.0"),
        (lambda: gaussian_multiplier(math.inf, 1e-5), "epsilon is inf"),
        (lambda: gaussian_multiplier(1.0, 0.0), "delta must be above 0"),
        (lambda: gaussian_delta(multiplier=1.0, epsilon=-0.1), "epsilon is -0.1"),
    ],
)
def test_bad_input_is_named(call, names):
    with pytest.raises(ValueError, match=names):
        call()
