"""A canary in somebody's own DP-SGD: a right one is consistent and half of its ε is shown, wrong ones are refuted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import dpfl_audit
import numpy as np
import pytest
import torch
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.labelled import labelled_record
from dpfl_audit.audit.proof.theorems.composition import epsilon as composed
from dpfl_audit.audit.proof.theorems.draw import Draw
from dpfl_audit.audit.two_worlds.estimators.finding import VIOLATED_IF
from dpfl_audit.audit.two_worlds.estimators.mean_shift import mean_shift
from dpfl_audit.audit.worlds.composed_steps import _why_not_composed, as_many_each_time, pattern_of
from dpfl_audit.audit.worlds.planted import PlantedDataset, default_canaries
from dpfl_audit.audit.worlds.transcript import own_randomness_kept, watched
from dpfl_audit.audit.worlds.watching import StepScores
from PIL import Image
from scipy.stats import binom
from tiers import quick
from torch.utils.data import DataLoader, TensorDataset

DELTA, RATE, STEPS, RECORDS = 1e-5, 0.25, 6, 20
QUICK: dict[str, Any] = {"delta": DELTA, "sample_rate": RATE, "steps": STEPS, "max_grad_norm": 1.0}


def claimed(noise_multiplier: float, rate: float = RATE) -> float:
    draw = Draw("gaussian", 1 / noise_multiplier, "poisson", 1, round(1 / rate), 1 / noise_multiplier)
    return composed(((draw, STEPS),), DELTA)[0]


def records() -> TensorDataset:
    rng = torch.Generator().manual_seed(0)
    return TensorDataset(torch.rand(RECORDS, 4, generator=rng), torch.arange(RECORDS) % 3)


def by_hand(noise_multiplier: float, bug: str = "", rate: float = RATE) -> Callable[[Any], None]:
    """DP-SGD of a linear classifier with a loop of its own, Poisson batches, and torch's SGD."""
    start = torch.full((4, 3), 0.1)

    def train(dataset: Any) -> None:
        weights = start.clone().requires_grad_()
        optimiser = torch.optim.SGD([weights], lr=0.1)
        for _ in range(STEPS):
            places = torch.nonzero(torch.rand(len(dataset)) < rate).flatten().tolist()
            batch = dataset.__getitems__(places * (2 if bug == "taken twice" else 1))
            total = torch.zeros_like(start)
            for inputs, label in batch:
                wrong = torch.softmax(inputs @ weights.detach(), 0)
                wrong[label] -= 1
                gradient = inputs[:, None] * wrong
                if bug != "not clipped":
                    gradient = gradient * min(1.0, 1.0 / float(gradient.norm() + 1e-12))
                total += gradient
            noise = noise_multiplier * torch.randn(total.shape)
            if bug == "no noise in one number":
                noise[0, 0] = 0
            if bug != "no noise":
                total += noise
            weights.grad = total / (RECORDS * rate)
            optimiser.step()

    return train


def test_a_right_one_is_consistent_and_half_of_it_is_shown():
    truth = claimed(1.0)
    audit = dpfl_audit.audit_dpsgd(
        by_hand(1.0), records(), noise_multiplier=1.0, claim=truth, trainings=150, seed=1, **QUICK
    )
    assert audit.finding().level == "consistent"
    assert truth / 2 < audit.if_gaussian.epsilon <= truth and audit.counted.epsilon <= truth
    (row,) = audit.results().epsilon
    assert (row.unit, row.adjacency) == ("record", "zero_out") and row.condition.startswith("every step")
    assert any(note.startswith("Checked: a sample rate of 0.25 is declared") for note in row.notes)


@pytest.mark.parametrize("bug", quick(["not clipped", "no noise", "rate"], 0))
def test_wrong_ones_are_refuted_on_the_condition_that_is_named(bug):
    claim = claimed(1.0, RATE / 25 if bug == "rate" else RATE)
    audit = dpfl_audit.audit_dpsgd(
        by_hand(1.0, bug),
        records(),
        noise_multiplier=1.0,
        claim=claim,
        trainings=60,
        **{**QUICK, "sample_rate": RATE / 25 if bug == "rate" else RATE},
    )
    found = audit.finding()
    assert found.level == VIOLATED_IF and "every step" in found.sentence
    assert audit.results().verdict.level == "high"
    contradicted = [note for note in audit.about.notes if note.startswith("Contradicted: a sample rate")]
    assert bool(contradicted) == (bug == "rate")


@pytest.mark.full
def test_noise_that_is_missing_in_one_number_is_seen_where_no_other_record_moves_it():
    inputs, labels = records().tensors
    inputs[:, 0] = 0  # as a feature that is rare
    canary = (torch.tensor([0.5, 0.5, 0.5, 0.5]), torch.tensor(0))
    found = [
        dpfl_audit.audit_dpsgd(
            by_hand(1.0, bug),
            TensorDataset(inputs, labels),
            canaries={"rare": canary},
            noise_multiplier=1.0,
            claim=claimed(1.0),
            trainings=60,
            **QUICK,
        ).finding()
        for bug in ("", "no noise in one number")
    ]
    assert [one.level for one in found] == ["consistent", VIOLATED_IF]


def telling(inputs_of: Callable[[Any], torch.Tensor]) -> Callable[[Any], dpfl_audit.Steps]:
    """A loop without a torch optimiser, which tells its steps: noisy sums of records' inputs, of norm 1 each."""

    def train(dataset: Any) -> dpfl_audit.Steps:
        released, drawn = [], []
        for _ in range(STEPS):
            before = dataset.drawn
            batch = dataset.__getitems__(np.flatnonzero(np.random.random(len(dataset)) < RATE).tolist())
            vectors = [inputs_of(record) for record in batch]
            released.append(torch.stack([torch.zeros(4), *(v / v.norm() for v in vectors)]).sum(0) + torch.randn(4))
            drawn.append(dataset.drawn > before)
        return dpfl_audit.Steps(torch.stack(released), drawn)

    return train


def test_a_loop_without_a_torch_optimiser_tells_its_steps():
    train = telling(lambda record: record[0])
    audit = dpfl_audit.audit_dpsgd(train, records(), noise_multiplier=1.0, claim=20.0, trainings=60, **QUICK)
    assert audit.finding().level == "consistent" and audit.if_gaussian.epsilon > 0


def of_a_fixed_size(dataset: Any) -> dpfl_audit.Steps:
    """As many other records in each step, drawn anew without replacement: who draws the record draws one other less."""
    released, drawn = [], []
    for _ in range(STEPS):
        before = dataset.drawn
        batch = dataset.__getitems__(np.random.permutation(len(dataset))[: round(RATE * len(dataset))].tolist())
        released.append(torch.tensor([sum(float(record) for record in batch)]) + torch.randn(1))
        drawn.append(dataset.drawn > before)
    return dpfl_audit.Steps(torch.stack(released), drawn)


def test_batches_of_a_fixed_size_are_no_coins():
    """Composed as coins they showed up to 11 of a true 7.2: the missing other record counted as the canary's."""
    numbers: dict[str, Any] = {"noise_multiplier": 1.0, "canaries": {"opposite": torch.tensor(-1.0)}, "trainings": 40}
    audit = dpfl_audit.audit_dpsgd(of_a_fixed_size, [torch.tensor(1.0)] * RECORDS, **numbers, **QUICK)
    assert audit.if_gaussian is None
    assert any(note.startswith("Contradicted") and "30" in note for note in audit.about.notes)


def test_coins_take_now_more_now_fewer():
    coins = np.random.default_rng(0).random((300, 4)) < 0.25
    assert as_many_each_time([20, 21] * 300, 20, coins) is None
    assert as_many_each_time([20] * 2, 20, coins) is None  # by chance
    assert as_many_each_time([], 20, coins) is None and as_many_each_time([80] * 600, 20, coins | True) is None
    assert as_many_each_time([20] * 600, 20, coins) is not None


@pytest.mark.full
def test_a_sampler_with_replacement_is_no_coin_of_each_record():
    """A batch that has a record twice moves by two clips, where the accountant counts on one."""
    audit = dpfl_audit.audit_dpsgd(by_hand(1.0, "taken twice"), records(), noise_multiplier=1.0, trainings=40, **QUICK)
    assert audit.if_gaussian is None and any("2 times" in note for note in audit.about.notes)


# --- the data set ---


def test_worlds_have_the_same_size_and_only_the_place_differs():
    data = records()
    canary = (torch.full((4,), 9.0), torch.tensor(2))
    present, absent = (PlantedDataset(data, 3, canary, world) for world in (True, False))
    assert len(present) == len(absent) == RECORDS
    assert [float(r[0][0]) for r in present.__getitems__([1, 3])] == [float(data[1][0][0]), 9.0]
    assert len(absent.__getitems__([1, 3])) == 1 and absent.__getitems__([3]) == []
    assert (present.drawn, absent.drawn, present.batches) == (1, 2, 1)
    assert (present.most, absent.most) == (1, 1) and len(present.__getitems__([3, 1, 3])) == 3 and present.most == 2
    loader = DataLoader(absent, batch_size=10)
    assert [len(inputs) for inputs, _ in loader] == [9, 10]


def test_canaries_of_a_classifier():
    data = records()
    made = default_canaries(data[0], [data[i] for i in range(RECORDS)], torch.Generator())
    assert list(made) == ["existing", "mislabelled", "blank", "crafted"]
    assert int(made["mislabelled"][1]) != int(data[0][1]) and not made["blank"][0].any()
    assert made["crafted"][0].abs().min() > max(float(data[i][0].max()) for i in range(RECORDS))
    assert list(default_canaries("text", [], torch.Generator())) == ["existing"]


class Named(NamedTuple):
    inputs: Any
    label: Any


FORMS: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "NumPy and np.int64": lambda x, y: (x.numpy(), np.int64(y)),
    "tensor and np.int64": lambda x, y: (x, np.int64(y)),
    "a list": lambda x, y: [x, y],
    "numbers of Python": lambda x, y: (x.tolist(), y),
    "whole float": lambda x, y: (x, float(y)),
    "label of one number": lambda x, y: (x, torch.tensor([y])),
    "one row of 0 and 1": lambda x, y: (x.numpy(), np.eye(3)[y]),
    "a word": lambda x, y: (x, "abc"[y]),
    "a mapping": lambda x, y: {"x": x.numpy(), "labels": y},
    "a named pair": lambda x, y: Named(x, y),
    "with its number": lambda x, y: (x, y, 7),
}


@pytest.mark.parametrize("form", FORMS)
def test_canaries_are_those_of_tensors_in_every_form_of_a_record(form):
    plain = [(x, int(y)) for x, y in (records()[i] for i in range(RECORDS))]
    shaped = [FORMS[form](x, y) for x, y in plain]
    expected = default_canaries(plain[0], plain, torch.Generator().manual_seed(1))
    made = default_canaries(shaped[0], shaped, torch.Generator().manual_seed(1))
    assert list(made) == list(expected)
    for name, value in made.items():
        assert type(value) is type(shaped[0]) and len(value) == len(shaped[0])
        assert np.allclose(labelled_record(value).inputs, labelled_record(expected[name]).inputs)
        again = FORMS[form](*expected[name])
        assert labelled_record(value).key == labelled_record(again).key


def test_pixels_of_8_bits_and_tokens_have_canaries_of_their_kind():
    pictures = [(Image.fromarray(np.full((4, 4), 9 * i, np.uint8)), i % 2) for i in range(6)]
    made = default_canaries(pictures[0], pictures, torch.Generator())
    assert set(np.unique(made["crafted"][0])) == {0, 255} and not np.asarray(made["blank"][0]).any()
    assert isinstance(made["blank"][0], Image.Image) and made["mislabelled"][1] == 1
    tokens = [{"input_ids": [1, 2, i], "attention_mask": [1, 1, 1], "label": i % 2} for i in range(6)]
    assert list(default_canaries(tokens[0], tokens, torch.Generator())) == ["existing", "mislabelled"]


def test_only_the_record_itself_is_said_to_be_the_weakest():
    """Of records that are nothing but one vector."""

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return RECORDS

        def __getitem__(self, i):
            return records()[i][0]

        def __getitems__(self, places):
            return [self[i] for i in places]

    train = telling(lambda record: record)
    audit = dpfl_audit.audit_dpsgd(train, Rows(), noise_multiplier=1.0, claim=20.0, trainings=60, **QUICK)
    assert audit.about.canary == "existing" and "weakest canary" in audit.about.notes[-1]


# --- what is refused ---


def seeded(dataset: Any) -> None:
    torch.manual_seed(0)
    by_hand(1.0)(dataset)


def other_start(dataset: Any) -> None:
    weights = torch.nn.Parameter(torch.randn(3))
    optimiser = torch.optim.SGD([weights], lr=0.1)
    for _ in range(STEPS):
        batch = dataset.__getitems__([i for i in range(len(dataset)) if torch.rand(()) < RATE])
        weights.grad = torch.randn(3) + len(batch)
        optimiser.step()


def nothing(dataset: Any) -> None:
    return None


def own_data(dataset: Any) -> None:
    by_hand(1.0)(PlantedDataset(records(), 0, None, False))


def one_by_one(dataset: Any) -> None:
    weights = torch.nn.Parameter(torch.zeros(4))
    optimiser = torch.optim.SGD([weights], lr=0.1)
    for _ in range(STEPS):
        dataset.__getitems__([0])
        weights.grad = dataset[0][0] + torch.randn(4)
        optimiser.step()


@pytest.mark.parametrize(
    ("train", "sentence"),
    [
        (seeded, "it seeds its noise itself"),
        (other_start, "starts from other weights with another seed"),
        (nothing, "took no step of a torch optimiser"),
        (own_data, "took no batch of the data set it was given"),
        (one_by_one, "changes no step of 40 pairs"),
    ],
)
def test_what_cannot_be_audited_says_why(train, sentence):
    with pytest.raises(ValueError, match=sentence):
        dpfl_audit.audit_dpsgd(train, records(), noise_multiplier=1.0, trainings=20, **QUICK)


@pytest.mark.full
def test_too_few_steps_with_the_canary_say_so():
    with pytest.raises(ValueError, match="take more trainings"):
        dpfl_audit.audit_dpsgd(by_hand(1.0), records(), noise_multiplier=1.0, trainings=10, **QUICK)


def test_a_record_that_is_dealt_and_not_drawn_is_not_composed():
    """Once in each of 4 steps, as shuffled batches have it: no coin, so no composition; coins pass in 99.99 %."""
    dealt = np.zeros((300, 4), dtype=bool)
    dealt[np.arange(300), np.random.default_rng(0).integers(4, size=300)] = True
    assert "a coin" in _why_not_composed(dealt, DELTA, pattern_of(dealt))
    for coins in (np.random.default_rng(0).random((300, 4)) < 0.25, np.ones((300, 4), dtype=bool)):
        assert _why_not_composed(coins, DELTA, pattern_of(coins)) == ""  # also where all of them are in every step


def test_the_callers_randomness_goes_on_as_before():
    torch.manual_seed(3)
    np.random.seed(3)
    with own_randomness_kept():
        watched(by_hand(1.0), PlantedDataset(records(), 0, records()[0], True), 7)
    assert float(torch.rand(())) == float(torch.rand((), generator=torch.Generator().manual_seed(3)))


@pytest.mark.few(1)
@pytest.mark.parametrize(("mu", "steps"), [(1.0, 300), (0.5, 300), (1.0, 40), (0.0, 100)])
def test_a_steps_mu_exceeds_the_truth_no_more_often_than_promised(mu, steps):
    """Gaussian scores, nine steps without the record for each with it; an exact test at 1 % does not reject 3 %."""
    rng = np.random.default_rng(0)
    lows = [mean_shift(rng.normal(mu, 1, steps), rng.normal(0, 1, 9 * steps), 0.03, mu / 2) for _ in range(500)]
    assert binom.sf(sum(low > mu for low in lows) - 1, len(lows), 0.03) > 0.01
    assert np.mean(lows) > mu - 4 / np.sqrt(steps)  # and it has power


@pytest.mark.parametrize(("rate", "steps"), [(0.2, 200), (1.0, 40)])
def test_a_step_of_records_that_follow_the_model_shows_no_more_than_its_clip_over_its_noise(rate, steps):
    """σ = 1 and C = 1, so that μ is 1: at a saddle others' gradients grow with all that was released before, and steps
    of the two worlds lie further apart (1.13 at least, 1.17 of a record in every step: a right client was accused).
    """
    rng, scores, draws = np.random.default_rng(0), [], []
    for present in (0, 1):
        weights, drawn = np.zeros(300), rng.random((300, steps)) < rate
        released = np.empty((300, steps))
        for t in range(steps):
            released[:, t] = 0.01 * weights + present * drawn[:, t] + rng.normal(size=300)
            weights += released[:, t]
        scores.append(released)
        draws.append(drawn)
    apart = StepScores((scores[0], scores[1]), (draws[0], draws[1])).apart
    middle = float(np.median(apart[0]) + np.median(apart[1])) / 2
    assert 0.8 < mean_shift(*apart, 0.03, middle) < 1


def test_a_score_that_is_not_finite_is_counted():
    assert mean_shift(np.full(50, np.inf), np.zeros(400), 0.03, 1.0) > 3
    assert mean_shift(np.zeros(50), np.zeros(400), 0.03, 0.0) == 0.0


# --- Opacus ---


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("opacus")
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[3] / "examples" / "opacus"))
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[3] / "benchmarks"))
    import opacus_audit

    return opacus_audit


def test_opacus_is_imported_by_nobody_else(monkeypatch):
    monkeypatch.setitem(sys.modules, "opacus", None)
    with pytest.raises(BadInput, match=r"audit_opacus needs opacus: pip install 'dpfl-audit\[opacus\]'"):
        dpfl_audit.audit_opacus(lambda dataset, engine: None, None, records())


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_a_right_opacus_client_is_consistent_and_its_numbers_are_read(example, tmp_path, capsys):
    """The example, as a user runs it: ends in a report."""
    import claim as script

    script.main(str(tmp_path / "results"), 50)
    said = capsys.readouterr().out
    assert "consistent with" in said and (tmp_path / "results" / "report.html").exists()
    results = dpfl_audit.Results.read(tmp_path / "results")
    (row,) = results.epsilon
    known = results.setup.parameters
    assert (known["noise_multiplier"], known["clip_norm"], known["sample_rate"], known["steps"]) == (1.0, 1.0, 0.2, 10)
    assert row.claimed == pytest.approx(4.99, abs=0.02) and row.demonstrated_on_condition > 1.5


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("bug", ["noise forgotten in one layer", "clipped per batch", "accountant told q / 10"])
def test_planted_bugs_in_opacus_are_refuted(example, bug):
    _, shown, level, _ = example.audited(1.0, bug, 0, 60)
    assert level.startswith("violated") and shown > 0


@pytest.mark.filterwarnings("ignore")
def test_an_engine_that_is_not_used_is_said(example):
    from opacus import PrivacyEngine

    with pytest.raises(BadInput, match="never called make_private"):
        dpfl_audit.audit_opacus(lambda dataset, engine: by_hand(1.0)(dataset), PrivacyEngine(), records())
    with pytest.raises(BadInput, match=r"expected an opacus\.PrivacyEngine"):
        dpfl_audit.audit_opacus(lambda dataset, engine: None, "engine", records())
