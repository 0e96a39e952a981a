"""What a view becomes: sign, scale, clip and noise undone, checked against really trained updates."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dpfl_audit.attacks.base import PublicFacts, Seen, View
from dpfl_audit.attacks.inversion.read.rounds import all_rounds
from dpfl_audit.attacks.inversion.read.target import Target, assumptions, local_steps, one_round, target_of
from dpfl_audit.defenses import models
from dpfl_audit.defenses.layout import Layout
from messages import flat, gradient, knowing
from torch import Tensor

SHAPE, CLASSES = (1, 4, 4), 3
MODULE = models.build(
    "mlp", input_shape=SHAPE, classes=CLASSES, mean=(0.5,), std=(0.5,), seed=0, widths=[6], activation="tanh"
)
LAYOUT = Layout.of(MODULE)
FACTS = PublicFacts("test", "gradient", "sgd", lr=0.1, batch_size=5, epochs=1, steps=None, noise_std=0.0)
RNG = torch.Generator().manual_seed(0)
IMAGES, LABELS = torch.rand(30, *SHAPE, generator=RNG), torch.randint(0, CLASSES, (30,), generator=RNG)


WEIGHTS = flat(MODULE)
OF_FIVE = gradient(MODULE, WEIGHTS, IMAGES[:5], LABELS[:5])


def trained(at: Tensor, batches: list[slice], optimiser: type[torch.optim.Optimizer], lr: float) -> Tensor:
    """The update of a client that really trains."""
    parameter = at.clone().requires_grad_()
    local = optimiser([parameter], lr=lr)
    for rows in batches:
        parameter.grad = gradient(MODULE, parameter.detach(), IMAGES[rows], LABELS[rows])
        local.step()
    return parameter.detach() - at


def seen(
    id: str,
    round: int,
    value: Tensor,
    kind: str = "gradient",
    n: int = 5,
    sender: str = "a",
    receivers: tuple[str, ...] = ("server",),
    broadcast: bool = False,
) -> Seen:
    return Seen(id, round, sender, receivers, kind, n, lambda: value, broadcast)


def model(round: int, value: Tensor) -> Seen:
    return seen(f"w{round}", round, value, "weights", 0, "server", ("a", "b"), True)


def view(messages: list[Seen], **facts) -> View:
    return View("server", tuple(messages), MODULE, LAYOUT, replace(FACTS, **facts), SHAPE, CLASSES)


def test_a_gradient_is_taken_as_it_is() -> None:
    (aim,) = one_round(
        view([model(0, WEIGHTS), seen("m", 0, OF_FIVE)], clip_norm=2.0, per_layer=True, noise_std=0.3),
        knowing(m=LABELS[:5]),
    )
    target = aim.target
    assert torch.equal(target.gradient, OF_FIVE) and torch.equal(target.weights, WEIGHTS)
    assert (target.count, target.clip_norm, target.noise_std) == (5, 2.0, 0.3)
    assert target.per_layer is target.scale_known is True
    assert torch.equal(target.labels, LABELS[:5])


@pytest.mark.parametrize("optimiser", ("sgd", "momentum"))
def test_one_plain_step_gives_the_gradient_back_exactly(optimiser: str) -> None:
    update = trained(WEIGHTS, [slice(0, 5)], torch.optim.SGD, 0.1)
    (aim,) = one_round(
        view(
            [model(0, WEIGHTS), seen("m", 0, update, "update")],
            share="update",
            optimiser=optimiser,
            clip_norm=0.5,
            noise_std=0.02,
        ),
        knowing(),
    )
    assert torch.allclose(aim.target.gradient, OF_FIVE, atol=1e-6)
    assert (
        aim.target.scale_known
        and aim.target.clip_norm == pytest.approx(5.0)
        and aim.target.noise_std == pytest.approx(0.2)
    )


def test_several_small_steps_give_nearly_the_mean_gradient_with_its_sign_and_scale() -> None:
    lr = 1e-3
    update = trained(WEIGHTS, [slice(0, 5), slice(5, 10)] * 3, torch.optim.SGD, lr)
    (aim,) = one_round(
        view([model(0, WEIGHTS), seen("m", 0, update, "update", 10)], share="update", lr=lr, epochs=3), knowing()
    )
    wanted = gradient(MODULE, WEIGHTS, IMAGES[:10], LABELS[:10])
    assert (aim.target.gradient - wanted).norm() < 0.02 * wanted.norm()
    assert aim.target.scale_known


def test_adam_gives_a_direction_of_unknown_scale() -> None:
    update = trained(WEIGHTS, [slice(0, 5)], torch.optim.Adam, 0.1)
    facts = {"share": "update", "optimiser": "adam"}
    (aim,) = one_round(
        view([model(0, WEIGHTS), seen("m", 0, update, "update")], clip_norm=1.0, per_layer=True, **facts), knowing()
    )
    assert torch.equal(aim.target.gradient, -update)
    assert not aim.target.scale_known and aim.target.clip_norm is None and aim.target.per_layer
    assert aim.target.gradient @ OF_FIVE > 0
    assert any("of adam" in sentence for sentence in assumptions(replace(FACTS, **facts)))


def test_rounds_without_a_model_are_left_out_and_notes_are_named() -> None:
    note = seen("note", 1, WEIGHTS, "weights", 0, "me", ("me",), True)
    aims = one_round(view([seen("m0", 0, OF_FIVE), note, seen("m1", 1, OF_FIVE)]), knowing())
    assert [a.messages[0].id for a in aims] == ["m1"] and aims[0].own_model
    assert all_rounds(view([seen("m0", 0, OF_FIVE), note, seen("m1", 1, OF_FIVE)]), knowing()) == []


def test_noise_share() -> None:
    target = Target("t", torch.zeros(100), torch.full((100,), 2.0), None, 1)
    assert target.noise_share == 0
    assert replace(target, noise_std=1.0).noise_share == pytest.approx(0.25)
    assert replace(target, noise_std=9.0).noise_share == 1
    assert replace(target, gradient=torch.zeros(100), noise_std=1.0).noise_share == 0


@pytest.mark.parametrize(
    ("change", "words"),
    (
        ({"gradient": torch.zeros(3)}, "equal length"),
        ({"count": 0}, "at least 1"),
        ({"labels": torch.zeros(3)}, "expected"),
        ({"clip_norm": 0.0}, "positive"),
        ({"clip_order": 3}, "1 or 2"),
    ),
)
def test_impossible_targets_are_refused_in_one_sentence(change: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        replace(Target("t", torch.zeros(4), torch.zeros(4), None, 2), **change)


def test_steps_from_public_facts() -> None:
    assert local_steps(replace(FACTS, epochs=5, batch_size=20), 100) == 25
    assert local_steps(replace(FACTS, epochs=1, batch_size=20), 101) == 6
    assert local_steps(replace(FACTS, steps=7), 100) == 7


def test_one_step_of_clipped_weights_is_not_said_to_be_undone() -> None:
    facts = replace(FACTS, share="weights", clip_norm=1.0, optimiser="adam", noise_std=0.0, scheme="nbafl")
    assert "adam undone" in " ".join(assumptions(facts, 1))
    start, update = torch.linspace(-1, 1, 500), 1e-3 * torch.ones(500)
    sent = (start + update) / (start + update).norm()
    message = Seen("m", 0, "a", (), "weights", 2, lambda: sent, False)
    one = target_of(message, sent, start, replace(facts, batch_size=2, epochs=1), knowing())
    assert one.stretched > 1 and torch.equal(one.gradient, -(one.stretched * sent - start))
    said = " ".join(assumptions(facts, 1, stretched=True))
    assert "undone" not in said and "of adam" in said
