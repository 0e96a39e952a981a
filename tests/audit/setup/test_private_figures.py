"""What setup.json and rounds.csv show: no figure of private values that one could compute for a guessed record."""

from __future__ import annotations

import json
import shutil
from collections import Counter

import numpy as np
import pytest
from dpfl_audit.audit import run as runner
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.files import digest_of_file
from dpfl_audit.audit.results.format import SCORING, Results, Verdict
from dpfl_audit.audit.run import evidence
from dpfl_audit.audit.run.audited import audited_setup
from dpfl_audit.audit.say.warnings import implied
from dpfl_audit.audit.setup import capture
from dpfl_audit.audit.setup.auditor import Auditor, check_setup
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.description import digest_of
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.folder import open_setup
from dpfl_audit.audit.worlds.federation.case import NoDemonstration, experiment_of
from dpfl_audit.defenses.terms import Observer

KEY = "5" * 64
CLIPPED = {"name": "ldp", "rounds": 2, "clip": 0.05, "sigma": 1e4}


def trained(home, scheme, without=()):
    """Two clients of 20 records, those in `without` replaced by 0."""
    g = np.random.default_rng(0)
    inputs, held = (0.3 * g.normal(size=(n, 4)).astype(np.float32) for n in (40, 20))
    inputs[list(without)] = 0
    arrays = {"inputs": inputs, "targets": np.arange(40) % 2}
    for split in ("test", "auxiliary"):
        arrays |= {f"{split}_inputs": held, f"{split}_targets": np.arange(20) % 2}
    home.mkdir(parents=True)
    np.savez(home / "a.npz", **arrays)
    raw = {
        "data": {"name": "npz", "root": "a.npz", "clients": 2, "samples_per_client": 20},
        "model": {"name": "logistic"},
        "local": {"optimiser": "sgd", "lr": 0.1},
        "scheme": scheme,
    }
    return capture.train(build(parse_config(raw), home), home / "s", key=KEY)


def attackers(folder):
    """A copy without the auditor's half."""
    shutil.copytree(folder, folder.parent / "public")
    for half in ("auditor", "truth"):
        shutil.rmtree(folder.parent / "public" / half)
    return folder.parent / "public"


@pytest.mark.parametrize("scheme", [CLIPPED, {"name": "lcdp", "rounds": 2}, {"name": "cdp", "rounds": 2}])
def test_the_attackers_half_shows_no_measure_of_a_record(scheme, tmp_path):
    """Facts are the same with a record and without it, rounds.csv has nothing that follows private data."""
    with_it, without = (trained(tmp_path / str(n), scheme, [7] * n) for n in (0, 1))
    assert open_setup(with_it).manifest.facts == open_setup(without).manifest.facts
    for folder in (with_it, without):
        assert (folder / "rounds.csv").read_text().splitlines()[0] == "round,participants"
    measured = [Auditor(open_setup(folder)).rounds for folder in (with_it, without)]
    assert measured[0] != measured[1]


def test_nobody_without_the_key_can_try_records_on_a_digest(tmp_path):
    """A plain SHA-256 of a private file or of the training rows tells a right guess from a wrong one for certain."""
    folder = trained(tmp_path / "a", CLIPPED)
    shown = (folder / "setup.json").read_text()
    plain = [
        digest_of_file(p) for half in ("truth", "auditor") for p in (folder / half).iterdir() if p.name != "seal.json"
    ]
    experiment = build(parse_config(json.loads(shown)["config"]), tmp_path / "a")
    assert not [digest for digest in (*plain, experiment.data.description["sha256"]) if digest in shown]
    assert open_setup(folder).manifest.digest == digest_of(experiment)
    other = trained(tmp_path / "b", CLIPPED)  # the same rows and key
    assert (other / "setup.json").read_text() == shown
    public = json.loads((capture.train(experiment, tmp_path / "c", key="6" * 64) / "setup.json").read_text())
    assert public["data"]["description"]["sha256"] not in shown and public["files"]["auditor/seal.json"] not in shown


def test_its_owner_still_learns_of_changed_rows_and_files(tmp_path):
    folder = trained(tmp_path / "a", CLIPPED)
    before = check_setup(folder)[1]
    assert before.edited == [] and experiment_of(before).key == KEY
    raw = open_setup(folder).manifest.config
    arrays = dict(np.load(tmp_path / "a" / "a.npz"))
    np.savez(tmp_path / "a" / "a.npz", **{**arrays, "inputs": arrays["inputs"] * np.float32(0.5)})
    with pytest.raises(NoDemonstration, match="no longer those"):
        experiment_of(before)
    with pytest.raises(BadInput, match="other training data"):
        capture.train(build(parse_config(raw), tmp_path / "a"), folder, key=KEY)
    (folder / "truth" / "messages.json").write_text("{}")
    assert Auditor(open_setup(folder)).edited == ["truth/messages.json"]
    seal = folder / "auditor" / "seal.json"
    seal.write_text(seal.read_text().replace("truth/messages.json", "truth/other.json"))
    with pytest.raises(BadInput, match=r"seal.json was changed after training"):
        check_setup(folder)
    seal.unlink()
    with pytest.raises(BadInput, match=r"seal.json is missing"):
        check_setup(folder)


def test_its_owner_sees_clip_and_noise_as_measured_and_nobody_else(tmp_path):
    owner = trained(tmp_path / "a", CLIPPED)
    setup, auditor = check_setup(owner)
    own, public = audited_setup(auditor), audited_setup(Auditor(open_setup(attackers(owner))))
    norms = [row["norm_before_clip"] for row in auditor.rounds]
    assert own.share_clipped == sum(row["share_clipped"] for row in auditor.rounds) / 2 > 0
    assert own.norm_before_clip_median == max(norms) > 0
    assert (public.share_clipped, public.norm_before_clip_median) == (None, None)
    assert own.noise_std == public.noise_std == setup.manifest.facts.noise_std


def test_noise_of_a_private_scale_is_the_owners_to_see(tmp_path):
    owner = trained(tmp_path / "a", {"name": "lcdp", "rounds": 2})
    auditor = check_setup(owner)[1]
    assert audited_setup(auditor).noise_std == sum(row["noise_std"] for row in auditor.rounds) / 2
    assert audited_setup(Auditor(open_setup(attackers(owner)))).noise_std is None


def test_without_the_auditors_half_nobody_says_that_nothing_was_clipped(tmp_path):
    """A server that clips what it receives does so in figures of its own."""
    public = Auditor(open_setup(attackers(trained(tmp_path / "a", {"name": "cdp", "rounds": 2}))))
    nothing = Verdict(level="none found", proof="none", measured=True, attacked=True, sentences=("", "", ""))
    results = Results(
        scoring=SCORING,
        setup=audited_setup(public),
        verdict=nothing,
        epsilon=(),
        attacks=(),
        rounds=tuple(public.rounds),
    )
    assert not any("was clipped" in sentence for sentence in implied(results))


def test_labels_of_a_sampled_upload_do_not_say_which_records_were_drawn(tmp_path):
    """ε counts on the secrecy of the draws: labels of the drawn records gave 2.00 where 4.74 is right (labels.py)."""
    scheme = {"name": "dpsgd", "rounds": 3, "clip": 1.0, "sigma": 1.0}
    config = {
        "data": {"name": "digits", "clients": 2, "samples_per_client": 12},
        "model": {"name": "linear"},
        "local": {"optimiser": "sgd", "batch_size": 1, "epochs": None, "steps": 1},
        "scheme": scheme,
    }
    setup = open_setup(capture.train(build(parse_config(config), tmp_path), tmp_path / "s"))
    assert setup.knowledge().labels == {} and not (setup.folder / "knowledge" / "labels.json").exists()
    auditor = Auditor(setup)
    assert auditor.drawn_labels.keys() == auditor.truth.messages.keys()
    for message, rows in auditor.truth.messages.items():
        assert sorted(auditor.truth.targets[list(rows)].tolist()) == auditor.drawn_labels[message].tolist()
    (setup.folder / "auditor" / "labels.json").write_text("{}")
    with pytest.raises(BadInput, match=r"labels\.json was changed after training"):
        check_setup(setup.folder)


def test_an_inversion_of_sampled_uploads_gets_the_count_and_labels_that_it_is_scored_by(tmp_path):
    """Of all the client's records' labels it would rebuild twelve images for one, and a perfect one would not count."""
    config = {
        "data": {"name": "digits", "clients": 1, "samples_per_client": 12},
        "model": {"name": "linear"},
        "local": {"optimiser": "sgd", "batch_size": 4, "epochs": None, "steps": 1},
        "scheme": {"name": "dpsgd", "rounds": 2, "clip": 10.0, "sigma": 1e-4},
        "attack": {"inversion": {"iterations": 3}},
    }
    folder = capture.train(build(parse_config(config), tmp_path), tmp_path / "s")
    results = runner.run(folder, tmp_path / "r", runner.RunOptions(attacks=("inversion",), pixels_only=True))
    truth = Auditor(open_setup(folder)).truth
    drawn = sum(map(len, truth.messages.values()))
    by_attack = Counter()
    for a in results.attacks:
        if a.manner == "one-round":
            by_attack[a.settings["objective"], a.settings.get("prior")] += a.n
    assert ("cosine", None) in by_attack and set(by_attack.values()) == {drawn}
    assert any("secret batches" in warning for warning in results.warnings)


def test_who_sees_models_alone_is_not_told_of_the_uploads_behind_them(tmp_path):
    """That there are labels of an upload tells that a secret cohort had its client: 1.13 was proven towards the final
    model, where counting shows 2.17 (l1_cohort_labels.py).
    """
    scheme = {"name": "cdp", "clip": 1.0, "sigma": 1.5, "participants": 1, "rounds": 4}
    setup = open_setup(trained(tmp_path / "s", scheme))
    told = {}

    class Curious:
        name = "curious"

        def parts(self, view, knowledge):
            told[view.observer] = set(knowledge.labels)
            raise ValueError("nothing to do")

    views = [setup.view(Observer(name)) for name in ("server", "downlink", "model")]
    with pytest.raises(ValueError, match="nothing to do"):
        evidence.plan(views, [evidence.ChosenAttack("curious", Curious(), {})], setup.knowledge())
    assert told["server"] == set(setup.knowledge().labels)
    assert told["downlink"] == told["model"] == set()
