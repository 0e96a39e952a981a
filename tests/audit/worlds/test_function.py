"""`audit mechanism`: a user's function by name, its results, page and gates; refusals in one sentence, nothing lost."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import dpfl_audit
import numpy as np
import pytest
import torch
from command import called
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.say.sharing import REFUTED
from dpfl_audit.audit.say.warnings import NO_CLIP
from dpfl_audit.audit.two_worlds.estimators import betting
from dpfl_audit.audit.two_worlds.estimators.bound import GAUSSIAN
from dpfl_audit.audit.worlds.calls import SEEDS, Calls
from dpfl_audit.audit.worlds.function import audit_mechanism, planned_draws
from dpfl_audit.audit.worlds.request import MechanismRequest
from dpfl_audit.audit.worlds.search import measured_shift
from dpfl_audit.audit.worlds.source import own_code
from scipy.stats import binom

DELTA = 1e-5
SOURCE = """
import numpy as np

def make(std):
    def update(world, seed):
        rng = np.random.default_rng(seed)
        print("a line of the user's own")
        return np.eye(5)[0] * float(world) + rng.normal(scale=std, size=5)
    return update

right, wrong = make(1.0), make(0.01)

def chosen(record, seed):
    return (0 if record is None else record) * np.eye(5)[1] + np.random.default_rng(seed).normal(size=5)

def records():
    return {"small": 0.5, "large": 4.0, "opposite": -1.0}

def crashes(world, seed):
    raise RuntimeError("no GPU")

def nothing(world, seed):
    return None

def exits(world, seed):
    raise SystemExit(3)

constant = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def noisy(shift: float, dim: int = 1):
    def update(world: bool, seed: int) -> np.ndarray:
        return np.random.RandomState(seed).normal(size=dim) + shift * world * np.eye(dim)[0]

    return update


# --- the command ---


def test_a_wrong_mechanism_is_refuted_saved_and_reported(folder, capsys):
    asked = ("mechanism", "mine.py:wrong", "--claim", 3, "--delta", DELTA, "-o", "results", "--junit", "gates.xml")
    gate = "demonstrated > 3"
    code, said, wrong = called(capsys, *asked, "--fail-if", gate, "--fail-if", "claimed > 5")
    assert code == 1 and "violated" in said and gate in wrong.split(": ", 1)[1]
    results = dpfl_audit.Results.read("results")
    (row,) = results.epsilon
    assert (row.claimed, row.unit, row.adjacency, row.observer) == (3, "client", "zero_out", "server")
    assert row.demonstrated is not None and row.demonstrated > 3 and row.proven is None
    assert results.verdict.level == "severe" and results.verdict.proof == "not priced"
    counts = ElementTree.parse("gates.xml").getroot().attrib
    assert [counts[name] for name in ("tests", "failures", "errors")] == ["2", "1", "0"]
    code, _, _ = called(capsys, "report", "results", "-o", "page.html")
    text = Path("page.html").read_text()
    assert code == 0 and "mine.py:wrong keep" in text and REFUTED in text
    assert NO_CLIP not in text and "Not tried" not in text


def test_json_is_one_document_whatever_the_function_prints(folder, capsys):
    code, said, _ = called(
        capsys, "mechanism", "mine.py:right", "--claim", 8, "--delta", DELTA, "--draws", 50, "--gaussian", "--json"
    )
    document = json.loads(said)
    (row,) = document["results"]["epsilon"]
    assert code == 0 and row["condition"] == GAUSSIAN and row["demonstrated_on_condition"] is not None


@pytest.mark.full
def test_a_config_says_the_same_as_options(folder, capsys):
    Path("audit.toml").write_text(
        '[mechanism]\nfunction = "mine.py:right"\ndraws = 60\n[claim]\nepsilon = 1\n[audit]\nunit = "record"\n'
    )
    _, by_config, _ = called(capsys, "mechanism", "audit.toml", "--json")
    asked = f"mechanism mine.py:right --draws 60 --claim 1 --delta {DELTA} --unit record --json"
    _, by_options, _ = called(capsys, *asked.split())
    assert json.loads(by_config) == json.loads(by_options)
    _, over, _ = called(capsys, "mechanism", "audit.toml", "--claim", 2, "--json")
    assert json.loads(over)["results"]["epsilon"][0]["claimed"] == 2


def test_candidates_are_searched(folder, capsys):
    code, said, _ = called(
        capsys,
        *("mechanism", "mine.py:chosen", "--candidates", "mine.py:records", "--claim", 1, "--delta", DELTA),
        *("--draws", 100, "-o", "results"),
    )
    assert code == 0 and "Canary 'large'" in said
    (entry,) = dpfl_audit.Results.read("results").attacks
    assert entry.settings["canary"] == "large" and len(entry.settings["searched"]) == 3


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["mine.py:rihgt", "--delta", DELTA], "did you mean 'right'?"),
        (["mine.py:right"], "give --delta 1e-5"),
        (["mine.py:crashes", "--delta", DELTA], "raised RuntimeError: no GPU (mine.py:"),
        (["mine.py:nothing", "--delta", DELTA], "the vector of the mechanism is a NoneType; expected a tensor"),
        (["mine.py:exits", "--delta", DELTA], "raised SystemExit: 3"),
        (["mine.py:right", "--delta", DELTA, "--sizes", 3], "sizes add up to 3"),
        (["mine.py:right", "--delta", DELTA, "--fail-if", "auc > .6"], "no attack of this run measures auc"),
        (["mine.py:right", "--delta", DELTA, "--fail-if", "demonstrated[model] > 1"], "has no row of model"),
        (["mine.py:right", "--delta", DELTA, "--rate", 0.5, "--gaussian"], "that is a mixture"),
        (["mine.py:right", "--delta", DELTA, "--log-to", "mlfow"], "did you mean 'mlflow'?"),
        (["empty.toml"], "has no [mechanism] table"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(arguments, sentence, folder, capsys):
    Path("empty.toml").write_text("[claim]\nepsilon = 1\n")
    code, said, wrong = called(capsys, "mechanism", *arguments, "-o", "results", "--quiet")
    assert (code, said) == (2, "") and sentence in wrong.splitlines()[-1]
    assert not Path("results").exists()


@pytest.mark.full
def test_other_results_are_not_lost(folder, capsys):
    options = ("--delta", DELTA, "--draws", 20, "--quiet", "-o", "results")
    assert called(capsys, "mechanism", "mine.py:right", *options)[0] == 0
    before = Path("results/results.json").read_bytes()
    code, _, wrong = called(capsys, "mechanism", "mine.py:wrong", *options)
    assert code == 2 and all(word in wrong for word in ("mine.py:right", "mine.py:wrong", "--force"))
    assert Path("results/results.json").read_bytes() == before
    assert called(capsys, "mechanism", "mine.py:right", *options)[0] == 0  # the same question replaces its answer
    assert Path("results/results.json").read_bytes() == before
    assert called(capsys, "mechanism", "mine.py:wrong", *options, "--force")[0] == 0
    Path("other").mkdir()
    Path("other/thesis.txt").write_text("mine")
    code, _, wrong = called(capsys, "mechanism", "mine.py:right", *options[:-1], "other")
    assert code == 2 and "other" in wrong and Path("other/thesis.txt").exists()


def test_a_gate_that_could_not_fail_is_an_error_in_junit(folder, capsys):
    code, _, wrong = called(
        capsys,
        *("mechanism", "mine.py:right", "--delta", DELTA, "--draws", 20, "--quiet"),
        *("--fail-if", "demonstrated > 5", "--junit", "gates.xml"),
    )
    assert code == 2 and "more draws" in wrong
    assert 'failures="0" errors="1"' in Path("gates.xml").read_text()


# --- what is measured ---


def test_seeds_are_below_two_to_the_32_and_never_come_twice():
    seen: list[int] = []

    def update(world: bool, seed: int) -> np.ndarray:
        seen.append(seed)
        return np.random.RandomState(seed).normal(size=1) + world

    audit_mechanism(update, delta=DELTA, draws=100, calibration=50, noiseless=lambda world: [float(world)])
    assert max(seen) < 2**32
    tested = seen[-2 * 100 - 10 : -10]  # the last calls are some of the first once more
    assert len(set(tested)) == 200
    calls = Calls(noisy(1.0))
    calls.used |= set(range(SEEDS - 3, SEEDS))
    assert len({calls.seed(0, i) for i in range(50)}) == 50


def test_the_shift_is_not_lengthened_by_noise_in_the_direction():
    """In 400 dimensions a direction learned from 50 draws is 4 standard deviations long by its noise alone."""

    def update(world: bool, seed: int) -> np.ndarray:
        rng = np.random.default_rng([seed, world])  # so that noise does not cancel between the worlds
        return rng.normal(size=400) + 2.0 * world * np.eye(400)[0]

    shifts = [audit_mechanism(update, delta=DELTA, draws=20, calibration=50, seed=s).shift for s in range(3)]
    assert np.mean(shifts) == pytest.approx(2.0, abs=0.7)


def test_noise_that_follows_from_the_seed_alone_costs_no_power():
    """1,000 numbers, 50 draws: worlds with the same seeds tell the direction exactly."""
    audit = audit_mechanism(noisy(5.0, 1000), delta=DELTA, draws=80, calibration=50, gaussian=True)
    assert audit.shift == pytest.approx(5.0, rel=0.1)
    assert audit.counted.confidence == audit.if_gaussian.confidence == 0.975  # both hold together in 95 % of audits
    assert 8 < audit.if_gaussian.epsilon < gaussian_epsilon(1 / 5.0, DELTA)


def test_the_search_finds_the_canary_that_moves_most_and_its_draws_do_not_count():
    used: dict[str, set[int]] = {"search": set(), "tested": set()}

    def update(record: float | None, seed: int) -> np.ndarray:
        used["tested" if record == 3.0 else "search"].add(seed)
        return np.random.RandomState(seed).normal(size=8) + np.eye(8)[2] * (record or 0.0)

    few = {"delta": DELTA, "draws": 20, "calibration": 20}
    audit = audit_mechanism(update, candidates=[0.1, 3.0, -1.0], **few)
    assert audit.about.canary == "candidate 1"
    assert [one.shift for one in audit.about.searched] == pytest.approx([0.1, 3.0, 1.0], rel=0.5)
    assert audit_mechanism(update, candidates={"only": 3.0}, **few).about.searched == ()


def test_the_search_of_nothing_finds_nothing():
    calls = Calls(lambda world, seed: np.random.default_rng([seed, world]).normal(size=50))
    assert measured_shift(calls, 40, 0) < 2.5


def trained(extra_steps: int):
    """SGD whose number of steps follows the number of records: one more with the canary."""

    def update(world: bool, seed: int) -> torch.Tensor:
        weight = torch.zeros(2, requires_grad=True)
        optimiser = torch.optim.SGD([weight], lr=0.1)
        for _ in range(3 + extra_steps * world):
            (weight * torch.ones(2)).sum().backward()
            optimiser.step()
        noise = torch.randn(2, generator=torch.Generator().manual_seed(seed))
        return weight.detach() + noise + 0.5 * world

    return update


def test_worlds_of_unequal_steps_are_refused_unless_they_are_meant():
    few = {"delta": DELTA, "draws": 10, "calibration": 10}
    with pytest.raises(ValueError, match="took 3 optimiser steps without the canary and 4 with it"):
        audit_mechanism(trained(1), **few)
    assert audit_mechanism(trained(0), **few).shift > 0
    assert audit_mechanism(trained(1), **few, same_steps=False).shift > 0


def test_steps_that_torch_does_not_count_can_be_told():
    def update(world: bool, seed: int) -> tuple[np.ndarray, int]:
        return np.random.RandomState(seed).normal(size=2) + world, 100 + world

    with pytest.raises(ValueError, match="took 100 optimiser steps without the canary and 101 with it"):
        audit_mechanism(update, delta=DELTA, draws=50)


def test_shapes_that_change_are_refused():
    def update(world: bool, seed: int) -> np.ndarray:
        return np.random.RandomState(seed).normal(size=3 if seed % 7 else 2) + world

    with pytest.raises(ValueError, match=r"gave a vector of . numbers after one of .; all must be as long"):
        audit_mechanism(update, delta=DELTA, draws=100)


def test_rounds_with_a_secret_draw_are_scored_as_mixtures():
    """Four messages, the canary in each with chance ½: about as good as scipy's own likelihood ratio on the same."""

    def update(world: bool, seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        return rng.normal(size=4) + 4.0 * world * (rng.random(4) < 0.5)

    audit = audit_mechanism(update, delta=DELTA, draws=150, calibration=100, rounds=4, rate=0.5)
    drawn = [np.stack([update(world, s) for s in range(5000 * world, 5000 * world + 300)]) for world in (False, True)]
    ratio = [np.log(0.5 + 0.5 * np.exp(4 * x - 8)).sum(1) for x in drawn]
    ideal = betting(
        ratio[1][:150], ratio[0][:150], past_in=ratio[1][150:], past_out=ratio[0][150:], delta=DELTA, confidence=0.95
    )
    assert audit.shift == pytest.approx(8.0, rel=0.1)  # four times 4, where the canary is in all of them
    assert audit.counted.epsilon == pytest.approx(ideal.epsilon, abs=0.8)


@pytest.mark.full
def test_two_bounds_hold_together():
    """A true claim (ε = 4.38 exactly) is refuted by either of them in at most 5 % of audits."""
    truth = gaussian_epsilon(1.0, DELTA)
    audits = [
        audit_mechanism(noisy(1.0), delta=DELTA, draws=40, calibration=20, gaussian=True, seed=s) for s in range(20)
    ]
    assert all(audit.counted.confidence == 0.975 for audit in audits)
    wrong = sum(audit.finding(truth).level.startswith("violated") for audit in audits)
    assert binom.sf(wrong - 1, len(audits), 0.05) > 0.01


def test_as_many_draws_as_the_claim_takes():
    assert planned_draws(1.0, DELTA, 0.95, False) == 1000 < planned_draws(7.0, DELTA, 0.95, False) < 20_000
    assert planned_draws(12.0, DELTA, 0.95, False) == planned_draws(7.0, DELTA, 0.95, True) == 1000


def test_a_finding_needs_a_claim():
    audit = audit_mechanism(noisy(1.0), delta=DELTA, draws=20)
    with pytest.raises(ValueError, match="none was given"):
        audit.finding()
    assert audit.results().epsilon[0].claimed is None


def test_a_name_without_a_file_has_no_digest():
    assert own_code("sys:intern").code == "" and own_code("sys:intern").function("a") == "a"


def test_a_request_reads_its_config_beside_it(folder):
    (folder / "deeper").mkdir()
    (folder / "deeper" / "own.py").write_text(SOURCE)
    (folder / "deeper" / "a.toml").write_text('[mechanism]\nfunction = "own.py:right"\ndrws = 3\n')
    with pytest.raises(BadInput, match=r"unknown key 'mechanism.drws'; did you mean 'draws'"):
        MechanismRequest.of("deeper/a.toml", {})
    (folder / "deeper" / "a.toml").write_text('[mechanism]\nfunction = "own.py:right"\n')
    assert MechanismRequest.of("deeper/a.toml", {}).function.name == "own.py:right"


@pytest.mark.full
def test_no_sentence_of_the_page_loses_the_condition(tmp_path):
    """What only a condition shows is said with it, and that a test could have refuted a claim on it alone."""
    from dpfl_audit.audit.report.decision import share
    from dpfl_audit.audit.report.facts import read_settings
    from dpfl_audit.audit.say.sharing import NOT_REFUTED, NOT_TESTED, claim_not_refuted

    kept = audit_mechanism(noisy(1.0), delta=DELTA, claim=9, draws=300, gaussian=True, name="one").save(tmp_path / "a")
    (setting,) = read_settings([kept])
    answer = share([setting])
    because = claim_not_refuted(setting.results.epsilon[0], on_condition_alone=True)
    assert (answer.sentence, answer.because) == (NOT_REFUTED, because)
    assert because.count(GAUSSIAN) == 2
    wrong = audit_mechanism(noisy(5.0), delta=DELTA, claim=9, draws=300, gaussian=True, name="two").save(tmp_path / "b")
    refuted = share(read_settings([wrong]))
    assert refuted.answer == "no" and "Gaussian" in refuted.sentence
    few = audit_mechanism(noisy(1.0), delta=DELTA, claim=9, draws=30, name="three").save(tmp_path / "c")
    assert share(read_settings([few])).sentence == NOT_TESTED


def test_a_vector_without_a_finite_number_is_named_and_not_taken_for_two_equal_worlds():
    with pytest.raises(ValueError, match="no finite number"):
        audit_mechanism(lambda world, seed: np.array([np.nan, np.nan]), delta=DELTA, draws=20, calibration=10)


@pytest.mark.full
def test_the_epsilon_of_batches_by_coins_does_not_hold_for_shuffled_ones():
    """arXiv:2411.10614. Of the same steps by coins, at their likelihood ratio too, the same ε stands."""
    path = Path(__file__).resolve().parents[3] / "examples" / "opacus" / "shuffled.py"
    seen = own_code(f"{path}:seen").value
    steps, noise = (seen.__globals__[name] for name in ("STEPS", "NOISE_MULTIPLIER"))

    def by_coins(world: bool, seed: int) -> list[float]:
        rng = np.random.default_rng(seed)
        sums = noise * rng.normal(size=steps) + world * (rng.random(steps) < 1 / steps)
        return [float(np.log1p(np.expm1((sums - 0.5) / noise**2) / steps).sum())]

    asked = {"delta": 1e-5, "claim": 1.9, "unit": "record", "draws": 2000, "seed": 3}
    assert audit_mechanism(seen, **asked).finding().level == "violated"
    assert audit_mechanism(by_coins, **asked).finding().level == "consistent"
