"""Words and sentences out of adapters alone (LoRA): exact below the ranks together, and nothing said beyond."""

from __future__ import annotations

import pytest
import torch
from dpfl_audit.attacks.text.attack import TextInversion
from dpfl_audit.attacks.text.span import SpanOfInputs
from dpfl_audit.defenses.data.vocabulary import PAD
from dpfl_audit.defenses.local import LocalTraining
from messages import NOTHING, client_sends, facts_of, flat, transformer, view_of

QV, QKV = ["query", "value"], ["query", "key", "value"]


def read(data, row, length, *, targets, rank, before, layers=2):
    """What a server reads of one note's gradient, cut to `length` words; `before`: after a step on other notes."""
    module, words = transformer(data, layers=layers, lora={"rank": rank, "targets": targets})
    inputs, start = data.inputs.clone(), flat(module)
    inputs[row, length:] = PAD

    def sent(rows, share, at):
        training = LocalTraining(lr=0.1, batch_size=len(rows), steps=1, epochs=None)
        return client_sends(module, training, (inputs, data.targets), torch.tensor(rows), share, at)[0]

    if before:
        start = start + sent([50, 51, 52, 53], "update", start)
    value, facts = sent([row], "gradient", start), facts_of(LocalTraining(lr=0.1, batch_size=1), "gradient")
    view = view_of(module, value, facts, 1, data.input_shape, 4, start, vocabulary=words)
    attack = TextInversion()
    return attack.run_part(attack.parts(view, NOTHING)[0], view, NOTHING, 0), inputs[row]


RANKS = [(QV, 8, 7), (QV, 8, 12), (QV, 8, 15), (QV, 16, 17), (QKV, 8, 17), (QKV, 8, 7), (QKV, 8, 7, False)]


@pytest.mark.few(3)
@pytest.mark.parametrize("which", RANKS, ids=str)
def test_fewer_words_than_the_ranks_together_come_back_whole(notes, which):
    """At the start, B = 0, no word's input lies in what the key's B reads, as a softmax's errors sum to zero."""
    targets, rank, length, before = (*which, True)[:4]
    found, text = read(notes, 4, length, targets=targets, rank=rank, before=before)
    assert set(found.words.tolist()) == set(text.tolist()) - {PAD}
    assert found.certain.tolist() == [True] and torch.equal(found.texts[0][:length], text[:length])


@pytest.mark.parametrize("length", [5, 7, 8])
def test_at_the_start_each_adapter_tells_fewer_words_than_its_rank(notes, length):
    """B = 0, so that A has no gradient, and B's tells the words times A: seven of them at rank 8, and no eighth."""
    found, text = read(notes, 1, length, targets=QV, rank=8, before=False)
    assert set(found.words.tolist()) == (set(text.tolist()) - {PAD} if length < 8 else set())
    assert [bool(why) for name, why in found.methods if name.endswith("read")] == [length >= 8]


def test_of_adapters_that_read_the_same_those_of_the_greatest_rank_tell_most():
    torch.manual_seed(0)
    inputs, errors = torch.randn(6, 16, dtype=torch.float64), torch.randn(64, 6, dtype=torch.float64)
    whole, sums_to_zero = (
        SpanOfInputs.of([e @ inputs], adapters=True) for e in (errors, errors - errors.mean(1, True))
    )
    assert float(whole.outside(inputs).max()) < 1e-12 and float(sums_to_zero.outside(inputs).min()) > 1e-3
    assert SpanOfInputs.most_telling({3: sums_to_zero, 4: whole}) == {4: whole}


@pytest.mark.parametrize("length", [17])
def test_beyond_the_ranks_nothing_is_said_to_be_certain(notes, length):
    row = next(i for i, text in enumerate(notes.inputs) if int((text != PAD).sum()) >= length)
    found, text = read(notes, row, length, targets=["value"], rank=8, before=True)
    assert not len(found.words) and not len(found.texts)
    assert int((text != PAD).sum()) == length


def test_an_adapter_of_later_layers_alone_is_no_test_of_single_words(notes):
    with pytest.raises(ValueError, match="trains no linear layers that read one word at a time"):
        read(notes, 0, 5, targets=["outer"], rank=4, before=False, layers=1)


def test_a_span_of_few_rows_is_told_by_its_rounding():
    torch.manual_seed(0)
    inputs = torch.randn(20, 64, dtype=torch.float64)
    below = SpanOfInputs.of([torch.randn(16, 12, dtype=torch.float64) @ inputs[:12]])
    full = SpanOfInputs.of([torch.randn(16, 20, dtype=torch.float64) @ inputs])
    assert (below.rank, full.rank) == (12, 16)
    assert float(below.outside(inputs[:12]).max()) < below.same < float(below.outside(inputs[12:]).min())
    assert float(full.outside(inputs).min()) > full.same  # more words than dimensions: none is taken for certain


def test_rounding_of_weights_hides_what_lies_below_it():
    """An update is a difference of rounded weights: what is no larger than their rounding is no direction of a word."""
    torch.manual_seed(0)
    sizes = torch.logspace(0, -4, 12, dtype=torch.float64)
    update = torch.linalg.qr(torch.randn(16, 12, dtype=torch.float64))[0] * sizes @ torch.randn(12, 64).double()
    rounded = update + 1e-5 * torch.randn(16, 64, dtype=torch.float64)
    assert SpanOfInputs.of([update]).rank == 12 and SpanOfInputs.of([update]).clear
    whole = SpanOfInputs.of([rounded], adapters=True)
    assert whole.rank == 16 and whole.clear  # taken for more words
    assert not SpanOfInputs.of([rounded], [1e-5], adapters=True).clear
    known = SpanOfInputs.of([rounded], [1e-5], part=True)
    assert 1 < known.rank < 12 and known.clear
    assert float(known.outside(inputs_of(update)[: known.rank]).max()) < known.same


def test_an_adapter_that_moved_by_less_than_rounding_hides_none_of_what_another_tells():
    torch.manual_seed(0)
    inputs = torch.randn(8, 64, dtype=torch.float64)
    clear = torch.randn(16, 8, dtype=torch.float64) @ inputs
    noise = 1e-9 * torch.randn(16, 64, dtype=torch.float64)
    both = SpanOfInputs.of([clear, noise], [1e-9, 1e-9], part=True, adapters=True)
    assert (both.rank, both.clear) == (8, True) and float(both.outside(inputs).max()) < 1e-6
    alone = SpanOfInputs.of([noise], [1e-9], part=True, adapters=True)
    assert (alone.clear, alone.rounded) == (False, True)
    still = SpanOfInputs.of([torch.zeros(16, 64)], [0.0], part=True, adapters=True)
    assert (still.clear, still.adapters, still.rounded, still.gap) == (False, True, False, 0.0)


def inputs_of(update: torch.Tensor) -> torch.Tensor:
    """The directions that it has, the strongest first."""
    return torch.linalg.svd(update)[2]
