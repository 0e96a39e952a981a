"""Local training simulated on images: the client's own update, what no order changes, and pictures that get clearer."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.make import make_inversions
from dpfl_audit.attacks.inversion.match.case import Case
from dpfl_audit.attacks.inversion.match.objective import Matching
from dpfl_audit.attacks.inversion.match.optimise import Objective
from dpfl_audit.attacks.inversion.match.solution import Solution
from dpfl_audit.attacks.inversion.match.span import InputSpan
from dpfl_audit.attacks.inversion.presets.published import PRESETS
from dpfl_audit.attacks.inversion.read.local_training import PENALTIES, Recipe
from dpfl_audit.attacks.inversion.read.target import Target, one_round
from dpfl_audit.attacks.inversion.settings import Name
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.attacks.inversion.strategies.search import PixelDescent
from dpfl_audit.attacks.inversion.strategies.simulated import (
    Simulated,
    can_simulate,
    cut_short,
    disorder,
    lengthened,
    orders,
    with_disorder,
)
from dpfl_audit.attacks.inversion.strategies.simulating import averaged_epochs, nearest_update
from dpfl_audit.attacks.inversion.strategies.strategy import Found
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data import photos
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import LocalTraining, Proximal, StepClip
from messages import client_sends, facts_of, flat, gradient, knowing, view_of
from torch import Tensor, nn

N, SHAPE = 4, (3, 16, 16)
LAYERS = [
    ["Conv2d", {"in_channels": 3, "out_channels": 8, "kernel_size": 3, "padding": 1}],
    ["ReLU", {}],
    ["AvgPool2d", {"kernel_size": 2}],
    ["Flatten", {}],
    ["Linear", {"in_features": 512, "out_features": 32}],
    ["ReLU", {}],
    ["Linear", {"in_features": 32, "out_features": 10}],
]


def case_of(module, target, settings=None) -> Case:
    return Case(module, Layout.of(module), target, target.labels, SHAPE, settings or Inversion(), 0)


@pytest.fixture(scope="module")
def data() -> tuple[Tensor, Tensor]:
    """(N, 3, 16, 16) and labels."""
    made = photos.load(classes=10, samples=20, seed=0)
    return torch.nn.functional.avg_pool2d(made.inputs[:N].float(), 2), made.targets[:N]


def network() -> nn.Module:
    options = {"layers": LAYERS}
    return models.build("layers", input_shape=SHAPE, classes=10, mean=[0.5] * 3, std=[0.25] * 3, seed=0, **options)


def trained(
    module: nn.Module, data: tuple[Tensor, Tensor], optimiser: str = "sgd", lr: float = 0.05, epochs: int = 3, **more
) -> tuple[Target, Tensor]:
    """A client's message of batches of two, read as the attack reads it; and its batches, (steps, 2)."""
    training = LocalTraining(optimiser=optimiser, lr=lr, batch_size=2, epochs=epochs)
    sent, batches = client_sends(module, training, data, torch.arange(N))
    if "clip_norm" in more:
        sent = sent * more["clip_norm"] / sent.norm()
    view = view_of(module, sent, facts_of(training, **more), N, SHAPE, 10)
    (aim,) = one_round(view, knowing(u=data[1].sort().values))
    return aim.target, batches


def objective(module: nn.Module, target: Target, labels: Tensor, name: Name) -> Simulated:
    assert target.recipe is not None
    if not target.recipe.linear and target.update is not None:
        target = replace(target, gradient=-target.update)
    return Simulated(module, Layout.of(module), target, labels, Matching.of(name, [target]))


# --- the simulation ---


def test_a_clip_stands_behind_the_simulation(data) -> None:
    module = network()
    whole, _ = trained(module, data)
    assert whole.update is not None
    target, batches = trained(module, data, clip_norm=0.3 * float(whole.update.norm()))
    made = objective(module, target, data[1][batches.view(3, N)], "euclidean")
    assert made(data[0][batches.flatten()][None])[0] < 1e-9
    unclipped = objective(module, replace(target, clip_norm=None), data[1][batches.view(3, N)], "euclidean")
    assert unclipped(data[0][batches.flatten()][None])[0] > 1


@pytest.mark.parametrize("optimiser", ["sgd", "momentum", "adam", "rmsprop"])
@pytest.mark.parametrize("name", ["euclidean", "absolute", "cosine"])
def test_its_gradient_is_the_slope(optimiser: str, name: Name) -> None:
    """Central differences in float64, on a smooth network."""
    rng = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    weights = flat(module)
    recipe = Recipe(optimiser, 0.1, (2, 1, 2, 1), 2)
    target = Target("t", weights, torch.randn(len(weights), generator=rng).double(), torch.zeros(3).long(), 3)
    target = replace(target, recipe=recipe)
    made: Objective = with_disorder(objective(module, target, torch.tensor([[0, 1, 2], [2, 0, 1]]), name), 2, 3.0)
    images = torch.rand(1, 6, 1, 2, 3, generator=rng).double()
    along = torch.randn(images.shape, generator=rng).double()
    _, slope = made(images)
    high, low = (made(images + step * along)[0].item() for step in (1e-6, -1e-6))
    assert (slope * along).sum().item() == pytest.approx((high - low) / 2e-6, rel=1e-3)


@pytest.mark.parametrize("optimiser", ["sgd", "momentum"])
@pytest.mark.parametrize("name", ["euclidean", "euclidean-naive", "cosine"])
@pytest.mark.parametrize("besides", [False, True], ids=["plain", "factor, rates and a proximal term"])
def test_low_rank_steps_are_the_unrolled_ones(optimiser: str, name: Name, besides: bool) -> None:
    """With an active clip tensor by tensor, batches of unequal sizes, and layers with a bias and without."""
    rng = torch.Generator().manual_seed(1)
    torch.manual_seed(1)
    layers = [nn.Linear(6, 5), nn.LeakyReLU(0.2), nn.Linear(5, 4, bias=False), nn.Tanh(), nn.Linear(4, 3)]
    module = nn.Sequential(models.Normalise([0.4], [0.3], (1, 2, 3)), nn.Flatten(), *layers).double()
    weights = flat(module)
    target = Target("t", weights, torch.randn(len(weights), generator=rng).double(), torch.zeros(3).long(), 3, 1e-2)
    more = {"penalties": (Proximal(2.0),), "factor": 0.6, "rates": (1.0, 0.5, 2.0, 0.7)} if besides else {}
    recipe = Recipe(optimiser, 0.1, (2, 1, 2, 1), 2, momentum=0.7, **more)
    target, labels = replace(target, per_layer=True, recipe=recipe), torch.tensor([[0, 1, 2], [2, 0, 1]])
    made = objective(module, target, labels, name)
    assert made.ghost is not None
    for other in ({"left_out": (PENALTIES,)}, {"step_clip": StepClip("gradient", 1.0)}):
        assert objective(module, replace(target, recipe=replace(recipe, **other)), labels, name).ghost is None
    images = torch.rand(1, 6, 1, 2, 3, generator=rng).double()
    value, slope = made(images)
    made.ghost = None
    wanted, whole = made(images)
    assert value.item() == pytest.approx(wanted.item(), rel=1e-9)
    assert (slope - whole).norm() <= 1e-9 * whole.norm()


# --- what no order changes ---


def test_the_prior_is_the_same_in_every_order_and_nothing_where_epochs_hold_the_same_images() -> None:
    rng = torch.Generator().manual_seed(0)
    images = torch.rand(3, N, *SHAPE, generator=rng)
    value, slope = disorder(images)
    shuffled = torch.stack([epoch[torch.randperm(N, generator=rng)] for epoch in images])
    torch.testing.assert_close(disorder(shuffled)[0], value)
    pairs = [(a.mean(0) - b.mean(0)).square().mean() for a in images for b in images]
    torch.testing.assert_close(value, torch.stack(pairs).mean())
    images.requires_grad_()
    (expected,) = torch.autograd.grad(disorder(images)[0], images)
    torch.testing.assert_close(slope, expected)
    same = images.detach()[:1].expand(3, -1, -1, -1, -1)
    own = orders(0, "a", 3, N)
    assert disorder(torch.stack([epoch[order] for epoch, order in zip(same, own)]))[0] < 1e-12


def test_epochs_are_matched_within_labels_and_averaged() -> None:
    rng = torch.Generator().manual_seed(0)
    images, labels = torch.rand(6, *SHAPE, generator=rng), torch.tensor([0, 0, 1, 2, 2, 2])
    own = orders(0, "a", 4, 6)
    assert all(order.sort().values.tolist() == [*range(6)] for order in own) and len({*map(str, own.tolist())}) > 1
    noise = 0.01 * torch.randn(4, 6, *SHAPE, generator=rng)
    found, of = averaged_epochs(images[own] + noise, labels[own])
    assert torch.equal(of, labels[own[0]])
    error = (found - images[own[0]]).square().mean().sqrt()
    assert error < 0.006 < noise.std()  # .01 / √4


# --- the span of a later layer ---


def test_a_later_layer_s_inputs_lie_in_the_span_of_its_update(data) -> None:
    module = network()
    target, _ = trained(module, data, lr=1e-3, epochs=1)
    span = InputSpan.of(module, Layout.of(module), target)
    assert span is not None and span.layer.endswith("5")
    others = torch.rand(N, *SHAPE, generator=torch.Generator().manual_seed(0))
    assert span.distance(data[0]).max() < 0.02 < 0.05 < span.distance(others).min()
    noisy = InputSpan.of(module, Layout.of(module), replace(target, noise_std=1.0))
    assert noisy is not None and noisy.outside.min() > 0.9
    assert InputSpan.of(module, Layout.of(module), replace(target, count=32, labels=None)) is None


# --- the attack ---


def test_training_that_is_not_of_whole_epochs_is_not_simulated(data) -> None:
    """Nor that of a client who draws its batches in secret and trains on some of its records."""
    target, _ = trained(network(), data)
    assert can_simulate(target) and not can_simulate(replace(target, count=3, labels=target.labels[:3]))
    for recipe in (None, Recipe("sgd", 0.1, (2, 2, 2), None), Recipe("sgd", 0.1, (4,), 1)):
        assert not can_simulate(replace(target, recipe=recipe))
    with pytest.raises(ValueError, match="only local training of whole epochs"):
        objective(network(), target, data[1][None], "cosine")


def test_the_presets_say_what_they_simulate(data) -> None:
    (attack,) = make_inversions({"preset": "fedavg-dimitrov"}, False, "cpu")
    assert isinstance(attack, Inversion) and attack.simulated > 0 and attack.span == 0
    assert not any(p.settings.simulated for name, p in PRESETS.items() if not name.startswith("fedavg"))
    for bad in (
        {"simulated": -1},
        {"along": 2.0},
        {"span": -1.0},
        {"simulated": 3, "optimiser": "lbfgs"},
        {"reorder": True},
    ):
        with pytest.raises(ValueError, match="simulated"):
            make_inversions(bad, False, "cpu")


def test_the_length_before_a_clip_is_found_by_training_on_the_images(data):
    module = network().eval()
    whole, _ = trained(module, data)
    cut, _ = trained(module, data, clip_norm=0.25 * whole.update.norm().item())
    assert cut_short(cut) and not cut_short(whole)
    longer, times = lengthened(case_of(module, cut), Solution(data[0], data[0], data[1], 0.0))
    assert 3.7 < times < 4.3 and longer.clip_norm is None
    torch.testing.assert_close(longer.gradient, whole.gradient, rtol=0.1, atol=1e-4)
    unknown = replace(cut, clip_norm=None, scale_known=False)
    assert cut_short(unknown)
    _, again = lengthened(case_of(module, unknown), Solution(data[0], data[0], data[1], 0.0))
    assert again == pytest.approx(times, rel=1e-3)


def test_no_length_is_asked_where_none_was_lost_or_none_can_be_told(data):
    module = network().eval()
    cut, _ = trained(module, data, clip_norm=0.01)
    energy = cut.gradient.norm().item() / len(cut.gradient) ** 0.5
    assert cut_short(cut)
    assert not cut_short(replace(cut, clip_norm=2 * cut.gradient.norm().item())), "the clip did not act"
    assert not cut_short(replace(cut, per_layer=True)) and not cut_short(replace(cut, clip_order=1))
    assert not cut_short(replace(cut, noise_std=0.9 * energy)), "mostly noise"
    assert not cut_short(replace(cut, recipe=Recipe("sgd", 0.05, (4,), 1))), "one step"
    assert not cut_short(trained(module, data, "adam", 1e-3, clip_norm=0.01)[0])


@pytest.mark.full
def test_a_clipped_update_is_read_at_its_length_and_says_so(data):
    module = network().eval()
    whole, _ = trained(module, data)
    cut, _ = trained(module, data, clip_norm=0.25 * whole.update.norm().item())
    settings = Inversion(objective="absolute", iterations=30, tv=0.1, along=0.5, span=5.0, simulated=10, reorder=True)
    ticks: list[tuple[int, int]] = []
    one = solve(module, [cut], SHAPE, settings, 0, lambda done, total, /, words="": ticks.append((done, total)))[0]
    assert one.longer is not None and one.longer > 1.5
    assert ticks == sorted(ticks) and ticks[-1][0] <= ticks[-1][1]
    beside = solve(module, [whole, cut], SHAPE, settings, 0)
    assert torch.equal(beside[1].images, one.images) and beside[0].longer is None
    for other in (replace(settings, along=0.0), replace(settings, simulated=0, reorder=False)):
        assert solve(module, [cut], SHAPE, other, 0)[0].longer is None


@pytest.mark.parametrize("readings", [1, 2])
def test_progress_ends_where_a_reading_leaves_nothing_to_simulate(data, readings, monkeypatch):
    """The first one, or the one on the way."""
    module = network().eval()
    target, _ = trained(module, data)
    calls = []

    def read(self, cases, found, work) -> list[Found]:
        calls.append(cases)
        solution = Solution(data[0].float(), data[0].float(), data[1], 0.0, determined=len(calls) == readings)
        return [replace(each, solution=solution) for each in found]

    monkeypatch.setattr(PixelDescent, "solve", read)
    ticks: list[tuple[int, int]] = []
    settings = Inversion(iterations=2, along=0.5, simulated=2)
    found = solve(module, [target], SHAPE, settings, 0, lambda done, total, /, words="": ticks.append((done, total)))
    assert found[0].determined and len(calls) == readings and ticks[-1] == (1000, 1000)


def test_of_two_readings_the_one_is_kept_whose_training_is_nearer(data):
    module = network().eval()
    target, _ = trained(module, data)
    settings = Inversion(iterations=10)
    pictures = data[0].float(), torch.rand(N, *SHAPE), torch.full((N, *SHAPE), torch.nan)  # the last one diverges
    truth, far, diverged = (Solution(x, x, data[1], 0.0) for x in pictures)
    for guesses in ([truth, far], [far, truth], [diverged, truth], [truth, diverged]):
        kept = nearest_update(case_of(module, target, settings), guesses)
        assert torch.equal(kept.images, truth.images) and kept.loss < float("inf")


def test_a_span_counts_less_the_more_of_it_is_noise(data):
    module = network().eval()
    target, _ = trained(module, data)
    size = target.gradient.norm().item() / len(target.gradient) ** 0.5
    trusts = [
        InputSpan.of(module, Layout.of(module), replace(target, noise_std=noise * size)).trust
        for noise in (0.0, 0.03, 0.3, 30.0)
    ]
    assert trusts[0] == 1 and trusts == sorted(trusts, reverse=True) and trusts[3] < 0.01


@pytest.mark.parametrize("sizes", [(2, 2), (2, 1)])
def test_a_smooth_network_is_carried_on_where_training_is_to_be_simulated(data, sizes):
    """Also where it cannot be, as of several messages together, or of batches that are no whole epochs."""
    layers = [[name if name != "ReLU" else "Sigmoid", options] for name, options in LAYERS]
    module = models.build(
        "layers", input_shape=SHAPE, classes=10, mean=[0.5] * 3, std=[0.25] * 3, seed=0, layers=layers
    ).eval()
    target, _ = trained(module, data, epochs=1)
    target = replace(target, recipe=Recipe("sgd", 0.05, sizes, 1 if sum(sizes) == N else None))
    settings = Inversion(iterations=2, along=0.5, simulated=2, reorder=True, features=1e-3)
    several = replace(target, others=(replace(target, key="v"),))
    for one in (target, several):
        assert solve(module, [one], SHAPE, settings, 0)[0].images.isfinite().all()


def test_the_update_of_one_step_is_read_before_it_whatever_is_asked_of_longer_ones(data):
    """It is the gradient there, and nowhere else; also beside messages of several steps, and learning the place."""
    module = network().eval()
    several, _ = trained(module, data, lr=1.0, epochs=1)
    assert several.recipe is not None and several.update is not None
    own, recipe = gradient(module, flat(module), *data), Recipe("sgd", 1.0, (N,), 1)
    one = replace(several, key="one", gradient=own, update=-own, recipe=recipe)
    before = solve(module, [one], SHAPE, Inversion(iterations=8), 0)[0]
    for more in ({"along": 0.5}, {"along": 0.5, "simulated": 4, "reorder": True}, {"along": 0.5, "along_rate": 0.1}):
        for beside in ([], [several]):
            found = solve(module, [one, *beside], SHAPE, Inversion(iterations=8, **more), 0)[0]
            assert (found.images - before.images).abs().mean() < 0.01 and found.place is None
            assert found.loss == pytest.approx(before.loss, rel=1e-3)
