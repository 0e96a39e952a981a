"""All implementations of the matching objectives against one slow reference: full gradients, double backward."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from dpfl_audit.attacks.inversion.engines import convolved
from dpfl_audit.attacks.inversion.engines.candidate_products import Messages, ThinLinear
from dpfl_audit.attacks.inversion.engines.convolved import Convolved, open_stages
from dpfl_audit.attacks.inversion.engines.double_backward import DoubleBackward
from dpfl_audit.attacks.inversion.engines.ghost import Ghost
from dpfl_audit.attacks.inversion.match.evaluate import evaluator
from dpfl_audit.attacks.inversion.match.objective import Matching, Products
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.defenses import models
from dpfl_audit.defenses.chain import open_chain
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.steps.clip import clip_to
from scipy.optimize import minimize_scalar
from torch import Tensor, nn
from torch.nn import functional as F

SHAPE, CLASSES, N = (3, 4, 4), 7, 5
OBJECTIVES = ("cosine", "euclidean", "euclidean-naive")


def network(
    activation: str = "relu", dtype: torch.dtype = torch.float64, widths: tuple[int, ...] = (20, 15)
) -> nn.Module:
    mean, std = (0.4, 0.45, 0.5), (0.2, 0.25, 0.3)
    return models.build(
        "mlp", input_shape=SHAPE, classes=CLASSES, mean=mean, std=std, seed=3, widths=[*widths], activation=activation
    ).to(dtype)


def gradients(module: nn.Module, images: Tensor, labels: Tensor, graph: bool = False) -> list[Tensor]:
    loss = F.cross_entropy(module(images), labels)
    return list(torch.autograd.grad(loss, list(module.parameters()), create_graph=graph))


def flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([t.flatten() for t in tensors])


def make_targets(
    module: nn.Module,
    clip: float | None,
    order: int = 2,
    per_layer: bool = False,
    scale_known: bool = True,
    count: int = 2,
):
    """Targets and labels; `clip` is a share of the (smallest) norm, so that some dummy gradients are clipped."""
    rng = torch.Generator().manual_seed(0)
    weights = flat([p.detach() for p in module.parameters()])
    labels = torch.randint(0, CLASSES, (count, N), generator=rng)
    targets = []
    for k in range(count):
        g = gradients(module, torch.rand(N, *SHAPE, generator=rng, dtype=weights.dtype), labels[k])
        norm = torch.stack([t.norm(p=order) for t in g]).median() if per_layer else flat(g).norm(p=order)
        bound = None if clip is None else clip * norm.item()
        targets.append(Target(str(k), weights, flat(g), labels[k], N, bound, order, per_layer, scale_known))
    return targets, labels


def reference(name: str, module: nn.Module, target: Target, images: Tensor) -> tuple[Tensor, Tensor]:
    """The objective's definition, written out on full gradients, and its gradient by double backward."""
    x = images.clone().requires_grad_()
    g = gradients(module, x, target.labels, graph=True)
    observed = list(Layout.of(module).split(target.gradient).values())
    if name == "cosine":
        loss = 1 - F.cosine_similarity(flat(g), target.gradient, dim=0)
    else:
        groups = list(zip(g, observed)) if target.per_layer else [(flat(g), target.gradient)]
        if name == "euclidean" and not target.scale_known:
            dots = [(a * b).sum() for a, b in groups]  # what points away is further off than what is at right angles
            parts = [b.square().sum() - d * d.abs() / a.square().sum() for d, (a, b) in zip(dots, groups)]
            loss = sum(parts) / target.gradient.square().sum()
            return loss.detach(), torch.autograd.grad(loss, x)[0]
        elif name == "euclidean" and target.clip_norm is not None:
            pairs = [(a * (target.clip_norm / a.norm(p=target.clip_order)).clamp_max(1), b) for a, b in groups]
        else:
            pairs = groups
        loss = sum((a - b).square().sum() for a, b in pairs) / target.gradient.square().sum()
    return loss.detach(), torch.autograd.grad(loss, x)[0]


def check(
    implementation, name: str, module: nn.Module, targets: list[Target], labels: Tensor, repeat: int, tolerance: float
) -> None:
    layout, matching = Layout.of(module), Matching.of(name, targets, repeat)
    first = open_chain(module) if implementation is Ghost else module
    evaluate = implementation(first, layout, targets, labels, repeat, matching)
    rng = torch.Generator().manual_seed(1)
    images = torch.rand(len(targets) * repeat, N, *SHAPE, generator=rng, dtype=targets[0].weights.dtype)
    loss, gradient = evaluate(images)
    for t, x in enumerate(images):
        wanted, slope = reference(name, module, targets[t // repeat], x)
        assert abs(loss[t] - wanted) <= tolerance
        assert (gradient[t] - slope).norm() <= tolerance * slope.norm()


@pytest.mark.parametrize("implementation", (Ghost, DoubleBackward))
@pytest.mark.parametrize("activation", ("relu", "leaky_relu", "sigmoid", "tanh", "linear"))
@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_activation_float64(implementation, activation: str, name: str) -> None:
    module = network(activation)
    targets, labels = make_targets(module, clip=0.7)
    check(implementation, name, module, targets[:1], labels[:1], 1, 1e-9)


@pytest.mark.few(20)
@pytest.mark.parametrize("implementation", (Ghost, DoubleBackward))
@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("clip", (None, 0.7, 1.5))
@pytest.mark.parametrize("per_layer", (False, True))
@pytest.mark.parametrize("scale_known", (True, False))
def test_every_clip_and_scale_float64(
    implementation, name: str, clip: float | None, per_layer: bool, scale_known: bool
) -> None:
    module = network("tanh")
    targets, labels = make_targets(module, clip, per_layer=per_layer, scale_known=scale_known)
    check(implementation, name, module, targets, labels, 2, 1e-9)


@pytest.mark.parametrize("per_layer", (False, True))
def test_an_l1_clip_needs_whole_gradients(per_layer: bool) -> None:
    module = network("tanh")
    targets, labels = make_targets(module, 0.7, order=1, per_layer=per_layer)
    check(DoubleBackward, "euclidean", module, targets, labels, 1, 1e-9)
    with pytest.raises(ValueError, match="clip order is 1"):
        Ghost(open_chain(module), Layout.of(module), targets, labels, 1, Matching.of("euclidean", targets))


def test_each_network_gets_the_engine_that_is_fast_there() -> None:
    """By shapes, precision and clip alone."""
    sides = {"input_shape": (3, 32, 32), "classes": CLASSES, "mean": [0.5] * 3, "std": [0.5] * 3}
    norm = partial(evaluator, labels=torch.zeros(1, 8, dtype=torch.long), objective="euclidean", shape=(3, 32, 32))
    for name, fast in (("mlp", Ghost), ("lenet", Convolved), ("cnn6", Convolved), ("cnn", DoubleBackward)):
        module = models.build(name, seed=0, **sides)
        weights = flat([p.detach() for p in module.parameters()])
        target, layout = Target("t", weights, weights, None, 8, clip_norm=1.0), Layout.of(module)
        by_l1 = replace(target, clip_order=1)
        precise = replace(target, weights=weights.double(), gradient=weights.double())
        assert type(norm(module, layout, [target], repeat=1)) is fast
        assert type(norm(module, layout, [by_l1], repeat=1)) is DoubleBackward
        slow = Ghost if fast is Ghost else DoubleBackward
        assert type(norm(module.double(), layout, [precise], repeat=1)) is slow


def test_chains_without_bias_and_with_stacked_linears() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Flatten(), nn.Linear(48, 9, bias=False), nn.Linear(9, 8), nn.Sigmoid(), nn.Linear(8, CLASSES, bias=False)
    ).double()
    targets, labels = make_targets(module, 0.7)
    for name in OBJECTIVES:
        check(Ghost, name, module, targets, labels, 2, 1e-9)


def test_other_networks_are_no_chains() -> None:
    for body in (
        [nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(8, 2)],
        [nn.Flatten(), nn.Linear(48, 2), nn.ReLU()],
        [nn.Flatten(), nn.Linear(48, 2), nn.GELU(), nn.Linear(2, 2)],
    ):
        assert open_chain(nn.Sequential(*body)) is None
    assert open_chain(nn.Linear(2, 2)) is None
    assert open_chain(network()) is not None


def small_cnn(activation: nn.Module | None = None) -> nn.Module:
    """Strides, paddings and dilations that differ by axis, and a stride that leaves pixels over."""
    torch.manual_seed(0)
    one, other = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 5, (3, 2), (2, 1), (1, 1), (1, 2), bias=False)
    third = nn.Conv2d(5, 3, 2, 2, (1, 0))
    middle = nn.Sequential(other, activation or nn.ReLU(inplace=True), third)
    module = nn.Sequential(models.Normalise([0.4] * 3, [0.2, 0.3, 0.4], SHAPE), one, nn.Sigmoid(), middle, nn.Flatten())
    module.append(nn.Linear(module(torch.zeros(1, *SHAPE)).shape[1], CLASSES))
    return module.double().eval()


def stacked(
    module: nn.Module, layout: Layout, targets: list[Target], labels: Tensor, repeat: int, matching: Matching
) -> Convolved:
    opened = open_stages(module, SHAPE)
    assert opened is not None
    return Convolved(*opened, layout, targets, labels, repeat, matching)


@pytest.mark.parametrize("between", (nn.Identity, nn.Dropout))
@pytest.mark.parametrize(("stride", "padding"), ((2, 1), (3, 0)))
def test_strided_convolutions_with_nothing_between(stride: int, padding: int, between: type[nn.Module]) -> None:
    torch.manual_seed(0)
    first, second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 5, 3, stride, padding)
    module = nn.Sequential(models.Normalise([0.4] * 3, [0.2, 0.3, 0.4], SHAPE), first, between(), second)
    module.extend([nn.ReLU(), nn.Flatten()])
    module.append(nn.Linear(module(torch.zeros(1, *SHAPE)).shape[1], CLASSES))
    module = module.double().eval()
    targets, labels = make_targets(module, 0.7, 2, per_layer=False)
    check(stacked, "cosine", module, targets, labels, 2, 1e-9)


@pytest.mark.parametrize("implementation", (DoubleBackward, stacked))
def test_convolutions(implementation) -> None:
    module = small_cnn(nn.LeakyReLU(0.2))
    targets, labels = make_targets(module, 0.7, per_layer=True)
    for name in OBJECTIVES:
        check(implementation, name, module, targets, labels, 2, 1e-9)


FIRST = (
    nn.Conv2d(3, 4, 3, padding=1),
    nn.Conv2d(3, 17, 3, 2, (1, 0)),  # pixels that no window has
    nn.Conv2d(3, 4, 5, 2, (1, 2)),  # more than 16 channels hold
    nn.Conv2d(3, 4, (3, 2), 2, (0, 1), bias=False),
    nn.Conv2d(3, 4, 2, (1, 2), dilation=(2, 1)),
)


@pytest.mark.parametrize("first", FIRST)
def test_grouped_convolutions_float32(first: nn.Conv2d) -> None:
    """Channels filled up with zeros, and a first layer's pixels laid side by side, change nothing."""
    torch.manual_seed(0)
    second = nn.Conv2d(first.out_channels, 5, 2, padding=1, bias=False)
    normalise = models.Normalise([0.4] * 3, [0.2, 0.3, 0.4], SHAPE)
    module = nn.Sequential(normalise, first, nn.LeakyReLU(0.2), second, nn.Sigmoid(), nn.Flatten())
    wide = module(torch.zeros(1, *SHAPE)).shape[1]
    module.extend([nn.Linear(wide, 6), nn.Tanh(), nn.Linear(6, CLASSES)]).eval()
    targets, labels = make_targets(module, 0.7)
    for name in OBJECTIVES:
        check(stacked, name, module, targets, labels, 2, 1e-4)


def test_messages_of_one_gradient_and_one_noise_have_two_in_common() -> None:
    rng = torch.Generator().manual_seed(0)
    gradient, noise, other = torch.randn(3, 1000, generator=rng)
    cells = [c * gradient + s * noise for c, s in ((1, 0), (1, 0.1), (0.01, 3), (-2, 0.5), (0, 0))]
    found = Messages.of(cells, 1)
    assert found.basis.shape == (2, 1000) and found.coefficients is not None
    for message, told in zip(cells, found.coefficients @ found.basis):
        assert (told - message).norm() <= 1e-6 * message.norm()
    fresh = [gradient + 0.001 * torch.randn(1000, generator=rng) for _ in range(5)]
    assert Messages.of(fresh, 1).coefficients is None  # a thousandth of noise of their own
    assert Messages.of([*cells, other], 1000).coefficients is None  # would not pay
    assert Messages.of([cells[0] / 0], 1).coefficients is None
    assert Messages.of([cells[0], cells[1] / 0], 1).coefficients is None
    assert Messages.of([cells[-1]] * 2, 1).coefficients is None  # zeros


@pytest.mark.parametrize("convolutions", (False, True))
def test_products_with_a_common_basis_are_those_with_every_message(convolutions: bool) -> None:
    module = small_cnn().float() if convolutions else network("tanh", torch.float32)
    (first, *_), labels = make_targets(module, 0.7, count=4)
    noise = torch.randn(len(first.gradient), generator=torch.Generator().manual_seed(2)) * first.gradient.abs().mean()
    targets = [
        replace(first, key=str(k), gradient=(k + 1) * first.gradient + k * k * noise, labels=labels[k])
        for k in range(4)
    ]
    assert len(Messages.of([t.gradient for t in targets], N).basis) == 2
    for name in OBJECTIVES:
        check(stacked if convolutions else Ghost, name, module, targets, labels, 1, 1e-4)


@pytest.mark.parametrize("dtype, tolerance", ((torch.float32, 1e-5), (torch.float64, 1e-9)))
@pytest.mark.parametrize("noises", ((0.0,), (0.3,), (0.3, 0.1, 0.0, 0.2)))
def test_what_nobody_noised_is_multiplied_by_thin_factors(
    noises: tuple[float, ...], dtype: torch.dtype, tolerance: float
) -> None:
    """One noise-free message, and the one of several that a common basis begins with; not what is noise."""
    module = network("tanh", dtype, widths=(60, 60))
    (first, *_), labels = make_targets(module, 0.7)
    typical = first.gradient.abs().mean()
    noise = torch.randn(len(first.gradient), generator=torch.Generator().manual_seed(2)).to(dtype) * typical
    targets = [replace(first, key=str(k), gradient=first.gradient + s * noise) for k, s in enumerate(noises)]
    targets = [replace(t, noise_std=s * typical.item()) for t, s in zip(targets, noises)]
    matching = Matching.of("euclidean", targets)
    engine = Ghost(open_chain(module), Layout.of(module), targets, labels[:1].expand(len(targets), -1), 1, matching)
    shared = len(noises) > 1 and dtype == torch.float32  # by a basis of the noise-free message and a noisy one
    thin = [True, False] if shared else [noise == 0 for noise in noises]
    for there, back in engine.observed[:-1]:  # the classifier has 7 rows: nothing is thinner
        for ways in (there, back):
            assert [isinstance(way, ThinLinear) for way in ways.each] == thin
    for name in OBJECTIVES:
        check(Ghost, name, module, targets, labels[:1].expand(len(targets), -1), 1, tolerance)


def test_candidates_in_several_chunks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolved, "_CHUNK", 1)
    for module, tolerance in ((small_cnn(), 1e-9), (small_cnn().float(), 1e-4)):
        targets, labels = make_targets(module, 0.7)
        check(stacked, "euclidean", module, targets, labels, 2, tolerance)


def test_the_profiled_scale_is_the_best_scale() -> None:
    rng = torch.Generator().manual_seed(2)
    g, observed = torch.randn(9, generator=rng, dtype=torch.float64), torch.randn(9, generator=rng, dtype=torch.float64)
    for target in (observed, -observed):
        products = Products((g @ target).view(1, 1), (g @ g).view(1, 1), (target @ target).view(1, 1))
        loss = Matching("euclidean", torch.tensor([float("inf")]), scale_known=False).loss(products).item()
        best = minimize_scalar(
            lambda s, t=target: ((s * g - t).square().sum() / t.square().sum()).item(),
            bounds=(0, 100),
            method="bounded",
        )
        if g @ target > 0:
            assert loss == pytest.approx(best.fun, abs=1e-5)
        else:  # no scale makes it nearer than 0 does, which has no slope
            assert best.fun == pytest.approx(1, abs=1e-4) and loss > 1


def test_a_vanishing_gradient_has_cosine_zero_and_no_nan() -> None:
    zero, one = torch.zeros(1, 2), torch.ones(1, 2)
    for name in OBJECTIVES:
        for scale_known in (True, False):
            for bound in (1.0, float("inf")):
                matching = Matching(name, torch.tensor([bound]), scale_known=scale_known)
                for target in (zero, one):
                    loss, partial = matching.derivatives(Products(zero, zero, target))
                    assert loss.isfinite().all()
                    assert partial.dot.isfinite().all() and partial.square.isfinite().all()
    assert Matching("cosine", torch.tensor([1.0])).loss(Products(zero, zero, one)).item() == 1


def test_clipping_leaves_the_cosine_alone_and_the_modelled_distance_at_zero() -> None:
    """At the true images: cosine and scale-aware Euclidean are 0 whatever the clip, naive Euclidean is (1/c − 1)²."""
    module = network()
    rng = torch.Generator().manual_seed(0)
    labels = torch.randint(0, CLASSES, (N,), generator=rng)
    images = torch.rand(N, *SHAPE, generator=rng, dtype=torch.float64)
    g = flat(gradients(module, images, labels))
    weights = flat([p.detach() for p in module.parameters()])
    for share in (1.0, 0.4, 0.1):
        bound = share * g.norm().item()
        target = Target("t", weights, clip_to(g, bound), labels, N, clip_norm=bound)
        losses = {}
        for name in OBJECTIVES:
            evaluate = Ghost(
                open_chain(module), Layout.of(module), [target], labels[None], 1, Matching.of(name, [target])
            )
            losses[name] = evaluate(images[None])[0].item()
        assert losses["cosine"] == pytest.approx(0, abs=1e-12)
        assert losses["euclidean"] == pytest.approx(0, abs=1e-12)
        assert losses["euclidean-naive"] == pytest.approx((1 / share - 1) ** 2, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", ("euclidean", "absolute"))
def test_a_tensor_without_a_gradient_has_no_say_where_scales_are_unknown_layer_by_layer(name: str) -> None:
    """A bias before a normalisation by the batch: its gradient is 0 but for rounding, which differs from machine to
    machine and from float32 to float64. A message with noise has numbers there.
    """
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Tanh(), nn.Flatten(), nn.Linear(24, CLASSES)
    ).double()
    images, labels = torch.rand(1, N, *SHAPE, dtype=torch.float64), torch.randint(CLASSES, (1, N))
    layout = Layout.of(module)
    weights = layout.join({name: p.detach() for name, p in module.named_parameters()})
    target = Target("t", weights, torch.randn(layout.dim).double(), labels[0], N, per_layer=True, scale_known=False)

    def matched(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        own = replace(target, weights=target.weights.to(dtype), gradient=target.gradient.to(dtype))
        made = DoubleBackward(module.to(dtype), layout, [own], labels, 1, Matching.of(name, [own]))
        value, slope = made(images.to(dtype))
        return value.double(), slope.double()

    (precise, slope), (value, rough) = matched(torch.float64), matched(torch.float32)
    assert value.item() == pytest.approx(precise.item(), rel=1e-4)
    assert (rough - slope).norm() < 1e-3 * slope.norm()


def test_a_tensor_of_which_zeros_were_sent_leaves_the_absolute_distance_a_slope() -> None:
    """Layer by layer and of unknown scale: it is scaled to 0, whose square root has none."""
    observed, own = [torch.zeros(3), torch.ones(2)], [torch.ones(3), torch.tensor([1.0, -2.0])]
    matching = Matching("absolute", torch.tensor([torch.inf]), per_layer=True, scale_known=False)
    value, (of_zeros, of_others) = matching.direction(0, own, observed)
    alone, (wanted,) = matching.direction(0, own[1:], observed[1:])
    assert value == alone and torch.equal(of_others, wanted) and not of_zeros.any()
