"""What is released of one draw of clients or records counts as one draw. The truth is integrated here: the δ of
explicit mixtures of Gaussians, which is a lower limit of any proof.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, sqrt
from pathlib import Path

import numpy as np
import pytest
import torch
from dp_accounting import get_epsilon_gaussian
from dpfl_audit.audit.choose.price import composed_epsilon
from dpfl_audit.audit.proof.recheck import bracket
from dpfl_audit.audit.proven.accounting import Exposure, proven
from dpfl_audit.audit.proven.table import ledger_of, table
from dpfl_audit.audit.proven.together import together
from dpfl_audit.audit.proven.views import Views
from dpfl_audit.audit.record.mechanism import Declared, Gaussian, Laplace
from dpfl_audit.audit.record.recorder import Recorder
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.description import with_key
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.defenses.releases import LaplaceLaw, Sampling
from dpfl_audit.defenses.terms import Observer
from scipy.optimize import brentq
from scipy.stats import norm
from stated import stated
from tiers import quick

DELTA = 1e-5
DIM = 8
START = {"w": torch.zeros(DIM)}
COINS, EXACTLY = Sampling("poisson", 100, 10), Sampling("without_replacement", 100, 10)
Mixture = Sequence[tuple[float, float]]  # weights and means, over the standard deviation


def learnt(here: Mixture, there: Mixture) -> float:
    """The ε of two worlds, by a sum over a grid, in the worse of both orders."""
    x, step = np.linspace(-40, 40, 400_001, retstep=True)
    p, q = (sum(w * norm.pdf(x, mean) for w, mean in world) for world in (here, there))

    def above(epsilon: float) -> float:
        return max(float(np.maximum(a - np.exp(epsilon) * b, 0).sum() * step) for a, b in ((p, q), (q, p))) - DELTA

    return float(brentq(above, 0, 60))


def drawn(move: float, rate: float = 0.1) -> float:
    """Of a subject that is there with this chance, or is not."""
    return learnt(((1 - rate, 0.0), (rate, move)), ((1.0, 0.0),))


def priced(releases: list, unit: str = "client", adjacency: str = "zero_out") -> float:
    return proven(releases, subject=0, unit=unit, adjacency=adjacency, delta=DELTA).epsilon


def recorded(
    folder: Path,
    mechanism: Declared | list[Declared],
    *,
    clients: int,
    uploads: Sequence[Sequence[int]] = ((0, 1, 2),),
    average: str = "mean",
    counts: Callable[[int, int], int] = lambda t, c: 10,
) -> Path:
    """uploads: who sends in each round. counts: the records that a client says in a round."""
    noise = torch.Generator().manual_seed(0)
    with Recorder(
        folder, START, mechanism=mechanism, average=average, clients=clients, data={"first_model": "public"}
    ) as rec:
        for t, who in enumerate(uploads):
            rec.broadcast(t, START)
            for c in who:
                rec.upload(t, c, torch.randn(DIM, generator=noise), num_examples=counts(t, c))
        rec.broadcast(len(uploads), START)
    return folder


def of(folder: Path, observer: str, unit: str = "client", adjacency: str = "zero_out") -> float:
    """Checked by the second way too: what is proven lies within its bracket."""
    (row,) = table(folder, observers=[observer], unit=unit, adjacency=adjacency).rows
    if row.proven is not None and row.proven < inf:
        low, high = bracket(Views(ledger_of(folder)[0]), Observer.parse(observer), unit, adjacency, DELTA)
        assert low * (1 - 1e-6) <= row.proven <= high * 1.01
    return row.proven or 0.0


# --- one draw, several releases


@pytest.mark.parametrize("count", quick([2, 6], 0))
@pytest.mark.parametrize("lot", quick([COINS, EXACTLY], 0), ids=lambda lot: lot.kind)
def test_what_a_server_tells_of_one_draw_is_one_draw(tmp_path, lot, count):
    """A sum and counts, each under noise of its own: 1.92 was proven of two of coins, as if the coins fell twice."""
    noises = [Gaussian(1.0, 1.0, by="server", on="sum", sampling=lot, what=f"m{i}") for i in range(count)]
    average = "expected" if lot is COINS else "mean"
    folder = recorded(tmp_path / "s", noises, clients=100, uploads=[range(10)], average=average)
    true = drawn(sqrt(count))
    assert true <= of(folder, "downlink") <= (1.002 * true if lot is COINS else inf)
    other = learnt(((0.9, 0.0), (0.1, 2 * sqrt(count))), ((1.0, 0.0),))  # all others at the far end, of exactly so many
    assert of(folder, "downlink", adjacency="replace_one") >= (other if lot is EXACTLY else true)


@pytest.mark.full
def test_what_a_client_tells_of_one_batch_is_one_draw(tmp_path):
    """Gradients and a count within the clip, one step: .1 ways to be in it, and not twice."""
    lot = Sampling("poisson", 1000, 100, unit="record")
    noises = [Gaussian(1.0, 1.0, of="record", sampling=lot, what=what) for what in ("gradient", "count")]
    folder = recorded(tmp_path / "s", noises, clients=1, uploads=[[0]], counts=lambda t, c: 1000)
    assert drawn(sqrt(2)) <= of(folder, "server", "record") <= 1.002 * drawn(sqrt(2))


@pytest.mark.filterwarnings("ignore:.*began again with another model")
def test_a_server_that_draws_its_noise_anew_draws_no_clients(tmp_path):
    """Killed after the broadcast, six times: seven noises on one sum. 2.58 was proven."""
    noise = Gaussian(1.0, 1.0, by="server", on="sum", sampling=COINS)
    known = {"mechanism": noise, "average": "expected", "clients": 100, "data": {"first_model": "public"}}
    rec = Recorder(tmp_path / "s", START, **known)
    rec.broadcast(0, START)
    for c in range(12):
        rec.upload(0, c, torch.randn(DIM), num_examples=10)
    for i in range(7):
        rec.broadcast(1, {"w": torch.full((DIM,), float(i))})
        if i < 6:
            rec.abandon()
            rec = Recorder(tmp_path / "s", START, **known)
    rec.close()
    true = drawn(sqrt(7))
    assert true <= of(tmp_path / "s", "downlink") <= 1.002 * true


ALONE = {"poisson": drawn(1.0), "plain": get_epsilon_gaussian(1 / sqrt(2), DELTA)}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {}),  # nobody says which lot
        ({"lot": "a"}, {"lot": "b"}),
        ({"lot": "a"}, {"lot": "a", "sampling": Sampling("poisson", 100, 20)}),
        ({"lot": "a"}, {"lot": "a", "sampling": None}),
    ],
)
def test_nothing_is_amplified_beside_what_may_tell_who_was_drawn(one, other):
    known = {"sampling": COINS}
    two = [stated(1.0, **{**known, **one}), stated(1.0, **{**known, **other})]
    assert priced(two) == pytest.approx(ALONE["plain"], rel=1e-9)
    assert priced(two[:1]) == pytest.approx(ALONE["poisson"], rel=1e-3)


def test_laplace_noise_beside_gaussian_of_one_lot_amplifies_neither():
    """The count's answer with 1/50 of the noise says who was drawn."""
    two = [stated(1.0, sampling=COINS, lot="a"), stated(LaplaceLaw(sqrt(2) * 0.02), sampling=COINS, lot="a")]
    assert priced(two) >= get_epsilon_gaussian(1.0, DELTA)


def test_rounds_and_trainings_draw_anew():
    """Independent coins are two draws, also where another training's round has the same number."""
    rounds = [stated(1.0, sampling=COINS, lot="a", round=t) for t in (0, 1)]
    alone = Exposure.of(rounds[:1], [0])
    together = Exposure.joined([[alone], [alone]])
    assert together is not None
    asked = {"unit": "client", "adjacency": "zero_out", "delta": DELTA}
    assert together.worst(**asked).epsilon == pytest.approx(priced(rounds), rel=1e-9)
    assert priced(rounds) < drawn(sqrt(2))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_clients_are_alike_only_if_their_lots_are(order):
    """Both have two releases of one kind: of one draw, and of two."""
    one = [stated(1.0, sampling=COINS, lot="a", subjects=frozenset({0})) for _ in range(2)]
    two = [stated(1.0, sampling=COINS, lot=f"{t}", round=t, subjects=frozenset({1})) for t in (1, 2)]
    exposed = Exposure.of([*one, *two], order)
    asked = {"unit": "client", "adjacency": "zero_out", "delta": DELTA}
    assert exposed.worst(**asked).epsilon == pytest.approx(drawn(sqrt(2)), rel=2e-3)


def test_two_recordings_may_be_of_one_draw(tmp_path):
    """Two servers, or two trainings, whose generators have one seed draw the same clients."""
    noise = Gaussian(1.0, 1.0, by="server", on="sum", sampling=COINS)
    folders = [
        recorded(tmp_path / name, noise, clients=100, uploads=[range(10)], average="expected") for name in ("a", "b")
    ]
    assert [of(folder, "downlink") for folder in folders] == [pytest.approx(drawn(1.0), rel=2e-3)] * 2
    (row,) = together(folders, observers=["downlink"], unit="client", adjacency="zero_out").rows
    assert drawn(sqrt(2)) <= (row.proven or 0.0) <= get_epsilon_gaussian(1 / sqrt(2), DELTA) * (1 + 1e-9)


# --- siblings


@pytest.mark.parametrize(
    ("unit", "adjacency"), [("client", "replace_one"), ("record", "replace_one"), ("record", "zero_out")]
)
def test_coins_hide_less_where_the_others_may_lie_at_the_far_end(unit, adjacency):
    """A hub clips a merged vector: without the subject it may be where the subject's other value leads. 5.5 was proven
    of a truth of 6.58.
    """
    release = stated(1.0, sampling=COINS, anywhere=True)
    assert priced([release], unit, adjacency) >= learnt(((0.9, 0.0), (0.1, 2.0)), ((1.0, 0.0),))


@pytest.mark.parametrize("order", [1, -1])
def test_a_record_is_in_the_worse_batch_whatever_it_is_clipped_by(order):
    """A whole vector turns around (2 over the noise), a record's part goes (1.5)."""
    batches = [stated(1.0, slot="epoch 0"), stated(1.0, 1.5, slot="epoch 0", bound_of="record", records=5)]
    assert priced(batches[::order], "record") >= get_epsilon_gaussian(1 / 2.0, DELTA)


COUNTS = [(1, 1, 100, 100), (100, 100, 1, 1), (1, 1, 1, 100)]


def test_weights_that_change_by_round_hide_nobody_behind_a_secret_draw(tmp_path):
    """Each has 100 records in some round: 16.4 was proven, of a truth of 34.6. Alike in all rounds they prove."""
    noise = Gaussian(1.0, 0.5, by="server", sampling=Sampling("without_replacement", 4, 2))
    known = {"clients": 4, "uploads": [(2, 3), (0, 1), (0, 1), (2, 3)], "average": "records"}
    changing = recorded(tmp_path / "s", noise, counts=lambda t, c: COUNTS[min(t, 2)][c], **known)
    assert of(changing, "downlink", adjacency="replace_one") == inf
    assert of(recorded(tmp_path / "alike", noise, **known), "downlink", adjacency="replace_one") < inf
    known["uploads"] = [(0, 1)]  # nobody knows what the two others would weigh
    once = recorded(tmp_path / "once", noise, counts=lambda t, c: 1, **known)
    assert of(once, "downlink", adjacency="replace_one") == inf


@pytest.mark.parametrize(
    ("first", "second", "worst"),
    [
        (Laplace(1.0, 1.0), [Gaussian(0.9, 1.0)], 0.9),  # ε of 1 and of 3.88
        (Gaussian(1.0, 1.0), [Gaussian(0.95, 1.0, what=f"{i}") for i in range(9)], 0.95 * 3),  # 4.38 and 15.6
    ],
)
def test_the_worst_upload_is_the_one_that_tells_most(tmp_path, first, second, worst):
    """And not the one with the largest single bound over noise."""
    with Recorder(tmp_path / "s", START, mechanism=first, clients=2, data={"first_model": "public"}) as rec:
        for t, mechanism in enumerate((first, second)):
            rec.broadcast(t, START, mechanism=mechanism)
            for c in range(2):
                rec.upload(t, c, torch.randn(DIM), num_examples=5)
        rec.broadcast(2, START)
    assert of(tmp_path / "s", "uplink(1)") == pytest.approx(get_epsilon_gaussian(1 / worst, DELTA), rel=1e-6)
    assert of(tmp_path / "s", "uplink(1)") < of(tmp_path / "s", "uplink(2)") <= of(tmp_path / "s", "uplink")


def test_who_uploads_once_has_no_later_upload(tmp_path):
    """Two caught uploads of client 0 cost √2/2, its own or those before the last round."""
    folder = recorded(tmp_path / "s", Gaussian(1.0, 2.0), clients=2, uploads=[(0, 1), (0,), (0,)])
    assert of(folder, "uplink(2)") == pytest.approx(get_epsilon_gaussian(sqrt(2), DELTA), rel=1e-6)


@pytest.mark.parametrize("count", [1, 2])
def test_a_study_counts_what_colluders_hand_on(count):
    """Everybody else colludes with the peer, whoever it is, so that each gossip of the subject's reaches it."""
    raw = {
        "data": {"name": "digits", "clients": 12, "samples_per_client": 10},
        "model": {"name": "linear"},
        "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 10},
        "scheme": {
            "name": "anonymous-gossip",
            "rounds": 1,
            "neighbours": 1,
            "budget": 1e6,
            "noise_std": 1.0,
            "clip": 1.0,
        },
        "audit": {"observer": "peer", "unit": "client", "adjacency": "zero_out", "honest": 0.0},
    }
    trainings = [with_key(build(parse_config(raw), Path()), f"{i:064x}") for i in range(1, count + 1)]
    assert composed_epsilon(trainings) == pytest.approx(get_epsilon_gaussian(1 / sqrt(count), DELTA), rel=1e-6)
