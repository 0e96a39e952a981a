"""Canaries in a federation: both worlds run the setup's own code; what is demonstrated stays below what is proven."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from math import inf, sqrt
from pathlib import Path

import pytest
import torch
from dpfl_audit.attacks.canary import Blank, Existing, RandomUpdate
from dpfl_audit.audit.files import json_text
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.proven import rows as epsilon
from dpfl_audit.audit.results.format import AttackResult, Epsilon
from dpfl_audit.audit.setup.auditor import Auditor
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import Experiment, build
from dpfl_audit.audit.setup.folder import open_setup
from dpfl_audit.audit.setup.planned import planned_ledger
from dpfl_audit.audit.worlds.federation.case import CanaryCase, training_cost
from dpfl_audit.audit.worlds.federation.client_round import client_worlds, moments, record_worlds
from dpfl_audit.audit.worlds.federation.plan import CanarySettings, planned
from dpfl_audit.audit.worlds.federation.rows import Question, demonstrate, demonstrate_rows
from dpfl_audit.audit.worlds.federation.trials import HubTrials, UploadTrials
from dpfl_audit.defenses.federation import run_many
from dpfl_audit.defenses.terms import Observer
from dpfl_audit.defenses.wire import SERVER, Wire
from tiers import quick

DELTA = 1e-5
SMALL = CanarySettings(draws=200, places=1)


def experiment(scheme: dict, local: dict | None = None, clients: int = 3, **tables) -> Experiment:
    """Clients of 20 records of 30 features, a network of 125 parameters."""
    return build(
        parse_config(
            {
                "data": {"name": "breast_cancer", "clients": clients, "samples_per_client": 20},
                "model": {"name": "mlp", "options": {"widths": [4]}},
                "local": {"optimiser": "adam", "lr": 0.05, "batch_size": 10, **(local or {})},
                "scheme": {"rounds": 1, **scheme},
                "capture": {"auxiliary": 10},
                **tables,
            }
        ),
        Path("."),
    )


def ledger_rows(made: Experiment, observer: str, **wanted: str) -> list[Epsilon]:
    rows = epsilon.rows(planned_ledger(made), made.scheme.claim, DELTA, (Observer.parse(observer),))
    return [row for row in rows if all(getattr(row, k) == v for k, v in wanted.items())]


# --- the two worlds ---


@pytest.mark.parametrize(
    "scheme",
    [
        {"name": "ldp", "sigma": 1.0, "rounds": 3, "clip": "median"},
        {"name": "ldp", "sigma": 1.0, "rounds": 3, "share": "gradient"},
        {"name": "nbafl", "rounds": 3, "participants": 2},
        {"name": "dpsgd", "rounds": 3},
        {"name": "component", "rounds": 3, "K": 3, "sigma": 0.01},
    ],
    ids=lambda s: s["name"],
)
def test_the_world_with_the_clients_own_record_sends_what_the_federation_sent(scheme):
    """With the run's own seed the simulated message is the captured one, bit for bit: the same code, noise included."""
    made = experiment(scheme, {"optimiser": "sgd"})
    messages = []
    run_many([made.federation(Wire(messages.append))])
    sent = [m.vector for m in messages if m.sender_party == 0]
    found = moments(made.federation(), 0, 3)
    assert len(found) == len(sent) > 0
    for moment, message in zip(found, sent):
        trials = UploadTrials(moment, record_worlds(moment, Existing(), 0, "replace_one", 0))
        trials.redraw = False
        assert torch.equal(trials.draw(1, [made.config.seed], True)[0], message)


@pytest.mark.parametrize("scheme", ["cdp", "ldp"])
@pytest.mark.parametrize("honest", [0.0, 1.0])
def test_the_hub_makes_what_the_federation_made(scheme, honest):
    """With the run's own seed, the others' noise included, whether it counts as known or is drawn anew."""
    made = experiment({"name": scheme, "sigma": 1.0, "rounds": 2})
    models = [m.vector for m in _messages(made) if m.sender_party == SERVER]
    for moment, model in zip(moments(made.federation(), 0, 2), models[1:]):
        trials = HubTrials.of(UploadTrials(moment, record_worlds(moment, Existing(), 0, "replace_one", 0)), honest)
        # Fewer clients are trained together: other rounding.
        assert torch.allclose(trials.draw(1, [made.config.seed], True)[0], model, atol=1e-6)


def test_honest_senders_noise_hides_the_client():
    """Every client's share of the mean has the same noise σ/n; where all of it is drawn anew, the mean's std is σ/√n,
    and where the others' is known σ/n.
    """
    made = experiment({"name": "ldp", "noise_std": 1.0, "rounds": 1})
    (moment,) = moments(made.federation(), 0, 1)
    uploads = UploadTrials(moment, client_worlds(moment, None, "zero_out", 0))
    clients = len(made.clients)
    for honest, std in ((0.0, 1 / clients), (1.0, 1 / sqrt(clients))):
        drawn = HubTrials.of(uploads, honest).draw(0, range(40), True)
        assert float(drawn.std(0).mean()) == pytest.approx(std, rel=0.05)


def test_a_client_that_no_coin_takes_sends_nothing():
    """Under replace_one neighbours are at +C, at −C or, where the coin does not fall on them, at neither. With −C in
    its place instead, 10 % and z = 1 would show ε = 6.58 of a mechanism that has 1.79.
    """
    scheme = {"name": "central-gaussian", "noise_multiplier": 1e-6, "participants": 2}
    made = experiment(scheme, clients=4)
    client = next(c for c in range(4) if moments(made.federation(), c, 1))
    (moment,) = moments(made.federation(), client, 1)
    trials = HubTrials.of(UploadTrials(moment, client_worlds(moment, RandomUpdate(), "replace_one", 0)), 1.0)
    places = [expected.centre for expected in trials.expected()]
    nobody = (places[0] + places[1]) / 2
    for world in (0, 1):
        there = [torch.allclose(drawn, places[world], atol=1e-4) for drawn in trials.draw(world, range(40), False)]
        away = [torch.allclose(drawn, nobody, atol=1e-4) for drawn in trials.draw(world, range(40), False)]
        assert all(a != b for a, b in zip(there, away)) and 8 < sum(there) < 32


def _messages(made: Experiment) -> list:
    messages: list = []
    run_many([made.federation(Wire(messages.append))])
    return messages


def test_zero_out_of_a_client_is_the_zero_vector_or_the_model_sent_out():
    """What a value's bound is centred on: 0 for updates or clipped weights, the start where local steps are clipped."""
    for scheme, centre in (
        ({"name": "ldp", "sigma": 1.0}, "zero"),
        ({"name": "nbafl"}, "zero"),
        ({"name": "iteration-gaussian"}, "start"),
    ):
        (moment,) = moments(experiment(scheme).federation(), 0, 1)
        without = UploadTrials(moment, client_worlds(moment, RandomUpdate(), "zero_out", 0)).expected()[0].centre
        assert torch.allclose(without, torch.zeros_like(without) if centre == "zero" else moment.job.start, atol=1e-7)


def test_a_canary_update_is_as_long_as_what_bounds_it():
    """Clipped to C; or of the norm that clipped local steps keep, in their own order, so that it could be trained."""
    for scheme, norm, order in (
        ({"name": "ldp", "sigma": 1.0, "clip": 0.7}, 0.7, 2),
        ({"name": "iteration-laplace", "zeta": 3.0}, 2 / 8 * 3.0, 1),
    ):
        (moment,) = moments(experiment(scheme).federation(), 0, 1)
        without, present = UploadTrials(moment, client_worlds(moment, RandomUpdate(), "zero_out", 0)).expected()
        assert float(torch.linalg.vector_norm(present.centre - without.centre, order)) == pytest.approx(norm, rel=1e-4)


def test_a_median_clip_remembers_each_worlds_own_rounds():
    """The second round's clip norm is the first one's norm, which the canary changed."""
    made = experiment({"name": "ldp", "sigma": 1.0, "rounds": 2, "clip": "median"})
    case = CanaryCase.of(made, replace(SMALL, rounds=2), Question(Observer("server"), "record", "zero_out", DELTA), 0)
    second = case.messages()[1]
    memories = [second.worlds[w].memory["norms"][0] for w in (0, 1)]
    assert memories[0] != memories[1]
    assert second.worlds[1].memory["norms"][0][0] == pytest.approx(float(case.messages()[0].trained(1).value.norm()))


# --- demonstrated stays below proven ---


@pytest.mark.parametrize(
    ("scheme", "observer", "unit", "adjacency", "least"),
    quick(
        [
            ({"name": "iteration-gaussian", "epsilon": 6.0}, "server", "client", "zero_out", 0.5),
            ({"name": "iteration-gaussian", "epsilon": 6.0}, "server", "client", "replace_one", 0.5),
            ({"name": "cdp", "sigma": 1.0, "clip": 1.0}, "downlink", "client", "zero_out", 0.5),
            (
                {"name": "naafl", "epsilon": 20.0, "clip": 5.0, "noise_std": 2.0},
                "downlink",
                "record",
                "replace_one",
                0.0,
            ),
            ({"name": "nbafl", "epsilon": 1e-2}, "server", "record", "zero_out", 0.0),
            ({"name": "iteration-laplace", "epsilon": 4.0}, "server", "client", "zero_out", 0.5),
            ({"name": "cdp", "sigma": 1.0, "clip": 1.0, "participants": 2}, "downlink", "client", "zero_out", 0.1),
        ],
        0,
    ),
    ids=str,
)
def test_what_is_demonstrated_lies_below_what_is_proven(scheme, observer, unit, adjacency, least):
    """Sound schemes: never above, and where the worst client can be built, a good part of it (1,000 draws).

    `if Gaussian` where it is.
    """
    made = experiment(scheme)
    (row,) = ledger_rows(made, observer, unit=unit, adjacency=adjacency)
    proven = row.proven
    question = Question(Observer.parse(observer), unit, adjacency, DELTA, proven=proven)
    found = demonstrate(made, replace(SMALL, draws=1000), question)
    (entry,) = found.attacks
    best = max(entry.value("epsilon"), (entry.value("epsilon_if_gaussian") or 0.0))
    assert least * proven <= best <= proven
    assert "claim" not in " ".join(found.row.notes)


def test_one_step_of_dp_sgd_at_epsilon_four():
    """Every record in the batch, multiplier 1.08: ε = 4.0. A Dirac gradient shows at least half of it."""
    made = experiment({"name": "dpsgd", "sigma": 1.0812}, {"optimiser": "sgd", "steps": 1, "batch_size": 20})
    (row,) = ledger_rows(made, "server", unit="record", adjacency="zero_out")
    assert row.proven == pytest.approx(4.0, abs=0.01)
    found = demonstrate(
        made, replace(SMALL, draws=1000), Question(Observer("server"), "record", "zero_out", DELTA, proven=row.proven)
    )
    assert found.attacks[0].settings["canary"] == "dirac-gradient"
    assert 2.0 <= found.attacks[0].value("epsilon_if_gaussian") <= 4.0


def test_a_client_of_dp_sgd_is_all_its_records():
    """20 records of one clip norm each, zeroed together: μ = 20/σ, above one record's claim, below the proof for 20."""
    made = experiment({"name": "dpsgd", "sigma": 10.0}, {"optimiser": "sgd", "steps": 1, "batch_size": 20})
    (row,) = ledger_rows(made, "server", unit="client", adjacency="zero_out")
    found = demonstrate(
        made, replace(SMALL, draws=400), Question(Observer("server"), "client", "zero_out", DELTA, proven=row.proven)
    )
    assert found.attacks[0].value("shift") == pytest.approx(2.0, abs=0.15)
    assert 4 < found.attacks[0].value("epsilon_if_gaussian") < row.proven == pytest.approx(gaussian_epsilon(0.5, DELTA))


def test_the_thesis_ldp_is_refuted_in_small():
    """noise_std = σC/n claims what C/n would give; a client is C away from nobody."""
    made = experiment({"name": "ldp", "sigma": 1.0})
    rows, attacks, warnings = demonstrate_rows(made, ledger_rows(made, "server"), replace(SMALL, draws=1000))
    (filled,) = [row for row in rows if row.demonstrated is not None]
    assert (filled.unit, filled.adjacency) == ("client", "zero_out") and not warnings
    assert filled.demonstrated > filled.claimed == pytest.approx(5.2985, abs=1e-3)
    assert any(note.startswith("Claim violated: at least ε = 5.3") for note in filled.notes)  # no more was asked
    assert attacks[0].value("delta_at_claim") > DELTA  # so many (ε, δ) would need at that ε


# --- setups on disk ---


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    folder = tmp_path_factory.mktemp("setup") / "setup"
    train(experiment({"name": "ldp", "sigma": 1.0, "rounds": 3, "participants": 2}), folder)
    return Auditor(open_setup(folder))


@pytest.mark.full
def test_a_setup_gives_what_its_experiment_gives(setup):
    """From the captured broadcasts nobody else is trained again, and every number is the same as from the config."""
    args = (replace(SMALL, rounds=2), Question(Observer("server"), "record", "zero_out", DELTA))
    from_disk, from_config = (
        demonstrate(setup, *args),
        demonstrate(experiment({"name": "ldp", "sigma": 1.0, "rounds": 3, "participants": 2}), *args),
    )
    assert from_disk.row == from_config.row
    assert from_disk.attacks == from_config.attacks


def test_without_truth_it_says_why_nothing_was_measured(setup, tmp_path):
    shutil.copytree(setup.setup.folder, tmp_path / "setup")
    shutil.rmtree(tmp_path / "setup" / "truth")
    found = demonstrate(
        Auditor(open_setup(tmp_path / "setup")), SMALL, Question(Observer("server"), "record", "zero_out", DELTA)
    )
    assert found.row is None and "truth/" in found.not_measured


def test_other_data_than_the_setups_are_refused(setup):
    public = setup.setup
    data = public.manifest.data
    other = data.model_copy(update={"description": {**data.description, "sha256": "0"}})
    changed = Auditor(replace(public, manifest=public.manifest.model_copy(update={"data": other})))
    refused = demonstrate(changed, SMALL, Question(Observer("server"), "record", "zero_out", DELTA))
    assert "longer those" in refused.not_measured


def written(demonstrated: tuple) -> str:
    rows, attacks, warnings = demonstrated
    values = {"rows": [row.model_dump() for row in rows], "attacks": [entry.model_dump() for entry in attacks]}
    return json_text({**values, "warnings": warnings})


@pytest.mark.full
def test_results_are_valid_json_of_format_1_and_come_from_the_seed(setup):
    rows = epsilon.rows(setup.ledger, None, DELTA)
    first, again, other = (demonstrate_rows(setup, rows, SMALL, seed) for seed in (1, 1, 2))
    assert written(first) == written(again) != written(other)
    content = json.loads(written(first))
    assert [Epsilon.model_validate(row) for row in content["rows"]] == first[0]
    (entry,) = [AttackResult.model_validate(entry) for entry in content["attacks"]]
    assert entry.kind == "canary" and entry.scored and entry.low("epsilon") == entry.value("epsilon")


# --- protocols ---


@pytest.mark.full
def test_every_protocol_of_a_leaking_setup():
    """Almost no noise: each protocol shows (nearly) all it could."""
    made = experiment({"name": "ldp", "sigma": 1e-3, "rounds": 2})
    settings = CanarySettings(
        protocols=("mechanism", "mechanism-redrawn", "rounds", "end-to-end"),
        draws=100,
        stop=False,
        redrawn=40,
        coin_rounds=100,
        replicas=40,
        places=1,
    )
    found = demonstrate(made, settings, Question(Observer("server"), "client", "zero_out", DELTA, claimed=1.0))
    assert [entry.attack for entry in found.attacks] == [
        "canary/mechanism",
        "canary/mechanism-redrawn",
        "canary/rounds",
        "canary/end-to-end",
    ]
    for entry in found.attacks:
        low, high = entry.intervals["epsilon"]
        ceiling = entry.value("epsilon_ceiling")
        assert 0.9 * ceiling < low <= ceiling < high == inf and entry.controls["no canary"]["epsilon"] == 0
    assert found.row.demonstrated == found.attacks[0].value("epsilon")  # the first protocol's, whatever the others give
    assert [entry.manner for entry in found.attacks[:2]] == ["all-rounds", "one-round"]


def test_a_trial_of_dp_sgd_costs_a_training_of_as_many_epochs_as_there_are():
    """One where neither epochs nor steps are given, as everywhere; and nothing where no noise is drawn in training."""
    federation = experiment({"name": "dpsgd", "clip": 1.0, "sigma": 1.0}).federation()

    def cost(epochs):
        local = replace(federation.scheme.local, epochs=epochs, steps=None)
        return training_cost(replace(federation, scheme=replace(federation.scheme, local=local)), 0)

    assert cost(None) == cost(1) == cost(2) / 2 > 0
    assert training_cost(experiment({"name": "ldp", "noise_std": 1.0}).federation(), 0) == 0


def test_a_mislabelled_record_shows_in_the_final_model():
    made = experiment({"name": "fedavg", "rounds": 2}, {"epochs": 5}, clients=1)
    settings = CanarySettings(protocols=("end-to-end",), canaries=("mislabelled",), replicas=60, places=1)
    found = demonstrate(made, settings, Question(Observer("model"), "record", "zero_out", DELTA))
    assert found.row.demonstrated > 1


def test_a_client_that_is_there_by_lot_is_a_mixture_and_never_judged_as_gaussian():
    """No μ is told, none is planned, and counting alone gives the row's number.

    This holds whether the hub's cohort or a final model's history is drawn.
    """
    made = experiment({"name": "cdp", "sigma": 0.5, "clip": 1.0, "participants": 2})
    settings = CanarySettings(protocols=("mechanism", "end-to-end"), draws=100, replicas=40, places=1)
    # Only a μ could exceed 10.
    question = Question(Observer("downlink"), "client", "zero_out", DELTA, claimed=10.0)
    found = demonstrate(made, settings, question)
    assert found.row.demonstrated == found.attacks[0].value("epsilon")
    assert "by betting" in " ".join(found.row.notes)
    assert all("epsilon_if_gaussian" not in entry.numbers for entry in found.attacks)


def test_peers_and_leaders_are_audited_with_a_client_they_hear():
    made = experiment({"name": "anonymous-leader", "rounds": 2, "train_share": 1.0}, clients=4)
    found = demonstrate(made, SMALL, Question(Observer("leader"), "client", "replace_one", DELTA))
    assert found.row.demonstrated > 3
    refused = demonstrate(made, SMALL, Question(Observer("downlink"), "client", "zero_out", DELTA))
    assert "no server" in refused.not_measured


def test_the_final_model_of_several_rounds_is_no_single_mechanism():
    found = demonstrate(
        experiment({"name": "ldp", "sigma": 1.0, "rounds": 2}),
        SMALL,
        Question(Observer("model"), "client", "zero_out", DELTA),
    )
    assert "end-to-end" in found.not_measured


# --- settings and plans ---


def test_the_plan_says_what_could_be_shown_before_anything_is_drawn():
    """1,000 trials a side show 5.7 at most (ln(.9/(20^(1/1000) − 1))); a claim of 5.3 needs some 670 without a single
    error: ln 20/ln(1 + .9/e^5.3) = 668.5.
    """
    plan = planned(replace(SMALL, draws=1000), dim=5_255_268, rounds=15, target=5.3, delta=DELTA)
    assert plan.ceiling == pytest.approx(5.70, abs=0.01) and 665 < plan.needed < 675
    assert plan.rounds == 1  # no more fit the numbers
    big = planned(CanarySettings(), dim=5_255_268, rounds=15, target=5.3, delta=DELTA)
    assert big.draws > 742 and big.ceiling > 5.3
    for settings in (CanarySettings(numbers=10**7), CanarySettings(numbers=10**8)):
        of_a_model = planned(settings, dim=10**5, rounds=3, target=inf, delta=DELTA)
        assert 2 * of_a_model.draws * of_a_model.rounds * 10**5 <= max(settings.numbers, 2 * 100 * 10**5)
    small = planned(CanarySettings(), dim=500, rounds=1, target=inf, delta=DELTA)
    assert small.draws == 50_000 and small.needed is None
    # Out of reach by counting.
    assert planned(CanarySettings(), dim=500, rounds=15, target=1e6, delta=DELTA).needed is None
    assert "1,000 draws" in plan.sentence


def test_what_counting_alone_shows_is_said_beside_a_bound_on_a_condition():
    made = experiment({"name": "ldp", "sigma": 1.0, "rounds": 2})
    found = demonstrate(
        made, replace(SMALL, draws=20), Question(Observer("server"), "client", "zero_out", DELTA, claimed=20.0)
    )
    last = found.row.notes[-1]
    assert last.startswith("Without that condition, by counting alone, ε is at least")  # the other has no limit


@pytest.mark.full
def test_which_rows_are_filled():
    made = experiment(
        {"name": "ldp", "sigma": 1.0},
        audit={"unit": "record", "adjacency": "replace_one", "observer": "server", "delta": DELTA},
    )
    rows = ledger_rows(made, "server")

    def filled(settings: CanarySettings) -> list[tuple[str, str]]:
        return [
            (row.unit, row.adjacency)
            for row in demonstrate_rows(made, rows, settings)[0]
            if row.demonstrated is not None
        ]

    assert filled(SMALL) == [("client", "zero_out"), ("record", "replace_one")]  # the claim's and the config's
    assert filled(replace(SMALL, units=("record",))) == [("record", "zero_out"), ("record", "replace_one")]
    assert filled(replace(SMALL, units=("record",), adjacencies=("zero_out",), observers=("downlink",))) == []


def test_a_canary_that_changes_nothing_is_not_measured():
    """A record muted where its gradient is 0 anyway: weights that never move."""
    made = experiment({"name": "ldp", "sigma": 1.0}, {"optimiser": "sgd", "lr": 1e-30})
    refused = demonstrate(made, SMALL, Question(Observer("server"), "record", "zero_out", DELTA))
    assert "changes what" in refused.not_measured


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"canaries": ("blonk",)}, "'blonk' is unknown"),
        ({"protocols": ("magic",)}, "'magic' is unknown"),
        ({"draws": 0}, "draws = 0"),
        ({"confidence": 0.3}, "confidence = 0.3"),
    ],
)
def test_settings_refuse_what_they_do_not_know(change, message):
    with pytest.raises(ValueError, match=message):
        CanarySettings(**change)


def test_unfit_canaries_and_unknown_observers():
    made = experiment({"name": "ldp", "sigma": 1.0})
    question = Question(Observer("server"), "client", "zero_out", DELTA)
    assert "unit client" in demonstrate(made, replace(SMALL, canaries=("blank",)), question).not_measured
    assert "to 2" in demonstrate(made, replace(SMALL, client=7), question).not_measured
    with pytest.raises(ValueError, match="unknown"):
        Observer.parse("moon")


def test_the_jobs_of_a_moment_hold_the_clients_own_records_alone():
    made = experiment({"name": "ldp", "sigma": 1.0})
    (moment,) = moments(made.federation(), 1, 1)
    assert torch.equal(moment.job.inputs, made.data.inputs[made.clients[1]])
    worlds = record_worlds(moment, Blank(), 4, "zero_out", 0)
    assert worlds[0].job.muted == (4,) and (worlds[1].job.inputs[4] == 0).all()
