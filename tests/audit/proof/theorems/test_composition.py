"""Draws of different kinds, together."""

from __future__ import annotations

from dpfl_audit.audit.proof.theorems.composition import epsilon
from dpfl_audit.audit.proof.theorems.draw import Draw


def test_responses_beside_other_noise_are_not_forgotten() -> None:
    """Of a sum of draws none may get lost: by PLD and by RDP no less than each alone."""
    response, laplace = (Draw("response", 1.0), 5), (Draw("laplace", 0.5), 3)
    sampled = (Draw("gaussian", 1.0, "poisson", 10.0, 100.0, 1.0), 4)
    for others in ((laplace,), (sampled,), (laplace, sampled)):
        both = epsilon(tuple(sorted((response, *others))), 1e-6)[0]
        alone = epsilon(tuple(sorted(others)), 1e-6)[0]
        assert epsilon((response,), 1e-6)[0] < both and alone < both
        assert both <= (epsilon((response,), 5e-7)[0] + epsilon(tuple(sorted(others)), 5e-7)[0]) * (
            1 + 1e-4
        )  # the grid
