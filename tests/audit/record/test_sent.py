"""What was sent before a kill is priced, whoever closes the recording: by closed forms of dp_accounting."""

from __future__ import annotations

import warnings
from math import inf, sqrt
from pathlib import Path

import pytest
import torch
from dp_accounting import get_epsilon_gaussian
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.proven.table import table
from dpfl_audit.audit.record.mechanism import Gaussian
from dpfl_audit.audit.record.recorder import Recorder, finish
from dpfl_audit.audit.record.sent import FILE
from dpfl_audit.audit.say.loss import impossible
from dpfl_audit.audit.setup.auditor import check_setup
from dpfl_audit.audit.setup.format import LAST_MODEL, MISSING, RESTART
from dpfl_audit.audit.setup.strict import faults

START = {"weight": torch.zeros(40, 30), "bias": torch.zeros(40)}
DIM = 1240
OBSERVERS = ("server", "aggregate", "downlink", "model")
LOCAL = Gaussian(clip=1.0, noise_std=2.0)
pytestmark = pytest.mark.filterwarnings("ignore:.*began again with another model")
CENTRAL = Gaussian(clip=1.0, noise_std=1.0, by="server")


def values(seed: int, std: float = 2.0) -> torch.Tensor:
    return std * torch.randn(DIM, generator=torch.Generator().manual_seed(seed))


def as_state(flat: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"weight": flat[:1200].reshape(40, 30), "bias": flat[1200:]}


def recorder(folder: Path, mechanism: Gaussian = LOCAL, **options) -> Recorder:
    return Recorder(folder, START, mechanism=mechanism, average="mean", **options, strict=True)


def served(seed: int) -> dict[str, torch.Tensor]:
    """The model that a server makes of round 0's uploads: their clipped mean, and noise of 1."""
    mean = sum(v / max(1.0, float(v.norm())) for v in (values(0), values(1))) / 2
    return as_state(mean + values(seed, 1.0))


def one_round(rec: Recorder, t: int, seed: int = 0) -> None:
    rec.broadcast(t, START)
    for c in range(2):
        rec.upload(t, c, values(100 * seed + 10 * t + c), num_examples=5)


def in_the_second_round(folder: Path) -> Recorder:
    rec = recorder(folder)
    one_round(rec, 0)
    rec.broadcast(1, START)
    return rec


def finish_after_a_kill(rec: Recorder, folder: Path) -> None:
    rec.abandon()
    finish(folder)


def epsilon(folder: Path, observer: str, unit: str = "client", adjacency: str = "zero_out") -> float:
    assert faults(*check_setup(folder)) == []
    place = (observer, unit, adjacency)
    return next(r.proven for r in table(folder, observers=OBSERVERS).rows if (r.observer, r.unit, r.adjacency) == place)


def declared(folder: Path) -> dict[str, str]:
    return {d.what: d.said for d in check_setup(folder)[1].declared}


@pytest.mark.parametrize("close", [finish, lambda folder: recorder(folder, CENTRAL).close()])
def test_the_model_broadcast_last_before_a_kill_is_priced(close, tmp_path):
    """Two clients, mean, clip 1, noise 1: bound 1/2, so a multiplier of 2 in the one model that went out."""
    rec = recorder(tmp_path / "s", CENTRAL)
    one_round(rec, 0)
    rec.broadcast(1, served(7))
    rec.abandon()
    close(tmp_path / "s")
    assert epsilon(tmp_path / "s", "downlink") == pytest.approx(get_epsilon_gaussian(2.0, 1e-5))
    assert epsilon(tmp_path / "s", "model") == pytest.approx(get_epsilon_gaussian(2.0, 1e-5))
    setup, _ = check_setup(tmp_path / "s")
    assert setup.manifest.rounds == 1 and len(setup.messages) == 3
    assert declared(tmp_path / "s")["unfinished rounds"].startswith("1 model and 0 uploads")


def test_uploads_of_the_round_that_a_kill_ended_are_priced(tmp_path):
    rec = in_the_second_round(tmp_path / "s")
    rec.upload(1, 0, values(5), num_examples=5)
    finish_after_a_kill(rec, tmp_path / "s")
    assert epsilon(tmp_path / "s", "server") == pytest.approx(get_epsilon_gaussian(2.0 / sqrt(2), 1e-5))
    _, auditor = check_setup(tmp_path / "s")
    assert auditor.ledger.participations() == {0: 2, 1: 1}


def test_a_client_seen_in_no_whole_round_is_priced(tmp_path):
    rec = in_the_second_round(tmp_path / "s")
    rec.upload(1, 6, values(5), num_examples=9)
    finish_after_a_kill(rec, tmp_path / "s")
    setup, auditor = check_setup(tmp_path / "s")
    assert setup.manifest.clients == [5, 5, 1, 1, 1, 1, 9] and auditor.ledger.participations()[6] == 1


def test_what_was_refused_in_it_proves_nothing_of_that_client(tmp_path):
    rec = in_the_second_round(tmp_path / "s")
    with pytest.raises(BadInput):
        rec.upload(1, 0, torch.full((DIM,), torch.nan), num_examples=5)
    finish_after_a_kill(rec, tmp_path / "s")
    assert epsilon(tmp_path / "s", "server") == inf


def test_a_round_run_again_with_other_values_is_priced_twice(tmp_path):
    rec = recorder(tmp_path / "s")
    one_round(rec, 0)
    one_round(rec, 1)
    rec.abandon()
    with recorder(tmp_path / "s") as rec:
        assert rec.next_round == 1
        one_round(rec, 1, seed=1)
    assert epsilon(tmp_path / "s", "server") == pytest.approx(get_epsilon_gaussian(2.0 / sqrt(3), 1e-5))


@pytest.mark.parametrize(("checkpoint", "draws"), [("before", 2), ("after", 3)])
def test_a_loop_that_goes_on_from_a_checkpoint_of_the_killed_round_releases_its_sum_too(checkpoint, draws, tmp_path):
    """By hand: clients' noise of 2 on a mean of two is √2, its sensitivity 1/2; three sums are in the last model."""
    models = [as_state(values(900 + seed)) for seed in range(4)]  # none of them an upload
    rec = recorder(tmp_path / "s")
    one_round(rec, 0)
    for session, model in ((0, models[1]), (1, models[1] if checkpoint == "before" else models[2])):
        rec = rec if session == 0 else recorder(tmp_path / "s")
        rec.broadcast(1, model)
        for c in range(2):
            rec.upload(1, c, values(100 + 10 * session + c), num_examples=5)
        if session == 0:
            rec.abandon()
    rec.broadcast(2, models[3])
    rec.close()
    for observer in ("downlink", "model"):
        assert epsilon(tmp_path / "s", observer) == pytest.approx(get_epsilon_gaussian(sqrt(8 / draws), 1e-5))
    assert epsilon(tmp_path / "s", "server") == pytest.approx(get_epsilon_gaussian(2.0 / sqrt(3), 1e-5))


def test_the_same_messages_sent_again_are_priced_once_and_give_the_same_bytes(tmp_path):
    for name in ("whole", "killed"):
        with recorder(tmp_path / name) as rec:
            one_round(rec, 0)
        if name == "killed":
            (tmp_path / "killed").rename(tmp_path / "first")
    rec = recorder(tmp_path / "killed")
    rec.broadcast(0, START)
    rec.upload(0, 0, values(0), num_examples=5)
    rec.abandon()
    with recorder(tmp_path / "killed") as rec:
        one_round(rec, 0)
    files = [{p.name: p.read_bytes() for p in (tmp_path / n).rglob("*") if p.is_file()} for n in ("whole", "killed")]
    assert files[0] == files[1]


def killed_behind_a_model(folder: Path, mechanism: Gaussian = LOCAL) -> None:
    """A round, the next one's model, and a kill."""
    rec = recorder(folder, mechanism)
    one_round(rec, 0)
    rec.broadcast(1, served(7))
    rec.abandon()


def test_a_model_whose_noise_the_server_drew_again_is_a_release_more(tmp_path):
    killed_behind_a_model(tmp_path / "s", CENTRAL)
    with recorder(tmp_path / "s", CENTRAL) as rec:
        rec.broadcast(1, served(8))
    assert epsilon(tmp_path / "s", "downlink") == pytest.approx(get_epsilon_gaussian(2.0 / sqrt(2), 1e-5))


def test_of_clients_noise_another_model_of_the_same_uploads_tells_nothing_new(tmp_path):
    killed_behind_a_model(tmp_path / "s")
    with recorder(tmp_path / "s") as rec:
        rec.broadcast(1, served(8))
    assert epsilon(tmp_path / "s", "server") == pytest.approx(get_epsilon_gaussian(2.0, 1e-5))


@pytest.mark.parametrize("close", [finish, lambda folder: recorder(folder, CENTRAL).close()])
def test_a_recording_of_before_this_was_written_down_has_its_last_model_priced(close, tmp_path):
    killed_behind_a_model(tmp_path / "s", CENTRAL)
    (tmp_path / "s" / ".work" / FILE).unlink()
    close(tmp_path / "s")
    assert epsilon(tmp_path / "s", "downlink") == pytest.approx(get_epsilon_gaussian(2.0, 1e-5))


def test_a_sum_that_the_server_has_is_priced_though_no_model_follows(tmp_path):
    """Two clients' noises of 2 on the mean of two: a bound of 1/2 behind noise of √2."""
    for broken in (False, True):
        folder = tmp_path / str(broken)
        rec = recorder(folder, secure_aggregation=True)
        one_round(rec, 0)
        if broken:
            rec.broadcast(1, START)
            rec.upload(1, 0, values(5), num_examples=5)
            rec.upload(1, 1, values(6), num_examples=5)
            finish_after_a_kill(rec, folder)
        else:
            rec.close()
        sums = 2 if broken else 1
        assert epsilon(folder, "aggregate") == pytest.approx(get_epsilon_gaussian(2.0 * sqrt(2 / sums), 1e-5))


@pytest.mark.parametrize("broken", [False, True])
def test_whoever_sees_sums_sees_the_last_without_secure_aggregation_too(broken, tmp_path):
    """As above: a bound of 1/2 behind √2 a sum. Who gets models alone has seen one sum less, and of one round none."""
    rec = in_the_second_round(tmp_path / "s")
    for c in range(2):
        rec.upload(1, c, values(5 + c), num_examples=5)
    if broken:
        finish_after_a_kill(rec, tmp_path / "s")
    else:
        rec.close()
    multipliers = {"aggregate": 2.0, "downlink": 2.0 * sqrt(2), "model": 2.0 * sqrt(2), "server": 2.0 / sqrt(2)}
    for observer, multiplier in multipliers.items():
        assert epsilon(tmp_path / "s", observer) == pytest.approx(get_epsilon_gaussian(multiplier, 1e-5))


def test_sums_behind_a_servers_noise_are_seen_without_it(tmp_path):
    with recorder(tmp_path / "s", CENTRAL) as rec:
        one_round(rec, 0)
    assert (epsilon(tmp_path / "s", "downlink"), epsilon(tmp_path / "s", "aggregate")) == (0, inf)


def test_checked_is_not_said_of_messages_that_nobody_looked_at(tmp_path):
    rec = recorder(tmp_path / "s")
    one_round(rec, 0)
    for c in range(2):
        rec.raw(0, c, torch.zeros(DIM))
    rec.broadcast(1, START)
    rec.upload(1, 0, values(5), num_examples=5)
    finish_after_a_kill(rec, tmp_path / "s")
    noise = next(d for d in check_setup(tmp_path / "s")[1].declared if d.what == "noise")
    assert noise.status == "declared" and "3 messages" in noise.why


def test_half_a_line_is_a_call_that_never_returned(tmp_path):
    killed_behind_a_model(tmp_path / "s", CENTRAL)
    journal = tmp_path / "s" / ".work" / FILE
    journal.write_bytes(journal.read_bytes() + b'{"client": 0, "dig')
    with recorder(tmp_path / "s", CENTRAL) as rec:
        rec.broadcast(1, served(7))
    assert epsilon(tmp_path / "s", "downlink") == pytest.approx(get_epsilon_gaussian(2.0, 1e-5))


@pytest.mark.parametrize("line", ["no JSON", '{"client": 3}', '{"round": 1}', "[]", '{"client": 0, "digest": ""}'])
def test_a_damaged_line_is_one_sentence(line, tmp_path):
    rec = recorder(tmp_path / "s")
    one_round(rec, 0)
    one_round(rec, 1)
    rec.abandon()
    journal = tmp_path / "s" / ".work" / FILE
    journal.write_text(journal.read_text() + line + "\n")
    with pytest.raises(BadInput, match="damaged") as caught:
        finish(tmp_path / "s")
    assert "\n" not in str(caught.value)


def test_who_closes_without_the_last_model_is_told_what_is_missing_and_what_to_do(tmp_path):
    """With it the downlink's ε is of multiplier 2; without, nothing of the round is priced there, and that is said."""
    with recorder(tmp_path / "left out", CENTRAL) as rec:
        one_round(rec, 0)
    assert epsilon(tmp_path / "left out", "downlink") == 0 and "unfinished rounds" not in declared(
        tmp_path / "left out"
    )
    why = next(d.why for d in check_setup(tmp_path / "left out")[1].declared if d.what == LAST_MODEL)
    assert "rec.broadcast(1, weights)" in why and "too low" in why
    rows = [row for row in table(tmp_path / "left out").rows if row.proven != inf]
    assert rows and all(any("nobody gets" in note for note in row.notes) for row in rows)
    with recorder(tmp_path / "there", CENTRAL) as rec:
        one_round(rec, 0)
        rec.broadcast(1, served(7))
    assert LAST_MODEL not in declared(tmp_path / "there")
    assert epsilon(tmp_path / "there", "downlink") == pytest.approx(get_epsilon_gaussian(2.0, 1e-5))


def test_it_is_told_where_nothing_else_is_declared(tmp_path):
    with Recorder(tmp_path / "s", START, strict=True) as rec:
        one_round(rec, 0)
    assert LAST_MODEL in declared(tmp_path / "s")


@pytest.mark.parametrize("secure", [False, True])
def test_whose_word_about_the_last_model_nobody_has_is_priced_as_if_it_went_out(secure, tmp_path):
    """A kill, a dump and a loop of Flower's say nothing of it."""
    rec = recorder(tmp_path / "s", CENTRAL, secure_aggregation=secure)
    one_round(rec, 0)
    rec.close(nothing_more=False)
    assert LAST_MODEL not in declared(tmp_path / "s")
    assert epsilon(tmp_path / "s", "downlink") == pytest.approx(get_epsilon_gaussian(2.0, 1e-5))


def test_a_restart_from_another_model_is_told_at_once_and_in_the_setup(tmp_path):
    """The same model again is nothing to tell, and so is a training without a kill."""
    for name, model in (("same", 1), ("other", 2)):
        rec = Recorder(tmp_path / name, START, mechanism=LOCAL)
        one_round(rec, 0)
        rec.broadcast(1, as_state(values(1)))
        rec.abandon()
        with Recorder(tmp_path / name, START, mechanism=LOCAL) as rec, warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert rec.next_round == 1
            rec.broadcast(1, as_state(values(model)))
            rec.upload(1, 0, values(9), num_examples=5)
            rec.upload(1, 1, values(8), num_examples=5)
        assert [w for w in told if "another model" in str(w.message)] == told and len(told) == (name == "other")
        assert (RESTART in declared(tmp_path / name)) == (name == "other")


@pytest.mark.parametrize(("rounds", "hinted"), [("22122", True), ("21212", False), ("22222", False), ("22112", False)])
def test_a_round_with_fewer_uploads_than_nearly_all_others_is_hinted(rounds, hinted, tmp_path):
    with recorder(tmp_path / "s") as rec:
        for t, clients in enumerate(rounds):
            rec.broadcast(t, START)
            for c in range(int(clients)):
                rec.upload(t, c, values(10 * t + c), num_examples=5)
    assert (MISSING in declared(tmp_path / "s")) == hinted


@pytest.mark.parametrize(("claim", "false"), [(0.5, True), (8.0, False)])
def test_a_claim_below_the_exact_curve_is_the_first_thing_that_epsilon_says(claim, false, tmp_path):
    """One upload at multiplier 2: ε = 2.08 at δ = 1e-5."""
    with recorder(tmp_path / "s", claim=claim) as rec:
        one_round(rec, 0)
    row = next(r for r in table(tmp_path / "s").rows if r.claimed is not None)
    assert row.proven == pytest.approx(get_epsilon_gaussian(2.0, 1e-5))
    assert bool(impossible(row)) == false and (row.notes[0] == impossible(row)) == false
