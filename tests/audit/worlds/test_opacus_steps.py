"""What `audit_opacus` counts: steps of the optimiser that Opacus made, and how records are drawn beside how often."""

from __future__ import annotations

import copy

import dpfl_audit
import numpy as np
import pytest
import torch
from dpfl_audit.audit.replay.opacus import ANOTHER
from dpfl_audit.audit.worlds.composed_steps import pattern_of
from dpfl_audit.audit.worlds.outcome import DEFECT
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

opacus = pytest.importorskip("opacus")
pytestmark = pytest.mark.filterwarnings("ignore")  # Opacus's own
COUNT, BATCH, STEPS = 60, 12, 5
DATA = TensorDataset(torch.rand(COUNT, 8, generator=torch.Generator().manual_seed(0)), torch.arange(COUNT) % 2)
START, STUDENT = nn.Linear(8, 2), nn.Linear(8, 2)
PUBLIC = torch.rand(30, 8, generator=torch.Generator().manual_seed(1))


def training(leaks: bool, poisson: bool = True, divisor=lambda inputs, step: BATCH):
    """A classifier with noise, and a student without: fitted to its released model on public rows, or to records."""

    def train(dataset, engine):
        model, student = copy.deepcopy(START), copy.deepcopy(STUDENT)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        other = torch.optim.SGD(student.parameters(), lr=0.1)
        model, optimiser, loader = engine.make_private(
            module=model,
            optimizer=optimiser,
            data_loader=DataLoader(dataset, batch_size=BATCH),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            poisson_sampling=poisson,
        )
        for step, (inputs, labels) in enumerate(loader):
            optimiser.expected_batch_size = divisor(inputs, step)
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimiser.step()
            rows = inputs if leaks else PUBLIC
            with torch.no_grad():
                taught = rows @ model._module.weight.T + model._module.bias
            other.zero_grad()
            nn.functional.mse_loss(student(rows), taught).backward()
            other.step()

    return train


def audited(train, **options):
    engine = opacus.PrivacyEngine()
    train(DATA, engine)
    return dpfl_audit.audit_opacus(train, engine, DATA, trainings=50, claim=20.0, **options)


def notes_of(train, **options) -> tuple[str, ...]:
    return audited(train, **options).about.notes


@pytest.mark.full
def test_a_students_steps_on_public_rows_are_left_out():
    said = notes_of(training(leaks=False))
    assert not [note for note in said if note.startswith("Contradicted")]
    assert [note for note in said if note.startswith(f"Checked: {STEPS} steps by an optimiser without noise")]


@pytest.mark.full
def test_a_students_steps_on_records_are_named():
    """Also where the whole training is replayed first."""
    found = dpfl_audit.replay(training(leaks=True), DATA, engine=opacus.PrivacyEngine(), neighbours=2)
    assert ANOTHER in {violation.name for violation in found.violations}
    said = notes_of(training(leaks=True), replay=True)
    assert [note for note in said if note.startswith("Contradicted:") and "optimiser" in note]
    assert [note for note in said if note.startswith("Violated: invariance")]


@pytest.mark.full
@pytest.mark.parametrize(
    ("divisor", "begins"),
    [
        (lambda inputs, step: max(1, len(inputs)), f"{DEFECT} (divisor)"),
        (lambda inputs, step: BATCH + step, "Checked: steps divide"),
    ],
)
def test_steps_that_divide_by_the_batch_that_came_are_named(divisor, begins):
    """A divisor that follows no record, such as a schedule, is none of them."""
    audit = audited(training(False, divisor=divisor))
    assert [note for note in audit.about.notes if note.startswith(begins)]
    assert (DEFECT in begins) == any(warning.startswith(begins) for warning in audit.results().warnings)


@pytest.mark.full
def test_a_replay_of_a_right_training_contradicts_nothing():
    """Opacus 1.6 clips no record of NaN or infinity, which limits whom ε covers."""
    audit = audited(training(leaks=False), replay=True, canaries={"one": (torch.ones(8), torch.tensor(0))})
    assert audit.finding().level == "consistent" and audit.results().verdict.proof == "not priced"
    limited = [note for note in audit.about.notes if note.startswith("Only records of finite numbers")]
    assert any("'nan'" in note for note in limited) and any("'infinite'" in note for note in limited)
    assert not [note for note in audit.about.notes if note.startswith(("Violated", "Contradicted"))]


@pytest.mark.full
def test_batches_that_are_no_coins_have_the_price_of_what_they_are():
    """Once a pass: one Gaussian release at σ = 1, ε = 4.377 at δ = 10⁻⁵; the accountant states 3.89."""
    audit = audited(training(leaks=False, poisson=False))
    (note,) = [note for note in audit.about.notes if note.startswith("Contradicted")]
    assert audit.sentences[1] == audit.results().warnings[0] == note  # and not below advice to draw more
    assert "= 4.377" in note and "same ones" in note and "contradicted in" in audit.finding().sentence


def once_a_pass(runs: int, passes: int, length: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    drawn = np.zeros((runs, passes, length), bool)
    places = rng.integers(length, size=(runs, passes))
    drawn[np.arange(runs)[:, None], np.arange(passes)[None], places] = True
    return drawn.reshape(runs, -1)


@pytest.mark.parametrize(("runs", "passes", "length"), [(60, 1, 5), (30, 4, 3), (100, 2, 10)])
def test_shuffled_passes_are_told_from_coins(runs, passes, length):
    found = pattern_of(once_a_pass(runs, passes, length, 0))
    assert found is not None and found.passes == passes and "same ones" not in found.words


@pytest.mark.parametrize("seed", range(20))
def test_coins_are_coins(seed):
    rng = np.random.default_rng(seed)
    assert pattern_of(rng.random((60, 10)) < 0.2) is None and pattern_of(rng.random((120, 5)) < 0.2) is None


@pytest.mark.full
def test_the_noise_of_an_epsilon_is_searched_for_once(monkeypatch):
    engine_module = __import__("opacus.privacy_engine", fromlist=["get_noise_multiplier"])
    search, calls = engine_module.get_noise_multiplier, []

    def counted(**asked):
        calls.append(asked)
        return search(**asked)

    monkeypatch.setattr(engine_module, "get_noise_multiplier", counted)

    def train(dataset, engine):
        model = copy.deepcopy(START)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimiser, loader = engine.make_private_with_epsilon(
            module=model,
            optimizer=optimiser,
            data_loader=DataLoader(dataset, batch_size=BATCH),
            target_epsilon=8.0,
            target_delta=1e-5,
            epochs=1,
            max_grad_norm=1.0,
        )
        for inputs, labels in loader:
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimiser.step()

    seen: list[tuple[int, int]] = []
    dpfl_audit.audit_opacus(
        train,
        opacus.PrivacyEngine(),
        DATA,
        trainings=50,
        progress=lambda done, total, words="": seen.append((done, total)),
    )
    assert len(calls) == 1
    assert seen[0][0] == 0 and seen[1][0] == 1 and seen[0][1] == seen[1][1]  # time left from the first training on
