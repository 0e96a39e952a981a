"""All tests of uploads as one: the clients that are played send what real ones would, and the whole beats its parts."""

from __future__ import annotations

from dataclasses import replace

import dpfl_audit
import pytest
import torch
from dpfl_audit.attacks.membership import ShadowFactory
from dpfl_audit.attacks.membership.stacked import COMBINED, StackedMembership, _by_sender, _played
from dpfl_audit.audit.setup.auditor import Auditor
from dpfl_audit.audit.setup.folder import open_setup
from dpfl_audit.defenses.terms import Observer
from dpfl_audit.defenses.wire import client_address
from dpfl_audit.metrics.membership import auc
from tiers import quick

CONFIG = {
    "seed": 4,
    "data": {"name": "digits", "clients": 5, "samples_per_client": 20},
    "model": {"name": "mlp", "options": {"widths": [16]}},
    "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 20, "epochs": 1},
    "scheme": {"name": "fedavg", "rounds": 3},
    "capture": {"clients": [0, 1, 2, 3, 4], "auxiliary": 60, "candidates": 300},
}
NOISY = CONFIG | {"scheme": {"name": "ldp", "rounds": 3, "clip": 0.05, "noise_std": 0.002}}


def seen(config, folder):
    setup = open_setup(dpfl_audit.train(config, folder, noise_key="published", quiet=True).folder)
    factory = ShadowFactory(setup.scheme, setup.module(None), tuple(setup.manifest.clients))
    knowledge = replace(setup.knowledge(), shadow_factory=factory)
    return setup.view(Observer.parse("server")), knowledge, Auditor(setup).truth


def same_records(view, knowledge, truth):
    """A sender, its messages, and those that a client plays who holds the very records of that sender."""
    sender, messages = next(iter(_by_sender(view).items()))
    client = int(sender.removeprefix("client-"))
    rows = (truth.candidate_owners == client).nonzero().squeeze(1)
    alone = _played(view, knowledge, knowledge.shadow_factory, messages, rows, 1)
    played = {m.id: m.load() for m in alone.messages}
    return [(m.load(), played[m.id]) for m in messages], len(rows)


def test_a_played_client_sends_what_a_client_with_its_records_sends(tmp_path):
    view, knowledge, truth = seen(CONFIG, tmp_path / "setup")
    pairs, records = same_records(view, knowledge, truth)
    assert records == 20 and len(pairs) == 3
    for real, played in pairs:
        assert float((real - played).norm() / real.norm()) < 1e-5


def test_its_clip_and_noise_are_those_of_the_others(tmp_path):
    view, knowledge, truth = seen(NOISY, tmp_path / "setup")
    pairs, _ = same_records(view, knowledge, truth)
    for real, played in pairs:  # equal but for two draws of noise; unclipped they would be far apart
        assert float((real - played).std()) == pytest.approx(0.002 * 2**0.5, rel=0.1)


@pytest.mark.full
@pytest.mark.parametrize("config", quick([CONFIG, NOISY], 1), ids=["plain", "noisy"])
def test_no_test_alone_is_much_better_and_nothing_of_the_truth_is_needed(config, tmp_path):
    view, knowledge, truth = seen(config, tmp_path / "setup")
    owner = truth.candidate_owners
    addresses = [client_address(c) for c in range(5)]
    asked = torch.where(owner >= 0, owner, torch.randint(5, owner.shape, generator=torch.Generator().manual_seed(0)))

    def area(attack):
        made = [attack.run_part(part, view, knowledge, 0) for part in attack.parts(view, knowledge)]
        by_sender = {each.sender: each.scores for each in made}
        scores = torch.stack([by_sender[a] for a in addresses])[asked, torch.arange(len(asked))]
        return auc(scores[owner >= 0].numpy(), scores[owner < 0].numpy())

    alone = {attack.name: area(attack)[0] for attack in COMBINED}
    together, (_, high) = area(StackedMembership())
    assert together > 0.7 and high >= max(alone.values())
    assert sorted(alone.values())[-2] > 0.6  # there is something to combine


def test_what_cannot_be_played_is_refused(tmp_path):
    view, knowledge, _ = seen(CONFIG, tmp_path / "setup")
    attack = StackedMembership()
    few = replace(
        knowledge, auxiliary_inputs=knowledge.auxiliary_inputs[:20], auxiliary_targets=knowledge.auxiliary_targets[:20]
    )
    cases = (
        (view, few, "there are 20"),
        (view, replace(knowledge, shadow_factory=None), "does not know how they train"),
        (replace(view, facts=replace(view.facts, noise_std=None)), knowledge, "public"),
        (replace(view, messages=tuple(m for m in view.messages if m.broadcast)), knowledge, "uploads"),
    )
    for given, known, said in cases:
        with pytest.raises(ValueError, match=said):
            attack.parts(given, known)


@pytest.mark.full
def test_clients_of_a_thousand_records_leave_as_many_auxiliary_ones_out(tmp_path):
    """All of the first 1,000 that were asked about were members, and no weights can be learned of one kind."""
    view, knowledge, _ = seen(CONFIG | {"capture": {"clients": [0], "auxiliary": 60, "candidates": 40}}, tmp_path / "s")
    more = torch.randint(60, (2100,), generator=torch.Generator().manual_seed(0))
    inputs, targets = knowledge.auxiliary_inputs[more], knowledge.auxiliary_targets[more]
    known = replace(knowledge, auxiliary_inputs=inputs, auxiliary_targets=targets)
    large = replace(view, messages=tuple(replace(m, num_records=1000) for m in view.messages))
    attack = StackedMembership()
    assert attack.run_part(attack.parts(large, known)[0], large, known, 0).scores.isfinite().all()
