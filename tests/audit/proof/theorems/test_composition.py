"""Draws of different kinds, together."""

from __future__ import annotations

import pytest
from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon
from dpfl_audit.audit.proof.theorems import accountants
from dpfl_audit.audit.proof.theorems.accountants import BLOCKS, ORDERS, renyi
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


@pytest.mark.few(3)
@pytest.mark.parametrize("amplification", ["poisson", "poisson_pair"])
@pytest.mark.parametrize(("ratio", "count", "left_out"), [(3.0, 40, True), (0.5, 100, True), (0.02, 5, False)])
def test_orders_that_are_left_out_have_no_less_epsilon(amplification, ratio, count, left_out, monkeypatch) -> None:
    """The least ε of all orders, whether it is at a low, a middle or (with little of everything) a high one."""
    draws = ((Draw("gaussian", ratio, amplification, 10.0, 100, ratio), count),)
    asked, composed = [], accountants._composed
    monkeypatch.setattr(accountants, "_composed", lambda *of: asked.append(of[1]) or composed(*of))
    found = epsilon(draws, 1e-5, use_pld=False)[0]
    assert (len(asked) < len(BLOCKS)) == left_out
    assert found == compute_epsilon(ORDERS, renyi(draws), 1e-5)[0]
