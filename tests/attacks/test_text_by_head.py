"""Texts under noise by a classifier's head: whole where adapters tell nothing, and none out of noise."""

from __future__ import annotations

from dataclasses import replace
from math import exp

import pytest
import torch
from dpfl_audit.attacks.base import Knowledge
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.attacks.text.attack import TextInversion
from dpfl_audit.attacks.text.noise import noise_over_gradient
from dpfl_audit.attacks.text.prior import Bigrams
from dpfl_audit.defenses.local import LocalTraining
from messages import client_sends, facts_of, transformer, view_of


def read(data, rows, ratio, *, clip=None, own=True, share="gradient"):
    """What a server reads of adapters trained on these notes, under noise so many times as long as the gradient."""
    module, words = transformer(data, layers=2, lora={"rank": 8, "targets": ["query", "value"]})
    training = LocalTraining(lr=0.1, batch_size=len(rows), steps=1, epochs=None)
    value, _ = client_sends(module, training, (data.inputs, data.targets), torch.tensor(rows), share)
    value = value * min(1.0, (clip or 1e9) / float(value.norm()))
    std = ratio * float(value.norm()) / len(value) ** 0.5
    noisy = value + std * torch.randn(value.shape, generator=torch.Generator().manual_seed(0))
    facts = facts_of(training, share, std, clip_norm=clip)
    view, attack = view_of(module, noisy, facts, len(rows), data.input_shape, 4, vocabulary=words), TextInversion()
    known = Knowledge({}, data.auxiliary_inputs[: 500 * own], data.auxiliary_targets[: 500 * own])
    return attack.run_part(attack.parts(view, known)[0], view, known, 0), data.inputs[rows]


@pytest.mark.parametrize(("ratio", "clip", "share"), [(1.0, 0.1, "gradient"), (1.0, None, "update")])
@pytest.mark.full
def test_a_note_comes_back_from_noise_as_long_as_the_gradient(notes, ratio, clip, share):
    """A clip hides the scale, which the search does not need."""
    found, texts = read(notes, [4], ratio, clip=clip, share=share)
    assert torch.equal(found.texts, texts) and found.methods[-1][1] == ""
    assert set(found.words.tolist()) <= {*texts.flatten().tolist()}
    assert found.noise_over_gradient == pytest.approx(ratio, rel=0.1)


@pytest.mark.full
def test_words_that_are_told_are_right(notes):
    """At noise three times as long; of 16 words told at 95 % four wrong ones are as rare as 1 in 100."""
    for_each = [read(notes, [row], 3.0) for row in (2, 3)]
    assert sum(len({*found.words.tolist()} - {*texts.flatten().tolist()}) for found, texts in for_each) <= 3


@pytest.mark.parametrize(("ratio", "own", "why"), [(100.0, True, "shorter than the noise"), (1.0, False, "no texts")])
def test_where_nothing_is_sought_nothing_is_told(notes, ratio, own, why):
    found, _ = read(notes, [4], ratio, own=own)
    assert not len(found.words) and not len(found.texts) and why in found.methods[-1][1]


@pytest.mark.parametrize("ratio", (0.1, 1.0, 3.0, 100.0))
def test_noise_over_gradient_is_a_lower_limit_in_95_of_100_messages(ratio):
    """A gradient of length 1 in 10,000 numbers; nobody measures a ratio of 100, and a clip of 2 bounds it by 50."""
    d, generator = 10_000, torch.Generator().manual_seed(1)
    g, std = torch.full((d,), 0.01), ratio / 100
    messages = [
        Target("t", g, g + std * torch.randn(d, generator=generator), None, 1, noise_std=std) for _ in range(200)
    ]
    limits = [noise_over_gradient(message) for message in messages]
    assert sum(limit <= ratio for limit in limits) >= 180  # of 200 at 95 %, but for 1 in 500
    assert ratio > 1 or min(limits) > 0.85 * ratio
    clipped = replace(messages[0], clip_norm=2.0)
    assert noise_over_gradient(clipped) >= ratio / 2 * (1 - 1e-9)
    assert noise_over_gradient(replace(clipped, noise_std=0.0)) == 0


def test_the_prior_is_a_probability():
    """Of all words that may follow one; Σ is 1 where the word was seen in front of another as often as at all."""
    prior = Bigrams.of([(0, 1, 0), (0, 2, 0), (3, 4)], 6)
    assert sum(exp(prior.log((5, word))) for word in range(6)) == pytest.approx(1.0)
    assert sum(exp(prior.log((1, word))) for word in range(6)) == pytest.approx(1.0)
    assert exp(prior.log((1, 0))) > exp(prior.log((5, 0))) > exp(prior.log((1, 5)))
