"""Membership by what of a record lies outside of a message's spans: nothing of a member, and much of all others."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dpfl_audit.attacks import ATTACKS
from dpfl_audit.attacks.cost import CALL, forward_operations
from dpfl_audit.attacks.membership.projection import span_of
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data import load
from dpfl_audit.defenses.local import LocalTraining
from dpfl_audit.metrics.membership import auc
from messages import NOTHING, client_sends, facts_of, transformer, view_of

ROWS = [0, 1, 2]
NOBODY = [50, 51, 52]


def seen(data, module, rows, *, share="gradient", words=None, noise=0.0):
    """What a server sees of a client that has `rows`, and records 0 to 19 to ask about."""
    training = LocalTraining(lr=0.1, batch_size=len(rows), steps=1, epochs=None)
    value, _ = client_sends(module, training, (data.inputs, data.targets), torch.tensor(rows), share)
    value = value + noise * torch.randn(value.shape, generator=torch.Generator().manual_seed(0))
    facts = facts_of(training, share, noise)
    view = view_of(module, value, facts, len(rows), data.input_shape, data.classes, vocabulary=words)
    candidates = {"inputs": data.inputs[:20], "targets": data.targets[:20], "ids": torch.arange(20)}
    return view, replace(NOTHING, **{f"candidate_{name}": value for name, value in candidates.items()})


def asked(*client, **message):
    """The scores of records 0 to 19 against a client's message."""
    view, knowledge = seen(*client, **message)
    (attack,) = ATTACKS["membership-projection"].make({}, False, "cpu")
    return attack.run_part(attack.parts(view, knowledge)[0], view, knowledge, 0).scores


@pytest.fixture(scope="module")
def digits():
    return load("digits", seed=5)


def image_model(digits, *widths):
    about = {"input_shape": digits.input_shape, "classes": 10, "mean": digits.mean, "std": digits.std, "seed": 1}
    return models.build("mlp", widths=widths, **about)


@pytest.mark.parametrize("share", ["gradient", "update"])
def test_texts_of_a_message_lie_in_its_spans_and_others_do_not(notes, share):
    module, words = transformer(notes, width=96)
    scores = asked(notes, module, ROWS, share=share, words=words)
    assert float(scores[ROWS].min()) > -1e-3 and float(scores[3:].max()) < -0.05
    assert float(asked(notes, module, NOBODY, share=share, words=words).max()) < -0.05


def test_images_too_by_the_first_layer_of_a_network(digits):
    scores = asked(digits, image_model(digits, 32), ROWS)
    assert float(scores[ROWS].min()) > -1e-3 and float(scores[3:].max()) < -0.05


def test_strong_noise_leaves_chance(notes):
    module, words = transformer(notes, width=96)
    scores = asked(notes, module, ROWS, words=words, noise=10.0)
    assert auc(scores[ROWS].tolist(), scores[3:].tolist())[0] < 0.9 and bool(torch.isfinite(scores).all())


def test_a_span_ends_at_its_gap_or_at_half_the_width():
    rng = torch.Generator().manual_seed(0)
    inputs, errors = (torch.randn(n, width, generator=rng, dtype=torch.float64) for n, width in ((5, 32), (48, 5)))
    basis, clear = span_of([errors @ inputs])
    assert (basis.shape, clear) == ((32, 5), True)
    assert span_of([torch.randn(48, 32, generator=rng).double()])[0].shape == (32, 16)
    # two outputs of a softmax have one error between them, which spans one input whatever the batch
    assert not span_of([torch.tensor([[1.0], [-1.0]]).double() @ inputs[:1]])[1]


def test_the_rounding_of_a_message_is_no_part_of_its_span():
    """Of a table's words that nobody has a layer learns nothing, to the last bit: below them rounding looks large."""
    rng = torch.Generator().manual_seed(0)
    inputs, errors = torch.randn(4, 16, generator=rng), torch.randn(24, 4, generator=rng)
    inputs[:, 12:] = 0
    sent = errors @ inputs + 1e-7 * torch.randn(24, 16, generator=rng)
    sent[:, 12:] = 0
    basis, clear = span_of([sent.double()])
    assert (basis.shape, clear) == ((16, 4), True)


def test_a_network_without_linear_layers_is_refused(digits):
    with pytest.raises(ValueError, match="trains no linear layer"):
        asked(digits, torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LayerNorm(64)), ROWS)


def test_by_default_of_images_too_and_its_spans_are_counted(digits):
    view, knowledge = seen(digits, image_model(digits, 1000, 1000), ROWS)
    kind = ATTACKS["membership-projection"]
    (attack,) = kind.make({}, False, "cpu")
    run = CALL + 3 * 20 * forward_operations(view.module, view.input_shape)  # beside two decompositions
    assert kind.arises(view) and attack.parts(view, knowledge)[0].work == run + 20 * 1000 * 64**2 + 20 * 1000**3
