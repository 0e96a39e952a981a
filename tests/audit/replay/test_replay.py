"""Published violations of real libraries as small fixtures, each found; and right trainings, none of them accused.

The list: Re:cord-play, arXiv:2602.17454, its artefact and the issues that it names.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import dpfl_audit
import numpy as np
import pytest
import torch
from command import called
from dpfl_audit.audit.errors import BadInput
from torch import nn

pytestmark = pytest.mark.filterwarnings("ignore")  # Opacus's own
COUNT, CLIP, RATE, STEPS = 40, 1.0, 0.3, 6


def data(seed: int = 0) -> list[tuple[torch.Tensor, int]]:
    draw = torch.Generator().manual_seed(seed)
    return [(torch.randn(5, generator=draw), int(torch.randint(3, (1,), generator=draw))) for _ in range(COUNT)]


def clipped(gradient: torch.Tensor, clip: float = CLIP) -> torch.Tensor:
    """To length `clip`; what is no finite number counts as nothing."""
    gradient = gradient.double()
    if not torch.isfinite(gradient).all():
        return torch.zeros_like(gradient)
    return gradient * min(1.0, clip / max(float(gradient.norm()), 1e-300))


def gradients(weights: torch.Tensor, records, places) -> list[torch.Tensor]:
    """Of a softmax regression."""
    made = []
    for i in places:
        x, y = records[i]
        p = torch.softmax(weights @ x.double(), 0)
        made.append(torch.outer(p - nn.functional.one_hot(torch.tensor(y), 3), x.double()).reshape(-1))
    return made


def dpsgd(
    clip=clipped, divisor=lambda records, places: RATE * COUNT, after=lambda total: total, bound=CLIP, metric=None
):
    """DP-SGD by hand; what is given takes the place of one of its parts."""

    def train(records, tap):
        weights = torch.zeros(3, 5, dtype=torch.float64)
        for _ in range(STEPS):
            places = tap.drawn(RATE)
            total = sum((clip(g) for g in gradients(weights, records, places)), torch.zeros(15, dtype=torch.float64))
            total = after(tap.query("gradient", after(total), sensitivity=bound))
            noisy = tap.release("gradient", total + torch.randn(15, dtype=torch.float64))
            weights = weights - 0.1 * (noisy / tap.public("divisor", divisor(records, places))).reshape(3, 5)
        return {"weights": weights, "metric": metric(records) if metric else None}

    return train


def found(train, adjacency="add_remove", records=None, **options) -> list[tuple[str, str]]:
    made = dpfl_audit.replay(train, data() if records is None else records, adjacency=adjacency, **options)
    assert made.steps > 0
    return [(v.kind, v.name) for v in made.violations]


@pytest.mark.few(6)
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out", "replace_one"])
def test_a_right_training_is_not_accused(adjacency, seed):
    """With a record of NaN, of infinity and of 1e30 among its neighbours."""
    bound = 2 * CLIP if adjacency == "replace_one" else CLIP
    made = dpfl_audit.replay(dpsgd(bound=bound), data(seed), adjacency=adjacency, seed=seed)
    assert made.violations == () and len(made.pairs) == 12 and made.queries > 12
    assert 0.2 < made.longest <= 1 + 1e-5
    made.assert_none()


def noisy_mean(records, tap):
    """The number of records as if it were public."""
    values = [min(1.0, max(0.0, float(x[0]))) for x, _ in (records[i] for i in range(len(records)))]
    noisy = tap.release("sum", tap.query("sum", sum(values), sensitivity=1.0) + float(np.random.laplace()))
    return noisy / len(records)


def classes_seen(records, tap):
    """A histogram over the labels that occur."""
    labels = [y for _, y in (records[i] for i in range(len(records)))]
    for label in sorted(set(labels)):
        tap.release("count", tap.query("count", float(labels.count(label)), 1.0, "l1") + float(np.random.laplace()))


def domain_of_data(records, tap):
    """As long as the largest label."""
    labels = torch.tensor([y for _, y in (records[i] for i in range(len(records)))])
    counts = torch.bincount(labels).double()
    tap.release("counts", tap.query("counts", counts, 1.0, "l1") + torch.randn(len(counts)))


def lower_bound_twice(records, tap):
    """A square clipped to (0, 100)², its sensitivity made of the lower end twice: 0 where 10⁴ is right."""
    squares = sum(min(100.0, max(0.0, abs(float(x[0])))) ** 2 for x, _ in (records[i] for i in range(len(records))))
    tap.release("squares", tap.query("squares", squares, sensitivity=0.0) + float(np.random.laplace()))


def branches(records, tap):
    """A second release, where a statistic of the data says so."""
    total = sum(float(x[0]) for x, _ in (records[i] for i in range(len(records))))
    if total > 0.0:
        tap.release("weak", tap.query("weak", 0.0, 1.0) + float(np.random.laplace()))
    tap.release("sum", tap.query("sum", max(-1.0, min(1.0, total)), 2.0) + float(np.random.laplace()))


def halves_of_replaced(records, tap):
    """Counts under replace_one with the sensitivity of add_remove."""
    labels = torch.tensor([y for _, y in (records[i] for i in range(len(records)))])
    counts = torch.bincount(labels, minlength=3).double()
    tap.release("counts", tap.query("counts", counts, 1.0, "l1") + torch.randn(3))


def private_once(records, tap):
    """A clip in the first step alone."""

    def clip(gradient):
        return clipped(gradient) if tap.steps == 0 else gradient

    return dpsgd(clip)(records, tap)


ALL_LABELS_ONCE = [*[(torch.ones(5), i % 2) for i in range(6)], (torch.ones(5), 2)]
SUM_AT_ZERO = [(torch.full((5,), value), 0) for value in (0.5, -0.5, 0.25, -0.25, 0.1)]
SENSITIVITY, INVARIANCE = "sensitivity", "invariance"


@pytest.mark.parametrize(
    ("train", "expected", "options"),
    [
        pytest.param(dpsgd(divisor=lambda r, p: int(len(r) * RATE)), (INVARIANCE, "divisor"), {}, id="opacus 571"),
        pytest.param(noisy_mean, (INVARIANCE, "return"), {}, id="synthcity rows"),
        pytest.param(classes_seen, (INVARIANCE, "count"), {"records": ALL_LABELS_ONCE}, id="diffprivlib classes"),
        pytest.param(domain_of_data, (INVARIANCE, "counts"), {"records": ALL_LABELS_ONCE}, id="dpmm 18"),
        pytest.param(lower_bound_twice, (SENSITIVITY, "squares"), {}, id="diffprivlib 105"),
        pytest.param(branches, (INVARIANCE, "sum"), {"records": SUM_AT_ZERO}, id="privbayes branch"),
        pytest.param(halves_of_replaced, (SENSITIVITY, "counts"), {"adjacency": "replace_one"}, id="mbi 65"),
        pytest.param(dpsgd(clip=lambda g: g), (SENSITIVITY, "gradient"), {}, id="smartnoise 622"),
        pytest.param(
            dpsgd(clip=lambda g: g * min(1.0, CLIP / float(g.norm()))), (SENSITIVITY, "gradient"), {}, id="nan"
        ),
        pytest.param(dpsgd(clip=lambda g: 2 * clipped(g)), (SENSITIVITY, "gradient"), {}, id="fed twice"),
        pytest.param(
            dpsgd(divisor=lambda r, p: max(1, len(p))), (INVARIANCE, "divisor"), {}, id="the drawn batch's size"
        ),
        pytest.param(
            dpsgd(clip=lambda g: g / 3, after=lambda t: clipped(t, 40.0)),
            (SENSITIVITY, "gradient"),
            {},
            id="clip after",
        ),
        pytest.param(
            dpsgd(metric=lambda r: float(np.mean([float(x[0]) for x, _ in (r[i] for i in range(len(r)))]))),
            (INVARIANCE, "return"),
            {},
            id="a metric",
        ),
        pytest.param(private_once, (SENSITIVITY, "gradient"), {}, id="private in round 0"),
    ],
)
def test_a_published_violation_is_named(train, expected, options):
    assert expected in found(train, **options)


def test_a_violation_says_where_and_how_far():
    made = dpfl_audit.replay(dpsgd(clip=lambda g: 2 * clipped(g)), data(), adjacency="add_remove", neighbours=1)
    (violation,) = made.violations
    assert violation.bound == CLIP and 1 < violation.distance <= 2 + 1e-9
    file, line = violation.place.rsplit(":", 1)
    assert "tap.query" in Path(file).read_text().splitlines()[int(line) - 1]
    with pytest.raises(AssertionError, match="sensitivity"):
        made.assert_none()


def test_a_record_whose_coin_says_no_moves_nothing():
    """A scaler fitted on all data: the step moves though the record is not in it."""

    def scaled(records, tap):
        mean = sum(float(x[0]) for x, _ in (records[i] for i in range(len(records))))
        return dpsgd(clip=lambda g: clipped(g * (1 + mean), 1e-3))(records, tap)

    made = dpfl_audit.replay(scaled, data(), adjacency="add_remove", neighbours=1)
    assert any(v.bound == 0 for v in made.violations)


def test_equal_data_must_give_equal_trainings():
    drawn = np.random.default_rng()

    def train(records, tap):
        tap.release("it", tap.query("it", float(drawn.normal()), 1.0))

    with pytest.raises(BadInput, match="not deterministic on equal data"):
        dpfl_audit.replay(train, data(), adjacency="add_remove")


@pytest.mark.parametrize(
    ("train", "adjacency", "words"),
    [
        (lambda records, tap: None, "add_remove", "told the tap of nothing"),
        (
            lambda records, tap: (tap.query("sum", 0.0, 1.0), tap.release("sum", 0.0), tap.release("loss", 0.0)),
            "add_remove",
            "'loss' has no query before it",
        ),
        (noisy_mean, "zero_out", "takes no batches"),
        (lambda records, tap: 1 / 0, "add_remove", "ZeroDivisionError"),
        (lambda records, tap: tap.query("it", "word", 1.0), "add_remove", "the query"),
        (lambda records, tap: tap.query("it", 1.0, -1.0), "add_remove", "expected a bound"),
        (noisy_mean, "nearby", "adjacency"),
    ],
)
def test_what_cannot_be_replayed_is_one_sentence(train, adjacency, words):
    with pytest.raises(BadInput, match=rf"^replay: [^\n]*{words}[^\n]*$"):
        dpfl_audit.replay(train, data(), adjacency=adjacency)


def test_an_error_on_a_neighbour_alone_leaves():
    def train(records, tap):
        values = [float(x[0]) for x, _ in (records[i] for i in range(len(records)))]
        if not all(np.isfinite(values)):
            raise FloatingPointError("not finite")
        return dpsgd()(records, tap)

    assert found(train) == [(INVARIANCE, "error")] * 2  # nan, infinite


# --- Opacus, as it is


def opacus_training(batch: int = 8, secure: bool = False, **wrong):
    pytest.importorskip("opacus")

    def train(dataset, engine):
        torch.manual_seed(3)
        net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
        optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        loader = torch.utils.data.DataLoader(dataset, batch_size=batch)
        options = {"noise_multiplier": 1.0, "max_grad_norm": 1.0} | wrong
        net, optimiser, loader = engine.make_private(module=net, optimizer=optimiser, data_loader=loader, **options)
        for _ in range(2):
            for inputs, labels in loader:
                optimiser.zero_grad()
                nn.functional.cross_entropy(net(inputs), labels).backward()
                optimiser.step()
        return net

    return train


@pytest.mark.few(1)
@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one", "add_remove"])
def test_opacus_keeps_its_clip_and_lets_nan_and_the_number_of_records_pass(adjacency):
    """Opacus 1.6: right on finite records of a fixed number; a record of NaN passes the clip, and 40 or 41 records make
    another divisor (opacus 571).
    """
    opacus = pytest.importorskip("opacus")
    made = dpfl_audit.replay(opacus_training(), data(), adjacency=adjacency, engine=opacus.PrivacyEngine())
    of_values = {v.pair for v in made.violations if v.kind == SENSITIVITY}
    assert all("nan" in pair or "infinite" in pair or "huge" in pair for pair in of_values)
    assert any("nan" in pair for pair in of_values)
    assert bool(made.of_numbers) == (adjacency == "add_remove")
    of_counts = [v.name for v in made.violations if "record " in v.pair and v.name != "gradient"]
    assert bool(of_counts) == (adjacency == "add_remove")
    assert 0.2 < made.longest <= 1 + 1e-5


def test_opacus_noise_whose_clip_is_not_the_optimisers():
    """A gradient that is scaled after its clip."""
    opacus = pytest.importorskip("opacus")
    from opacus.optimizers import DPOptimizer

    class Scaled(DPOptimizer):
        def clip_and_accumulate(self):
            super().clip_and_accumulate()
            for p in self.params:
                p.summed_grad = 3 * p.summed_grad

    def train(dataset, engine):
        prepare = engine._prepare_optimizer

        def prepared(**options):
            made = prepare(**options)
            made.__class__ = Scaled
            return made

        engine._prepare_optimizer = prepared
        return opacus_training()(dataset, engine)

    made = dpfl_audit.replay(train, data(), engine=opacus.PrivacyEngine(), neighbours=1)
    (violation,) = made.violations
    assert violation.kind == SENSITIVITY and 1 < violation.distance / violation.bound < 3 + 1e-5


# --- a replay that is killed


class Interrupted:
    """A training that a person ends at its so-manieth call."""

    def __init__(self, train, at: int) -> None:
        self.train, self.at, self.calls = train, at, 0

    def __call__(self, records, tap):
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt
        return self.train(records, tap)


def asked(train, folder, **options):
    known = {"adjacency": "add_remove", "neighbours": 6, "name": "dpsgd", "folder": folder}
    return dpfl_audit.replay(train, data(), **(known | options))


def test_a_killed_replay_goes_on_and_ends_in_the_same_bytes(tmp_path):
    wrong = dpsgd(clip=lambda g: 2 * clipped(g))
    whole = asked(wrong, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        asked(Interrupted(wrong, 9), tmp_path / "s")
    (left,) = (tmp_path / "s").iterdir()
    finished = json.loads(left.read_text())["pairs"]
    assert 1 <= len(finished) < 6 and "replay.json" not in left.name
    again = Interrupted(wrong, 0)
    found = asked(again, tmp_path / "s")
    whole_again = Interrupted(wrong, 0)
    asked(whole_again, tmp_path / "t")
    assert again.calls < whole_again.calls and found == whole
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["replay.json"]
    bytes_of = [(tmp_path / folder / "replay.json").read_bytes() for folder in ("whole", "s", "t")]
    assert bytes_of[0] == bytes_of[1] == bytes_of[2]


SLOW = """
import time

def train(records, tap):
    time.sleep(0.05)
    return right(records, tap) / len(records)
"""


def test_a_replay_that_is_killed_by_9_starts_again_and_ends_in_the_same_bytes(tmp_path, monkeypatch, capsys, start):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slow.py").write_text(OWN + SLOW)
    words = ["slow.py:train", "--data", "slow.py:data", "--adjacency", "add_remove", "--neighbours", 6, "-q", "-o"]
    first = start("replay", *words, "found")
    left = tmp_path / "found" / "replay-unfinished.json"
    while not left.exists() and first.poll() is None:
        time.sleep(0.01)
    os.kill(first.pid, signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL and [path.name for path in left.parent.iterdir()] == [left.name]
    finished = len(json.loads(left.read_text())["pairs"])
    for folder in ("found", "whole"):
        assert called(capsys, "replay", *words, folder)[0] == 1
    assert 0 < finished < len(json.loads((tmp_path / "whole" / "replay.json").read_text())["pairs"])
    assert (tmp_path / "found" / "replay.json").read_bytes() == (tmp_path / "whole" / "replay.json").read_bytes()


@pytest.mark.few(1)
@pytest.mark.parametrize("change", ["code", "seed", "adjacency"])
def test_neighbours_of_another_training_are_not_taken(change, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        asked(Interrupted(dpsgd(clip=lambda g: 2 * clipped(g)), 9), tmp_path / "s")
    options = {"code": {}, "seed": {"seed": 1}, "adjacency": {"adjacency": "zero_out"}}[change]
    assert asked(dpsgd(), tmp_path / "s", **options).violations == ()


def test_neighbours_of_code_that_was_mended_meanwhile_are_tried_again(tmp_path, monkeypatch, capsys):
    """On the data as they are both do the same: a record of 1e30 tells them apart."""
    monkeypatch.chdir(tmp_path)
    wrong = OWN.replace("max(0.0, min(1.0, np.nan_to_num(records[i])))", "np.nan_to_num(records[i])")
    wrong = wrong.replace("import numpy as np", "import numpy as np, os")
    ends = wrong.replace(
        "    total =", "    if any(np.isinf(r) for r in records.values): raise KeyboardInterrupt\n    total ="
    )
    (tmp_path / "own_sum.py").write_text(ends)
    asked = ["--data", "own_sum.py:data", "--adjacency", "add_remove", "-o", "found"]
    assert called(capsys, "replay", "own_sum.py:right", *asked)[0] == 130
    assert (tmp_path / "found" / "replay-unfinished.json").is_file()
    (tmp_path / "own_sum.py").write_text(OWN)
    status, out, _ = called(capsys, "replay", "own_sum.py:right", *asked)
    assert status == 0 and "No violation" in out


def test_a_damaged_list_of_neighbours_is_one_sentence(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        asked(Interrupted(dpsgd(), 9), tmp_path / "s")
    (left,) = (tmp_path / "s").iterdir()
    left.write_text(left.read_text().replace('"moved"', '"removed"'))
    with pytest.raises(BadInput, match=r"no list of finished neighbours.*remove it"):
        asked(dpsgd(), tmp_path / "s")


# --- the command


OWN = """
import numpy as np

data = [0.1, 0.7, 0.4, 0.9]

def right(records, tap):
    total = sum(max(0.0, min(1.0, np.nan_to_num(records[i]))) for i in range(len(records)))
    return tap.release("sum", tap.query("sum", total, sensitivity=1.0) + float(np.random.laplace()))

def wrong(records, tap):
    print("not to be mixed with the answer")
    return right(records, tap) / len(records)
"""


def test_the_command_ends_with_0_1_or_2(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_sum.py").write_text(OWN)
    asked = ["--data", "own_sum.py:data", "--adjacency", "add_remove"]
    assert called(capsys, "replay", "own_sum.py:right", *asked)[0] == 0
    status, out, _ = called(capsys, "replay", "own_sum.py:wrong", *asked, "-o", "found")
    assert status == 1 and "Violated: invariance" in out and "mixed" not in out
    assert (tmp_path / "found" / "replay.json").is_file()
    (tmp_path / "no_bound.py").write_text("def constant(records, tap):\n    return tap.release('sum', 1.0)\n")
    assert called(capsys, "replay", "no_bound.py:constant", *asked)[0] == 2  # nothing differs, and no bound was reached
    with pytest.raises(AssertionError, match="No query"):
        dpfl_audit.replay(lambda records, tap: tap.release("sum", 1.0), data(), adjacency="add_remove").assert_none()
    status, _, err = called(capsys, "replay", "own_sum.py:nothing", *asked)
    assert status == 2 and "nothing" in err
