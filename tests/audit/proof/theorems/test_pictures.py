"""How close an attack can come to a picture: κ of both priors as it is, and the bound beside the best attack."""

from __future__ import annotations

from math import exp, inf, log, pi, sqrt

import numpy as np
import pytest
from dpfl_audit.audit.proof.theorems.pictures import blind_chance, decibels, even_error, gaussian_error
from dpfl_audit.audit.proof.theorems.tradeoff import gaussian_ceiling, success_ceiling
from scipy.special import ndtr, ndtri
from scipy.stats import chi2


def test_a_blind_guess_of_even_pixels_is_as_close_as_a_ball_is_large():
    assert even_error(log(0.2), 1) == pytest.approx(0.1**2)  # [z − 0.1, z + 0.1]
    assert even_error(log(0.2), 2) == pytest.approx(0.2 / pi / 2)  # a disc of area 0.2
    rng = np.random.default_rng(0)
    near = ((rng.random((200_000, 3)) - 0.5) ** 2).mean(1)  # the middle of the cube is the best guess
    assert np.mean(near <= even_error(log(0.1), 3)) == pytest.approx(0.1, abs=0.003)


@pytest.mark.parametrize("kappa", [0.1, 1e-4, 1e-12])
def test_no_blind_guess_of_a_gaussian_is_closer_more_often(kappa):
    for pixels, variance in ((1, 2.0), (10, 0.3), (100, 0.05)):
        error = gaussian_error(log(kappa), np.full(pixels, variance), pixels)
        exact = chi2.ppf(kappa, pixels) * variance / pixels
        assert exact * kappa ** (2 / pixels) / 6 < error <= exact  # Chernoff's is below it, by a factor in κ alone
    wide = np.array([4.0, 1.0, 0.25, 0.0])
    error = gaussian_error(log(kappa), wide, 4)
    drawn = np.random.default_rng(1).standard_normal((400_000, 4)) ** 2 @ wide / 4
    assert np.mean(drawn <= error) <= kappa + 1e-5


def test_ends():
    assert gaussian_error(-inf, [1.0], 1) == 0.0 == gaussian_error(-1.0, [0.0], 1)
    assert gaussian_error(0.0, [2.0, 4.0], 4) == pytest.approx(
        1.5
    )  # the error of the mean, whose chance is not below 1
    assert blind_chance(lambda kappa: 1.0, 0.05) == -inf


@pytest.mark.parametrize("mu", [0.5, 1.0, 3.0, 8.0])
def test_the_chance_is_the_trade_off_turned_around(mu):
    assert blind_chance(lambda kappa: gaussian_ceiling(mu, kappa), 0.05) == pytest.approx(
        log(ndtr(ndtri(0.05) - mu)), abs=1e-3
    )
    assert exp(blind_chance(lambda kappa: success_ceiling(lambda _: mu, kappa), 0.05)) == pytest.approx(
        0.05 * exp(-mu), rel=1e-3
    )


@pytest.mark.parametrize("noise", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("success", [0.05, 0.5])
def test_the_best_attack_on_a_noised_number_stays_below_the_bound(noise, success):
    """x even on [0, 1] is sent as x − 1/2 with noise, and 0 in its place where it is left out: at most 1/2 is moved.
    The best attack names the interval that holds the most of what it believes of x.
    """
    kappa = blind_chance(lambda chance: gaussian_ceiling(0.5 / noise, chance), success)
    reach = sqrt(even_error(kappa, 1))
    seen = np.linspace(-0.5 - 8 * noise, 0.5 + 8 * noise, 2001)
    guesses = np.linspace(reach, 1 - reach, 401) - 0.5
    held = ndtr((seen[:, None] - guesses + reach) / noise) - ndtr((seen[:, None] - guesses - reach) / noise)
    reached = float(held.max(1).sum() * (seen[1] - seen[0]))
    assert exp(kappa) < reached <= success  # more than without the message, and no more than is proven


def test_the_ceiling_in_decibels_of_a_large_picture_hardly_moves_with_epsilon():
    """Of 784 even pixels: 12.3 dB are the volume of a ball, and each unit of ε is worth 0.011 dB."""
    known = [decibels(even_error(log(0.05) - epsilon, 784)) for epsilon in (0.0, 1.0, 8.0)]
    assert known[0] == pytest.approx(12.3, abs=0.05)
    assert np.subtract(known[1:], known[0]) == pytest.approx([20 / log(10) / 784, 160 / log(10) / 784])
