"""The likelihood ratio of a sequence of messages, and quantile regression: known answers, and what they add."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
import torch
from dpfl_audit.attacks.base import Knowledge, PublicFacts, Seen, View
from dpfl_audit.attacks.membership import QuantileMembership, SequenceMembership
from dpfl_audit.attacks.membership.gradients import gram
from dpfl_audit.attacks.membership.quantile import Features, quantile_scores
from dpfl_audit.attacks.membership.sequence import Belief, Prior, log_ratio
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.metrics.membership import auc
from messages import gradient
from scipy.stats import norm
from torch import Tensor, nn

LR, N, NOISE, WIDE = 0.1, 20, 0.04, 60
KNOWN = torch.zeros(0, WIDE), torch.zeros(0, dtype=torch.long)


# --- by hand ---


def test_the_ratio_of_one_candidate_is_that_of_two_normal_densities():
    """Nobody else in the question: D/s² of N(‖g‖², s²‖g‖²) against N(0, s²‖g‖²), whatever the prior."""
    for share, square, noise, along in ((0.5, 4.0, 3.0, 7.0), (0.1, 1.0, 0.5, -0.2)):
        prior = Prior(share, share**2)
        precision = prior.precision(1) + square / noise**2
        seen = prior.precision(1) @ torch.tensor([share], dtype=torch.float64) + along / noise**2
        wide = noise * square**0.5
        expected = norm.logpdf(along, square, wide) - norm.logpdf(along, 0, wide)
        assert log_ratio(Belief.of(prior, precision), seen).item() == pytest.approx(expected)


def test_the_prior_is_the_inverse_of_its_covariance():
    prior = Prior(0.2, 0.04)
    covariance = 0.16 * torch.eye(5, dtype=torch.float64) + 0.04
    torch.testing.assert_close(prior.precision(5) @ covariance, torch.eye(5, dtype=torch.float64))


def test_a_record_is_no_member_for_looking_like_one():
    """Two candidates with the same gradient but for a tenth, one of them there: together they tell which."""
    g = torch.tensor([[1.0, 0.0], [1.0, 0.1]], dtype=torch.float64)
    prior, noise = Prior(0.5, 0.0), 0.01
    precision = prior.precision(2) + g @ g.T / noise**2
    seen = prior.precision(2) @ torch.full((2,), 0.5, dtype=torch.float64) + g @ g[0] / noise**2
    ratio = log_ratio(Belief.of(prior, precision), seen)
    assert ratio[0] > 3 > -3 > ratio[1]


@pytest.mark.parametrize("module", [nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)), nn.Conv1d(1, 3, 6)])
def test_the_gram_matrix_is_of_gradients_formed_one_by_one(module):
    network = (
        module if isinstance(module, nn.Sequential) else nn.Sequential(nn.Unflatten(1, (1, 6)), module, nn.Flatten())
    )
    x, y = torch.randn(9, 6, generator=torch.Generator().manual_seed(0)), torch.arange(9) % 3
    weights = Layout.of(network).join(dict(network.named_parameters())).detach()
    each = torch.stack([gradient(network, weights, x[i : i + 1], y[i : i + 1]) for i in range(9)])
    torch.testing.assert_close(gram(network, weights, x, y), each @ each.T, rtol=1e-4, atol=1e-5)


# --- rounds of one client, its records among many ---


def captured(rounds: int, noise: float = NOISE, clients: int = 1) -> tuple[View, Knowledge, Tensor]:
    """Clients of 20 records each send an update of a linear network, with noise, from other weights every round;
    with 300 candidates, of whom the first 20 are the first client's.
    """
    rng = torch.Generator().manual_seed(1)
    x, y = torch.randn(300, WIDE, generator=rng), torch.randint(3, (300,), generator=rng)
    module, messages = nn.Linear(WIDE, 3), list[Seen]()
    for round in range(rounds):
        start = 0.1 * torch.randn(3 * WIDE + 3, generator=rng)
        messages.append(Seen(f"model {round}", round, "server", (), "weights", 0, lambda w=start: w, True))
        for client in range(clients):
            own = slice(N * client, N * (client + 1))
            update = -LR * gradient(module, start, x[own], y[own]) + noise * torch.randn(3 * WIDE + 3, generator=rng)
            messages.append(
                Seen(f"{client} {round}", round, f"client {client}", (), "update", N, lambda u=update: u, False)
            )
    facts = PublicFacts("ldp", "update", "sgd", LR, batch_size=N, epochs=1, steps=None, noise_std=noise)
    view = View("server", tuple(messages), module, Layout.of(module), facts, (WIDE,), 3)
    member = torch.arange(300) < N
    return view, Knowledge({}, *KNOWN, x, y, torch.arange(300)), member


def area(rounds: int, **options: float) -> float:
    view, knowledge, member = captured(rounds, **options)
    attack = SequenceMembership()
    part = attack.parts(view, knowledge)[0]
    scores = attack.run_part(part, view, knowledge, 0).scores
    return auc(scores[member], scores[~member])[0]


def test_every_round_adds_to_what_is_known():
    """A signal of √T: what one noisy message hardly tells, 64 do."""
    one, sixteen, many = area(1), area(16), area(64)
    assert one < 0.75 and one < sixteen < many and many > 0.85


def test_without_noise_a_few_rounds_are_enough():
    assert area(16, noise=0.0) > area(16)


@pytest.mark.full
def test_noise_of_three_times_the_clip_is_averaged_out_over_clipped_weights() -> None:
    """Each round's weights were made longer by a guess that noise made: a mean AUC of .64, .78 since."""
    scores = []
    for seed in range(4):
        rng = torch.Generator().manual_seed(seed)
        x, y = torch.randn(200, WIDE, generator=rng), torch.randint(3, (200,), generator=rng)
        module, messages, d = nn.Linear(WIDE, 3), list[Seen](), 3 * WIDE + 3
        for round in range(128):
            start = 0.1 * torch.randn(d, generator=rng)
            trained = start - LR * gradient(module, start, x[:N], y[:N])
            sent = 0.2 * trained / trained.norm() + 0.6 / d**0.5 * torch.randn(d, generator=rng)
            messages.append(Seen(f"model {round}", round, "server", (), "weights", 0, lambda w=start: w, True))
            messages.append(Seen(f"{round}", round, "client", (), "weights", N, lambda w=sent: w, False))
        facts = PublicFacts("nbafl", "weights", "sgd", LR, N, 1, None, clip_norm=0.2, noise_std=0.6 / d**0.5)
        view = View("server", tuple(messages), module, Layout.of(module), facts, (WIDE,), 3)
        knowledge, attack = Knowledge({}, *KNOWN, x, y, torch.arange(200)), SequenceMembership()
        found = attack.run_part(attack.parts(view, knowledge)[0], view, knowledge, 0).scores
        scores.append(auc(found[:N], found[N:])[0])
    assert sum(scores) / 4 > 0.72


def test_a_sequence_needs_the_sum_of_gradients():
    view, knowledge, _ = captured(1)
    view = View(view.observer, view.messages[:1], view.module, view.layout, view.facts, (WIDE,), 3)
    with pytest.raises(ValueError, match="needs uploads of rounds whose global model was seen too"):
        SequenceMembership().parts(view, knowledge)


# --- quantile regression ---


def test_a_record_is_compared_with_its_own_kind():
    """φ lies at 10 for one label and at 0 for the other; members lie 2 above their kind. φ itself hardly tells them."""
    rng = np.random.default_rng(0)

    def drawn(n: int, lift: float) -> tuple[np.ndarray, np.ndarray]:
        kind = rng.integers(0, 2, n)
        return kind[:, None].astype(float), 10.0 * kind + lift + rng.normal(size=n)

    known, seen = drawn(800, 0.0)
    (asked_in, phi_in), (asked_out, phi_out) = drawn(300, 2.0), drawn(300, 0.0)
    scores = quantile_scores(known, seen, np.concatenate([asked_in, asked_out]), np.concatenate([phi_in, phi_out]))
    by_phi = auc(torch.from_numpy(phi_in), torch.from_numpy(phi_out))[0]
    by_kind = auc(torch.from_numpy(scores[:300]), torch.from_numpy(scores[300:]))[0]
    assert by_phi < 0.72 < 0.87 < by_kind < norm.cdf(2 / sqrt(2)) + 0.03  # the best there is: .921
    assert np.median(scores[300:]) == pytest.approx(0.0, abs=0.25)
    assert np.quantile(scores[300:], 0.9) == pytest.approx(1.0, abs=0.4)


def test_features_are_components_and_labels():
    inputs = torch.tensor([[[3.0, 0.0]], [[-3.0, 0.0]], [[0.0, 1.0]], [[0.0, -1.0]]])
    features = Features.of(inputs, 3)(inputs, torch.tensor([0, 1, 2, 0]))
    assert np.abs(features[:, 0]) == pytest.approx([3, 3, 0, 0]) and features.shape == (4, 5)
    assert features[:, 2:].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]


def test_quantiles_need_others_to_learn_from():
    view, knowledge, _ = captured(1)
    with pytest.raises(ValueError, match="has 0 auxiliary ones, at least 50 are needed"):
        QuantileMembership().parts(view, knowledge)
