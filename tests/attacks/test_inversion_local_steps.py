"""What local training has besides its optimiser's steps on the loss: the simulation is the client's engine."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dpfl_audit.attacks.base import Knowledge, PublicFacts, Seen, Sum, View
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.exact.first_layer import FirstLayer
from dpfl_audit.attacks.inversion.labels.infer import infer
from dpfl_audit.attacks.inversion.match.case import Case
from dpfl_audit.attacks.inversion.match.objective import Matching
from dpfl_audit.attacks.inversion.match.solution import Solution
from dpfl_audit.attacks.inversion.match.span import InputSpan
from dpfl_audit.attacks.inversion.read.local_steps import LocalSteps
from dpfl_audit.attacks.inversion.read.local_training import PENALTIES, Recipe
from dpfl_audit.attacks.inversion.read.sums import summed
from dpfl_audit.attacks.inversion.read.target import Target, one_round
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.attacks.inversion.strategies.by_step import readable
from dpfl_audit.attacks.inversion.strategies.simulated import Simulated, cut_short, lengthened
from dpfl_audit.defenses import models
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import DistancePerLayer, LocalTraining, Proximal, ScaleByRoot, StepClip
from messages import client_sends, facts_of, flat, gradient, knowing, view_of
from torch import Tensor, nn

N, SHAPE, CLASSES = 6, (1, 8, 8), 4
EXTRAS = {
    "proximal": {"penalties": (Proximal(0.7),)},
    "both": {"penalties": (Proximal(0.3),), "gradient_scale": ScaleByRoot(-1.0)},
    "factor": {"gradient_scale": 0.4},
    "by root": {"gradient_scale": ScaleByRoot(2.0)},
    "gradient clip": {"step_clip": StepClip("gradient", 0.1)},
    "gradient clip, L1": {"step_clip": StepClip("gradient", 1.0, 1), "gradient_scale": 0.5},
    "weights clip": {"step_clip": StepClip("weights", 3.0)},
    "weights clip, L1": {"step_clip": StepClip("weights", 60.0, 1), "penalties": (Proximal(0.7),)},
}
OPTIMISERS = {"sgd": 0.2, "momentum": 0.05, "adam": 1e-3, "rmsprop": 1e-3}


def network(width: int = 16) -> nn.Module:
    made = models.build("mlp", input_shape=SHAPE, classes=CLASSES, mean=[0.5], std=[0.3], seed=0, widths=[width, 8])
    return made.eval()


def data() -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(0)
    return torch.rand(N, *SHAPE, generator=rng), torch.tensor([0, 3, 1, 2, 3, 0])


def read(module: nn.Module, training: LocalTraining, records: int = N, **facts) -> tuple[Target, Tensor]:
    """The update of the client of all images, clipped if `facts` say so, as the attack reads it, and the batches."""
    sent, batches = client_sends(module, training, data(), torch.arange(N))
    if "clip_norm" in facts:
        sent = sent * min(1.0, facts["clip_norm"] / float(sent.norm(facts.get("clip_order", 2))))
    view = view_of(module, sent, facts_of(training, **facts), records, SHAPE, CLASSES)
    (aim,) = one_round(view, knowing(u=data()[1].sort().values))
    return aim.target, batches


def simulated(module: nn.Module, target: Target, labels: Tensor, name: str = "euclidean") -> Simulated:
    assert target.recipe is not None and target.update is not None
    target = replace(target, scale_known=True) if target.recipe.linear else replace(target, gradient=-target.update)
    return Simulated(module, Layout.of(module), target, labels, Matching.of(name, [target]))


# --- forwards ---


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("extra", EXTRAS)
def test_the_true_images_in_the_true_order_make_what_the_engine_sends(optimiser: str, extra: str) -> None:
    module, more = network(), EXTRAS[extra]
    training = LocalTraining(optimiser=optimiser, lr=OPTIMISERS[optimiser], batch_size=4, epochs=3, **more)
    target, batches = read(module, training)
    order = batches[batches >= 0]
    made = simulated(module, target, data()[1][order].view(3, N), "absolute")
    images = data()[0][order][None]
    assert made(images)[0] < (1e-5 if optimiser in ("sgd", "momentum") else 1e-4) and target.recipe is not None
    without = replace(target, recipe=replace(target.recipe, factor=1.0, penalties=(), step_clip=None))
    if optimiser in ("sgd", "momentum"):  # Adam's steps hardly depend on a scale
        own = replace(without, gradient=-target.update / without.recipe.scale)
        assert simulated(module, own, data()[1][order].view(3, N), "absolute")(images)[0] > 1e-2


# --- backwards ---


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("extra", EXTRAS)
def test_the_gradient_by_the_images_is_the_slope(optimiser: str, extra: str) -> None:
    """Central differences in float64, on a smooth network, with every clip active."""
    rng = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    weights, more = flat(module), EXTRAS[extra]
    clip = more.get("step_clip")
    if clip is not None:
        clip = replace(clip, norm=0.02 if clip.what == "gradient" else 0.9 * float(weights.norm(clip.order)))
    scale = more.get("gradient_scale", 1.0)
    factor = scale if isinstance(scale, float) else float(scale(torch.tensor(3.0)))
    recipe = Recipe(optimiser, 0.1, (2, 1, 2, 1), 2, 0.9, 0.99, factor, more.get("penalties", ()), clip)
    recipe = replace(recipe, rates=(1.0, 0.5, 2.0, 0.7))
    target = Target("t", weights, torch.randn(len(weights), generator=rng).double(), torch.zeros(3).long(), 3)
    target = replace(target, recipe=recipe, update=-target.gradient)
    labels = torch.tensor([[0, 1, 2], [2, 0, 1]])
    made = simulated(module, target, labels, "euclidean-naive")
    images = torch.rand(1, 6, 1, 2, 3, generator=rng).double()
    along = torch.randn(images.shape, generator=rng).double()
    _, slope = made(images)
    high, low = (made(images + step * along)[0].item() for step in (1e-6, -1e-6))
    assert (slope * along).sum().item() == pytest.approx((high - low) / 2e-6, rel=2e-3)


# --- in closed form, and of low rank ---


@pytest.mark.parametrize("optimiser", ["sgd", "momentum"])
def test_shares_with_a_proximal_term_are_those_of_the_steps(optimiser: str) -> None:
    """The update of given gradients, each a unit vector of its own."""
    recipe = Recipe(optimiser, 0.3, (1,) * 5, 1, momentum=0.8, factor=0.5, penalties=(Proximal(0.4), Proximal(0.5)))
    steps = LocalSteps(recipe, torch.zeros(5, dtype=torch.float64))
    for unit in torch.eye(5, dtype=torch.float64):
        steps.forward(unit)
    expected = [-0.3 * 0.5 * share for share in recipe.shares]
    assert steps.weights.tolist() == pytest.approx(expected)
    falling = LocalSteps(replace(recipe, rates=(1.0, 0.5, 0.25, 0.5, 2.0)), steps.start)
    for unit in torch.eye(5, dtype=torch.float64):
        falling.forward(unit)
    assert falling.weights.tolist() == pytest.approx([-0.3 * 0.5 * share for share in falling.recipe.shares])
    if optimiser == "sgd":
        assert recipe.shares == pytest.approx([(1 - 0.3 * 0.9) ** (4 - k) for k in range(5)])
    assert recipe.scale == pytest.approx(-sum(expected)) and recipe.scaled and recipe.own_gradients


# --- one gradient ---


@pytest.mark.parametrize("optimiser", ["sgd", "momentum", "adam"])
def test_one_step_is_the_mean_gradient_whatever_is_in_it(optimiser: str) -> None:
    module = network()
    true = gradient(module, flat(module), *data())
    one = LocalTraining(optimiser=optimiser, lr=1e-3, batch_size=N, epochs=1)
    for more in ({"penalties": (Proximal(3.0),)}, {"penalties": (DistancePerLayer(3.0),)}, {"gradient_scale": 0.25}):
        target, _ = read(module, replace(one, **more))
        assert target.recipe is not None and target.recipe.scaled and not target.recipe.penalties
        if optimiser == "adam":  # by what ε leaves, of small entries
            small = (true.abs() > 1e-6) & (true.abs() < 1e-4)
            assert (target.gradient[small] / true[small] - 1).abs().median() < 0.05
        else:
            assert target.scale_known and target.clip_norm is None
            torch.testing.assert_close(target.gradient, true, rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("order", [1, 2])
def test_the_clip_of_one_step_is_a_clip_known_and_modelled(order: int) -> None:
    """In units of the loss's gradient; beside the message's own it is the tighter one that counts."""
    module = network()
    true = gradient(module, flat(module), *data())
    size, factor = float(true.norm(order)), 0.5
    one = LocalTraining(optimiser="sgd", lr=0.1, batch_size=N, epochs=1, gradient_scale=factor)
    for share in (0.3, 3.0):
        clipped = replace(one, step_clip=StepClip("gradient", share * factor * size, order))
        target, _ = read(module, clipped)
        assert target.scale_known and target.clip_order == order
        assert target.clip_norm == pytest.approx(share * size, rel=1e-5)
        expected = min(1.0, share) * true
        torch.testing.assert_close(target.gradient, expected, rtol=1e-3, atol=1e-5)
        tighter = 0.1 * 0.1 * factor * size  # of an update, a tenth of the gradient's
        both, _ = read(module, clipped, clip_norm=tighter, clip_order=order)
        assert both.scale_known and both.clip_norm == pytest.approx(0.1 * size, rel=1e-5)
        wider, _ = read(module, clipped, clip_norm=1e3, clip_order=order)
        assert wider.clip_norm == pytest.approx(share * size, rel=1e-5)
        for unlike in ({"clip_order": 3 - order}, {"clip_order": order, "per_layer": True}):
            assert not read(module, clipped, clip_norm=1e3, **unlike)[0].scale_known
    several, _ = read(module, replace(one, epochs=3, step_clip=StepClip("gradient", 0.1, order)))
    assert not several.scale_known and several.sent_to_scale


def test_a_clip_of_the_weights_that_cannot_have_acted_is_nothing() -> None:
    module = network()
    size = float(flat(module).norm())
    several = LocalTraining(optimiser="sgd", lr=0.1, batch_size=3, epochs=2)
    plain, _ = read(module, several)
    idle, _ = read(module, replace(several, step_clip=StepClip("weights", 2 * size)))
    assert idle.recipe == plain.recipe and idle.scale_known and torch.equal(idle.gradient, plain.gradient)
    acts, _ = read(module, replace(several, step_clip=StepClip("weights", 0.9 * size)))
    near, _ = read(module, replace(several, step_clip=StepClip("weights", 1.01 * size)))
    hidden, _ = read(module, replace(several, step_clip=StepClip("weights", 2 * size)), clip_norm=1e-3)
    for one in (acts, near, hidden):
        assert one.recipe is not None and one.recipe.step_clip is not None and not one.scale_known


# --- what readings are still right ---


@pytest.mark.parametrize(
    "more",
    [
        {"penalties": (Proximal(1.0),), "gradient_scale": ScaleByRoot(-1.0)},
        {"step_clip": StepClip("gradient", 0.1), "penalties": (Proximal(1.0),)},
    ],
)
def test_the_first_layer_gives_the_images_through_factors_proximal_terms_and_clipped_gradients(more) -> None:
    module = network(64)
    target, _ = read(module, LocalTraining(optimiser="sgd", lr=0.1, batch_size=4, epochs=2, **more))
    found = solve(module, [target], SHAPE, Inversion(iterations=50, exact=True), 0)[0]
    off = (found.images[:, None] - data()[0][None]).abs().flatten(2).amax(2).amin(1)
    assert off.max() < 1e-2


def test_readings_that_hold_no_more_are_refused() -> None:
    module, several = network(64), LocalTraining(optimiser="sgd", lr=0.1, batch_size=4, epochs=2)
    shrunk = read(module, replace(several, step_clip=StepClip("weights", 1.0)))[0]
    unknown = replace(shrunk, recipe=replace(shrunk.recipe, step_clip=None, left_out=(PENALTIES,)))
    for target in (shrunk, unknown):
        assert FirstLayer.of(module, target) is None and InputSpan.of(module, Layout.of(module), target) is None
        assert not target.scale_known and target.sent_to_scale
    adam = replace(several, optimiser="adam", lr=1e-3, epochs=1)
    wide = network(128)
    assert readable(wide, read(wide, adam)[0]) and readable(wide, read(wide, replace(adam, gradient_scale=0.5))[0])
    for more in EXTRAS.values():
        if "penalties" in more or "step_clip" in more:
            assert not readable(wide, read(wide, replace(adam, **more))[0])
    one = replace(adam, batch_size=N)
    assert readable(wide, read(wide, replace(one, penalties=(Proximal(1.0),)))[0])
    assert not readable(wide, read(wide, replace(one, step_clip=StepClip("weights", 1.0)))[0])


def test_no_length_is_looked_for_where_only_the_reading_as_one_gradient_has_none() -> None:
    module = network()
    several = LocalTraining(optimiser="sgd", lr=0.1, batch_size=4, epochs=3, step_clip=StepClip("gradient", 0.1))
    whole, _ = read(module, several)
    assert whole.update is not None and not cut_short(whole)
    cut, _ = read(module, several, clip_norm=0.25 * float(whole.update.norm()))
    assert cut_short(cut)
    images, labels = data()
    case = Case(module, Layout.of(module), cut, labels, SHAPE, Inversion(), 0)
    longer, times = lengthened(case, Solution(images, images, labels, 0.0))
    assert 3.5 < times < 4.5 and not longer.scale_known and longer.sent_to_scale


def test_labels_are_counted_in_gradients_that_were_scaled() -> None:
    module = network(64)
    for epochs in (1, 2):
        training = LocalTraining(optimiser="sgd", lr=0.02, batch_size=N, epochs=epochs)
        for more in ({}, {"gradient_scale": 0.3, "penalties": (Proximal(0.5),)}, {"gradient_scale": ScaleByRoot(3.0)}):
            target, _ = read(module, replace(training, **more))
            found = infer(module, Layout.of(module), target, SHAPE)
            assert found.method == "predicted" and torch.equal(found.labels, data()[1].sort().values)


# --- what nobody knows ---


def test_a_secret_number_of_records_leaves_scales_open_and_is_said() -> None:
    module = network()
    several = LocalTraining(optimiser="sgd", lr=0.1, batch_size=4, epochs=2)
    by_root, distance = {"gradient_scale": ScaleByRoot(2.0)}, {"penalties": (DistancePerLayer(3.0),)}
    for more, words in ((by_root, "scaled gradients"), (distance, "terms added to the loss")):
        target, _ = read(module, replace(several, **more), records=0)
        assert target.recipe is not None and target.recipe.left_out == (words,)
        assert not target.scale_known and not target.sent_to_scale
    assert read(module, replace(several, penalties=(Proximal(0.1),), gradient_scale=0.5), records=0)[0].scale_known


def test_a_sum_of_clients_is_read_by_what_each_holds() -> None:
    """Two clients of three records, one step: factors of three records, not six; what clips took is open."""
    module, (x, y) = network(), data()
    c, lr, start = 2.0, 0.1, flat(network())
    factor = 1 + c / 3**0.5
    after = start - lr * factor * gradient(module, start, x, y)
    models_seen = tuple(
        Seen(f"w{k}", k, "server", ("a", "b"), "weights", 0, lambda value=value: value, True)
        for k, value in enumerate((start, after))
    )
    facts = PublicFacts("t", "update", "sgd", lr, 3, 1, None, noise_std=0.0, gradient_scale=ScaleByRoot(c))
    view = View("downlink", models_seen, module, Layout.of(module), facts, SHAPE, CLASSES)
    view = replace(view, records={"a": 3, "b": 3}, sums={0: Sum(2, 6, True, 1.0, 0.0)})
    known = Knowledge({"w1": y.sort().values}, torch.zeros(0), torch.zeros(0))
    (aim,) = summed(view, known)
    assert aim.target.scale_known
    torch.testing.assert_close(aim.target.gradient, gradient(module, start, x, y), rtol=1e-3, atol=1e-5)
    (unlike,) = summed(replace(view, records={"a": 2, "b": 4}), known)
    assert not unlike.target.scale_known
    (clipped,) = summed(replace(view, facts=replace(facts, step_clip=StepClip("gradient", 1.0))), known)
    assert not clipped.target.scale_known and clipped.target.recipe is not None
    (left_out,) = clipped.target.recipe.left_out
    assert "clip" in left_out
