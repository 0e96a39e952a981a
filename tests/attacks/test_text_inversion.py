"""Words and texts read out of gradients: exact without noise, nothing certain out of noise, never by the truth."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial

import pytest
import torch
from dpfl_audit.attacks import ATTACKS
from dpfl_audit.attacks.text.attack import TextInversion
from dpfl_audit.attacks.text.bag import bag_of_rows
from dpfl_audit.attacks.text.decay import without_decay
from dpfl_audit.attacks.text.same_step import words_of_steps
from dpfl_audit.attacks.text.span import SpanOfInputs
from dpfl_audit.defenses.data.vocabulary import PAD
from dpfl_audit.defenses.local import LocalTraining
from messages import NOTHING, client_sends, facts_of, transformer
from messages import view_of as seen_by_server


def view_of(data, rows, *, noise=0.0, share="gradient", told=True, optimiser="sgd", seed=0, steps=1, **options):
    """What a server sees of one client with these rows; noise on every component, whose size may not be told."""
    module, words = transformer(data, **options)
    training = LocalTraining(optimiser=optimiser, lr=0.1, batch_size=len(rows), steps=steps, epochs=None)
    value, _ = client_sends(module, training, (data.inputs, data.targets), torch.tensor([*rows]), share)
    value = value + noise * torch.randn(value.shape, generator=torch.Generator().manual_seed(seed))
    facts = facts_of(training, share, noise if told else None)
    return seen_by_server(module, value, facts, len(rows), data.input_shape, 4, vocabulary=words)


def read(view):
    attack = TextInversion()
    return attack.run_part(attack.parts(view, NOTHING)[0], view, NOTHING, 0)


def words_of(data, rows):
    return set(data.inputs[rows].flatten().tolist()) - {PAD}


def texts_of(records):
    return sorted(tuple(n for n in record if n != PAD) for record in records.tolist())


@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "causal"])
@pytest.mark.parametrize("count", [2, 4])
def test_notes_come_back_whole_from_a_full_gradient(notes, causal, count):
    found = read(view_of(notes, range(count), causal=causal))
    assert set(found.words.tolist()) == words_of(notes, range(count))
    assert texts_of(found.texts) == texts_of(notes.inputs[:count]) and found.certain.all()


def test_an_embedding_may_have_more_rows_than_there_are_words(notes):
    found = read(view_of(notes, [0, 1], vocabulary=len(notes.description["vocabulary"]) + 9))
    assert texts_of(found.texts) == texts_of(notes.inputs[:2]) and found.certain.all()


@pytest.mark.full
def test_as_many_tokens_as_the_layers_are_wide_come_back_by_their_own_part_of_the_message(notes):
    """No span is smaller than its layer, so none tells; each text is certain by what it leaves in a word's row."""
    view = view_of(notes, range(8))
    assert int((notes.inputs[:8] != PAD).sum()) == 128
    found = read(view)
    assert texts_of(found.texts) == texts_of(notes.inputs[:8]) and found.certain.all()


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_words_are_read_off_an_update_too(notes, optimiser):
    found = read(view_of(notes, [3, 4, 5], share="update", optimiser=optimiser))
    assert set(found.words.tolist()) == words_of(notes, [3, 4, 5])


DECAYING = [partial(torch.optim.AdamW, lr=0.01, weight_decay=0.1), partial(torch.optim.SGD, lr=0.1, weight_decay=0.01)]


def after_decay(view, data, batches, optimiser):
    """The view with the update of a training on these batches by torch's own optimiser."""
    start, network = view.messages[0].load(), copy.deepcopy(view.module).requires_grad_(True)
    parameters = dict(network.named_parameters())
    for name, value in view.layout.split(start).items():
        parameters[name].data.copy_(value)
    training = optimiser(network.parameters())
    for rows in batches:
        training.zero_grad()
        torch.nn.functional.cross_entropy(network(data.inputs[rows]), data.targets[rows]).backward()
        training.step()
    update = view.layout.join({name: value.detach() for name, value in parameters.items()}) - start
    return replace(view, messages=(view.messages[0], replace(view.messages[1], load=lambda: update)))


@pytest.mark.parametrize("optimiser", DECAYING, ids=["adamw", "sgd"])
def test_words_are_told_where_weight_decay_moves_every_row(notes, optimiser):
    view = after_decay(view_of(notes, [3, 4, 5], share="update"), notes, [[3, 4, 5]] * 3, optimiser)
    assert set(read(view).words.tolist()) == words_of(notes, [3, 4, 5])


def test_notes_come_back_from_a_step_with_weight_decay(notes):
    found = read(after_decay(view_of(notes, [0, 1], share="update"), notes, [[0, 1]], DECAYING[1]))
    assert texts_of(found.texts) == texts_of(notes.inputs[:2])


def test_words_of_one_step_of_adam_are_told_from_those_of_others(notes):
    """An epoch of three steps of two notes: none of the words of a text is of notes of different steps alone."""
    batches = [[0, 1], [2, 3], [4, 5]]
    view = after_decay(view_of(notes, range(6), share="update"), notes, batches, DECAYING[0])
    found, steps = read(view), [words_of(notes, rows) for rows in batches]
    texts = [set(text) for text in texts_of(found.texts)]
    assert len(texts) == 6 and all(any(text <= step for step in steps) for text in texts)
    once = {word for word in set().union(*steps) if sum(word in step for step in steps) == 1}
    assert set().union(*texts) == once and not found.certain.any()
    by_sgd = after_decay(view, notes, batches, partial(torch.optim.SGD, lr=0.1)).messages[1].load()
    assert words_of_steps(view.layout.split(by_sgd)["1.embedding.words.weight"][sorted(once)]) == []


@pytest.mark.parametrize("moved", [lambda w: -0.01 * w.sign(), lambda w: 0.01 * torch.ones_like(w)], ids=["l2", "same"])
def test_rows_that_moved_by_anything_else_are_left_as_they_are(moved):
    """L2 inside Adam's first step moves every weight by its sign, a head that is tied every row by the same."""
    weights = torch.randn(500, 64, generator=torch.Generator().manual_seed(1))
    sent = {"words": moved(weights)}
    assert torch.equal(without_decay(sent, {"words": weights}, "words", "places")["words"], sent["words"])


def test_notes_come_back_from_several_local_steps_and_none_is_called_certain(notes):
    """A word's row and its place's get the same errors at every step, so places are told; spans are no test."""
    found = read(view_of(notes, [0, 1], share="update", steps=3))
    assert texts_of(found.texts) == texts_of(notes.inputs[:2]) and not found.certain.any()


def test_words_under_weak_noise_of_known_size(notes):
    """Noise as long as a hundredth of the gradient: every word that is told is there, and most are told."""
    plain = view_of(notes, [0, 1]).messages[1].load()
    noise = 0.01 * float(plain.norm()) / len(plain) ** 0.5
    told = set(read(view_of(notes, [0, 1], noise=noise)).words.tolist())
    assert told <= words_of(notes, [0, 1]) and len(told) >= 20


def test_pure_noise_certifies_a_word_in_at_most_one_run_in_twenty():
    """The rows of 100 embeddings that are noise alone: 5 % of them tell a word on average, at most 12 with 99.9 %."""
    rng = torch.Generator().manual_seed(3)
    told = sum(len(bag_of_rows(0.3 * torch.randn(2000, 32, generator=rng), 0.3).words) > 0 for _ in range(100))
    assert 0 < told <= 12


@pytest.mark.parametrize("told", [True, False], ids=["known", "unknown"])
def test_nothing_is_read_of_strong_noise(notes, told):
    found = read(view_of(notes, [0, 1], noise=10.0, told=told, seed=4))
    assert len(found.words) == 0 and not found.certain.any()


@pytest.mark.parametrize("odd", [{"gaussian": False}, {"truncated": True}], ids=["laplace", "cut"])
def test_no_row_is_told_from_noise_of_another_law(notes, odd):
    view = view_of(notes, [0, 1], noise=1e-4)
    assert len(read(view).words) and not len(read(replace(view, facts=replace(view.facts, **odd))).words)


def test_a_span_of_noise_is_not_clear_and_one_of_few_inputs_is():
    rng = torch.Generator().manual_seed(0)
    inputs = torch.randn(5, 32, generator=rng, dtype=torch.float64)
    gradients = [torch.randn(48, 5, generator=rng, dtype=torch.float64) @ inputs for _ in range(3)]
    span = SpanOfInputs.of(gradients)
    assert (span.rank, span.clear) == (5, True)
    assert float(span.outside(inputs).max()) < 1e-10 < 0.5 < float(span.outside(torch.randn(9, 32).double()).min())
    assert not SpanOfInputs.of([torch.randn(48, 32, generator=rng) for _ in range(3)]).clear
    assert not SpanOfInputs.of([torch.zeros(48, 32)]).clear
    errors = torch.randn(24, 60, generator=rng, dtype=torch.float64)
    centred = (errors - errors.mean(0)) @ torch.randn(60, 32, generator=rng, dtype=torch.float64)
    assert not SpanOfInputs.of([centred]).clear  # a rank of 23, of errors that sum to zero, and of more inputs


def test_images_and_text_have_attacks_of_their_own(notes):
    view = view_of(notes, [0])
    (images,) = ATTACKS["inversion"].make({"objective": "cosine", "tv": 0.0}, True, "cpu")
    with pytest.raises(ValueError, match="inversion-text"):
        images.parts(view, NOTHING)
    with pytest.raises(ValueError, match="--attack inversion "):
        TextInversion().parts(replace(view, vocabulary=None), NOTHING)
    assert ATTACKS["inversion-text"].arises(view) and not ATTACKS["inversion"].arises(view)
