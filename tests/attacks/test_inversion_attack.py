"""Does the attack see what it should, and nothing where there is nothing? Thresholds in dB, gray control beside."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dpfl_audit.attacks.base import Knowledge, PublicFacts, Seen, View
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.make import make_inversions
from dpfl_audit.attacks.inversion.match import batches as batches_module
from dpfl_audit.attacks.inversion.match.batches import batches
from dpfl_audit.attacks.inversion.match.solution import start_images
from dpfl_audit.attacks.inversion.presets.published import PRESETS
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.attacks.inversion.strategies import search
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data import photos
from dpfl_audit.defenses.layout import Layout
from messages import flat, knowing, psnr, target_of
from torch import Tensor, nn

SHAPE = (3, 32, 32)


@pytest.fixture(scope="module")
def hundred():
    """One patch of each of 100 classes."""
    return photos.load(classes=100, samples=100, seed=0)


def gray(images: Tensor) -> float:
    return psnr(torch.full_like(images, 0.5), images)


def small(dtype: torch.dtype = torch.float32, seed: int = 0, widths: tuple[int, ...] = (128,)) -> nn.Module:
    mean, std = (0.45, 0.4, 0.35), (0.28, 0.26, 0.26)
    return models.build("mlp", input_shape=SHAPE, classes=100, mean=mean, std=std, seed=seed, widths=list(widths)).to(
        dtype
    )


@pytest.mark.full
@pytest.mark.parametrize(
    ("widths", "count", "strong"), [((1024, 1024, 1024), 25, 1e-2), ((512,), 8, 0.2)], ids=["thesis", "short"]
)
def test_the_thesis_workload_in_three_noise_cells(hundred, widths: tuple[int, ...], count: int, strong: float) -> None:
    """MLP 3×1024, 100 classes, 25 images: all but perfect without noise, hardly harmed by 1e-4, nothing left at 1e-2 a
    component. A shallow network and 8 images, whose gradients are larger: the same, with nothing left at 0.2.

    150 iterations instead of 300, and all cells in one batch, to be quick.
    """
    module = models.build(
        "mlp", input_shape=SHAPE, classes=100, mean=hundred.mean, std=hundred.std, seed=0, widths=widths
    )
    images, labels = hundred.inputs[:count], hundred.targets[:count]
    targets = [target_of(module, images, labels, noise) for noise in (0.0, 1e-4, strong)]
    clean, little, much = (psnr(s.images, images) for s in solve(module, targets, SHAPE, Inversion(iterations=150), 0))
    assert clean >= 30
    assert little >= 22
    assert much <= 10 < gray(images)


def test_noise_alone_yields_no_more_than_gray(hundred) -> None:
    module, images, labels = small(), hundred.inputs[:8], hundred.targets[:8]
    target = target_of(module, images, labels)
    noise = torch.randn(len(target.gradient), generator=torch.Generator().manual_seed(1))
    for tv in (0.01, "noise-aware"):
        (solution,) = solve(
            module, [replace(target, gradient=noise, noise_std=1.0)], SHAPE, Inversion(iterations=50, tv=tv), 0
        )
        assert psnr(solution.images, images) <= gray(images) + 0.5


def test_knowing_the_noise_helps(hundred) -> None:
    """At a noise that hides 4/5 of the energy the prior that grows with it gains decibels."""
    module, images, labels = small(widths=(256,)), hundred.inputs[:4], hundred.targets[:4]
    clean = target_of(module, images, labels)
    std = (4 * clean.gradient.square().mean()).sqrt().item()
    target = target_of(module, images, labels, std)
    assert target.noise_share == pytest.approx(0.8, abs=0.02)
    fixed, aware = (
        psnr(solve(module, [target], SHAPE, Inversion(iterations=100, tv=tv), 0)[0].images, images)
        for tv in (0.01, "noise-aware")
    )
    assert aware >= fixed + 2


@pytest.mark.full
def test_sigmoid_lenet_by_lbfgs() -> None:
    """DLG's own case: LeNet, one image, L-BFGS on the Euclidean distance."""
    data = photos.load(classes=10, samples=20, seed=0)
    module = models.build("lenet", input_shape=SHAPE, classes=10, mean=(0, 0, 0), std=(1, 1, 1), seed=0)
    image, label = data.inputs[:1], data.targets[:1]
    settings = Inversion(objective="euclidean-naive", optimiser="lbfgs", iterations=200, tv=0.0, labels="inferred")
    (solution,) = solve(module, [target_of(module, image, label)], SHAPE, settings, 0)
    assert solution.labels.tolist() == label.tolist()
    assert psnr(solution.images, image) >= 18 > gray(image)


def test_solved_together_or_alone_is_the_same(hundred) -> None:
    module = small(torch.float64)
    images, labels = hundred.inputs[:12].double(), hundred.targets[:12]
    targets = [target_of(module, images[4 * k : 4 * k + 4], labels[4 * k : 4 * k + 4], key=str(k)) for k in range(3)]
    settings = Inversion(iterations=15, restarts=2, tv="noise-aware")
    together = solve(module, targets, SHAPE, settings, 0)
    for target, solution in zip(targets, together):
        (alone,) = solve(module, [target], SHAPE, settings, 0)
        assert torch.allclose(alone.images, solution.images, atol=1e-6)
        assert alone.loss == pytest.approx(solution.loss, rel=1e-9)
        assert torch.equal(alone.start, solution.start)


@pytest.mark.parametrize("optimiser", ("signed-adam", "adam", "lbfgs"))
def test_the_restart_with_the_lowest_loss_is_kept(hundred, optimiser: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, images, labels = small(torch.float64), hundred.inputs[:2].double(), hundred.targets[:2]
    target = target_of(module, images, labels)
    settings = Inversion(optimiser=optimiser, iterations=3, restarts=3)
    (best,) = solve(module, [target], SHAPE, settings, 0)
    losses, original = [], start_images
    for r in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(search, "start_images", lambda seed, key, _, n, shape, r=r: original(seed, key, r, n, shape))
            losses.append(solve(module, [target], SHAPE, replace(settings, restarts=1), 0)[0].loss)
    assert best.loss == pytest.approx(min(losses), rel=1e-9)
    assert len(set(losses)) == 3


def test_batches_hold_equal_weights_and_counts_and_keep_to_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    w, other = torch.zeros(100), torch.ones(100)
    targets = [
        Target(str(k), at, torch.ones(100), None, n)
        for k, (at, n) in enumerate([(w, 2), (other, 2), (w.clone(), 2), (w, 3), (w, 2)])
    ]
    assert batches(targets, 2, 10) == [([0, 2, 4], range(2)), ([1], range(2)), ([3], range(2))]
    assert batches([replace(targets[0], scale_known=False), targets[2]], 1, 10) == [([0], range(1)), ([1], range(1))]
    monkeypatch.setattr(batches_module, "CHUNK_NUMBERS", 300)  # 2·2·10 + 100 = 140 numbers a target: two fit
    assert batches([targets[0], targets[2], targets[4]], 2, 10) == [([0, 2 - 1], range(2)), ([2], range(2))]
    monkeypatch.setattr(batches_module, "CHUNK_NUMBERS", 50)  # two restarts of 20 numbers fit
    assert batches([targets[0]], 5, 10) == [([0], range(0, 2)), ([0], range(2, 4)), ([0], range(4, 5))]


def make_view(module: nn.Module, hundred, known: bool = True) -> tuple[View, Knowledge]:
    """Two rounds of two clients' gradients, five images each, at one model."""
    layout, weights = Layout.of(module), flat(module)
    messages, labels = [], {}
    for round in (0, 1):
        messages.append(Seen(f"w{round}", round, "server", ("a", "b"), "weights", 0, lambda: weights, True))
        for k, client in enumerate("ab"):
            rows = slice(10 * round + 5 * k, 10 * round + 5 * k + 5)
            target = target_of(module, hundred.inputs[rows], hundred.targets[rows])
            messages.append(
                Seen(f"{client}{round}", round, client, ("server",), "gradient", 5, lambda g=target.gradient: g, False)
            )
            labels[f"{client}{round}"] = hundred.targets[rows].sort().values
    facts = PublicFacts("test", "gradient", "sgd", 0.1, 5, 1, None, noise_std=0.0)
    view = View("server", tuple(messages), module, layout, facts, SHAPE, 100)
    return view, knowing(**labels if known else {})


def test_a_view_is_attacked_part_by_part(hundred) -> None:
    view, knowledge = make_view(small(), hundred)
    attack = Inversion(iterations=30)
    parts = attack.parts(view, knowledge)
    assert [p.content.manner for p in parts] == ["one-round"] * 4 + ["all-rounds"] * 2
    assert len({p.key for p in parts}) == 6
    ticks: list[tuple[int, int]] = []
    made = attack.run_part(parts[0], view, knowledge, 0, lambda done, total: ticks.append((done, total)))
    assert made.images.shape == made.start.shape == (5, *SHAPE) and made.images.dtype == torch.float32
    assert made.images.min() >= 0 and made.images.max() <= 1
    assert made.labels.tolist() == knowledge.labels["a0"].tolist()
    assert (made.manner, made.round, made.sender, made.message_ids) == ("one-round", 0, "a", ("a0",))
    assert ticks[-1] == (1000, 1000) and len(ticks) == 30 and all(a < b for (a, _), (b, _) in zip(ticks, ticks[1:]))
    assert "labels known" in made.assumed
    assert psnr(made.images, hundred.inputs[:5]) >= psnr(made.start, hundred.inputs[:5]) + 6
    union = attack.run_part(parts[4], view, knowledge, 0)
    assert union.images.shape == (10, *SHAPE) and union.message_ids == ("a0", "a1")


def test_labels_are_known_or_inferred_and_nothing_falls_back(hundred) -> None:
    view, knowledge = make_view(small(), hundred, known=False)
    with pytest.raises(ValueError, match="none of the messages 'server' saw"):
        Inversion().parts(view, knowledge)
    assert len(Inversion().parts(view, replace(knowledge, labels={"a0": hundred.targets[:5]}))) == 1
    attack = Inversion(labels="inferred", iterations=2)
    made = attack.run_part(attack.parts(view, knowledge)[0], view, knowledge, 0)
    assert made.labels.tolist() == hundred.targets[:5].sort().values.tolist()
    target = attack.parts(view, knowledge)[0].content.target
    with pytest.raises(ValueError, match="not known to the attacker"):
        solve(view.module, [target], SHAPE, Inversion(), 0)


def test_what_cannot_be_attacked_is_said_in_one_sentence(hundred) -> None:
    view, knowledge = make_view(small(), hundred)
    with pytest.raises(ValueError, match="inputs have shape"):
        Inversion().parts(replace(view, input_shape=(11,)), knowledge)
    with pytest.raises(ValueError, match="the targets of this setup are numbers"):
        Inversion().parts(replace(view, classes=0), knowledge)
    with pytest.raises(ValueError, match="the network has"):
        solve(small(widths=(9,)), [Inversion().parts(view, knowledge)[0].content.target], SHAPE, Inversion(), 0)


@pytest.mark.parametrize(
    ("setting", "value"),
    (
        ("objective", "l1"),
        ("optimiser", "sgd"),
        ("labels", "guess"),
        ("manners", ("two",)),
        ("iterations", 0),
        ("restarts", 0),
        ("lr", 0.0),
        ("tv", -1.0),
        ("tv", "high"),
        ("features", -1.0),
        ("softened", -1),
        ("batch_statistics", -1),
        ("running_statistics", -1),
        ("mode", "test"),
    ),
)
def test_impossible_settings_are_refused(setting: str, value: object) -> None:
    with pytest.raises(ValueError, match=setting):
        Inversion(**{setting: value})


def test_quick_spares_two_thirds_of_the_iterations_and_never_all() -> None:
    counts = {given: make_inversions({"iterations": given}, True, "cpu")[0].iterations for given in (300, 7, 2, 1)}
    assert counts == {300: 100, 7: 2, 2: 1, 1: 1}
    assert make_inversions({"iterations": 7}, False, "cpu")[0].iterations == 7


def test_presets_name_their_sources() -> None:
    assert {"thesis", "inverting-gradients", "dlg"} <= set(PRESETS)
    for preset in PRESETS.values():
        assert preset.source and isinstance(preset.settings, Inversion)
    # As the papers print them; Geiping et al. step by .1 in normalised space, which is .025 of CIFAR-10's pixels.
    printed = {"thesis": (2500, 0.01), "thesis-euclidean": (2500, 0.01), "inverting-gradients": (4800, 0.025)}
    for name, (iterations, lr) in printed.items():
        assert (PRESETS[name].settings.iterations, PRESETS[name].settings.lr) == (iterations, lr)
    thesis = PRESETS["thesis"].settings
    assert (thesis.objective, thesis.optimiser, thesis.tv) == ("cosine", "signed-adam", 0.01)
