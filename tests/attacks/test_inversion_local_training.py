"""Updates of many local steps: the optimiser forwards and backwards, and images made exact by the first layer."""

from __future__ import annotations

import pytest
import torch
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.exact.columns import columns_of, fitted, polished, reduced, sparsest
from dpfl_audit.attacks.inversion.exact.row_space import RowSpace, row_space
from dpfl_audit.attacks.inversion.make import make_inversions
from dpfl_audit.attacks.inversion.presets.published import PRESETS
from dpfl_audit.attacks.inversion.read import local_training
from dpfl_audit.attacks.inversion.read.local_training import Recipe, linearised, moved, undone
from dpfl_audit.attacks.inversion.read.target import Target, one_round, recipe_of
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data import photos
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import LocalTraining
from messages import client_sends, facts_of, flat, gradient, knowing, psnr, view_of
from torch import Tensor, nn
from torch.nn import functional as F

SHAPE, N = (3, 32, 32), 8
EVERY = pytest.mark.parametrize("optimiser", ["sgd", "momentum", "adam", "rmsprop"])


@pytest.fixture(scope="module")
def data():
    return photos.load(classes=10, samples=20, seed=0)


def network(data, activation: str = "relu", width: int = 128, second: int = 32) -> nn.Module:
    return models.build(
        "mlp",
        input_shape=SHAPE,
        classes=10,
        mean=data.mean,
        std=data.std,
        seed=0,
        widths=[width, second],
        activation=activation,
    )


def client(module: nn.Module, data, training: LocalTraining) -> tuple[Tensor, Tensor]:
    """What a client with the first N images really sends, and its batches."""
    return client_sends(module, training, (data.inputs, data.targets), torch.arange(N))


def read(module: nn.Module, data, training: LocalTraining, clip: float = 1.0) -> Target:
    """A client's update times `clip` (of which the attacker knows the norm), read as the attack reads it."""
    sent = clip * client(module, data, training)[0]
    facts = facts_of(training, clip_norm=None if clip == 1 else float(sent.norm()))
    (aim,) = one_round(view_of(module, sent, facts, N, SHAPE, 10), knowing(u=data.targets[:N].sort().values))
    return aim.target


def mixed(columns: int, rows: int, seed: int) -> tuple[Tensor, RowSpace]:
    """Columns (columns, rows) that are 0 at half their entries, and the space of their images, mixed."""
    rng = torch.Generator().manual_seed(seed)
    errors = torch.randn(columns, rows, generator=rng).double() * (torch.rand(columns, rows, generator=rng) < 0.5)
    images = torch.randn(columns, 200, generator=rng).double()
    return errors, row_space(errors.T @ images, columns)


def likeness(found: Tensor, true: Tensor) -> Tensor:
    """|cosine| of every column found with every true one."""
    return (F.normalize(found) @ F.normalize(true).T).abs()


# --- the optimiser ---


@EVERY
def test_the_steps_of_the_true_gradients_are_the_update_that_a_client_sends(data, optimiser: str) -> None:
    """Simulated with the true images in the true order, step by step; torch's own optimisers trained the client."""
    module = network(data)
    training = LocalTraining(optimiser=optimiser, lr=0.01, batch_size=3, epochs=2, momentum=0.8)
    sent, batches = client(module, data, training)
    recipe = recipe_of(facts_of(training), N)
    assert recipe is not None and [int((b >= 0).sum()) for b in batches] == list(recipe.sizes) == [3, 3, 2, 3, 3, 2]
    weights, gradients = flat(module), list[Tensor]()
    for batch in batches:
        rows = batch[batch >= 0]
        gradients.append(gradient(module, weights, data.inputs[rows], data.targets[rows]))
        weights = flat(module) + moved(Recipe(optimiser, 0.01, recipe.sizes[: len(gradients)], None, 0.8), gradients)
    assert (weights - flat(module) - sent).norm() < 1e-5 * sent.norm() + 1e-5


@EVERY
@pytest.mark.parametrize("softening", [0.0, 0.3])
def test_the_derivative_by_hand_is_autograd_s(optimiser: str, softening: float) -> None:
    rng = torch.Generator().manual_seed(0)
    recipe = Recipe(optimiser, 0.1, (4, 4, 4), 1)
    gradients = [torch.randn(50, generator=rng, dtype=torch.float64).requires_grad_() for _ in range(3)]
    along = torch.randn(50, generator=rng, dtype=torch.float64)
    expected = torch.autograd.grad(moved(recipe, gradients, softening) @ along, gradients)
    found = linearised(recipe, [g.detach() for g in gradients], softening)[1](along)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


def test_a_recipe_that_cannot_be_is_refused() -> None:
    for bad in (("lion", 0.1, (1,)), ("sgd", 0.0, (1,)), ("sgd", 0.1, ())):
        with pytest.raises(ValueError, match="a recipe of"):
            Recipe(*bad, epochs=1)


@pytest.mark.parametrize("optimiser", ["adam", "rmsprop"])
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_one_adaptive_step_in_float32_tells_the_gradient_s_size_and_not_its_sign_alone(
    optimiser: str, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By ε = 1e-8 and 24 bits. Gradients of 1e-5 to 1e-3, with one of 1 that gives a whole step; clipped or not."""
    rng = torch.Generator().manual_seed(0)
    weights = 0.02 * (2 * torch.rand(4000, generator=rng) - 1)
    true = 10 ** (-5 + 2 * torch.rand(4000, generator=rng)) * torch.randn(4000, generator=rng).sign()
    true[0] = 1.0
    recipe = Recipe(optimiser, 1e-3, (8,), 1)
    after = weights + moved(recipe, [true])
    sent = scale * (after - weights)
    found = undone(recipe, sent, weights, 0.0, scale_known=scale == 1)[1:]
    assert (found / true[1:] - 1).abs().median() < 0.05
    signs = true[1:].sign()
    assert torch.cosine_similarity(found, true[1:], 0) > 0.99 > 0.8 > torch.cosine_similarity(signs, true[1:], 0)
    monkeypatch.setattr(local_training, "PIECE", 999)  # as of a large network
    assert torch.equal(undone(recipe, sent, weights, 0.0, scale_known=scale == 1)[1:], found)
    noisy = sent + 1e-3 * torch.randn(4000, generator=rng)
    read = undone(recipe, noisy, weights, 1e-3, scale_known=True)
    assert torch.cosine_similarity(read, -noisy, 0) > 0.98  # the signs are all there is


# --- the first layer ---


@pytest.mark.parametrize("optimiser", ["sgd", "momentum"])
def test_the_first_layer_s_update_spans_the_images_whatever_the_order(data, optimiser: str) -> None:
    module = network(data)
    training = LocalTraining(optimiser=optimiser, lr=0.05, batch_size=3, epochs=2)
    named = Layout.of(module).split(client(module, data, training)[0])
    weight, bias, *_ = named.values()
    space = row_space(torch.cat([weight, bias[:, None]], 1), N)
    inputs = ((data.inputs[:N] - module[0].mean) / module[0].std).float().flatten(1)
    assert space.clearness > 1e3 and (space.project(inputs) - inputs).norm() < 1e-3 * inputs.norm()
    others = ((data.inputs[N : 2 * N] - module[0].mean) / module[0].std).float().flatten(1)
    assert (space.project(others) - others).norm() > 0.2 * others.norm()
    noise = torch.randn(weight.shape[0], weight.shape[1] + 1, generator=torch.Generator().manual_seed(0))
    assert row_space(torch.cat([weight, bias[:, None]], 1) + weight.std() * noise, N).clearness < 3
    with pytest.raises(ValueError, match="rank is 200"):
        row_space(weight, 200)


def test_columns_are_found_by_their_zeros_though_a_seventh_of_the_guesses_is_wrong() -> None:
    errors, space = mixed(10, 300, seed=0)
    rng = torch.Generator().manual_seed(1)
    wrong = torch.rand(errors.shape, generator=rng) < 1 / 7
    outputs = torch.where((errors == 0) ^ wrong, -1.0, 1.0).double() * torch.rand(errors.shape, generator=rng)
    found = sparsest(polished(columns_of(fitted(space, outputs), space), space))
    assert len(found) == 10 and likeness(found.errors, errors).amax(1).min() > 1 - 1e-6


def test_a_column_of_two_images_is_reduced_to_that_of_one() -> None:
    errors, space = mixed(6, 300, seed=2)
    mix = errors @ space.left  # true columns in the space's terms
    mix[5] += 0.7 * mix[2]
    columns = columns_of(mix / mix.norm(dim=1, keepdim=True), space)
    assert columns.zeros[5] < 0.35 * 300
    assert likeness(columns.errors, errors).amax(1).min() < 0.9
    assert likeness(reduced(columns, space).errors, errors).amax(1).min() > 1 - 1e-6


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("optimiser", "lr", "batch_size", "epochs", "clip"),
    [("sgd", 0.05, 8, 1, 1.0), ("sgd", 0.05, 3, 1, 0.3), ("momentum", 0.02, 3, 3, 1.0)],
    ids=["one step", "three steps, clipped", "three epochs of momentum"],
)
def test_a_rough_guess_is_made_exact_where_the_old_reading_stays_blurred(
    data, optimiser: str, lr: float, batch_size: int, epochs: int, clip: float
) -> None:
    """With batches unknown, to float32's last places."""
    training = LocalTraining(optimiser=optimiser, lr=lr, batch_size=batch_size, epochs=epochs)
    module = network(data)
    target, images = read(module, data, training, clip), data.inputs[:N]
    found = {
        exact: solve(module, [target], SHAPE, Inversion(iterations=80, exact=exact), 0)[0] for exact in (False, True)
    }
    before, after = (psnr(found[exact].images, images) for exact in (False, True))
    assert after > 50 > 30 > before
    if optimiser == "sgd":  # and each image has its own label
        order = data.targets[:N].argsort(stable=True)
        for image, label in zip(found[True].images, found[True].labels):
            nearest = (images[order] - image).square().flatten(1).mean(1).argmin()
            assert data.targets[order][nearest] == label


def test_it_is_the_default_of_audit_run_and_of_no_paper_s_preset() -> None:
    assert all(attack.exact or attack.learned for attack in make_inversions({}, False, "cpu"))
    assert [name for name, preset in PRESETS.items() if preset.settings.exact] == ["analytic"]  # which is nothing else
    assert not make_inversions({"exact": False}, False, "cpu")[0].exact


def test_what_the_first_layer_determines_is_not_searched_for_any_more() -> None:
    """Simulated training by an order of its own, judged with a prior, would take smooth wrong pictures for better."""
    torch.manual_seed(0)
    module = models.build("mlp", input_shape=(1, 8, 8), classes=10, mean=[0.5], std=[0.25], seed=0, widths=[256, 64])
    module = module.eval()
    layout, images, labels = Layout.of(module), torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 2, 3])
    before = layout.join({name: p.detach().clone() for name, p in module.named_parameters()})
    optimiser = torch.optim.SGD(module.parameters(), lr=0.3)
    for rows in ([0, 2], [1, 3], [3, 0], [2, 1]):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(module(images[rows]), labels[rows]).backward()
        optimiser.step()
    update = layout.join({name: p.detach().clone() for name, p in module.named_parameters()}) - before
    for name, p in module.named_parameters():
        p.data.copy_(layout.split(before)[name])
    recipe = Recipe("sgd", 0.3, (2,) * 4, 2)
    target = Target("t", before, -update / recipe.scale, labels, 4, recipe=recipe, update=update)
    for more in ({}, {"along": 0.5}, {"along": 0.5, "reorder": True}):
        found = solve(module, [target], (1, 8, 8), Inversion(iterations=30, exact=True, simulated=20, **more), 0)[0]
        assert found.determined and (found.images - images).abs().max() < 1e-3
