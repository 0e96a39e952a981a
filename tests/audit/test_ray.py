"""Many machines: a real Ray cluster of two worker nodes; nodes, workers and commands are killed while work goes on."""

from __future__ import annotations

import csv
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from command import called, content
from configs import small_config
from dpfl_audit.audit import cluster as clusters
from dpfl_audit.audit.cluster import joined
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.reproduce.geometric import TableSetting, table_3
from dpfl_audit.audit.reproduce.table import Request
from dpfl_audit.audit.two_worlds.draws import audit_trials
from dpfl_audit.defenses.progress import Progress

pytest.importorskip("ray", reason="Ray is an extra: pip install 'dpfl-audit[ray]'")
# What Ray itself leaves open and will do otherwise some day.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{what}")
    for what in ("ResourceWarning", "FutureWarning", "DeprecationWarning", "pytest.PytestUnraisableExceptionWarning")
]

CONFIG = small_config(
    data={"clients": 3, "samples_per_client": 20},
    model={"name": "linear"},
    local={"lr": 0.5, "batch_size": 20},
    scheme={"name": "local-gaussian", "clip": 1.0, "noise_multiplier": 1.0, "rounds": 2, "share": "gradient"},
    capture={"candidates": 20},
    attack={"inversion": {"iterations": 6}, "canary": {"draws": 60}, "membership-lira": {"shadows": 4}},
)
STUDY = ["--vary", "scheme.noise_multiplier=1e-2..10", "--vary", "scheme.clip=0.3,1", "--leakage-at-most", ".95"]
STUDY += ["--trials", "12", "--seeds", "2", "--minutes", ".01", "--on", "training", "--noise-key", "published"]
STUDY += ["--search", "random", "--quiet"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Real processes: a head without cores, and two worker nodes of one core each."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    made.workers = [made.add_node(num_cpus=1) for _ in range(2)]
    yield made
    made.shutdown()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(CONFIG)
    return path


def audit(*arguments: object) -> subprocess.Popen[str]:
    """The command, in a process of its own."""
    call = [sys.executable, "-m", "dpfl_audit.cli", *map(str, arguments)]
    return subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, err = process.communicate(timeout=1800)
    assert process.returncode in (0, 1), err
    return out, err


def study_of(folder: Path) -> dict[str, bytes]:
    """All files of a study but Optuna's, which holds the time of day."""
    return {name: held for name, held in content(folder).items() if not name.startswith("study.sqlite3")}


def each_once(folder: Path) -> None:
    """Every trial is in the table and in Optuna's file exactly once, and told."""
    rows = [int(row["trial"]) for row in csv.DictReader((folder / "trials.csv").read_text().splitlines())]
    with closing(sqlite3.connect(folder / "study.sqlite3")) as held:
        states = held.execute("select number, state from trials order by number").fetchall()
    assert rows == list(range(12)) == [number for number, _ in states]
    assert {state for _, state in states} <= {"COMPLETE", "PRUNED"}


def until(condition: Any, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


def begun(study: Path) -> bool:
    """Whether some batch is being trained or attacked."""
    return any(study.glob("trials/*/*"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study, done without Ray."""
    folder = tmp_path_factory.mktemp("alone")
    (folder / "config.toml").write_text(CONFIG)
    ended(audit("choose", folder / "config.toml", "-o", folder / "study", *STUDY))
    each_once(folder / "study")
    return folder / "study"


# --- the same bytes ---


@pytest.mark.full
def test_attacks_shadows_and_canaries_leave_the_same_bytes(cluster, config: Path, tmp_path: Path, capsys) -> None:
    code, *_ = called(capsys, "train", config, "-o", tmp_path / "setup", "--noise-key", "published")
    assert code == 0
    attacks = [x for name in ("inversion", "membership-lira", "membership-rmia", "canary") for x in ("--attack", name)]
    assert called(capsys, "run", tmp_path / "setup", "-o", tmp_path / "here", *attacks, "--quiet")[0] == 0
    code, out, err = called(
        capsys,
        "run",
        tmp_path / "setup",
        "-o",
        tmp_path / "there",
        *attacks,
        "--json",
        "--quiet",
        "--ray",
        cluster.address,
    )
    assert code == 0 and err == "" and json.loads(out)["folder"] == str(tmp_path / "there")
    assert content(tmp_path / "here") == content(tmp_path / "there")


@pytest.mark.full
def test_slices_leave_the_same_bytes_and_the_captured_messages(cluster, config: Path, tmp_path: Path, capsys) -> None:
    several = ("--set", "data.clients=120", "--set", "data.samples_per_client=8", "--set", "capture.candidates=0")
    key = ("--noise-key", "published", "--quiet", *several)
    assert called(capsys, "train", config, "-o", tmp_path / "here", *key, "--engine", "sliced")[0] == 0
    code, out, err = called(capsys, "train", config, "-o", tmp_path / "there", *key, "--ray", cluster.address)
    assert (code, out, err) == (0, "", "")
    assert content(tmp_path / "here") == content(tmp_path / "there")
    assert called(capsys, "check", tmp_path / "there")[0] == 0
    code, _, err = called(
        capsys, "train", config, "-o", tmp_path / "no", "--engine", "batched", "--ray", cluster.address
    )
    assert code == 2 and "--engine" in err


@pytest.mark.full
def test_cells_of_a_table_are_the_same(cluster) -> None:
    setting = TableSetting("tiny", clients=3, participants=3, records=8, steps=2, rounds=2, shadows=4)
    cells = [setting], [(None, None), (1.0, 5.0)]
    with joined(cluster.address) as workers:
        there = table_3(Request(trials=2, workers=workers), *cells)
    assert there.rows == table_3(Request(trials=2), *cells).rows and len(there.rows) == 2


# --- kills ---


@pytest.mark.full
def test_a_study_survives_the_kill_of_a_worker_node(cluster, alone: Path, tmp_path: Path) -> None:
    """One of two raylets with all its workers, and then one that joins in its place is used."""
    process = audit("choose", alone.parent / "config.toml", "-o", tmp_path / "study", *STUDY, "--ray", cluster.address)
    until(lambda: begun(tmp_path / "study") or process.poll() is not None)
    cluster.remove_node(
        cluster.workers.pop(), allow_graceful=False
    )  # SIGKILL of its raylet, which takes its workers along
    cluster.workers.append(cluster.add_node(num_cpus=1))
    assert ended(process)[1] == ""
    each_once(tmp_path / "study")
    assert study_of(tmp_path / "study") == study_of(alone)


@pytest.mark.full
def test_a_study_survives_the_kill_of_its_driver(cluster, alone: Path, tmp_path: Path) -> None:
    call = ("choose", alone.parent / "config.toml", "-o", tmp_path / "study", *STUDY, "--ray", cluster.address)
    process = audit(*call)
    until(lambda: begun(tmp_path / "study") or process.poll() is not None)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "study" / "study.json").exists()
    out, err = ended(audit(*call, "--json"))  # at once, when what the first one began may still be under way
    assert json.loads(out)["study"] == str(tmp_path / "study") and err == ""
    each_once(tmp_path / "study")
    assert study_of(tmp_path / "study") == study_of(alone)


@pytest.mark.full
def test_a_dead_worker_s_unit_is_done_again_and_one_who_joins_is_used(cluster, tmp_path: Path) -> None:
    mark = tmp_path / "dead"

    def where(seconds: float, progress: Progress | None) -> str:
        import ray

        time.sleep(seconds)
        return ray.get_runtime_context().get_node_id()

    def once(unit: int, progress: Progress | None) -> int:
        if unit == 3 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return unit

    with joined(cluster.address) as workers:
        assert list(workers.map(once, range(8))) == list(range(8)) and mark.exists()
        units = workers.map(where, [0.3] * 40)
        before = {next(units), next(units)}
        more = cluster.add_node(num_cpus=1)
        after = set(units)
        assert more.node_id in after - before
    cluster.remove_node(more)


# --- what a unit finds ---


@pytest.mark.full
def test_units_come_in_order_few_at_a_time_and_as_many_threads_as_here(cluster) -> None:
    taken: list[int] = []

    def units() -> Iterator[int]:
        for n in range(40):
            taken.append(n)
            yield n

    def threads(unit: int, progress: Progress | None) -> tuple[int, int, str]:
        inner = sum(nested.map(lambda n, _: n + unit, range(3)))  # a unit may have units done
        assert inner == 3 + 3 * unit
        return unit, torch.get_num_threads(), os.getcwd()

    def fails(unit: int, progress: Progress | None) -> None:
        raise ValueError("no such record")

    with joined(cluster.address) as workers:
        nested = workers
        results = workers.map(threads, units())
        assert next(results) == (0, torch.get_num_threads(), os.getcwd())
        assert len(taken) < 12  # not long before they are asked for
        assert [n for n, *_ in results] == list(range(1, 40))
        with pytest.raises(ValueError, match=r"^no such record$"):
            list(workers.map(fails, [1]))


@pytest.mark.full
def test_a_worker_that_is_another_one_is_told(cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "_versions", lambda: ("dpfl-audit 9",))
    with (
        joined(cluster.address) as workers,
        pytest.raises(BadInput, match=r"and this command dpfl-audit 9; install the same"),
    ):
        list(workers.map(lambda unit, progress: unit, [0]))


@pytest.mark.full  # the only one of the quick tests that would start a cluster
def test_more_threads_than_any_machine_has_cores_is_one_sentence(cluster) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with pytest.raises(BadInput, match=r"computes with 3 threads.*more than 1 CPUs; set OMP_NUM_THREADS=1$"):
            joined(cluster.address).__enter__()
    finally:
        torch.set_num_threads(before)


# --- no cluster ---


def test_nobody_there_is_one_sentence_at_once(config: Path, tmp_path: Path, capsys) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for address, said in (
        (f"127.0.0.1:{port}", "nobody answers there"),
        ("ray://head:10001", "expected auto, or HOST:PORT"),
    ):
        began = time.monotonic()
        code, out, err = called(capsys, "train", config, "-o", tmp_path / "setup", "--quiet", "--ray", address)
        assert (code, out) == (2, "") and said in err and err.count("\n") == 0 and time.monotonic() - began < 20
    assert not (tmp_path / "setup").exists()


@pytest.mark.full
def test_who_answers_but_is_no_cluster_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "JOIN", 4.0)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(BadInput, match="is no Ray cluster that this machine is a node of"):
            joined(f"127.0.0.1:{other.getsockname()[1]}").__enter__()


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, config: Path, tmp_path: Path, capsys) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    code, _, err = called(capsys, "train", config, "-o", tmp_path / "setup", "--ray", "auto", "--quiet")
    assert code == 2 and "'dpfl-audit[ray]'" in err and "\n" not in err
    assert audit_trials.__kwdefaults__["workers"] is clusters.HERE


@pytest.mark.full
def test_ray_is_imported_by_nothing_but_its_option() -> None:
    code = "import sys, dpfl_audit.cli, dpfl_audit.audit.api, dpfl_audit.audit.cluster; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
