"""The hostile review's attacks on the noise itself (issue 11, 6 and 9): its last bits, and its seed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import called, content
from dpfl_audit.audit import run as runner
from dpfl_audit.audit.proven.rows import rows, setup_rows
from dpfl_audit.audit.results.format import SCORING, Results, Verdict
from dpfl_audit.audit.run.audited import audited_setup
from dpfl_audit.audit.say.warnings import implied
from dpfl_audit.audit.setup import capture
from dpfl_audit.audit.setup.auditor import Auditor, check_setup
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.description import values_of
from dpfl_audit.audit.setup.experiment import Experiment, build
from dpfl_audit.audit.setup.folder import Setup, open_setup
from dpfl_audit.audit.setup.key import PUBLISHED, drawn_with, read_key
from dpfl_audit.audit.setup.planned import planned_ledger
from dpfl_audit.audit.two_worlds.estimators.clopper_pearson import clopper_pearson
from dpfl_audit.audit.worlds.federation.client_round import client_worlds, moments
from dpfl_audit.audit.worlds.federation.trials import UploadTrials
from dpfl_audit.defenses.data.dataset import make
from dpfl_audit.defenses.federation import Federation, run_many
from dpfl_audit.defenses.randomness import secret_seed
from dpfl_audit.defenses.schedule import RoundPlan
from dpfl_audit.defenses.scheme import Context
from dpfl_audit.defenses.steps.perturb import raw_release, release
from dpfl_audit.defenses.terms import Observer
from dpfl_audit.defenses.wire import Bound, Parcel, Wire

DELTA = 1e-5
KEY = "0123456789abcdef" * 4
CONFIG = """
seed = 77
data = { name = "digits", clients = 3, samples_per_client = 1 }
model = { name = "logistic" }
local = { optimiser = "sgd", lr = 0.5, batch_size = 1 }
scheme = { name = "ldp", rounds = 2, clip = 1.0, sigma = 4.0 }
audit = { unit = "client" }
"""
RAW: dict[str, Any] = {
    "seed": 77,
    "data": {"name": "digits", "clients": 3, "samples_per_client": 1},
    "model": {"name": "logistic"},
    "local": {"optimiser": "sgd", "lr": 0.5, "batch_size": 1},
}


def experiment(name: str = "ldp", **scheme) -> Experiment:
    scheme = {"clip": 1.0, **scheme} if name == "ldp" else scheme
    return build(parse_config({**RAW, "scheme": {"name": name, "rounds": 1, **scheme}}), Path())


# --- the last bits


def unreachable(messages: torch.Tensor, std: float) -> np.ndarray:
    """How many numbers of each message (n, d) no float32 normal times `std` gives: 0 where only noise was sent."""
    sent = messages.numpy().astype(np.float32)
    normal = (sent.astype(np.float64) / std).astype(np.float32)
    reached = np.zeros(sent.shape, bool)
    for near in (normal, np.nextafter(normal, np.float32(-np.inf)), np.nextafter(normal, np.float32(np.inf))):
        reached |= torch.from_numpy(near).mul(std).numpy() == sent
    return (~reached).sum(1)


def test_the_last_bits_of_a_message_do_not_tell_whether_the_client_took_part():
    """One message under σ = 100, ε ≈ .03: counting the numbers that float32 noise cannot give demonstrated ε ≥ 5."""
    made = experiment(sigma=100.0)
    (row,) = rows(planned_ledger(made), None, DELTA, (Observer("server"),), ("client",), ("zero_out",))
    assert row.proven == pytest.approx(0.02722, abs=1e-5)
    (moment,) = moments(made.federation(), 0, 1)
    trials = UploadTrials(moment, client_worlds(moment, None, "zero_out", 0))
    absent, present = (
        unreachable(trials.draw(world, range(10**6 * world, 10**6 * world + 600), True), 100.0) for world in (0, 1)
    )
    for scores in ((present, absent), (-present, -absent)):
        assert clopper_pearson(*scores, delta=DELTA, threshold=0.5).epsilon <= row.proven


# --- the seed and the key


def without_noise(setup: Setup, key: str) -> list[float]:
    """Norms of the client's uploads after the noise of a guessed key is taken off: an attack with setup.json, messages
    and tensors alone (and the code, which is public).
    """
    description = setup.manifest.data.description
    streams = drawn_with(key, setup.manifest.digest, values_of(description, setup.manifest.engine.name))
    secret, std = secret_seed(setup.manifest.seed, streams), setup.facts.noise_std
    norms = []
    for message in (m for m in setup.messages if m.sender == "client-0"):
        context = Context(
            secret, message.round, 0, RoundPlan(), setup.layout, 1, frozenset({0}), torch.zeros(setup.layout.dim)
        )
        nothing = torch.zeros(setup.layout.dim)
        noise = release(Parcel(nothing, Bound(1.0), frozenset({raw_release(context)})), std, "gaussian", context).vector
        norms.append(float((setup.load(message) - noise).norm()))
    return norms


def test_the_public_files_do_not_give_back_what_was_clipped(tmp_path):
    """The seed alone used to: every upload minus the noise drawn again had norm C = 1 (instead of about 100)."""
    made = experiment(sigma=4.0)
    setup = open_setup(capture.train(made, tmp_path / "s", key=None))
    noise = 4.0 * made.layout.dim**0.5
    guesses = ["", PUBLISHED, "77", "None"]
    assert all(norm > noise for key in guesses for norm in without_noise(setup, key))
    # The attack itself works: with the auditor's key nothing but the clipped update is left.
    assert without_noise(setup, read_key(tmp_path / "s" / "auditor" / "noise-key")) == pytest.approx([1.0], abs=1e-4)
    published = open_setup(capture.train(made, tmp_path / "p"))
    assert without_noise(published, PUBLISHED) == pytest.approx([1.0], abs=1e-4)


SECRET_DRAWS = {
    "cohorts": {"name": "ldp", "sigma": 1.0, "participants": 2, "rounds": 8},
    "batches": {"name": "dpsgd", "rounds": 2},
    "addresses": {"name": "anonymous-gossip", "neighbours": 2, "rounds": 2},
}


def sent_by(made: Experiment, **changes) -> list[tuple]:
    messages, batches = [], []
    federation = made.federation(Wire(messages.append))
    federation = Federation(**{**{k: getattr(federation, k) for k in federation.__dataclass_fields__}, **changes})
    run_many([federation], on_round=lambda _, r: batches.append((r.participants, r.batches)))
    senders = [m.sender for m in messages if m.round > 0 or made.scheme.topology.anonymous]
    sizes = [[len(b) and b.tolist() for b in of.values()] for _, of in batches]
    return [(m.id, m.vector.sum().item()) for m in messages], senders, sizes, [who for who, _ in batches]


@pytest.mark.parametrize("what", SECRET_DRAWS)
def test_what_is_secret_hangs_on_seed_and_key(what):
    raw = {**RAW, "data": {**RAW["data"], "clients": 5, "samples_per_client": 12}, "scheme": SECRET_DRAWS[what]}
    made = build(parse_config(raw), Path())
    first, again, other, reseeded = (sent_by(made, **c) for c in ({}, {}, {"key": KEY}, {"seed": 78}))
    assert first == again
    place = {"cohorts": 3, "batches": 2, "addresses": 1}[what]
    for others in (other, reseeded):
        assert others[place] != first[place]
        assert not {i for i, _ in others[0]} & {i for i, _ in first[0]}  # ids
        assert others[0][0][1] == first[0][0][1] or made.scheme.topology.anonymous  # the first broadcast: no noise yet


def test_what_is_public_comes_from_the_seed_alone():
    """Model, split and the order of batches are the same under any key."""
    made = build(parse_config({**RAW, "scheme": {"name": "fedavg", "rounds": 3}}), Path())
    (_, *first), (_, *other) = sent_by(made), sent_by(made, key=KEY)
    assert first == other
    values = [[v for _, v in run[0]] for run in (sent_by(made), sent_by(made, key=KEY))]
    assert values[0] == values[1]


def test_the_same_key_gives_the_same_bytes_and_another_one_others(tmp_path, capsys):
    config, key = tmp_path / "c.toml", tmp_path / "key"
    config.write_text(CONFIG)
    key.write_text(f"{KEY.upper()}\n")
    for name, options in (
        ("fresh", ()),
        ("fresher", ()),
        ("again", ("--noise-key", tmp_path / "fresh" / "auditor" / "noise-key")),
        ("given", ("--noise-key", key)),
        ("published", ("--noise-key", "published")),
    ):
        assert called(capsys, "train", config, "-o", tmp_path / name, "--quiet", *options) == (0, "", "")
    made = {name: content(tmp_path / name) for name in ("fresh", "fresher", "again", "given", "published")}
    assert made["again"] == made["fresh"]
    assert len({made[name]["tensors/round-0000.safetensors"] for name in made}) == 4
    assert made["given"]["auditor/noise-key"] == f"{KEY}\n".encode()
    kinds = {name: json.loads(made[name]["setup.json"])["noise_key"] for name in made}
    assert kinds.pop("published") == "published" and set(kinds.values()) == {"secret"}
    for name in made:
        held = made[name]["auditor/noise-key"].strip()
        assert re.fullmatch(rb"[0-9a-f]{64}", held)
        assert [file for file, text in made[name].items() if held in text] == ["auditor/noise-key"]
        check_setup(tmp_path / name)


@pytest.mark.parametrize(("table", "keys"), [("data", {"samples_per_client": 9}), ("local", {"lr": 0.2})])
def test_one_key_never_draws_the_same_noise_around_two_values(table, keys, tmp_path):
    """The difference of two uploads was that of the clipped updates: norm .15 of noise of norm 26 (noisekey.py)."""
    uploads = []
    scheme = {"name": "ldp", "clip": 1.0, "noise_std": 1.0, "rounds": 1}
    for name, changed in (("a", {}), ("b", keys)):
        made = build(parse_config({**RAW, table: {**RAW.get(table, {}), **changed}, "scheme": scheme}), Path())
        setup = open_setup(capture.train(made, tmp_path / name, key=KEY))
        (upload,) = (m for m in setup.messages if m.sender == "client-0")
        uploads.append(setup.load(upload))
    noise = made.layout.dim**0.5
    assert float((uploads[0] - uploads[1]).norm()) > noise


@pytest.mark.parametrize("what", ["test split", "engine"])
def test_nor_does_it_for_another_test_split_or_engine(what, tmp_path):
    """A schedule follows the test loss, and an engine's sums differ in their last bits: two published messages gave the
    clipped weights back, and the differences of the unnoised updates (t9.py, t5.py).
    """
    uploads = []
    for engine, flip in (("batched", False), ("looped", False) if what == "engine" else ("batched", True)):
        made = experiment(noise_std=1.0)
        targets = made.data.test_targets.flip(0) if flip else made.data.test_targets
        data = make(
            "digits",
            (made.data.inputs, made.data.targets),
            (made.data.test_inputs, targets),
            (made.data.auxiliary_inputs, made.data.auxiliary_targets),
            10,
            {},
        )
        folder = capture.train(replace(made, data=data), tmp_path / f"{engine}{flip}", key=KEY, engine=engine)
        setup = open_setup(folder)
        check_setup(folder)
        (upload,) = (m for m in setup.messages if m.sender == "client-0")
        uploads.append(setup.load(upload))
    assert float((uploads[0] - uploads[1]).norm()) > made.layout.dim**0.5


def test_without_its_key_a_plan_takes_the_worst_cohorts_and_not_those_of_another_key(tmp_path):
    """A schedule that follows the test loss is priced by its plan; of a kept-back key the published one's cohorts were
    taken: 3,026,407 where it is 4,536,728 (keyback.py).
    """
    scheme = {"name": "geometric", "rounds": 9, "participants": 1, "shorten": 0.5, "epsilon": 1.0, "delta": 1e-3}
    data = {**RAW["data"], "clients": 5, "samples_per_client": 4}
    made = build(parse_config({**RAW, "data": data, "scheme": scheme}), Path())
    folder = capture.train(made, tmp_path / "s", key=KEY)

    def proven() -> float:
        who = (Observer("server"),)
        return setup_rows(Auditor(open_setup(folder)), DELTA, who, ("client",), ("zero_out",))[0].proven

    known = proven()
    (folder / "auditor" / "noise-key").unlink()
    assert proven() >= known


def test_a_setup_whose_owner_keeps_the_key_back_is_whole_and_one_with_another_key_is_not(tmp_path, capsys):
    folder = capture.train(experiment(sigma=4.0), tmp_path / "s", key=None)
    path = folder / "auditor" / "noise-key"
    before = path.read_text()
    path.write_text(f"{KEY}\n")
    code, _, error = called(capsys, "check", folder)
    assert code == 2 and "noise-key" in error and KEY not in error
    path.unlink()
    assert called(capsys, "check", folder)[0] == 0
    assert before.strip() not in repr(vars(open_setup(folder)))


def test_a_killed_run_goes_on_with_its_own_key(tmp_path, capsys):
    class Killed(Exception):
        pass

    def kill(done: int, planned: int, words: str) -> None:
        raise Killed

    made = experiment(sigma=4.0, rounds=3)
    with pytest.raises(Killed):
        capture.train(made, tmp_path / "s", key=None, progress=kill)
    key = read_key(tmp_path / "s" / "auditor" / "noise-key")
    (tmp_path / "c.toml").write_text(CONFIG.replace("rounds = 2", "rounds = 3"))
    (tmp_path / "key").write_text(KEY)
    options = ("-o", tmp_path / "s", "--noise-key", tmp_path / "key")
    code, _, error = called(capsys, "train", tmp_path / "c.toml", *options)
    assert code == 2 and "noise key" in error and "\n" not in error and KEY not in error
    capture.train(made, tmp_path / "s", key=None)
    assert content(tmp_path / "s") == content(capture.train(made, tmp_path / "whole", key=key))


@pytest.mark.parametrize("text", ["", "0123", "g" * 64, "ab" * 33, f"{KEY}\n{KEY}"])
def test_a_bad_key_file_is_one_sentence(text, tmp_path, capsys):
    (tmp_path / "c.toml").write_text(CONFIG)
    (tmp_path / "key").write_text(text)
    code, out, error = called(
        capsys, "train", tmp_path / "c.toml", "-o", tmp_path / "s", "--noise-key", tmp_path / "key"
    )
    assert code == 2 and out == "" and error.count("\n") == 0 and "64 hex" in error
    assert not text or text not in error
    assert not (tmp_path / "s").exists()
    code, _, error = called(capsys, "train", tmp_path / "c.toml", "-o", tmp_path / "s", "--noise-key", tmp_path / "no")
    assert code == 2 and "is missing" in error


def test_results_of_one_key_are_not_taken_for_those_of_another_and_a_published_one_is_said(tmp_path):
    """Whoever attacks again after training again must not be handed the old results."""
    made = experiment(sigma=4.0)
    silent = experiment("fedavg")
    folders = {
        "secret": capture.train(made, tmp_path / "a", key=KEY),
        "other": capture.train(made, tmp_path / "b", key=None),
        "published": capture.train(made, tmp_path / "c"),
        "no noise": capture.train(silent, tmp_path / "d"),
    }
    jobs = {name: runner.opened(folder, runner.RunOptions()) for name, folder in folders.items()}
    assert len({job.digest for job in jobs.values()}) == 4
    nothing = Verdict(level="none found", proof="none", measured=True, attacked=True, sentences=("", "", ""))
    warned = {
        name: any("noise is not secret" in sentence for sentence in implied(results))
        for name, job in jobs.items()
        if (
            results := Results(
                scoring=SCORING, setup=audited_setup(job.auditor), verdict=nothing, epsilon=(), attacks=()
            )
        )
    }
    assert warned == {"secret": False, "other": False, "published": True, "no noise": False}
