"""Canaries of words: new ones, whose rows move by them alone, and secrets by lot; they show a share of the true ε."""

from __future__ import annotations

from dataclasses import replace
from math import e, log2
from pathlib import Path

import pytest
import torch
from dpfl_audit.attacks.canary import CraftedRecord, NewWords, PlantedSecret
from dpfl_audit.attacks.canary.base import another_target
from dpfl_audit.attacks.canary.secret import mean_exposure
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.worlds.federation.client_round import moments
from dpfl_audit.audit.worlds.federation.plan import CanarySettings
from dpfl_audit.audit.worlds.federation.rows import Question, demonstrate
from dpfl_audit.defenses.data.vocabulary import PAD, next_words, vocabulary_of
from dpfl_audit.defenses.engine import looped
from dpfl_audit.defenses.losses import NextToken
from dpfl_audit.defenses.terms import Observer
from tiers import quick

DELTA = 1e-5
RECORDS = 4


def experiment(causal: bool = False, **scheme):
    local = {"optimiser": "sgd", "lr": 0.05, "batch_size": RECORDS, "loss": "next_token" if causal else "cross_entropy"}
    table = {
        "data": {"name": "notes", "clients": 2, "samples_per_client": RECORDS},
        "model": {"name": "transformer", "options": {"width": 8, "layers": 1, "heads": 2, "causal": causal}},
        "local": {**local, "steps": 1} if scheme["name"] == "dpsgd" else local,
        "scheme": {"rounds": 1, **scheme},
        "capture": {"auxiliary": 10},
    }
    return build(parse_config(table), Path("."))


def job_of(made):
    (moment,) = moments(made.federation(), 0, 1)
    return moment.job


@pytest.mark.parametrize("causal", [False, True])
def test_the_rows_of_new_words_move_by_the_canary_alone(causal):
    made = experiment(causal, name="fedavg", share="gradient")
    job, classes = job_of(made), made.data.classes
    there = NewWords().insert(job, 1, classes, 0)
    words, others = there.inputs[1][there.inputs[1] != PAD], torch.arange(RECORDS) != 1
    assert torch.equal(there.inputs[others], job.inputs[others]) and len(words) == job.inputs.shape[1]
    assert not torch.isin(words, job.inputs[others]).any() and len(words.unique()) == len(words)
    if causal:
        assert torch.equal(there.targets[1], next_words(there.inputs[1:2])[0])
    (table,) = (name for name in job.layout.names if name.endswith("words.weight"))
    rows = [
        job.layout.split(looped([each])[0].value)[table][words[:-1]].norm(dim=1)
        for each in (replace(job, muted=(1,)), there)
    ]
    assert bool((rows[0] == 0).all()) and bool((rows[1] > 0).all())


NEW, SECRET, END = ("new-words", "mechanism"), ("planted-secret", "mechanism"), ("planted-secret", "end-to-end")
CASES = [(*NEW, 1.0812, 0.5, 300), (*NEW, 50.0, 0.0, 150), (*NEW, 1.0812, 0.6, 2000)]
CASES += [(*SECRET, 1.0812, 0.5, 300), (*END, 1.0812, 0.1, 200), (*END, 50.0, 0.0, 100)]


@pytest.mark.parametrize(("canary", "protocol", "sigma", "least", "draws"), quick(CASES, 0))
def test_a_canary_of_words_shows_a_share_of_the_true_epsilon(canary, protocol, sigma, least, draws):
    """Every record in the batch: ε = 4.0 at a multiplier of 1.0812. A noise 46 times as large shows next to nothing."""
    made = experiment(canary == "planted-secret", name="dpsgd", sigma=sigma, clip=0.5)
    true, who = gaussian_epsilon(sigma, DELTA), Observer("server" if protocol == "mechanism" else "model")
    settings = CanarySettings((protocol,), (canary,), draws=draws, replicas=draws, places=1)
    found = demonstrate(made, settings, Question(who, "record", "zero_out", DELTA, proven=true))
    (entry,) = found.attacks
    assert entry.settings["canary"] == canary
    best = max(entry.value("epsilon"), entry.value("epsilon_if_gaussian") or 0.0)
    assert least * true <= best <= true


def test_a_secret_is_as_exposed_as_the_lot_has_it_until_a_model_trains_on_it():
    """log2 e bits on average of many lots; all six of the one that a model learns by heart."""
    made = experiment(True, name="fedavg")
    canary, job = PlantedSecret().of(vocabulary_of(made.data.description)), job_of(made)

    def bits(module, seed):
        texts, targets = canary.texts(job, 1, seed)
        assert int((texts != job.inputs[1]).any(0).sum()) == 1 and len(texts.unique(dim=0)) == 64
        return mean_exposure(NextToken().values(module(texts), targets).detach()[None])

    assert sum(bits(job.module, seed) for seed in range(80)) / 80 == pytest.approx(log2(e), abs=0.4)
    there = canary.insert(job, 1, made.data.classes, 0)
    training = torch.optim.Adam(there.module.requires_grad_(True).parameters(), lr=0.01)
    for _ in range(60):
        training.zero_grad()
        NextToken().mean(there.module(there.inputs), there.targets).backward()
        training.step()
    assert bits(there.module, 0) == 6


def test_a_text_is_no_record_to_ascend_in_and_an_image_has_no_words():
    made = experiment(name="fedavg")
    job = job_of(made)
    with pytest.raises(ValueError, match="new words"):
        CraftedRecord().insert(job, 0, made.data.classes, 0)
    with pytest.raises(ValueError, match="texts"):
        NewWords().insert(replace(job, inputs=torch.rand(RECORDS, 6)), 0, 2, 0)


def test_another_next_word_is_never_told_where_there_is_none():
    made = experiment(True, name="fedavg")
    job = job_of(made)
    wrong = another_target(job, 0, made.data.classes, torch.Generator().manual_seed(0))
    assert torch.equal(wrong < 0, job.targets[0] < 0) and not torch.equal(wrong, job.targets[0])
