"""Whether scores may be Gaussian-shaped follows from the ledger: no true proof is contradicted by a wrong shape."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from dpfl_audit.audit.judge.judgement import AuditEvidence, judge
from dpfl_audit.audit.proven.rows import rows as epsilon_rows
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import Experiment, build
from dpfl_audit.audit.setup.planned import planned_ledger
from dpfl_audit.audit.two_worlds.estimators.betting import betting_ceiling
from dpfl_audit.audit.two_worlds.estimators.bound import GAUSSIAN
from dpfl_audit.audit.worlds.federation.case import CanaryCase
from dpfl_audit.audit.worlds.federation.plan import PROTOCOLS, CanarySettings
from dpfl_audit.audit.worlds.federation.rows import Question, demonstrate, demonstrate_rows
from dpfl_audit.audit.worlds.federation.shape import not_gaussian, not_gaussian_by
from dpfl_audit.defenses.releases import LaplaceLaw, Sampling, Silent
from dpfl_audit.defenses.terms import Observer
from stated import proven_row, stated

DELTA = 1e-5
FULL = {"batch_size": 20}
WORDS = {
    "laplace": "there is Laplace noise",
    "none": "without noise",
    "lot": "the client is there by lot",
    "records": "records are drawn by lot",
    "batches": "the batches are drawn anew",
    "median": "the median of the client's own private norms",
    "": "",
}


def experiment(scheme: dict, local: dict | None = None, clients: int = 3) -> Experiment:
    """Clients of 20 records of 30 features and a linear model."""
    return build(
        parse_config(
            {
                "data": {"name": "breast_cancer", "clients": clients, "samples_per_client": 20},
                "model": {"name": "logistic"},
                "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 20, **(local or {})},
                "scheme": {"rounds": 1, **scheme},
                "capture": {"auxiliary": 10},
            }
        ),
        Path("."),
    )


@pytest.mark.parametrize(
    ("scheme", "local", "observer", "expected"),
    [
        # why not, for: mechanism, mechanism-redrawn, rounds, end-to-end
        ({"name": "ldp", "sigma": 1.0}, FULL, "server", ("", "", "", "")),
        ({"name": "ldp", "sigma": 1.0}, {"batch_size": 10}, "server", ("", "batches", "", "batches")),
        ({"name": "ldp", "sigma": 1.0, "clip": "median"}, FULL, "server", ("median",) * 4),
        ({"name": "iteration-laplace"}, FULL, "server", ("laplace",) * 4),
        ({"name": "iteration-laplace"}, FULL, "model", ("laplace",) * 4),
        ({"name": "fedavg"}, FULL, "server", ("none",) * 4),
        ({"name": "cdp", "sigma": 1.0, "clip": 1.0}, FULL, "downlink", ("", "", "", "")),
        ({"name": "cdp", "sigma": 1.0, "clip": 1.0}, FULL, "server", ("none",) * 4),
        ({"name": "cdp", "sigma": 1.0, "clip": 1.0, "participants": 2}, FULL, "downlink", ("lot", "lot", "", "lot")),
        # the clients' own noise, merged from a secret cohort: the ledger's releases say nothing of the draw
        ({"name": "ldp", "sigma": 1.0, "participants": 2}, FULL, "downlink", ("lot", "lot", "", "lot")),
        ({"name": "ldp", "sigma": 1.0, "participants": 2}, FULL, "server", ("", "", "", "lot")),
        ({"name": "ldp", "sigma": 1.0, "dropout": 0.5, "rounds": 5}, FULL, "server", ("", "", "", "lot")),
        ({"name": "dpsgd", "sigma": 1.0}, {"steps": 1, **FULL}, "server", ("", "", "", "")),
        (
            {"name": "dpsgd", "sigma": 1.0},
            {"steps": 1, "batch_size": 10},
            "server",
            ("records", "batches", "records", "batches"),
        ),
    ],
    ids=str,
)
def test_the_ledger_and_what_trials_draw_say_which_protocol_may_assume_a_shape(scheme, local, observer, expected):
    """Noise of another kind, none, a scale or clip that follows private data, a secret draw: in no protocol that has
    it in its trials.
    """
    question = Question(Observer(observer), "client", "zero_out", DELTA)
    case = CanaryCase.of(experiment(scheme, local), CanarySettings(draws=100, places=1), question, 0)
    found = [not_gaussian(case, protocol) for protocol in PROTOCOLS]
    assert all(WORDS[why] in reason and bool(why) == bool(reason) for why, reason in zip(expected, found)), found


def test_one_release_of_another_shape_is_enough():
    """All that is behind what the observer sees counts, not the first or the last."""
    plain = stated()
    assert not_gaussian_by([plain, stated()]) == ""
    for odd in (
        stated(LaplaceLaw(1.0)),
        stated(Silent()),
        stated(problem="the noise's scale is private"),
        stated(sampling=Sampling("poisson", 100, 10.0)),
        stated(sampling=Sampling("poisson", 100, 10.0, unit="record")),
    ):
        assert not_gaussian_by([plain, odd, stated()])
    whole = stated(sampling=Sampling("poisson", 100, 100.0))
    assert not_gaussian_by([whole]) == ""
    drawn = stated(sampling=Sampling("without_replacement", 10, 2))
    assert not_gaussian_by([drawn], cohort_hidden=False) == ""


@pytest.mark.few(1)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_laplace_noise_at_its_true_epsilon_contradicts_no_proof(protocol):
    """One release, exactly (5, 0)-DP for the client. Laplace scores judged as Gaussian would "show" more than 15."""
    made = experiment({"name": "iteration-laplace", "epsilon": 5.0, "zeta": 0.05, "E": 1}, {"lr": 1.0}, clients=1)
    rows = epsilon_rows(
        planned_ledger(made), made.scheme.claim, DELTA, (Observer("server"),), ("client",), ("zero_out",)
    )
    assert rows[0].proven == pytest.approx(5.0, abs=1e-3)
    settings = CanarySettings(
        protocols=(protocol,), units=("client",), draws=150, redrawn=150, coin_rounds=150, replicas=100, places=1
    )
    (filled,), attacks, _ = demonstrate_rows(made, rows, settings)
    assert 0 < filled.demonstrated <= 5.0 and filled.condition == ""
    assert "epsilon_if_gaussian" not in attacks[0].numbers
    judgement = judge(AuditEvidence(tuple(attacks), (filled,)))
    assert judgement.severity == "none found" and judgement.refuted == ()


def test_a_gaussian_bound_keeps_its_condition_and_stands_beside_the_counted_one():
    """Gaussian noise, a claim that counting cannot reach: note, row and level all say on which condition."""
    made = experiment({"name": "ldp", "noise_std": 0.05, "clip": 1.0})
    settings = CanarySettings(draws=60, places=1)
    found = demonstrate(made, settings, Question(Observer("server"), "client", "zero_out", DELTA, claimed=10.0))
    row = found.row
    assert row.condition == GAUSSIAN
    assert row.demonstrated <= row.ceiling < 10 < row.demonstrated_on_condition <= row.ceiling_on_condition
    assert row.notes[0].startswith("Claim violated if the noise is Gaussian: at least ε")
    assert any(note.startswith("Without that condition, by counting alone, ε is at least") for note in row.notes)


@pytest.mark.parametrize("claimed", [None, 0.5])
def test_no_claim_hides_a_proof_that_only_the_gaussian_bound_contradicts(claimed):
    """Noise of multiplier 1/20 has ε = 285 and no proof of 20: counting shows 5 at most, whatever is claimed beside."""
    made = experiment({"name": "ldp", "noise_std": 0.05, "clip": 1.0})
    question = Question(Observer("server"), "client", "zero_out", DELTA, claimed, proven=20.0)
    row = demonstrate(made, CanarySettings(draws=60, places=1), question).row
    filled = proven_row(delta=DELTA, claimed=claimed, proven=20.0).having(**vars(row))
    assert filled.demonstrated <= filled.ceiling < 10 < 20 < filled.demonstrated_on_condition
    assert len(judge(AuditEvidence((), (filled,))).refuting("proven", on_condition=True)) == 1
    assert any(note.startswith("Proof violated if the noise is Gaussian: at least ε") for note in row.notes)
    assert claimed != 0.5 or row.notes[0].startswith("Claim violated: at least ε")  # by counting, on no condition


@pytest.mark.parametrize(("scheme", "each"), [("ldp", 0.975), ("iteration-laplace", 0.95)])
def test_two_bounds_of_a_row_share_the_risk_of_error(scheme, each):
    """Either may refute, so by the union bound each has half of 5 %; a row with one bound spends it all on that."""
    parameters = {"noise_std": 0.5, "clip": 1.0} if scheme == "ldp" else {"epsilon": 5.0, "zeta": 0.05, "E": 1}
    made = experiment({"name": scheme, **parameters})
    question = Question(Observer("server"), "client", "zero_out", DELTA, claimed=10.0)
    row = demonstrate(made, CanarySettings(draws=60, places=1), question).row
    assert row.confidence == pytest.approx(each) and bool(row.condition) == (each == 0.975)
    assert row.ceiling == betting_ceiling(60, DELTA, 1 - row.confidence)
    if row.condition:
        assert row.ceiling_on_condition == math.inf  # two means may lie any distance apart


# --- what a run says was assumed ---


@pytest.mark.parametrize(
    ("scheme", "said"),
    [
        ({"name": "ldp", "sigma": 1.0}, "the attacker knows everything else, the batch order included"),
        ({"name": "dpsgd", "sigma": 1.0}, "the attacker knows everything else, and not the batches"),
    ],
)
def test_the_attacker_knows_the_batch_order_only_where_it_stays_the_same(scheme, said):
    """Noise inside training means a training of its own in every trial, with batches of its own."""
    question = Question(Observer("server"), "client", "zero_out", DELTA)
    case = CanaryCase.of(experiment(scheme, {"steps": 1}), CanarySettings(draws=30, places=1), question, 0)
    assert said in " ".join(case.assumed("mechanism"))


@pytest.mark.parametrize(
    ("observer", "participants", "said"),
    [
        ("server", 2, "where the chance of that is q, what is demonstrated at δ holds of the whole training at q·δ"),
        ("downlink", 2, "where the client is not drawn, either world has in its place what the world without the"),
        ("server", 3, ""),
    ],
)
def test_how_a_drawn_cohort_enters_is_said(observer, participants, said):
    """Seen by the observer: the bound is given that the client is drawn, an event of chance q, so (ε, q·δ) fails of the
    whole. Unseen: trials without the client are alike in both worlds.
    """
    made = experiment({"name": "ldp", "sigma": 1.0, "participants": participants})
    question = Question(Observer(observer), "client", "zero_out", DELTA)
    words = " ".join(CanaryCase.of(made, CanarySettings(draws=30, places=1), question, 0).assumed("mechanism"))
    assert said in words and ("not drawn" in words or "chance" in words) is bool(said)


def test_whoever_sees_the_final_model_alone_knows_no_other():
    question = Question(Observer("model"), "client", "zero_out", DELTA)
    case = CanaryCase.of(experiment({"name": "ldp", "sigma": 1.0}), CanarySettings(places=1), question, 0)
    assert not any("began with" in words for words in case.assumed("end-to-end"))
