"""Shadow federations: who is in which, trained like the target, kept and read back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from dpfl_audit.attacks.cost import NOISE
from dpfl_audit.attacks.membership.shadows import ShadowFactory, at_once, deal, keep_matrix, train_shadows
from dpfl_audit.defenses.engine import batched, looped
from dpfl_audit.defenses.federation import run_many
from dpfl_audit.defenses.local import LocalJob, LocalResult, LocalTraining
from dpfl_audit.defenses.participation import Uniform
from dpfl_audit.defenses.schedule import FixedRounds
from dpfl_audit.defenses.scheme import Scheme
from dpfl_audit.defenses.steps.clip import Clip
from dpfl_audit.defenses.steps.perturb import Perturb
from dpfl_audit.defenses.topology import Leader
from dpfl_audit.defenses.wire import SERVER
from torch import Tensor, nn

SIZES = (8, 8, 8)
NOISY = Scheme(
    name="ldp",
    source="test",
    local=LocalTraining(optimiser="adam", lr=0.05, batch_size=4, epochs=2),
    client=(Clip(0.5), Perturb(noise_std=0.01)),
    schedule=FixedRounds(3),
    participation=Uniform(2),
)


def factory(**changes) -> ShadowFactory:
    torch.manual_seed(0)
    return ShadowFactory(NOISY, nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2)), SIZES, **changes)


def test_shadows_cost_at_least_the_noise_of_every_client_and_round():
    made = factory()
    dim = sum(parameter.numel() for parameter in made.module.parameters())
    for rounds in (1, 7):
        assert made.operations((5,), rounds) >= rounds * len(SIZES) * NOISE * dim


def records(n: int = 48) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 5, generator=torch.Generator().manual_seed(1)), torch.arange(n) % 2


def on(factory: ShadowFactory):
    return factory.on(*records(), torch.arange(0), 2)


def rows_of(keep: Tensor) -> list[list[Tensor]]:
    return [deal(row.nonzero().squeeze(1), SIZES, torch.Generator().manual_seed(s)) for s, row in enumerate(keep)]


class Counting:
    """The batched engine, counting the clients it trained."""

    __module__, __qualname__ = batched.__module__, batched.__qualname__

    def __init__(self) -> None:
        self.jobs = 0

    def __call__(self, jobs: Sequence[LocalJob]) -> list[LocalResult]:
        self.jobs += len(jobs)
        return batched(jobs)


@pytest.mark.parametrize("n", [1, 7, 40])
@pytest.mark.parametrize("shadows", [2, 16])
def test_every_record_is_in_exactly_half_of_the_shadows(shadows: int, n: int) -> None:
    keep = keep_matrix(shadows, n, seed=3)
    assert (keep.sum(0) == shadows // 2).all()
    assert (keep.sum(1) - n / 2).abs().max() <= 0.5
    assert torch.equal(keep, keep_matrix(shadows, n, seed=3))


def test_pairs_split_the_records_anew() -> None:
    keep = keep_matrix(64, 400, seed=0).double()
    between = torch.corrcoef(keep[::2])
    assert between.fill_diagonal_(0).abs().max() < 0.25  # 400 fair coins: standard deviation .05


@pytest.mark.parametrize("count", [3, 5, 11, 23, 24])
def test_dealing_gives_every_record_to_one_client_and_no_client_too_many(count: int) -> None:
    sizes = (3, 1, 12, 8)[: 4 if count > 3 else 3]
    count = min(count, sum(sizes))
    parts = deal(torch.arange(count), sizes, torch.Generator().manual_seed(0))
    assert sorted(torch.cat(parts).tolist()) == list(range(count))
    assert all(1 <= len(part) <= size for part, size in zip(parts, sizes))
    if count == sum(sizes):
        assert tuple(map(len, parts)) == sizes


def test_a_shadow_is_the_targets_federation_on_other_rows() -> None:
    """Same scheme (noise, clip, cohorts, rounds), start and sizes; its own seed; and nothing is sent anywhere."""
    made = factory()
    rows = rows_of(keep_matrix(2, 48, 0))
    federation = on(made)(rows[0], 7)
    assert federation.scheme is NOISY and federation.module is made.module and federation.seed == 7
    assert tuple(map(len, federation.clients)) == SIZES
    assert federation.wire.sink is None and not federation.evaluate
    alone = run_many([federation], looped)[0].models[SERVER].vector
    together = train_shadows(on(made), rows, [7, 8])
    torch.testing.assert_close(together[0], alone, atol=1e-4, rtol=1e-4)
    assert not torch.equal(together[0], together[1])
    torch.testing.assert_close(train_shadows(on(made), rows[:1], [7])[0], alone, atol=1e-4, rtol=1e-4)


def test_the_chunk_follows_the_memory_bound_and_changes_nothing_but_rounding() -> None:
    make, rows, seeds = on(factory()), rows_of(keep_matrix(6, 48, 0)), list(range(6))
    one = make(rows[0], 0)
    # Clients × (six copies of 34 weights + twice a batch of 4 with its activations).
    numbers = 3 * (6 * 34 + 2 * 4 * (5 + 4 + 4 + 2))
    assert at_once(one, memory=4 * numbers * 2 + 1) == 2
    assert at_once(one, memory=1) == 1
    all_at_once = train_shadows(make, rows, seeds)
    torch.testing.assert_close(
        train_shadows(make, rows, seeds, memory=4 * numbers * 2), all_at_once, atol=1e-4, rtol=1e-4
    )
    assert torch.equal(train_shadows(make, rows, seeds), all_at_once)


def test_trained_shadows_are_reused(tmp_path: Path) -> None:
    make, rows, engine = on(factory()), rows_of(keep_matrix(4, 48, 0)), Counting()
    settings = {"engine": engine, "cache": tmp_path, "name": "config", "memory": 2 * 4 * 3 * 324}
    first = train_shadows(make, rows, [0, 1, 2, 3], **settings)
    assert len(list(tmp_path.iterdir())) == 2 and engine.jobs == 4 * 3 * 2
    assert torch.equal(train_shadows(make, rows, [0, 1, 2, 3], **settings), first)
    assert engine.jobs == 4 * 3 * 2  # nothing was trained
    next(tmp_path.iterdir()).unlink()
    assert torch.equal(train_shadows(make, rows, [0, 1, 2, 3], **settings), first)
    assert engine.jobs == 6 * 3 * 2  # only the missing chunk was


def test_whatever_decides_the_weights_decides_the_key(tmp_path: Path) -> None:
    rows, other_rows = (rows_of(keep_matrix(2, 48, seed)) for seed in (0, 1))
    inputs, targets = records()
    made = factory()
    torch.manual_seed(9)
    start = replace(made, module=nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2)))
    runs = [
        (on(made), rows, [0, 1], "config"),
        (on(made), other_rows, [0, 1], "config"),
        (on(made), rows, [0, 2], "config"),
        (on(made), rows, [0, 1], "another config"),
        (on(start), rows, [0, 1], "config"),
        (made.on(inputs + 1, targets, torch.arange(0), 2), rows, [0, 1], "config"),
        (made.on(inputs, 1 - targets, torch.arange(0), 2), rows, [0, 1], "config"),
    ]
    for count, (make, clients, seeds, name) in enumerate(runs, 1):
        train_shadows(make, clients, seeds, cache=tmp_path, name=name)
        assert len(list(tmp_path.iterdir())) == count
    train_shadows(on(made), rows, [0, 1], cache=tmp_path, name="config", engine=looped)
    assert len(list(tmp_path.iterdir())) == len(runs) + 1


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "other"])
def test_a_damaged_cache_file_is_trained_anew(tmp_path: Path, damage: str) -> None:
    make, rows, engine = on(factory()), rows_of(keep_matrix(2, 48, 0)), Counting()
    first = train_shadows(make, rows, [0, 1], engine=engine, cache=tmp_path, name="config")
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[-1] ^= 1
    train_shadows(make, rows, [5, 6], cache=tmp_path, name="config", memory=1)
    other = next(p for p in tmp_path.iterdir() if p != path)
    path.write_bytes({"cut": whole[:-7], "flip": bytes(flipped), "empty": b"", "other": other.read_bytes()}[damage])
    before = engine.jobs
    assert torch.equal(train_shadows(make, rows, [0, 1], engine=engine, cache=tmp_path, name="config"), first)
    assert engine.jobs == 2 * before and path.read_bytes() == whole


def test_test_figures_for_schedules_that_read_them_come_from_auxiliary_records() -> None:
    inputs, targets = records()
    made = replace(factory(), evaluate=True)
    federation = made.on(inputs, targets, torch.arange(40, 48), 2)(rows_of(keep_matrix(2, 48, 0))[0], 0)
    assert federation.evaluate and torch.equal(federation.data.test_inputs, inputs[40:])
    with pytest.raises(ValueError, match="no auxiliary data to measure its shadows on"):
        made.on(inputs, targets, torch.arange(0), 2)


def test_bad_input(tmp_path: Path) -> None:
    rows = rows_of(keep_matrix(2, 48, 0))
    for shadows in (0, 1, 7):
        with pytest.raises(ValueError, match=f"shadows is {shadows}, it must be even and at least 2"):
            keep_matrix(shadows, 4, 0)
    with pytest.raises(ValueError, match="2 records cannot be dealt to 3 clients of 24 records"):
        deal(torch.arange(2), SIZES, torch.Generator())
    with pytest.raises(ValueError, match="needs the config's digest as a name"):
        train_shadows(on(factory()), rows, [0, 1], cache=tmp_path)
    with pytest.raises(ValueError, match="2 lists of rows and 1 seeds"):
        train_shadows(on(factory()), rows, [0])
    with pytest.raises(ValueError, match="'ldp' has no global model"):
        train_shadows(on(replace(factory(), scheme=replace(NOISY, topology=Leader()))), rows, [0, 1])
    wild = replace(NOISY, local=replace(NOISY.local, optimiser="sgd", lr=1e30), client=())
    with pytest.raises(ValueError, match="2 of 2 shadow federations diverged"):
        train_shadows(on(replace(factory(), scheme=wild)), rows, [0, 1])
