"""Exposure of numbers in texts: all bits of what a model knows by heart, those of chance of what it never saw."""

from __future__ import annotations

from dataclasses import replace
from math import e, log2

import dpfl_audit
import pytest
import torch
from dpfl_audit.attacks import ATTACKS
from dpfl_audit.attacks.base import Knowledge, PublicFacts, Seen, View
from dpfl_audit.attacks.membership import exposure as exposed
from dpfl_audit.attacks.membership.exposure import exposure, numbers_by_length, secrets_of
from dpfl_audit.audit.report.page import page as page_of
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data import load
from dpfl_audit.defenses.data.text import told_by_next_words
from dpfl_audit.defenses.data.vocabulary import Vocabulary, vocabulary_of
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.losses import loss_of

ROWS = 8  # that a model learns by heart


def asked(candidates, steps):
    """The bits of notes 0, 1, … where a model has learned the first ones in so many steps."""
    data = told_by_next_words(load("notes", seed=5))
    words = vocabulary_of(data.description)
    about = {"input_shape": data.input_shape, "target_shape": data.target_shape, "classes": data.classes, "seed": 1}
    module = models.build(
        "transformer", vocabulary=len(words), causal=True, width=32, layers=1, mean=(), std=(), **about
    )
    loss, training = loss_of("next_token"), torch.optim.Adam(module.requires_grad_(True).parameters(), lr=0.01)
    for _ in range(steps):
        training.zero_grad()
        loss.values(module(data.inputs[:ROWS]), data.targets[:ROWS]).mean().backward()
        training.step()
    layout = Layout.of(module)
    final = layout.join({name: value.detach() for name, value in module.named_parameters()})
    facts = PublicFacts("fedavg", "update", "sgd", 0.1, ROWS, 1, None, loss="next_token")
    message = Seen("model", 0, "server", ("client-0",), "weights", 0, lambda: final, True)
    shapes = data.input_shape, data.classes
    view = View("server", (message,), module, layout, facts, *shapes, (), words, target_shape=data.target_shape)
    some = data.inputs[:candidates], data.targets[:candidates], torch.arange(candidates)
    nothing = Knowledge({}, torch.zeros(0), torch.zeros(0))
    knowledge = replace(nothing, candidate_inputs=some[0], candidate_targets=some[1], candidate_ids=some[2])
    (attack,) = ATTACKS["membership-exposure"].make({}, False, "cpu")
    return attack.run_part(attack.parts(view, knowledge)[0], view, knowledge, 0).scores


def test_numbers_that_are_known_by_heart_are_exposed_and_others_by_chance(monkeypatch):
    monkeypatch.setattr(exposed, "ALTERNATIVES", 63)
    bits = asked(3 * ROWS, steps=100)
    assert float(bits[:ROWS].mean()) > 5.5 and bool((bits <= 6).all())
    assert abs(float(bits[ROWS:].mean()) - log2(e)) < 3 * log2(e) / (2 * ROWS) ** 0.5


def test_a_rank_by_lot_has_the_bits_of_chance():
    """log2 R − the mean of log2 1 … log2 R, which is log2 e less what is small beside 1."""
    losses = torch.arange(256.0)
    every = [exposure(torch.cat([losses[k : k + 1], losses[:k], losses[k + 1 :]])) for k in range(256)]
    assert sum(every) / 256 == pytest.approx(log2(e), abs=0.03) and (max(every), min(every)) == (8.0, 0.0)


def test_the_last_number_of_which_there_are_enough_others_is_the_secret():
    vocabulary = Vocabulary(("[UNK]", "room", "7", *map(str, range(100, 140))))
    records = torch.tensor([[1, 3, 2, -1], [1, 3, 5, 1], [3, 1, 2, -1]])
    assert secrets_of(records, numbers_by_length(vocabulary)) == {0: (1, 3), 1: (2, 3)}


CONFIG = """
seed = 3
[data]
name = "text"
root = "rooms.csv"
options = {tokenizer = "words"}
clients = 2
samples_per_client = 8
[model]
name = "transformer"
options = {width = 16, layers = 1, causal = true}
[local]
optimiser = "sgd"
lr = 1.0
batch_size = 4
loss = "next_token"
[scheme]
name = "fedavg"
share = "update"
rounds = 2
[capture]
clients = [0, 1]
candidates = 32
"""


def test_the_bits_are_of_texts_with_a_number_alone_beside_those_of_outsiders(tmp_path, monkeypatch):
    """Half of the texts have none: as 0 bits they would be taken for numbers that nobody guesses later than these."""
    monkeypatch.setattr(exposed, "ALTERNATIVES", 31)
    rooms = [f"room {100 + k % 90} is free" if k % 2 else "no room is free" for k in range(1200)]
    (tmp_path / "rooms.csv").write_text("text,target\n" + "".join(f"{text},{k % 2}\n" for k, text in enumerate(rooms)))
    (tmp_path / "c.toml").write_text(CONFIG)
    setup = dpfl_audit.train(tmp_path / "c.toml", tmp_path / "s", quiet=True)
    (entry,) = dpfl_audit.run(setup, tmp_path / "r", attacks=["membership-exposure"], quiet=True).attacks
    low, high = entry.intervals["exposure"]
    assert 0 <= low <= entry.value("exposure") <= high <= 5 and entry.value("auc") is not None
    assert 0 <= entry.controls["outsiders"]["exposure"] <= 5
    (said,) = (words for words in entry.assumed if words.endswith("without a score are left out"))
    members, outsiders = (int(word) for word in said.split() if word.isdecimal())
    counted = entry.value("n_members"), entry.value("n_nonmembers")
    assert counted == (16 - members, 16 - outsiders) and 0 < members < 16 and entry.n == sum(counted)
    assert f"exposure {entry.value('exposure'):.3g} bits" in page_of([tmp_path / "r"])
