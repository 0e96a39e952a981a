"""What an observer's view costs: uploads between unseen models, sums, disjoint batches, and whoever sees more."""

from __future__ import annotations

from math import inf, sqrt
from pathlib import Path

import numpy as np
import pytest
import torch
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.proven.rows import rows
from dpfl_audit.audit.proven.views import Views
from dpfl_audit.audit.setup.auditor import Auditor
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.folder import open_setup
from dpfl_audit.audit.setup.planned import planned_ledger
from dpfl_audit.defenses.terms import Observer

DELTA = 1e-5
DATA = {"name": "digits", "clients": 4, "samples_per_client": 10}
BASE = {"model": {"name": "linear"}, "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 5}}


def experiment(scheme: dict, base: Path = Path(), **data):
    return build(parse_config({**BASE, "data": {**DATA, **data}, "scheme": scheme}), base)


def proven(ledger, observer, unit="client", adjacency="zero_out", delta=DELTA, honest=1.0) -> float:
    who = (Observer.parse(observer),)
    return rows(ledger, None, delta, who, (unit,), (adjacency,), honest)[0].proven


# --- any L of one client's uploads


def test_an_upload_centred_on_an_unseen_model_tells_of_the_uploads_behind_it():
    """Start + clipped move + noise: the start carries the client's earlier uploads, and one caught upload sums them all
    (uplink_attack.py: proven .673, counting shows 1.83). All own releases count.
    """
    iteration = {"name": "iteration-gaussian", "rounds": 40, "epsilon": 6.0, "delta": 1e-4, "zeta": 0.05, "E": 1}
    ledger = planned_ledger(experiment({**iteration, "mu": 1e4, "lam": 1e4}, clients=1))
    for adjacency in ("zero_out", "replace_one"):
        whole = proven(ledger, "uplink", adjacency=adjacency, delta=1e-4)
        assert proven(ledger, "uplink(1)", adjacency=adjacency, delta=1e-4) == pytest.approx(whole)
    assert proven(ledger, "uplink(1)", delta=1e-4) > 1.83


def test_a_threshold_around_the_start_is_centred_too_and_an_update_is_not():
    component = {"name": "component", "threshold": 0.1, "sigma": 1.0, "rounds": 5, "epsilon": 1e9, "K": 2}
    weights, update = (planned_ledger(experiment({**component, "share": s}, clients=1)) for s in ("weights", "update"))
    assert proven(weights, "uplink(1)") == pytest.approx(proven(weights, "uplink"))
    assert proven(update, "uplink(1)") < proven(update, "uplink")


@pytest.mark.parametrize(("rounds", "joint"), [(2, 1.0), (3, sqrt(2)), (72, 2.0)])
def test_another_clients_upload_turns_around(rounds, joint):
    """ldp at C = σ = 1: the last upload of one client is a function of the model, so it may go from +C to −C because of
    another client's data (uplink_other.py: proven 2.318, counting shows 2.85); but no more than that client's uploads
    before it tell: √(T − 1) of them.
    """
    ledger = planned_ledger(experiment({"name": "ldp", "clip": 1.0, "noise_std": 1.0, "rounds": rounds}))
    assert proven(ledger, "uplink(1)", delta=0.01) == pytest.approx(gaussian_epsilon(1 / joint, 0.01), rel=1e-6)


def test_one_round_tells_of_the_sender_alone():
    ledger = planned_ledger(experiment({"name": "ldp", "clip": 1.0, "noise_std": 1.0, "rounds": 1}))
    assert proven(ledger, "uplink(1)") == pytest.approx(gaussian_epsilon(1.0, DELTA), rel=1e-6)


def test_a_reason_is_said_once():
    """Twenty rounds of a falling learning rate have twenty bounds, and one reason for them."""
    made = planned_ledger(experiment({"name": "iteration-gaussian", "rounds": 20}))
    for row in rows(made, None, DELTA):
        assert len(row.notes) <= 4 and sum("Sensitivity" in note for note in row.notes) == 1


# --- sums, and whoever sees more


@pytest.mark.parametrize(("honest", "noises"), [(1.0, 4), (0.5, 2), (0.34, 2), (0.0, 1)])
def test_the_noises_of_a_sum_add_up(honest, noises):
    """Four clients, each C/4 of the mean and noise σ/4: C/(σ√n) for n noises that count, per round."""
    ledger = planned_ledger(experiment({"name": "ldp", "clip": 1.0, "noise_std": 2.0, "rounds": 9}))
    expected = gaussian_epsilon(2 * sqrt(noises) / 3, DELTA)
    for observer in ("aggregate", "downlink", "model"):
        assert proven(ledger, observer, honest=honest) == pytest.approx(expected, rel=1e-6)
    assert proven(ledger, "server", honest=honest) == pytest.approx(gaussian_epsilon(2 / 3, DELTA), rel=1e-6)


def test_laplace_noises_of_a_sum_hide_more_than_one():
    """Four clients; what four noises hide is less than one, more than infinitely many Gaussians of their variance."""
    laplace = {"name": "iteration-laplace", "rounds": 3, "epsilon": 6.0, "zeta": 0.05, "E": 1}
    ledger = planned_ledger(experiment({**laplace, "order": 1}))
    single = proven(ledger, "server")
    for observer in ("aggregate", "downlink", "model"):
        assert proven(ledger, observer) < 0.9 * single
        assert proven(ledger, observer, honest=0.0) == pytest.approx(single, rel=1e-3)
    (row,) = {r.ratio for r in ledger.releases.values() if r.mechanism == "laplace" and r.terms and r.round == 0}
    assert proven(ledger, "aggregate") > 0.5 * row


def test_dropouts_noise_is_missing_from_the_sum():
    """Every round counts the noise of those who answered in it, never of the whole cohort."""
    ledger = planned_ledger(experiment({"name": "ldp", "clip": 1.0, "noise_std": 2.0, "rounds": 6, "dropout": 0.4}))
    answered: dict[int, set[int]] = {}
    for client, uploads in ledger.uploads.items():
        for message in uploads:
            answered.setdefault(message.round, set()).add(client)
    assert len({len(clients) for clients in answered.values()}) > 1

    def joint(client: int) -> float:
        return sqrt(sum(1 / (4 * len(clients)) for clients in answered.values() if client in clients))

    assert proven(ledger, "downlink") == pytest.approx(gaussian_epsilon(1 / max(map(joint, range(4))), DELTA), rel=1e-6)


def unequal(tmp_path, sizes):
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    np.savez(tmp_path / "u.npz", inputs=rng.normal(size=(len(groups), 2)).astype("f4"), targets=groups.astype("i8"))
    return {"name": "npz", "root": "u.npz", "clients": len(sizes), "partition": "writer", "samples_per_client": None}


def test_unequal_weights_have_noises_of_their_own(tmp_path):
    """NbAFL weights by records: the sum's noise is √Σ(w_i σ)², a client's part of it w_i·C."""
    scheme = {"name": "nbafl", "rounds": 3, "epsilon": 1e6, "clip": 1.0, "exposures": 3}
    made = experiment(scheme, tmp_path, **unequal(tmp_path, [100, 100, 300]))
    sigma = made.scheme.client[1].noise_std
    sizes = np.array([len(rows) for rows in made.clients])
    w = sizes / sizes.sum()
    total = sqrt(float((w**2).sum())) * sigma
    ledger = planned_ledger(made)
    expected = gaussian_epsilon(total / (float(w.max()) * sqrt(3)), 0.01)
    assert proven(ledger, "aggregate", delta=0.01) == pytest.approx(expected, rel=1e-6)


@pytest.mark.few(5)
@pytest.mark.parametrize(
    "scheme",
    [
        {"name": "nbafl", "rounds": 25, "epsilon": 5.0, "participants": 2},
        {"name": "nbafl", "rounds": 25, "epsilon": 50.0, "exposures": 8},
        {"name": "ldp", "noise_std": 2.0, "rounds": 3},
        {"name": "cdp", "rounds": 3},
        {"name": "iteration-gaussian", "rounds": 4},
        {"name": "naafl", "rounds": 3},
        {"name": "laplace", "rounds": 3},
    ],
)
@pytest.mark.parametrize("sizes", [None, [60, 60, 120, 240]])
def test_post_processing_never_costs(scheme, sizes, tmp_path):
    data = {} if sizes is None else unequal(tmp_path, sizes)
    ledger = planned_ledger(experiment(scheme, tmp_path, **data))
    for unit in ("client", "record"):
        for adjacency in ("zero_out", "replace_one"):
            chain = ["model", "downlink", "aggregate", "server"]
            costs = [proven(ledger, o, unit, adjacency, 0.01) for o in chain]
            assert costs == sorted(costs), (unit, adjacency, costs)
            caught = [proven(ledger, o, unit, adjacency, 0.01) for o in ("uplink(1)", "uplink(2)", "uplink", "server")]
            assert caught == sorted(caught), (unit, adjacency, caught)


# --- disjoint batches


def test_the_batches_of_an_epoch_are_disjoint():
    """One client of 100 records in batches of 25, 16 rounds of gradients: every record is in 4 of them (by hand: 4
    releases of ratio 2/8, ε 1.99 at δ 1e-5; as 16 it would be 4.38).
    """
    base = {"clients": 1, "samples_per_client": 100}
    config = {**BASE, "local": {"optimiser": "sgd", "batch_size": 25}, "data": {**DATA, **base}}
    scheme = {"name": "ldp", "share": "gradient", "rounds": 16, "clip": 1.0, "noise_std": 8.0}
    ledger = planned_ledger(build(parse_config({**config, "scheme": scheme}), Path()))
    for adjacency in ("zero_out", "replace_one"):
        assert proven(ledger, "server", "record", adjacency) == pytest.approx(1.99, abs=0.005)
    assert proven(ledger, "server", "client") == pytest.approx(gaussian_epsilon(2.0, DELTA))
    # Whoever catches some uploads does not see from which model they began.
    assert proven(ledger, "uplink(4)", "record") == pytest.approx(1.99, abs=0.005)
    assert proven(ledger, "uplink(3)", "record") == pytest.approx(gaussian_epsilon(4 / sqrt(3), DELTA))


def test_a_client_that_remembers_makes_batches_join():
    """This client clips to the median of the client's own earlier norms, so a record counts in every later round."""
    scheme = {"name": "ldp", "share": "gradient", "rounds": 4, "clip": "median", "sigma": 8.0}
    ledger = planned_ledger(experiment(scheme, clients=1))
    assert not any(r.slot for r in ledger.releases.values())
    assert proven(ledger, "server", "record") == inf


# --- a round that diverged


def test_what_was_sent_in_a_round_that_diverged_counts(tmp_path):
    """Two rounds' uploads went out, the second made the model infinite: two releases (div.toml, clip 3e34)."""
    scheme = {"name": "ldp", "rounds": 10, "clip": 3e34, "sigma": 4.0}
    made = experiment(scheme, clients=2, samples_per_client=1)
    train(made, tmp_path / "s")
    setup = open_setup(tmp_path / "s")
    ledger = Auditor(setup).ledger
    assert setup.manifest.status == "diverged"
    finished = len(setup.rounds)
    sent = [len(uploads) for uploads in ledger.uploads.values()]
    assert sent == [finished + 1] * 2
    once = 4.0  # noise over sensitivity of one record's client
    assert proven(ledger, "server") == pytest.approx(gaussian_epsilon(once / sqrt(finished + 1), DELTA), rel=1e-4)
    assert all(m.round < finished or m.sender == "server" for m in setup.messages)
    assert torch.isfinite(setup.load(setup.messages[0])).all()


def test_the_noise_for_a_target_is_enough_although_its_grid_is_coarser():
    """Planned again with the noise asked for, the proof is at the target or below (it was a part in 10⁵ above)."""
    config = {**BASE, "model": {"name": "mlp"}, "data": DATA}
    scheme = {"name": "ldp", "clip": 1.0, "rounds": 1}
    ledger = planned_ledger(build(parse_config({**config, "scheme": {**scheme, "noise_std": 1.0}}), Path()))
    (sight,) = Views(ledger).of(Observer("server"), "client", "zero_out")
    factor = sight.noise_scale(unit="client", adjacency="zero_out", delta=DELTA, target_epsilon=0.01)
    assert factor > 100
    again = planned_ledger(build(parse_config({**config, "scheme": {**scheme, "noise_std": factor}}), Path()))
    assert 0.0099 < proven(again, "server") <= 0.01
