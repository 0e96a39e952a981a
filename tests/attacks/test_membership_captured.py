"""Statistics of one message: signs, scales, and FedMIA against one record at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from dpfl_audit.attacks.base import PublicFacts, Seen
from dpfl_audit.attacks.inversion.read.clipped_weights import stretched
from dpfl_audit.attacks.membership.captured import (
    descent,
    fedmia,
    gradient_cosine,
    gradient_difference,
    gradient_sum,
    local_model,
)
from dpfl_audit.defenses.steps.clip import clip_to
from dpfl_audit.defenses.wire import client_address
from scipy.stats import norm

SGD = PublicFacts("fedavg", "update", "sgd", lr=0.5, batch_size=2, epochs=1, steps=None)


def message(kind: str, count: int = 2) -> Seen:
    return Seen("m", 0, client_address(0), ("server",), kind, count, lambda: torch.zeros(0), False)


def test_every_kind_of_message_points_like_the_gradient_it_was_made_of() -> None:
    start, gradient = torch.tensor([1.0, 1.0]), torch.tensor([2.0, 0.0])
    trained = start - 0.5 * gradient
    for kind, value in (("gradient", gradient), ("update", trained - start), ("weights", trained)):
        direction = descent(message(kind), value, start, SGD)
        cosine = gradient_cosine(direction @ gradient[:, None], gradient.square().sum()[None], direction)
        assert cosine.tolist() == [1.0]
        torch.testing.assert_close(gradient_sum(message(kind), direction, SGD), 2 * gradient)
    for kind, value in (("update", trained - start), ("weights", trained)):
        assert torch.equal(local_model(message(kind), value, start, SGD), trained)


def test_clipped_weights_point_as_they_would_have_unclipped() -> None:
    rng = torch.Generator().manual_seed(0)
    start, gradient = torch.randn(2, 2000, generator=rng)
    trained = start - 0.01 * gradient
    facts = replace(SGD, share="weights", clip_norm=1.0)
    sent = trained / trained.norm()
    for value in (sent, 0.9 * trained / trained.norm()):  # the latter looks as if nobody clipped it
        direction = descent(message("weights"), value, start, facts)
        assert (torch.cosine_similarity(direction, gradient, 0) > 0.99) == (value is sent)
    assert torch.cosine_similarity(start - sent, gradient, 0) < 0.1  # what it was read as before
    torch.testing.assert_close(local_model(message("weights"), sent, start, facts), trained, atol=0.02, rtol=0)


@pytest.mark.parametrize("order", (1, 2))
@pytest.mark.parametrize("clients", (1, 3))
@pytest.mark.parametrize("share", (0.0, 1.0, 3.0, 10.0, 1e5))
def test_clipped_weights_are_made_as_long_as_they_were_whatever_the_noise(
    order: int, clients: int, share: float
) -> None:
    """Noise of three times what was sent made a guess of their length: half as long to a hundred times."""
    rng = torch.Generator().manual_seed(0)
    start, updates = torch.randn(5000, generator=rng), 0.02 * torch.randn(clients, 5000, generator=rng)
    longer = float(torch.linalg.vector_norm(start, order)) / 5
    sent = clip_to(start + updates, longer, order).mean(0)
    std = share * float(sent.norm()) / 5000**0.5
    facts = PublicFacts("nbafl", "weights", "sgd", 0.1, 8, 1, None, clip_norm=longer, clip_order=order)
    for _ in range(30):
        value = sent + std * torch.randn(5000, generator=rng)
        for known in (std, None):  # nobody may know it
            assert stretched(value, start, facts, known, clients) == pytest.approx(5, rel=0.02)
        short = 0.1 * start + std * torch.randn(5000, generator=rng)
        assert stretched(short, 0.1 * start, facts, std) < 1.02  # these are half as long as the clip


def test_gradient_difference_is_what_leaving_the_record_out_saves() -> None:
    rng = torch.Generator().manual_seed(0)
    g, v = torch.randn(5, 7, generator=rng, dtype=torch.float64), torch.randn(7, generator=rng, dtype=torch.float64)
    expected = v.norm().square() - (v - g).norm(dim=1).square()
    torch.testing.assert_close(gradient_difference(g @ v, g.square().sum(1)), expected)


def test_a_record_or_message_without_gradient_has_cosine_zero() -> None:
    assert gradient_cosine(torch.zeros(2), torch.tensor([0.0, 1.0]), torch.ones(3)).tolist() == [0.0, 0.0]
    assert gradient_cosine(torch.zeros(1), torch.ones(1), torch.zeros(3)).tolist() == [0.0]


def test_fedmia_equals_one_record_at_a_time() -> None:
    rng = torch.Generator().manual_seed(0)
    own, others = (
        torch.randn(40, generator=rng, dtype=torch.float64),
        torch.randn(15, 40, generator=rng, dtype=torch.float64),
    )
    others[3, ::4] += 30  # another client holds these records after all
    expected = []
    for i in range(40):
        column = others[:, i].numpy()
        column = column[column <= column.mean() + 3 * column.std(ddof=1)]
        assert len(column) == (14 if i % 4 == 0 else 15)
        expected.append(norm.cdf((own[i].item() - column.mean()) / np.std(column, ddof=1)))
    assert fedmia(own, others).tolist() == pytest.approx(expected, abs=1e-12)


def test_bad_input() -> None:
    adam = PublicFacts("fedavg", "update", "adam", lr=0.5, batch_size=2, epochs=1, steps=None)
    with pytest.raises(ValueError, match="which 'adam' does not keep; use the cosine"):
        gradient_sum(message("update"), torch.zeros(2), adam)
    with pytest.raises(ValueError, match="without the global model of round 0 they are no update"):
        descent(message("weights"), torch.zeros(2), None, SGD)
    with pytest.raises(ValueError, match="carries a gradient, which does not give its sender's model"):
        local_model(message("gradient"), torch.zeros(2), torch.zeros(2), SGD)
    with pytest.raises(ValueError, match="at least 4 other clients in the same round, and there are 3"):
        fedmia(torch.zeros(2), torch.zeros(3, 2))
