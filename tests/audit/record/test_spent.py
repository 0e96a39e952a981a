"""What is spent while a training runs is what the finished setup proves; a round more costs what it then does."""

from __future__ import annotations

from math import sqrt
from pathlib import Path

import pytest
import torch
from dp_accounting import get_epsilon_gaussian
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.proven.table import table
from dpfl_audit.audit.record.mechanism import Declared, Gaussian
from dpfl_audit.audit.record.recorder import Recorder
from dpfl_audit.audit.record.spent import spent
from dpfl_audit.defenses.releases import Sampling

SIZE = 400  # numbers, enough of them to be compared with those of other messages
START = {"w": torch.zeros(SIZE)}
COINS = Sampling("poisson", 100, 10)
MECHANISMS = {
    "clients": Gaussian(clip=1.0, noise_std=0.5),
    "server": Gaussian(clip=1.0, noise_std=0.3, by="server"),
    "coins": Gaussian(clip=1.0, noise_multiplier=1.0, by="server", on="sum", sampling=COINS),
}


def recorder(folder: Path, mechanism: Declared) -> Recorder:
    sampled = mechanism.sampling is not None
    return Recorder(folder, START, mechanism=mechanism, average="expected" if sampled else "records")


def round_of(rec: Recorder, t: int, mechanism: Declared) -> None:
    """Two clients who send noise alone, or nothing to a server that adds noise to the model before."""
    noise = torch.randn(10, 2, SIZE, generator=torch.Generator().manual_seed(0))
    by_client = mechanism.by == "client"
    of_mean = mechanism.noise_std / (10 if mechanism.on == "sum" else 1)
    rec.broadcast(t, START if by_client else {"w": of_mean * noise[:t, 0].sum(0)})
    for client in range(2):
        rec.upload(t, client, mechanism.noise_std * noise[t, client] if by_client else torch.zeros(SIZE), 8)
        if by_client:
            rec.raw(t, client, torch.zeros(SIZE))


def proven(rows) -> dict[tuple[str, str, str], float | None]:
    return {(row.observer, row.unit, row.adjacency): row.proven for row in rows}


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.few(2)
@pytest.mark.parametrize("case", MECHANISMS)
def test_a_round_more_costs_what_it_then_does(case, tmp_path):
    rec = recorder(tmp_path / "s", MECHANISMS[case])
    for t in range(2):
        round_of(rec, t, MECHANISMS[case])
        if t == 0:
            before = files(rec.folder)
            announced = proven(spent(rec.folder, rec._open, None, (), more=True))
            assert files(rec.folder) == before and [*tmp_path.iterdir()] == [rec.folder]
    now = proven(rec.epsilon())
    rec.close(nothing_more=False)
    assert now == announced == proven(table(tmp_path / "s").rows)
    assert all(value is not None for value in now.values())


def test_a_training_stops_before_the_round_that_exceeds_its_limit(tmp_path):
    """By hand: T rounds of noise of half the clip are a Gaussian of noise 0.5/√T."""
    spends = [get_epsilon_gaussian(0.5 / sqrt(rounds), 1e-5) for rounds in (1, 2, 3)]
    rec = recorder(tmp_path / "s", MECHANISMS["clients"])
    with pytest.raises(BadInput, match="no client sent anything yet"):
        rec.epsilon()
    for t, limit in enumerate((spends[1], spends[2])):
        round_of(rec, t, MECHANISMS["clients"])
        assert rec.epsilon(observers=["server"])[0].proven == pytest.approx(spends[t])
        assert not rec.stop_at(limit + 0.01) and rec.stop_at(limit - 0.01)
    assert rec.stop_at(spends[2], delta=1e-7) and not rec.stop_at(spends[2], delta=1e-4)
    for wrong in (0, -1.0, float("nan"), "8", None):
        with pytest.raises(BadInput, match="expected an ε above 0"):
            rec.stop_at(wrong)
    for wrong in ({"observers": "server"}, {"delta": "a"}):
        with pytest.raises(BadInput, match="expected names, a number"):
            rec.epsilon(**wrong)
    for ask in (rec.epsilon, lambda **asked: rec.stop_at(8, **asked)):
        with pytest.raises(BadInput, match=r"^delta = 2: "):  # no option of a command
            ask(delta=2)
    rec.close()
    with pytest.raises(BadInput, match="audit epsilon"):
        rec.epsilon()
