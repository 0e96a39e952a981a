"""Several messages as one aim: which are of the same images, the joint objective by hand, sums of clients, masks."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from dpfl_audit.attacks.base import Knowledge, PublicFacts, Seen, Sum, View
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.exact.first_layer import FirstLayer
from dpfl_audit.attacks.inversion.match.evaluate import evaluator, tv_weight
from dpfl_audit.attacks.inversion.match.joint import misread, weighed
from dpfl_audit.attacks.inversion.read.rounds import MOST, _joined, all_rounds, every_round
from dpfl_audit.attacks.inversion.read.sparse import components_sent
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.attacks.inversion.settings import OBJECTIVES, Name
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.attacks.inversion.strategies.simulated import can_simulate
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data import photos
from dpfl_audit.defenses.layout import Layout
from messages import decibels, flat, gradient, knowing
from tiers import quick
from torch import Tensor, nn

SHAPE, CLASSES = (1, 4, 4), 3
FACTS = PublicFacts("fedavg", "update", "sgd", lr=0.1, batch_size=5, epochs=1, steps=None, noise_std=0.0)
RNG = torch.Generator().manual_seed(0)
IMAGES, LABELS = torch.rand(30, *SHAPE, generator=RNG), torch.randint(0, CLASSES, (30,), generator=RNG)


def tiny(seed: int = 0) -> nn.Module:
    return models.build(
        "mlp", input_shape=SHAPE, classes=CLASSES, mean=(0.5,), std=(0.5,), seed=seed, widths=[6], activation="tanh"
    )


MODULE = tiny()
LAYOUT = Layout.of(MODULE)


def message(
    id: str, round: int, value: Tensor, kind: str, n: int = 5, sender: str = "client-0", broadcast: bool = False
) -> Seen:
    return Seen(id, round, sender, ("server",), kind, n, lambda: value, broadcast)


def rounds_of(weights: list[Tensor], values: list[Tensor], kind: str = "update", n: int = 5, **facts: object) -> View:
    """A view of one client that sent a value in every round."""
    down = [message(f"w{r}", r, w, "weights", 0, "server", True) for r, w in enumerate(weights)]
    up = [message(f"m{r}", r, value, kind, n) for r, value in enumerate(values)]
    return View("server", (*down, *up), MODULE, LAYOUT, replace(FACTS, **facts), SHAPE, CLASSES)


def test_whole_epochs_are_one_target_with_every_round_at_its_own_weights() -> None:
    weights = [flat(tiny(seed)) for seed in (0, 1, 2)]
    gradients = [gradient(MODULE, w, IMAGES[:5], LABELS[:5]) for w in weights]
    view = rounds_of(weights, [-0.1 * g for g in gradients], noise_std=0.01, clip_norm=0.3)
    own = LABELS[:5].sort().values
    (aim,) = all_rounds(view, knowing(m0=own, m1=own, m2=own))
    assert (aim.count, len(aim.targets), [m.id for m in aim.messages]) == (5, 1, ["m0", "m1", "m2"])
    for one, at, g in zip(aim.target.messages, weights, gradients):
        assert torch.equal(one.weights, at) and torch.allclose(one.gradient, g, atol=1e-6)
        assert one.clip_norm == pytest.approx(3.0) and one.noise_std == pytest.approx(0.1)
        assert torch.equal(one.labels, own) and not one.others
    assert not can_simulate(aim.target)


def test_what_says_that_messages_are_of_the_same_records() -> None:
    weights, g = [flat(MODULE)] * 2, gradient(MODULE, flat(MODULE), IMAGES[:5], LABELS[:5])
    own = LABELS[:5].sort().values
    known = knowing(m0=own, m1=own)

    def targets(view: View, knowledge: Knowledge) -> int:
        (aim,) = all_rounds(view, knowledge)
        assert aim.count == 5 * len(aim.targets)
        return len(aim.targets)

    step = {"steps": 1, "epochs": None}
    assert targets(rounds_of(weights, [-g, -g]), known) == 1
    assert targets(rounds_of(weights, [-g, -g], **step), known) == 1  # one step over all five
    assert targets(rounds_of(weights, [-g, -g], n=10, **step), known) == 2  # five of ten, others each round
    assert targets(rounds_of(weights, [g, g], "gradient", share="gradient"), known) == 2  # nobody says of how many
    all_of_it = replace(rounds_of(weights, [g, g], "gradient", share="gradient"), records={"client-0": 5})
    assert targets(all_of_it, known) == 1
    assert targets(replace(all_of_it, records={"client-0": 15}), known) == 2
    # batches drawn in secret, anew in every round, and messages of unequally many records
    assert targets(rounds_of(weights, [-g, -g], secret_batches=True), known) == 2
    uneven = rounds_of(weights, [-g, -g])
    uneven = replace(uneven, messages=(*uneven.messages[:-1], message("m1", 1, -g, "update", n=6)))
    (apart,) = all_rounds(uneven, knowing())
    assert [target.count for target in apart.targets] == [5, 6]
    (aim,) = all_rounds(rounds_of(weights, [-g, -g], n=10, steps=2, epochs=None), knowing())
    assert aim.count == 10 and len(aim.targets) == 1  # two batches of five go over all ten, whose labels nobody knows


def test_messages_apart_are_each_message_alone() -> None:
    weights = [flat(tiny(seed)) for seed in (0, 1)]
    values = [gradient(MODULE, w, IMAGES[5 * k : 5 * k + 5], LABELS[5 * k : 5 * k + 5]) for k, w in enumerate(weights)]
    view = rounds_of(weights, values, "gradient", share="gradient")
    known = knowing(m0=LABELS[:5].sort().values, m1=LABELS[5:10].sort().values)
    attack = Inversion(iterations=5)
    parts = attack.parts(view, known)
    assert [part.key for part in parts] == ["one-round:m0", "one-round:m1", "all-rounds:m0+m1"]
    alone = [attack.run_part(part, view, known, 0) for part in parts[:2]]
    both = attack.run_part(parts[2], view, known, 0)
    assert torch.allclose(both.images, torch.cat([one.images for one in alone]), atol=1e-5)
    assert torch.equal(both.labels, torch.cat([one.labels for one in alone]))
    assert both.message_ids == ("m0", "m1") and "every message" in str(both.assumed)


def test_of_so_many_messages_those_with_the_least_noise_are_attacked_alone_and_all_together() -> None:
    """`messages = 2` of three, the first of which has the weakest signal beside the same noise."""
    weights = [flat(tiny(seed)) for seed in (0, 1, 2)]
    g = gradient(MODULE, weights[0], IMAGES[:5], LABELS[:5])
    view = rounds_of(weights, [-0.1 * g, -10 * g, -g], noise_std=0.01)
    own = LABELS[:5].sort().values
    parts = Inversion(messages=2).parts(view, knowing(m0=own, m1=own, m2=own))
    assert [part.key for part in parts] == ["one-round:m1", "one-round:m2", "all-rounds:m0+m1+m2"]
    only, _ = Inversion(messages=1).parts(view, knowing(m0=own, m2=own))
    assert only.key == "one-round:m2"  # of those whose labels are known
    with pytest.raises(ValueError, match="messages is -1, it must be at least 0"):
        Inversion(messages=-1)


def test_no_more_than_the_most_messages_are_used() -> None:
    g = gradient(MODULE, flat(MODULE), IMAGES[:5], LABELS[:5])
    many = MOST + 5
    view = rounds_of([flat(MODULE)] * many, [-g * (1 + (r == 7)) for r in range(many)], noise_std=0.1)
    attack = Inversion(iterations=2, labels="inferred")
    *single, joint = attack.parts(view, knowing())
    assert len(joint.content.target.messages) == MOST
    assert 7 in [m.round for m in joint.content.messages]  # the loudest
    assert joint.work == pytest.approx(MOST * single[0].work)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_joint_objective_is_the_sum_by_trust(objective: Name) -> None:
    """Its value by hand, and its gradient by differences, with another clip and noise for every message."""
    module = tiny().double()
    weights = [flat(tiny(seed)).double() for seed in (0, 1, 2)]
    noise = torch.Generator().manual_seed(1)
    targets = []
    for r, at in enumerate(weights):
        g = gradient(module, at, IMAGES[:4].double(), LABELS[:4])
        g = g * 0.5 + 0.01 * r * torch.randn(len(g), generator=noise, dtype=torch.float64)
        targets.append(Target(f"m{r}", at, g, LABELS[:4], 4, 0.2 + 0.1 * r, noise_std=0.01 * r))
    target = replace(targets[0], others=tuple(targets[1:]))
    whole = weighed(module, LAYOUT, target, LABELS[:4], SHAPE, objective)
    trust = [one.trust for one in whole.messages]
    assert trust[0] > trust[1] > trust[2] > 0
    images = torch.rand(2, 4, *SHAPE, generator=noise, dtype=torch.float64)
    value, slope = evaluator(module, LAYOUT, [whole], LABELS[None, :4], 2, objective, SHAPE)(images)

    def by_hand(x: Tensor) -> Tensor:
        total = x.new_zeros(())
        for one, share in zip(targets, trust):
            g, seen = gradient(module, one.weights, x, LABELS[:4], graph=True), one.gradient
            clipped = g * (one.clip_norm / g.norm()).clamp_max(1.0)
            total = (
                total
                + share
                * {
                    "cosine": lambda g=g, seen=seen: 1 - g @ seen / (g.norm() * seen.norm()),
                    "euclidean": lambda c=clipped, seen=seen: (c - seen).square().sum() / seen.square().sum(),
                    "euclidean-naive": lambda g=g, seen=seen: (g - seen).square().sum() / seen.square().sum(),
                    "absolute": lambda c=clipped, seen=seen: (c - seen).abs().sum() / seen.abs().sum(),
                }[objective]()
            )
        return total

    assert torch.allclose(value, torch.stack([by_hand(x) for x in images]))
    step = 1e-6 * torch.randn(4, *SHAPE, generator=noise, dtype=torch.float64)
    change = (by_hand(images[0] + step) - by_hand(images[0] - step)) / 2
    assert change.item() == pytest.approx((slope[0] * step).sum().item(), rel=1e-3)


def test_equal_messages_weigh_as_their_mean_would() -> None:
    """T messages with a share ν of noise: as one, the mean, whose noise has a T-th of the energy; prior and all."""
    g = torch.ones(len(flat(MODULE)))
    one = Target("m", flat(MODULE), g, LABELS[:5], 5, noise_std=0.5**0.5)
    many = replace(one, others=(one,) * 3)
    assert one.noise_share == pytest.approx(0.5)
    assert many.noise_share == pytest.approx((0.5 / 4) / (0.5 + 0.5 / 4))
    assert tv_weight(many, Inversion(tv="noise-aware")) == pytest.approx(0.01 + 0.4 * 0.2)
    for objective, power in (("euclidean", 1.0), ("cosine", 0.5)):
        whole = weighed(MODULE, LAYOUT, many, LABELS[:5], SHAPE, objective)
        assert sum(m.trust for m in whole.messages) == pytest.approx(0.625**-power)


def test_longer_ways_are_read_less_exactly() -> None:
    at, steps = flat(MODULE), {"batch_size": 1, "epochs": 1}
    far = [0.1, 1.0]
    views = [rounds_of([at], [-k * gradient(MODULE, at, IMAGES[:5], LABELS[:5])], **steps) for k in far]
    own = LABELS[:5].sort().values
    near, long = (misread(MODULE, LAYOUT, every_round(view, knowing(m0=own))[0].target, own, SHAPE) for view in views)
    assert 0 < near < long / 10 and long <= 1
    one_step = every_round(rounds_of([at], [far[1] * at]), knowing(m0=own))[0].target
    assert misread(MODULE, LAYOUT, one_step, own, SHAPE) == 0


# --- what it is for ---

COLOUR, WIDTH = (3, 32, 32), 64


@pytest.fixture(scope="module")
def data():
    return photos.load(classes=10, samples=60, seed=5)


def wide(data, seed: int, widths: tuple[int, ...] = (128,)) -> nn.Module:
    return models.build(
        "mlp", input_shape=COLOUR, classes=10, mean=data.mean, std=data.std, seed=seed, widths=list(widths)
    )


def noisy_rounds(data, seed: int, rounds: int, share: float, n: int = 3) -> tuple[nn.Module, list[Target], Tensor]:
    """Gradients of the same images at several weights, each with noise of this share of its energy."""
    rng = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(data.inputs), generator=rng)[:n]
    images, labels = data.inputs[rows], data.targets[rows]
    module, targets = wide(data, seed, (WIDTH,)), []
    for r in range(rounds):
        at = flat(module) + 0.002 * r * torch.randn(len(flat(module)), generator=rng)
        g = gradient(module, at, images, labels)
        std = float(g.norm()) * (share / (1 - share) / len(g)) ** 0.5
        noise = torch.randn(len(g), generator=rng)
        targets.append(Target(f"m{r}", at, g + std * noise, labels, n, noise_std=std))
    return module, targets, images


@pytest.mark.parametrize(("objective", "seed"), quick(product(("cosine", "euclidean"), (11, 12)), 0))
def test_eight_rounds_together_beat_the_best_of_them(data, objective: Name, seed: int) -> None:
    """Independent noise over eight messages is worth √8 in its size, 9 dB; 1.5 of them, at least, in the pictures."""
    module, targets, images = noisy_rounds(data, seed, 8, 0.995)
    settings = Inversion(objective=objective, iterations=40, tv="noise-aware")
    single = [decibels(s.images, images).mean() for s in solve(module, targets, COLOUR, settings, 0)]
    (all_of_them,) = solve(module, [replace(targets[0], others=tuple(targets[1:]))], COLOUR, settings, 0)
    assert decibels(all_of_them.images, images).mean() > max(single) + 1.5


def test_the_first_layers_rows_of_all_rounds_span_the_images(data) -> None:
    """Noise that hides the span in any one message leaves it clear enough in eight; images come out to 35 dB."""
    module, targets, images = noisy_rounds(data, 21, 8, 0.05, n=3)
    alone = FirstLayer.of(module, targets[0])
    together = FirstLayer.of(module, replace(targets[0], others=tuple(targets[1:])))
    assert together is not None and len(together.planes[0]) == 8 * WIDTH
    assert alone is None or together.span.clearness > 1.5 * alone.span.clearness
    clean = [replace(t, gradient=gradient(module, t.weights, images, t.labels), noise_std=0.0) for t in targets[:3]]
    joint = replace(clean[0], others=tuple(clean[1:]))
    (solution,) = solve(module, [joint], COLOUR, Inversion(iterations=5, exact=True), 0)
    assert decibels(solution.images, images).min() > 60


def test_a_sum_of_clients_is_attacked_as_one(data) -> None:
    """Whoever sees two models knows the mean of two clients' updates, and gets the images of both."""
    module, lr = wide(data, 0), 0.1
    at, images, labels = flat(module), data.inputs[:8], data.targets[:8]
    mean = (gradient(module, at, images[:4], labels[:4]) + gradient(module, at, images[4:], labels[4:])) / 2
    models_seen = (
        message("w0", 0, at, "weights", 0, "server", True),
        message("w1", 1, at - lr * mean, "weights", 0, "server", True),
    )
    facts = replace(FACTS, batch_size=4)
    merged = {0: Sum(clients=2, records=8, everybody=True, scale=1.0, noise_std=0.0)}
    view = View("downlink", models_seen, module, Layout.of(module), facts, COLOUR, 10, sums=merged)
    known = knowing(w1=labels.sort().values)
    (part,) = Inversion(iterations=60, exact=True).parts(view, known)
    made = Inversion(iterations=60, exact=True).run_part(part, view, known, 0)
    assert (made.round, made.sender, made.message_ids, len(made.images)) == (0, "server", ("w1",), 8)
    assert decibels(made.images, images).min() > 40 and "broadcast model" in str(made.assumed)
    assert every_round(replace(view, sums={}), known) == []
    (untold,) = Inversion(labels="inferred").parts(view, knowing())
    assert untold.content.count == 8
    adam = replace(view, facts=replace(facts, optimiser="adam"))
    target = every_round(adam, known)[0].target
    assert target.recipe is None and not target.scale_known  # a mean of Adam's updates is nobody's step


def left_out(data, seed: int, kind: str, n: int = 2) -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    """The gradient of n images of which a tenth of the components were sent: the largest, or a draw."""
    rng = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(data.inputs), generator=rng)[:n]
    images, labels, module = data.inputs[rows], data.targets[rows], wide(data, seed, (256,))
    g = gradient(module, flat(module), images, labels)
    kept = (
        g.abs().topk(len(g) // 10).indices
        if kind == "largest"
        else torch.randperm(len(g), generator=rng)[: len(g) // 10]
    )
    return module, torch.zeros_like(g).index_copy_(0, kept, g[kept]), images, labels


@pytest.mark.parametrize(
    ("kind", "objective"), quick([("largest", "euclidean"), ("drawn", "cosine"), ("drawn", "euclidean")], 0, 1)
)
def test_components_that_were_not_sent(data, kind: str, objective: Name) -> None:
    """That the others are no larger than the least that was sent, or may have any size, is worth decibels."""
    module, kept, images, labels = left_out(data, 31, kind)
    facts = replace(FACTS, scheme="recorded", batch_size=2)
    down = message("w0", 0, flat(module), "weights", 0, "server", True)
    view = View(
        "server", (down, message("m0", 0, -0.1 * kept, "update", 2)), module, Layout.of(module), facts, COLOUR, 10
    )
    known, attack = knowing(m0=labels.sort().values), Inversion(objective=objective, iterations=100)
    (part,) = attack.parts(view, known)
    sparse = part.content.target.sparse
    assert torch.equal(sparse.sent, kept != 0) and sparse.largest == (kind == "largest")
    if sparse.largest:
        assert sparse.least == pytest.approx(kept[kept != 0].abs().min().item(), rel=1e-4)
    made = attack.run_part(part, view, known, 0)
    assert any("not sent" in words for words in made.assumed)
    other = replace(view, facts=replace(facts, scheme="fedavg"))  # of which everybody knows that it sends all
    (part,) = attack.parts(other, known)
    assert part.content.target.sparse is None
    without = attack.run_part(part, other, known, 0)
    assert decibels(made.images, images).mean() > decibels(without.images, images).mean() + 3


def test_a_scheme_that_is_known_to_send_the_largest(data) -> None:
    module, kept, _, _ = left_out(data, 31, "largest")
    facts = replace(FACTS, sent_share=0.1)
    found = components_sent(kept, Layout.of(module), facts)
    assert found is not None and found.largest and torch.equal(found.sent, kept != 0)
    clipped = Target("m", flat(module), kept, None, 2, clip_norm=1.0, sparse=found)
    assert clipped.sparse_by("cosine") is None and clipped.sparse_by("euclidean") is None
    assert replace(clipped, clip_norm=None).sparse_by("euclidean") is found


def test_the_noise_of_all_rounds_is_that_of_what_counts_in_them(data) -> None:
    """Messages count by 1/ν before labels are known, too: beside a clear one, noisy ones take nothing away."""
    _, noisy, _ = noisy_rounds(data, 3, 4, 0.98)
    _, (clear,), _ = noisy_rounds(data, 3, 1, 0.01)
    joined = _joined(noisy)
    assert joined.noise_share == pytest.approx(0.98 / 4 / (0.02 + 0.98 / 4), abs=0.02)
    assert _joined([*noisy, replace(clear, key="clear")]).noise_share < 0.02 and joined.noise_known
    assert not replace(joined, others=(*joined.others, replace(clear, noise_std=0.0))).noise_known
