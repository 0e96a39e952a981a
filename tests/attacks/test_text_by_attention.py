"""Whole texts of an encoder: which words attention joined, what it makes of texts, and what is left without one."""

from __future__ import annotations

import pytest
import torch
from dpfl_audit.attacks.text.kin import kin_of
from dpfl_audit.attacks.text.layers import Layers
from dpfl_audit.attacks.text.left import Left
from dpfl_audit.attacks.text.mixing import DIRECTIONS, Mixing
from dpfl_audit.defenses.data import load
from dpfl_audit.defenses.data.vocabulary import PAD, vocabulary_of
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import LocalTraining
from messages import client_sends, flat, transformer

NOTES = load("notes", seed=5)
WORDS = len(vocabulary_of(NOTES.description).words)


@pytest.fixture(scope="module")
def encoder():
    return transformer(NOTES)[0]


def message(module, rows):
    """The network, and the gradient of these notes by name."""
    layout, training = Layout.of(module), LocalTraining(batch_size=len(rows))
    value, _ = client_sends(module, training, (NOTES.inputs, NOTES.targets), torch.tensor(rows), "gradient")
    return Layers.of(module, layout, flat(module), WORDS, NOTES.input_shape[0]), layout.split(value)


def whole(module, rows):
    layers, sent = message(module, rows)
    words = torch.tensor(sorted({*NOTES.inputs[rows].flatten().tolist()} - {PAD}))
    weights = [sent[f"{path}.weight"] for group in layers.groups[:2] for path in group]
    table, places = sent[f"{layers.words}.weight"], sent[f"{layers.positions}.weight"]
    return Left.of(layers, words, table[words], places, weights)


def text(row):
    return NOTES.inputs[row][NOTES.inputs[row] != PAD]


def test_what_is_left_without_a_text_is_the_message_of_the_others(encoder):
    left, rest = whole(encoder, [0, 1]).without(text(0))
    other = whole(encoder, [1])  # the mean of two records has half of each
    rows = left.rows[torch.isin(left.words, other.words)]
    assert rest < 1e-5 and torch.allclose(rows, other.rows / 2, atol=1e-3 * float(other.rows.abs().max()))
    assert torch.equal(left.words[left.some], other.words) and left.length == len(text(1))
    for mine, theirs in zip(left.weights, other.weights, strict=True):
        assert float((mine - theirs / 2).norm()) < 1e-4 * float(theirs.norm())


def test_a_text_with_one_wrong_word_is_no_part_of_the_message(encoder):
    message = whole(encoder, [0, 1])
    wrong = text(0).clone()
    wrong[2] = text(1)[3]
    left, rest = message.without(wrong)
    assert rest > 1e-2 and left is message


def test_shares_are_those_of_the_networks_attention(encoder):
    left = whole(encoder, [0, 1])
    layers, gradient = left.layers, left.weights[-1]
    rank = sum(len(text(row)) for row in (0, 1)) - 1  # one direction less, so that right texts have a rest too
    mixing = Mixing.of(layers, left.words, NOTES.input_shape[0], gradient, rank)
    tokens = text(1).flip(0)
    read = layers.inputs(tokens[None], 1)[1][0]
    away = torch.linalg.svd(gradient)[2][rank:][:DIRECTIONS]  # a sample of them, made as long as all
    shares = (read @ away.T).norm(dim=1) / read.norm(dim=1) * ((read.shape[1] - rank) / DIRECTIONS) ** 0.5
    own = torch.searchsorted(left.words, tokens)
    assert torch.allclose(mixing.shares(own[None])[0].double(), shares, atol=1e-5)
    changed = own.clone()
    changed[3] = 7
    assert float(mixing.changed(own, 3, torch.tensor([5, 7]))[1]) == pytest.approx(
        float(mixing.shares(changed[None]).mean()), abs=1e-6
    )
    longer = torch.cat([own, torch.tensor([4])])
    assert float(mixing.changed(own, len(own), torch.tensor([4]))) == pytest.approx(
        float(mixing.shares(longer[None]).mean()), abs=1e-6
    )


def test_attention_that_looks_back_alone_is_of_another_kind():
    layers, sent = message(transformer(NOTES, causal=True)[0], [0])
    gradient = sent[f"{layers.groups[1][0]}.weight"]
    assert Mixing.of(layers, torch.arange(9), NOTES.input_shape[0], gradient, 8) is None


def test_keys_of_one_text_are_told_from_others():
    """Errors by hand: each is made of four of 60 keys, by weights of its own for each of 4 heads, which sum to zero."""
    rng = torch.Generator().manual_seed(0)
    keys = torch.randn(60, 4, 16, generator=rng, dtype=torch.float64)
    used = torch.stack([torch.randperm(60, generator=rng)[:4] for _ in range(5)])
    counts = torch.randn(5, 4, 4, generator=rng, dtype=torch.float64)
    counts -= counts.mean(1, keepdim=True)
    errors = torch.einsum("ksh,kshe->khe", counts, keys[used])
    kin = kin_of(errors.flatten(1), keys.flatten(1), 4)
    assert [sorted(row) for row in kin.topk(4).indices.tolist()] == [sorted(row) for row in used.tolist()]
    assert float(kin.sort(descending=True).values[:, 4].max()) < 1e-3
