"""What cannot be is one sentence, before anything is written: of a recorder, its calls, a dump and what is declared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from command import call
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.record.dump import import_dump
from dpfl_audit.audit.record.mechanism import Gaussian, Laplace
from dpfl_audit.audit.record.recorder import Recorder
from dpfl_audit.audit.setup.auditor import check_setup
from dpfl_audit.audit.setup.format import DRAWN_LABELS
from dpfl_audit.audit.setup.strict import faults
from dpfl_audit.defenses.releases import Sampling

NAN, INF, HUGE = float("nan"), float("inf"), 10**30
START, ZEROS = {"weight": torch.zeros(20, 10)}, torch.zeros(200)
NOISE = Gaussian(clip=1.0, noise_std=0.5)


DRAWN = Sampling("poisson", 10, 2)  # which goes with a server's noise


def sentence(call) -> str:
    with pytest.raises(BadInput) as caught:
        call()
    said = str(caught.value)
    assert said and "\n" not in said and len(said) < 400, said
    return said


@pytest.mark.parametrize(
    "facts",
    [
        *({"clip": value} for value in (10**400, INF, NAN, -1, 0, True, "1", 1e200, 5e-324)),
        *({"noise_std": value} for value in (10**400, INF, NAN, -1.0, 1e-320)),
        *({"of": "record", "steps": value} for value in (HUGE, True, 1.5, -1, 0)),
        {"what": 5},
        {"on": 5},
        *({"by": value} for value in ([1], "me")),
        {"of": "record", "by": "server"},
        {"steps": 3},
        {"scale": "median"},
        {"sampling": Sampling("poisson", 10, 1)},
        {"by": "server", "sampling": Sampling("poisson", 10, 11)},
    ],
)
def test_a_mechanism(facts):
    assert "Gaussian" in sentence(lambda: Gaussian(**{"clip": 1.0, "noise_std": 0.5, **facts}))


@pytest.mark.parametrize("law", [Gaussian, Laplace])
@pytest.mark.parametrize(
    ("population", "cohort"),
    [(1.5, 1), (HUGE, 10), (10**400, 1), (10, NAN), (NAN, 1), (INF, 1), (-10, -20), (10, -1), (10, "2"), (True, True)],
)
def test_a_population(law, population, cohort):
    sentence(lambda: law(1.0, 0.5, by="server", sampling=Sampling("poisson", population, cohort)))


@pytest.mark.parametrize("facts", [{"clip": 0}, {"noise_scale": -1}, {"by": "nobody"}, {"sampling": DRAWN}])
def test_a_laplace(facts):
    assert "Laplace" in sentence(lambda: Laplace(**{"clip": 1, "noise_scale": 1, **facts}))


def test_an_exact_cohort_is_whole():
    lot = Sampling("without_replacement", 10, 2.5)
    assert "whole" in sentence(lambda: Gaussian(1.0, 0.5, by="server", sampling=lot))


@pytest.mark.parametrize(
    "options",
    [
        *({"clients": value} for value in (HUGE, 10**9, 1.5, NAN, -3, True)),
        *({"data": value} for value in (5, {"input_shape": [0]}, {"input_shape": [1.5]}, {"classes": HUGE}, {"x": 1})),
        *({"data": {"mean": mean, "std": std}} for mean, std in (([NAN], [1.0]), ([0.0], [0.0]), ([0.0, 1.0], [1.0]))),
        *({"tables": value} for value in (5, {"audit": 5}, {"local": [1]}, {"audit": {"x": 1}}, {"name": 5}, {3: 4})),
        *({"claim": value} for value in (NAN, INF, -1, 10**400, "8", {"epsilon": "8"}, {1: 2}, {"delta": 1e-5})),
        {"claim": {"epsilon": 8, "who": "me"}},
        {"mechanism": 0.5},
        {"share": "weight"},
        {"average": "median"},
        {"secure_aggregation": "false"},
        *({"tables": value} for value in ({"scheme": {}}, {"audit": {"observer": "nobody"}})),
        *({"seed": value} for value in (-1, 1.5, 2**63, "x")),
        *({"keep": value} for value in (5, ["a"], "0", [NAN])),
        *({"by": value} for value in (5, "")),
        *({"auxiliary": value} for value in (5, ("x", "y"), (np.array([object()]), np.zeros(1)))),
    ],
)
def test_what_a_recorder_is_begun_with(options, tmp_path):
    sentence(lambda: Recorder(tmp_path / "s", START, **{"mechanism": NOISE, **options}, strict=True))
    assert "auxiliary" in options or not (tmp_path / "s").exists()  # those are read when the folder is there


@pytest.mark.parametrize("model", [{}, [], {"w": torch.zeros(0)}, {5: torch.zeros(3)}, {"w": np.array(["a"])}, None])
def test_a_model_without_a_number(model, tmp_path):
    def begun() -> None:
        with Recorder(tmp_path / "s", model, strict=True) as rec:
            rec.broadcast(0, model)

    sentence(begun)


@pytest.mark.parametrize(
    ("call", "values"),
    [
        (lambda r, n: r.upload(0, 1, ZEROS, n), (HUGE, INF, NAN, -1, 1.5, "5", 2**53 + 2, None)),
        (lambda r, c: r.upload(0, c, ZEROS, 5), (HUGE, 10**9, -1, "a/b", "", NAN, [1], None)),
        (lambda r, t: r.upload(t, 1, ZEROS, 5), (NAN, [0], 10**400, None, 0.0)),
        (lambda r, t: r.broadcast(t, START), (np.array([1, 2]), 1.0, 10**400, "1")),
        (lambda r, v: r.figures(0, a=v), (10**400, "x", NAN, True, None)),
        (lambda r, n: r.figures(0, **{n: 1.0}), ("a,b", "a\nb", "", "participants")),
        (lambda r, o: r.candidates(np.ones((2, 3)), np.ones(2), o), ("ab", [0.5, 1.5], [0], [HUGE, 0])),
        (lambda r, x: r.upload(0, 1, ZEROS, 5, records=x), [("a", "b")]),
        (lambda r, x: r.upload(0, 1, ZEROS, 5, records=x), [([[1], [1, 2]], [1, 2])]),
        (lambda r, x: r.upload(0, 1, ZEROS, 5, records=x), [5]),
        (lambda r, v: r.upload(0, 1, v, 5), ([[1, [2]]], "nowhere.npz", {"weight": np.full((20, 10), 2**63, "u8")})),
        (lambda r, v: r.declare(0, v), [5]),
        (lambda r, v: r.defect(0, v, "said", "why"), [5]),
    ],
)
def test_a_call_leaves_the_recording_whole(call, values, tmp_path):
    with Recorder(tmp_path / "s", START, mechanism=NOISE, strict=True) as rec:
        rec.broadcast(0, START)
        rec.upload(0, 0, torch.randn(200), 5)
        for value in values:
            sentence(lambda value=value: call(rec, value))
    assert faults(*check_setup(tmp_path / "s")) == []


@pytest.mark.parametrize("length", [1, 4, 6, 50])
def test_records_are_as_many_as_the_client_says(length, tmp_path):
    """The upload was sent, and stays; the records are not taken, as no score would be about them."""
    records = (np.random.rand(length, 3), np.zeros(length))
    with Recorder(tmp_path / "s", START, mechanism=NOISE, strict=True) as rec:
        rec.broadcast(0, START)
        said = sentence(lambda: rec.upload(0, 0, torch.randn(200), 5, records=records))
    assert f"{length} records" in said and "num_examples" in said
    setup, auditor = check_setup(tmp_path / "s")
    assert setup.manifest.clients == [5] and auditor.truth is None and faults(setup, auditor) == []


def test_where_records_are_drawn_their_number_may_be_that_of_draws(tmp_path):
    lot = Sampling("poisson", 20, 5, unit="record")
    drawn = Gaussian(clip=1.0, noise_std=0.5, of="record", steps=2, sampling=lot)
    with Recorder(tmp_path / "s", START, mechanism=drawn, data={"classes": 2}, strict=True) as rec:
        rec.broadcast(0, START)
        rec.upload(0, 0, torch.randn(200), 10, records=(np.random.rand(20, 3), np.zeros(20, dtype=int)))
    auditor = check_setup(tmp_path / "s")[1]
    assert auditor.truth is not None
    # Whose records a coin drew is what ε counts on: no label of them is public.
    assert not (tmp_path / "s" / "knowledge" / "labels.json").exists() and (tmp_path / "s" / DRAWN_LABELS).exists()


def test_who_has_a_candidate_is_a_client(tmp_path):
    with Recorder(tmp_path / "s", START, mechanism=NOISE, strict=True) as rec:
        rec.broadcast(0, START)
        rec.upload(0, 0, torch.randn(200), 5, records=(np.random.rand(5, 3), np.zeros(5)))
        rec.candidates(np.random.rand(2, 3), np.zeros(2), [9, -1])
    setup, auditor = check_setup(tmp_path / "s")
    assert len(setup.manifest.clients) == 10 and auditor.truth.candidate_owners.tolist() == [9, -1]


# --- dumps


def dumped(folder: Path, rounds=(0, 1), **more) -> Path:
    rng = np.random.default_rng(0)
    for t in rounds:
        (folder / f"r{t}").mkdir(parents=True)
        np.savez(folder / f"r{t}/global.npz", w=rng.normal(size=(30, 40)))
        np.savez(folder / f"r{t}/site0.npz", w=rng.normal(0, 0.5, (30, 40)), **more)
    return folder


GOOD = {"layout": "r{round}/site{client}.npz", "broadcasts": "r{round}/global.npz"}
DECLARED = "num_examples = 9\n[mechanism]\nclip = 1\nnoise_std = 0.5\n"


def refused_dump(tmp_path: Path, declared: str = DECLARED, **options) -> str:
    (tmp_path / "d.toml").write_text(declared)
    options = {**GOOD, **options}
    said = sentence(lambda: import_dump(tmp_path / "dump", tmp_path / "s", declared=tmp_path / "d.toml", **options))
    assert not (tmp_path / "s").exists()
    return said


@pytest.mark.parametrize(
    ("layout", "broadcasts", "words"),
    [
        ("r{round}/{client}{client}.npz", GOOD["broadcasts"], "{client} stands in it twice"),
        ("r{round}{round}/site{client}.npz", GOOD["broadcasts"], "{round} stands in it twice"),
        ("r{round}{client}.npz", GOOD["broadcasts"], "between"),
        (GOOD["layout"], "r{round}/{round}.npz", "{round} stands in it twice"),
        (GOOD["layout"], "r{round}/site{client}.npz", "no place"),
        ("r{round}/site{client}.npz{", GOOD["broadcasts"], "are not called as"),
        ("", GOOD["broadcasts"], "expected rounds, files"),
    ],
)
def test_a_layout(layout, broadcasts, words, tmp_path):
    dumped(tmp_path / "dump")
    assert words in refused_dump(tmp_path, layout=layout, broadcasts=broadcasts)


def test_the_command_refuses_with_code_2_and_writes_nothing(tmp_path):
    dumped(tmp_path / "dump")
    typed = ["import", tmp_path / "dump", "-o", tmp_path / "s", "--layout", "r{round}{client}.npz", "--quiet"]
    assert call(*typed) == 2 and not (tmp_path / "s").exists()


@pytest.mark.parametrize(("rounds", "words"), [((0, 1, 3), "round 2 is missing"), ((3, 4), "the first round is 3")])
def test_a_round_that_is_missing_is_never_renumbered(rounds, words, tmp_path):
    dumped(tmp_path / "dump", rounds)
    assert words in refused_dump(tmp_path)


@pytest.mark.parametrize(
    "declared",
    [
        *(f"num_examples = {n}" for n in ("1.5", "-1", "0", "nan", "inf", "1e400", '"nine"', "[]", "[1, 2]", HUGE)),
        *(f"num_examples = 9\n{line}" for line in ("x = 1", "clients = 1.5", "clients = -1", f"clients = {HUGE}")),
        *(
            f"num_examples = 9\n{line}"
            for line in ("data = 5", "model = 5", "audit = 5", "mechanism = 5", "claim = []")
        ),
        'num_examples = 9\nmechanism = "gaussian"',
        "num_examples = 9\nmechanism = [5]",
        f"num_examples = {'9' * 5000}",
        "num_examples = 9\n[model]\nname = 'mlp'\noptions = 3",
        "num_examples = 9\n[data]\ninput_shape = []",
        *(
            f"num_examples = 9\n[mechanism]\nclip = {clip}\nnoise_std = {std}"
            for clip, std in (("1", "nan"), ("1", "1e400"), ("1", "-1"), ("1", "0"), ("true", "1"), ("'1'", "1"))
        ),
        "num_examples = 9\n[mechanism]\nclip = 1\nnoise_std = 1\nsigma = 2",
        "num_examples = 9\n[mechanism]\nclip = 1",
        *(
            "num_examples = 9\n[mechanism]\nclip = 1\nnoise_std = 1\nby = 'server'\n"
            f"sampling = {{ kind = 'poisson', population = {population}, cohort = {cohort} }}"
            for population, cohort in (("1.5", 1), (HUGE, 2), ("nan", 1), (10, "nan"), (10, -1), ("'a'", 1))
        ),
        "num_examples = 9\n[mechanism]\nclip = 1\nnoise_std = 1\nby = 'server'\nsampling = 5",
        "num_examples = 9\n[claim]\nepsilon = nan",
        "num_examples = 9\n[claim]\nepsilon = 1e400",
    ],
)
def test_what_is_declared_of_a_dump(declared, tmp_path):
    dumped(tmp_path / "dump")
    refused_dump(tmp_path, declared)


@pytest.mark.parametrize("count", [np.array([1, 2]), np.array([]), np.array(1.5), np.array(np.nan), np.array(-1)])
def test_a_count_beside_the_tensors(count, tmp_path):
    dumped(tmp_path / "dump", **{"@num_examples": count})
    refused_dump(tmp_path)


def test_a_client_by_two_spellings_and_shapes_that_change(tmp_path):
    (tmp_path / "dump").mkdir()
    w = np.zeros((30, 40))
    np.savez(tmp_path / "dump/round-0.npz", **{"broadcast/w": w, "client-1/w": w, "client-01/w": w})
    assert "another spelling" in refused_dump(tmp_path, layout="round-{round}.npz", broadcasts="x-{round}.npz")
    np.savez(tmp_path / "dump/round-0.npz", **{"broadcast/w": w, "client-1/w": np.zeros((30, 41))})
    assert "(30, 41)" in refused_dump(tmp_path, layout="round-{round}.npz", broadcasts="x-{round}.npz")
    np.savez(tmp_path / "dump/round-0.npz", **{"broadcast/w": w, "client-/w": w})
    assert "client-NAME" in refused_dump(tmp_path, layout="round-{round}.npz", broadcasts="x-{round}.npz")
