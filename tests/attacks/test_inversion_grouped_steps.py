"""Several messages' local training simulated together: what each comes to alone, at every network that is taken."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.engines import grouped_steps as groups
from dpfl_audit.attacks.inversion.engines.convolved import open_stages
from dpfl_audit.attacks.inversion.engines.grouped_steps import GroupedSteps, alike, grouped_steps
from dpfl_audit.attacks.inversion.match.case import Case
from dpfl_audit.attacks.inversion.match.objective import Matching
from dpfl_audit.attacks.inversion.match.solution import Solution, start_images
from dpfl_audit.attacks.inversion.read.local_steps import LocalSteps
from dpfl_audit.attacks.inversion.read.local_training import Recipe
from dpfl_audit.attacks.inversion.read.sparse import Sparse
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.attacks.inversion.settings import Name
from dpfl_audit.attacks.inversion.strategies.simulated import Simulated
from dpfl_audit.attacks.inversion.strategies.simulating import simulate
from dpfl_audit.defenses import models
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import Proximal, StepClip
from tiers import quick
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

SHAPE, N, CLASSES, T = (3, 9, 8), 3, 5, 3
RECIPE = Recipe("sgd", 0.1, (2, 1, 2, 1), 2)
PLAIN = [nn.Conv2d(3, 6, 3, 2, padding=1), nn.Sigmoid(), nn.Flatten(), nn.Linear(120, CLASSES)]
NETWORKS: dict[str, list[nn.Module]] = {
    "strides, no bias": [
        nn.Conv2d(3, 4, 5, 2, padding=2, bias=False),
        nn.Sigmoid(),
        nn.Conv2d(4, 18, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(18, 5, (2, 3), dilation=(1, 2), padding=(0, 1)),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(40, CLASSES),
    ],
    "hidden layer": [*PLAIN[:3], nn.Linear(120, 7), nn.Tanh(), nn.Linear(7, CLASSES, bias=False)],
    "mean pooling": [nn.Conv2d(3, 5, 3, padding=1), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(80, CLASSES)],
    "pooled twice": [
        nn.Conv2d(3, 5, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(5, 4, 2),
        nn.MaxPool2d((2, 1)),
        nn.Flatten(),
        nn.Linear(8, CLASSES),
    ],
}
WIDE = [nn.Conv2d(3, 16, 4, 2, padding=1), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(64, CLASSES)]  # fast
EXTRAS = {
    "momentum": {"optimiser": "momentum", "momentum": 0.7},
    "rates": {"optimiser": "momentum", "rates": (1.0, 0.5, 2.0, 0.7)},
    "adam": {"optimiser": "adam", "lr": 0.01},
    "rmsprop": {"optimiser": "rmsprop", "lr": 0.01},
    "proximal": {"penalties": (Proximal(2.0),), "factor": 0.6},
    "gradient clip": {"step_clip": StepClip("gradient", 0.5)},
    "gradient clip, L1": {"step_clip": StepClip("gradient", 3.0, 1), "optimiser": "momentum"},
    "weights clip": {"step_clip": StepClip("weights", 2.0), "penalties": (Proximal(0.3),)},
}


def network(layers: list[nn.Module], seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    module = nn.Sequential(models.Normalise([0.4, 0.5, 0.6], [0.3, 0.2, 0.25], SHAPE), *copy.deepcopy(layers))
    for parameter in module.parameters():
        nn.init.uniform_(parameter, -0.4, 0.4)
    return module.eval()


def targets_of(module: nn.Module, recipe: Recipe = RECIPE, **more) -> list[Target]:
    """Of messages at weights of their own."""
    rng, made = torch.Generator().manual_seed(1), []
    weights = torch.cat([p.detach().flatten() for p in module.parameters()])
    for k in range(T):
        at = weights + 0.1 * torch.randn(len(weights), generator=rng).to(weights)
        seen = 0.1 * torch.randn(len(weights), generator=rng).to(weights)
        target = Target(f"t{k}", at, seen, torch.arange(N) % CLASSES, N, recipe=recipe, update=-seen)
        clip = {"clip_norm": more["clip_norm"] * (k + 1)} if "clip_norm" in more else {}
        made.append(replace(target, **{**more, **clip}))
    return made


def both(module: nn.Module, targets: list[Target], name: Name, dtype: torch.dtype) -> list[tuple[Tensor, ...]]:
    """Value and gradient together, and one by one."""
    rng, module = torch.Generator().manual_seed(2), module.to(dtype)
    layout, opened = Layout.of(module), open_stages(module, SHAPE, pools=True)
    targets = [replace(t, weights=t.weights.to(dtype), gradient=t.gradient.to(dtype)) for t in targets]
    images = torch.rand(T, 2 * N, *SHAPE, generator=rng, dtype=torch.float64).to(dtype)
    labels = torch.randint(0, CLASSES, (T, 2, N), generator=rng)
    assert opened is not None
    made = GroupedSteps(*opened, layout, targets, Matching.of(name, targets))
    alone = [Simulated(module, layout, t, y, Matching.of(name, [t])) for t, y in zip(targets, labels)]
    assert all(one.ghost is None for one in alone)
    each = [one(x[None]) for one, x in zip(alone, images)]
    return [made(images, labels.flatten(1)), tuple(torch.cat(parts) for parts in zip(*each))]


def assert_equal(found: list[tuple[Tensor, ...]], rel: float) -> None:
    (value, slope), (wanted, whole) = found
    assert ((value - wanted).abs() <= rel * wanted.abs()).all()
    for one, other in zip(slope, whole):
        assert other.norm() > 0 and (one - other).norm() <= rel * other.norm()


# --- the objective ---


@pytest.mark.parametrize("name", ["cosine", "euclidean", "absolute"])
@pytest.mark.parametrize("layers", NETWORKS)
def test_each_is_what_it_is_alone(layers: str, name: Name) -> None:
    module = network(NETWORKS[layers])
    assert_equal(both(module, targets_of(module), name, torch.float64), 1e-9)


@pytest.mark.parametrize("extra", EXTRAS)
def test_with_every_optimiser_and_what_steps_have_besides(extra: str) -> None:
    recipe, module = replace(RECIPE, **EXTRAS[extra]), network(PLAIN)
    assert_equal(both(module, targets_of(module, recipe), "euclidean", torch.float64), 1e-9)


@pytest.mark.parametrize(
    "more",
    [
        {"clip_norm": 0.2},
        {"clip_norm": 0.05, "per_layer": True},
        {"clip_norm": 1.0, "clip_order": 1},
        {"scale_known": False},
        {"scale_known": False, "per_layer": True},
    ],
)
def test_behind_every_clip(more: dict) -> None:
    module = network(PLAIN)
    assert_equal(both(module, targets_of(module, **more), "euclidean", torch.float64), 1e-9)


@pytest.mark.parametrize("layers", NETWORKS)
def test_in_single_precision(layers: str) -> None:
    module = network(NETWORKS[layers])
    assert_equal(both(module, targets_of(module), "cosine", torch.float32), 1e-4)


def test_what_is_not_a_stack_is_not_taken() -> None:
    for layers in (
        [nn.Conv2d(3, 4, 3), nn.GELU(), nn.Flatten(), nn.Linear(168, CLASSES)],
        [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AvgPool2d(2, padding=1), nn.Flatten(), nn.Linear(64, CLASSES)],
        [nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(36, CLASSES)],
        [nn.Flatten(), nn.Linear(216, CLASSES)],
    ):
        assert open_stages(nn.Sequential(*layers), SHAPE, pools=True) is None
    pooling = nn.Sequential(*NETWORKS["mean pooling"])
    assert open_stages(pooling, SHAPE) is None and open_stages(pooling, SHAPE, pools=True) is not None
    module = network(PLAIN)
    own, opened = targets_of(module), open_stages(module, SHAPE)
    other = replace(own[1], recipe=replace(RECIPE, lr=0.2))
    assert opened is not None
    with pytest.raises(ValueError, match="different recipes"):
        GroupedSteps(*opened, Layout.of(module), [own[0], other], Matching.of("cosine", own[:2]))


# --- together ---


def sent(layers: list[nn.Module], recipe: Recipe) -> tuple[nn.Module, list[Target], list[Tensor]]:
    """Updates of clients that trained from the same weights, and their images."""
    module = network(layers)
    rng, layout, made, truth = torch.Generator().manual_seed(4), Layout.of(module), [], []
    start = torch.cat([p.detach().flatten() for p in module.parameters()])
    for k in range(T):
        images, labels = torch.rand(N, *SHAPE, generator=rng), torch.randperm(CLASSES, generator=rng)[:N]
        weights = start
        order = torch.cat([torch.randperm(N, generator=rng) for _ in range(recipe.epochs or 0)])
        for rows in order.split(list(recipe.sizes)):
            at = {name: w.detach().requires_grad_() for name, w in layout.split(weights).items()}
            loss = F.cross_entropy(functional_call(module, at, (images[rows],)), labels[rows])
            gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(at.values()))])
            weights = weights - recipe.lr * gradient
        update = weights - start
        made.append(Target(f"u{k}", start, -update / recipe.scale, labels, N, recipe=recipe, update=update))
        truth.append(images)
    return module, made, truth


def guesses(targets: list[Target]) -> list[Solution]:
    starts = [start_images(0, t.key, 0, N, SHAPE) for t in targets]
    return [Solution(x, x, t.labels, float("inf")) for x, t in zip(starts, targets) if t.labels is not None]


@pytest.mark.parametrize("reorder", quick([False, True], 1))
def test_targets_together_come_to_what_each_does_alone(reorder: bool, monkeypatch) -> None:
    """The same orders, the same steps; also so many at a time as fit, and as before, one after the other."""
    module, targets, _ = sent(WIDE, Recipe("sgd", 0.2, (2, 1, 2, 1), 2))
    settings = Inversion(objective="euclidean", simulated=3, reorder=reorder, tv=0.001, span=0.1)
    layout, begun = Layout.of(module), guesses(targets)
    cases = [Case(module, layout, t, t.labels, SHAPE, settings, 0) for t in targets]
    ticks: list[int] = []
    together = simulate(cases, begun, lambda: ticks.append(1))
    assert len(ticks) == 3 * T
    again = simulate(cases, begun, lambda: None)
    assert all(torch.equal(one.images, other.images) for one, other in zip(together, again))
    for k, one in enumerate(together):
        (alone,) = simulate(cases[k : k + 1], begun[k : k + 1], lambda: None)
        assert (one.images - alone.images).abs().mean() < 2e-3 and one.loss == pytest.approx(alone.loss, rel=2e-2)
    monkeypatch.setattr(groups, "CHUNK_NUMBERS", 1)
    assert len(grouped_steps(module, layout, targets, "euclidean", SHAPE)) == T
    for other, one in zip(simulate(cases, begun, lambda: None), together):
        assert (one.images - other.images).abs().mean() < 2e-3
    monkeypatch.setattr(groups, "runs_fast", lambda *_: False)
    assert grouped_steps(module, layout, targets, "euclidean", SHAPE) == []
    for other, one in zip(simulate(cases, begun, lambda: None), together):
        assert (one.images - other.images).abs().mean() < 2e-3


def test_what_differs_is_simulated_apart() -> None:
    module, targets, _ = sent(WIDE, RECIPE)
    a, b, c = targets

    def apart(*them: Target) -> list[list[int]]:
        return alike(module, them, SHAPE)

    noisy = replace(b, noise_std=1.0, weights=b.weights + 1, clip_norm=3.0)
    assert apart(a, noisy, c) == [[0, 1, 2]]
    assert apart(a, replace(b, recipe=replace(RECIPE, lr=0.2)), c) == [[0, 2], [1]]
    assert apart(a, replace(b, scale_known=False), replace(c, per_layer=True)) == [[0], [1], [2]]
    some = replace(b, sparse=Sparse(b.gradient > 0, 0.1))
    assert apart(a, some, some) == [[0], [1], [2]]
    double = replace(a, weights=a.weights.double(), gradient=a.gradient.double())
    assert apart(double, double) == [[0], [1]]
    assert alike(nn.Sequential(nn.Flatten(), nn.Linear(216, CLASSES)), targets, SHAPE) == [[0], [1], [2]]


@pytest.mark.parametrize("clip", [None, StepClip("gradient", 0.5), StepClip("weights", 2.0)])
@pytest.mark.parametrize("optimiser", ["sgd", "momentum", "adam", "rmsprop"])
def test_so_many_fit_as_what_their_steps_keep_says(optimiser: str, clip: StepClip | None, monkeypatch) -> None:
    """Of layers whose groups are filled up with zeros, too."""
    kept: list[Tensor] = []
    plain, forward = LocalSteps.backward, LocalSteps.forward

    def stepped(walk: LocalSteps, gradient: Tensor) -> Tensor:
        kept.append(walk.weights)  # by the step's layers
        return forward(walk, gradient)

    def counted(walk: LocalSteps):
        kept.extend(x for step in (*walk.kept, *walk.walk.kept) for x in step if x is not None)
        return plain(walk)

    monkeypatch.setattr(LocalSteps, "forward", stepped)
    monkeypatch.setattr(LocalSteps, "backward", counted)
    module, recipe = network(PLAIN), replace(RECIPE, optimiser=optimiser, lr=0.01, step_clip=clip)
    targets = targets_of(module, recipe)
    opened = open_stages(module, SHAPE)
    assert opened is not None
    made = GroupedSteps(*opened, Layout.of(module), targets, Matching.of("cosine", targets))
    made(torch.rand(T, 2 * N, *SHAPE), torch.zeros(T, 2 * N, dtype=torch.long))
    held = {x.data_ptr(): x.numel() for x in kept}
    assert 0 < sum(held.values()) <= T * groups._numbers(opened[0], targets[0])
