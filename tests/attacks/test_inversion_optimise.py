"""Optimiser, schedule, prior: each beside torch's own or a slow reference."""

from __future__ import annotations

import math

import pytest
import torch
from dpfl_audit.attacks.inversion.match.optimise import adam, lbfgs, milestones, step_size, with_prior
from dpfl_audit.attacks.inversion.match.prior import total_variation, tv_for_noise
from torch import Tensor


def images(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def bowl(goal: Tensor):
    """½‖x − goal‖² for each candidate."""
    return lambda x: ((x - goal).square().flatten(1).sum(1) / 2, x - goal)


@pytest.mark.parametrize("shape", ((2, 3, 3, 5, 4), (1, 1, 1, 1, 6), (2, 1, 3, 6, 1), (1, 2, 1, 1, 1)))
def test_total_variation_against_autograd(shape: tuple[int, ...]) -> None:
    x = images(*shape).requires_grad_()
    value, gradient = total_variation(x.detach())
    for t, candidate in enumerate(x):
        dx, dy = candidate.diff(dim=-1).abs(), candidate.diff(dim=-2).abs()
        wanted = sum(d.mean() for d in (dx, dy) if d.numel())
        if not isinstance(wanted, Tensor):
            assert value[t] == 0
            continue
        assert value[t].item() == pytest.approx(wanted.item(), rel=1e-12)
        slope = torch.autograd.grad(wanted, x, retain_graph=True)[0]
        assert torch.allclose(gradient[t], slope[t], rtol=1e-12, atol=1e-15)


def test_the_prior_weighs_every_candidate_by_its_own_tv() -> None:
    x = images(2, 1, 1, 3, 3)
    plain, slope = bowl(torch.zeros_like(x))(x)
    value, gradient = with_prior(bowl(torch.zeros_like(x)), torch.tensor([0.0, 0.5], dtype=x.dtype))(x)
    variation, ascent = total_variation(x)
    assert torch.allclose(value, plain + torch.tensor([0.0, 0.5]) * variation)
    assert torch.allclose(gradient[0], slope[0]) and torch.allclose(gradient[1], slope[1] + 0.5 * ascent[1])


def test_tv_grows_with_the_share_of_noise() -> None:
    assert tv_for_noise(0.0) == 0.01
    assert tv_for_noise(1.0) == pytest.approx(0.41)
    with pytest.raises(ValueError, match="noise_share is"):
        tv_for_noise(1.5)


@pytest.mark.few(1)
@pytest.mark.parametrize("iterations", (8, 300, 2500, 4800, 24_000))
def test_schedule_is_torchs_multi_step(iterations: int) -> None:
    """The milestones of the reference code, and the step size in force at every iteration."""
    assert milestones(iterations) == (int(iterations // 2.667), int(iterations // 1.6), int(iterations // 1.142))
    parameter = torch.zeros(1, requires_grad=True)
    optimiser = torch.optim.SGD([parameter], lr=0.1)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, list(milestones(iterations)), gamma=0.1)
    for i in range(iterations):
        assert step_size(0.1, i, iterations) == pytest.approx(optimiser.param_groups[0]["lr"], rel=1e-9)
        optimiser.step()
        schedule.step()


@pytest.mark.parametrize("signed", (True, False))
@pytest.mark.parametrize(("lr", "iterations"), ((0.1, 24), (0.7, 3)))
def test_adam_is_torchs_adam_in_a_box(signed: bool, lr: float, iterations: int) -> None:
    """The lowest value met is kept with its images: where steps are too long, that is where they began."""
    goal, start = images(2, 1, 1, 4, 4, seed=1) * 1.4 - 0.2, images(2, 1, 1, 4, 4)
    start = start if lr < 0.5 else (goal + 0.01).clamp(0, 1)
    x = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([x], lr=lr)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, list(milestones(iterations)), gamma=0.1)
    met = []
    for _ in range(iterations):
        value, gradient = bowl(goal)(x.detach())
        met.append((value, x.detach().clone()))
        x.grad = gradient.sign() if signed else gradient
        optimiser.step()
        schedule.step()
        with torch.no_grad():
            x.clamp_(0, 1)
    met.append((bowl(goal)(x.detach())[0], x.detach().clone()))
    best, lowest = adam(bowl(goal), start, iterations, lr, signed)
    for t in range(2):
        value, where = min(((v[t].item(), y[t]) for v, y in met), key=lambda pair: pair[0])
        assert lowest[t].item() == pytest.approx(value, rel=1e-9)
        assert torch.allclose(best[t], where, atol=1e-9) and (lr < 0.5 or value < met[-1][0][t])


@pytest.mark.parametrize("what", ("value", "gradient"))
def test_a_candidate_that_turns_non_finite_stops_and_the_others_go_on(what: str) -> None:
    goal, start, calls = images(2, 1, 1, 3, 3, seed=1), images(2, 1, 1, 3, 3), [0]

    def sick(x: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = bowl(goal)(x)
        calls[0] += 1
        if calls[0] > 4:
            (value if what == "value" else gradient)[0] = math.nan
        return value, gradient

    best, lowest = adam(sick, start, 30, 0.05)
    alone, wanted = adam(bowl(goal[1:]), start[1:], 30, 0.05)
    assert torch.allclose(best[1:], alone) and torch.allclose(lowest[1:], wanted)
    assert lowest[0].isfinite() and torch.allclose(bowl(goal)(best)[0][0], lowest[0])


def test_never_finite_returns_the_start_and_infinity() -> None:
    start = images(1, 1, 1, 3, 3)
    for solver in (lambda f: adam(f, start, 5, 0.1), lambda f: lbfgs(f, start, 5)):
        best, lowest = solver(lambda x: (torch.full((1,), math.nan, dtype=x.dtype), torch.zeros_like(x)))
        assert torch.equal(best, start) and lowest.item() == math.inf


def test_lbfgs_finds_the_boxed_minimum_of_a_bowl() -> None:
    goal = images(2, 1, 1, 4, 4, seed=1) * 2 - 0.5
    for t in range(2):
        best, lowest = lbfgs(bowl(goal[t : t + 1]), images(2, 1, 1, 4, 4), 20)
        assert best.shape == (2, 1, 1, 4, 4)
        assert torch.allclose(best, goal[t].clamp(0, 1).expand_as(best), atol=1e-6)
        assert torch.allclose(bowl(goal[t : t + 1])(best)[0], lowest)
