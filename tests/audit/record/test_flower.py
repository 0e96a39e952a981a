"""Flower apps, recorded: bit for bit what the server aggregated; Flower's parameters declared, its defects named."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from math import inf
from pathlib import Path

import numpy as np
import pytest
import torch
from dpfl_audit.audit.proven.table import table
from dpfl_audit.audit.record.declared import ADDED, COMPLETENESS, SECRECY
from dpfl_audit.audit.record.flower.mods import AuditMod, clients_folder
from dpfl_audit.audit.record.flower.strategy import record_strategy
from dpfl_audit.audit.record.mechanism import Gaussian
from dpfl_audit.audit.setup.auditor import check_setup
from dpfl_audit.audit.setup.strict import faults

flwr = pytest.importorskip("flwr", reason="Flower is not installed: pip install 'dpfl-audit[flower]'")
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod  # noqa: E402
from flwr.serverapp.strategy import (  # noqa: E402
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedMedian,
)
from flwr.supercore.task_identity import TaskIdentity  # noqa: E402
from torch import nn  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]
CLIENTS, SHAPES = 3, {"0.weight": (40, 60), "0.bias": (40,)}
NET = nn.Sequential(nn.Linear(60, 40))
START = {name: value.detach().numpy() for name, value in NET.state_dict().items()}


class InlineGrid:
    """Flower's grid without Ray: every message is answered by the app at once."""

    def __init__(self, app: ClientApp) -> None:
        self.app = app
        self.nodes = {900 + c: Context(c, 900 + c, {"partition-id": c}, RecordDict(), {}) for c in range(CLIENTS)}

    def get_node_ids(self) -> list[int]:
        return list(self.nodes)

    def send_and_receive(self, messages, *, timeout=None) -> list[Message]:
        del timeout
        return [self.app(message, self.nodes[message.metadata.dst_node_id]) for message in messages]


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def app_of(length: float = 7.0, counts=(10, 10, 10), mods=(), extra: Callable | None = None) -> ClientApp:
    """An app whose clients move the model by a vector of that length, each in a direction of its own."""
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message: Message, context: Context) -> Message:
        client, got = int(context.node_config["partition-id"]), message.content.array_records["arrays"]
        rng = np.random.default_rng(client)
        step = {name: rng.standard_normal(array.numpy().shape) for name, array in got.items()}
        norm = np.sqrt(sum(np.square(v).sum() for v in step.values()))
        moved = {n: np.asarray(a.numpy() + length / norm * step[n], dtype=np.float32) for n, a in got.items()}
        if extra is not None:
            moved = extra(moved, client)
        metrics = MetricRecord({"num-examples": counts[client]})
        arrays = ArrayRecord({name: flwr.app.Array(value) for name, value in moved.items()})
        return Message(content=RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    return app


def run(folder: Path, strategy, app: ClientApp, rounds: int = 2, start=START, model=NET, **options) -> None:
    recorded = record_strategy(strategy, folder, model, **options)
    arrays = ArrayRecord({name: flwr.app.Array(value) for name, value in start.items()})
    recorded.start(grid=InlineGrid(app), initial_arrays=arrays, num_rounds=rounds)


def fedavg(kind=FedAvg, **options):
    return kind(fraction_evaluate=0.0, min_available_nodes=CLIENTS, **options)


def statuses(folder: Path) -> dict[str, str]:
    return {d.what: d.status for d in check_setup(folder)[1].declared}


def row(folder: Path, observer: str):
    place = (observer, "client", "zero_out")
    return next(r for r in table(folder).rows if (r.observer, r.unit, r.adjacency) == place)


class Probe(FedAvg):
    """Keeps what it is given to aggregate."""

    def aggregate_train(self, server_round, replies):
        came = list(replies)
        assert all(set(reply.content) == {"arrays", "metrics"} for reply in came)  # as without the mod
        kept = [{n: a.numpy().copy() for n, a in reply.content.array_records["arrays"].items()} for reply in came]
        self.__dict__.setdefault("kept", []).append(kept)
        return super().aggregate_train(server_round, came)


def test_what_is_recorded_is_bit_for_bit_what_the_server_aggregated(tmp_path):
    local = LocalDpMod(clipping_norm=1.0, sensitivity=1.0, epsilon=50.0, delta=1e-5)
    probe = fedavg(Probe)
    mods = [AuditMod(str(tmp_path / "s")), local, AuditMod.raw(tmp_path / "s")]
    run(tmp_path / "s", probe, app_of(mods=mods))
    setup, auditor = check_setup(tmp_path / "s")
    assert faults(setup, auditor) == [] and setup.manifest.rounds == 2 and setup.manifest.facts.share == "weights"
    uploads = [m for m in setup.messages if m.sender != "server"]
    assert len(uploads) == 6 == sum(map(len, probe.kept))
    for round, given in enumerate(probe.kept):  # Flower samples nodes in any order
        flat = {torch.cat([torch.from_numpy(v).flatten() for v in one.values()]).numpy().tobytes() for one in given}
        assert {setup.load(m).numpy().tobytes() for m in uploads if m.round == round} == flat
    assert {m.num_examples for m in uploads} == {10} and {m.sender for m in uploads} == {
        f"client-{c}" for c in range(3)
    }
    broadcasts = [m for m in setup.messages if m.sender == "server"]
    assert [m.round for m in broadcasts] == [0, 1, 2]
    mean = np.mean([np.concatenate([v.ravel() for v in one.values()]) for one in probe.kept[1]], axis=0)
    assert np.allclose(setup.load(broadcasts[2]).numpy(), mean, atol=1e-6)


def test_local_dp_is_declared_by_its_own_parameters_and_checked_by_raw_values(tmp_path):
    """ε = 50: noise_std √(2 ln 125000)/50 = .0969."""
    local = LocalDpMod(clipping_norm=1.0, sensitivity=1.0, epsilon=50.0, delta=1e-5)
    run(tmp_path / "s", fedavg(), app_of(mods=[AuditMod(str(tmp_path / "s")), local, AuditMod.raw(tmp_path / "s")]))
    assert row(tmp_path / "s", "server").multiplier == pytest.approx(0.096896, rel=1e-4)
    facts = check_setup(tmp_path / "s")[0].manifest.facts
    assert facts.clip_norm == 1.0 and facts.noise_std == pytest.approx(0.096896, rel=1e-4)
    found = statuses(tmp_path / "s")
    assert (found["norm bound"], found["noise"], found["independence"]) == ("checked", "checked", "checked")
    assert not [*clients_folder(tmp_path / "s").rglob("round-*")]  # raw values go when they were compared


def test_a_mod_that_can_keep_nothing_stops_nobody(tmp_path):
    def fails(context):
        raise KeyError("no such data")

    (tmp_path / "s.clients").write_text("a file where a folder should be")
    local = LocalDpMod(clipping_norm=1.0, sensitivity=1.0, epsilon=50.0, delta=1e-5)
    mods = [AuditMod(str(tmp_path / "s"), records=fails), local, AuditMod.raw(tmp_path / "s")]
    run(tmp_path / "s", fedavg(), app_of(mods=mods))
    assert check_setup(tmp_path / "s")[0].manifest.rounds == 2 and statuses(tmp_path / "s")["noise"] == "declared"


def test_a_sensitivity_below_the_clip_is_a_named_defect_and_priced_as_it_is(tmp_path):
    local = LocalDpMod(clipping_norm=1.0, sensitivity=0.01, epsilon=8.0, delta=1e-5)
    run(tmp_path / "s", fedavg(), app_of(mods=[AuditMod(str(tmp_path / "s")), local]), claim=8)
    defect = next(d for d in check_setup(tmp_path / "s")[1].declared if d.status == "defect")
    assert defect.what == "sensitivity" and "100 times" in defect.why
    assert 8 * 1000 < row(tmp_path / "s", "server").proven < inf


def test_without_a_mod_clients_are_numbered_as_they_come_and_nothing_is_declared(tmp_path):
    run(tmp_path / "s", fedavg(), app_of())
    setup, auditor = check_setup(tmp_path / "s")
    assert len(setup.manifest.clients) == CLIENTS and auditor.declared == ()
    assert row(tmp_path / "s", "server").proven == inf


def test_a_servers_fixed_clip_is_read_from_the_wrapper_and_checked(tmp_path):
    """Noise 1·1/3 on the mean of three alike: bound 1/3, multiplier 1 towards the downlink; the server sees all."""
    private = DifferentialPrivacyServerSideFixedClipping(fedavg(), 1.0, 1.0, CLIENTS)
    run(tmp_path / "s", private, app_of(mods=[AuditMod(str(tmp_path / "s"))]))
    assert statuses(tmp_path / "s") == {
        "norm bound": "declared",  # such noise hides √2 of it in two rounds,
        "noise": "checked",
        "independence": "checked",
        ADDED: "declared",
        SECRECY: "declared",
        "average": "declared",  # and twice a weight
        "low bits": "declared",
        "first model": "declared",
        "public settings": "declared",
        "completeness": "declared",
    }
    assert row(tmp_path / "s", "downlink").multiplier == pytest.approx(1.0)
    assert row(tmp_path / "s", "server").proven == inf


def test_unequal_weights_are_a_named_defect_and_priced_by_the_largest(tmp_path):
    private = DifferentialPrivacyClientSideFixedClipping(fedavg(), 1.0, 1.0, CLIENTS)
    run(tmp_path / "s", private, app_of(counts=(30, 10, 10), mods=[AuditMod(str(tmp_path / "s")), fixedclipping_mod]))
    found = check_setup(tmp_path / "s")[1].declared
    assert [d.what for d in found if d.status == "defect"] == ["weighted mean"]
    assert row(tmp_path / "s", "downlink").multiplier == pytest.approx(1 / 1.8)


def test_an_adaptive_clip_that_runs_away_is_a_named_defect(tmp_path):
    private = DifferentialPrivacyServerSideAdaptiveClipping(fedavg(), 0.2, CLIENTS, initial_clipping_norm=1.0)
    run(tmp_path / "s", private, app_of(mods=[AuditMod(str(tmp_path / "s"))]), rounds=3)
    setup, auditor = check_setup(tmp_path / "s")
    named = {d.what: d.why for d in auditor.declared if d.status == "defect"}
    assert named["adaptive clip"].startswith("3 of")
    assert "next bound" in named["adaptive noise"]
    assert any(d.what.startswith("count") for d in auditor.declared)
    assert statuses(tmp_path / "s")["noise"] == "checked" and setup.manifest.rounds == 3


def test_norm_bits_in_the_open_prove_nothing(tmp_path):
    private = DifferentialPrivacyClientSideAdaptiveClipping(fedavg(), 0.2, CLIENTS, initial_clipping_norm=1.0)
    run(tmp_path / "s", private, app_of(mods=[AuditMod(str(tmp_path / "s")), adaptiveclipping_mod]))
    assert statuses(tmp_path / "s")["norm bits"] == "contradicted"
    assert row(tmp_path / "s", "downlink").proven == inf


def test_a_tensor_without_a_dimension_passes_the_clip(tmp_path):
    start = {**START, "logit_scale": np.array(0.0, dtype=np.float32)}
    private = DifferentialPrivacyServerSideFixedClipping(fedavg(), 1.0, 1.0, CLIENTS)
    mods = [AuditMod(str(tmp_path / "s"))]
    run(tmp_path / "s", private, app_of(mods=mods), start=start, model={n: torch.tensor(v) for n, v in start.items()})
    assert statuses(tmp_path / "s")["unclipped tensors"] == "contradicted"
    assert row(tmp_path / "s", "downlink").proven == inf


def test_a_nan_is_passed_on_and_proves_nothing(tmp_path):
    def spoil(arrays, client):
        return arrays if client else {n: np.full_like(v, np.nan) for n, v in arrays.items()}

    private = DifferentialPrivacyServerSideFixedClipping(fedavg(), 1.0, 1.0, CLIENTS)
    run(tmp_path / "s", private, app_of(mods=[AuditMod(str(tmp_path / "s"))], extra=spoil), rounds=1)
    setup, _ = check_setup(tmp_path / "s")
    assert {m.sender for m in setup.messages if m.sender != "server"} == {"client-1", "client-2"}
    assert statuses(tmp_path / "s")["completeness"] == "contradicted"  # the next model is none either
    assert row(tmp_path / "s", "server").proven == inf


def with_loss(message, context, call_next):
    """A mod, as clients of the quickstart add to their replies."""
    reply = call_next(message, context)
    reply.content["metrics"]["train_loss"] = 0.12
    return reply


def test_what_a_reply_holds_beside_its_arrays_proves_nothing_towards_who_sees_it(tmp_path):
    """ε = 2.38 was printed towards the server, with "nothing else was sent". The models are made of none of it."""
    found = {}
    for name, more in (("with", [with_loss]), ("without", [])):
        local = LocalDpMod(clipping_norm=1.0, sensitivity=1.0, epsilon=5.0, delta=1e-5)
        run(tmp_path / name, fedavg(), app_of(mods=[AuditMod(str(tmp_path / name)), *more, local]))
        rows = {observer: row(tmp_path / name, observer).proven for observer in ("server", "downlink", "model")}
        defects = [d for d in check_setup(tmp_path / name)[1].declared if d.status == "defect"]
        found[name] = rows, [(d.what, "'train_loss'" in d.why) for d in defects]
    assert found["without"][0]["server"] < inf and found["without"][1] == []
    assert found["with"] == ({**found["without"][0], "server": inf}, [(COMPLETENESS, True)])


def test_a_model_that_may_be_made_of_what_stands_beside_the_arrays_proves_nothing_either(tmp_path):
    local = LocalDpMod(clipping_norm=1.0, sensitivity=1.0, epsilon=5.0, delta=1e-5)
    mods = [AuditMod(str(tmp_path / "s")), with_loss, local]
    run(tmp_path / "s", fedavg(FedMedian), app_of(mods=mods))
    assert row(tmp_path / "s", "downlink").proven == inf


def test_what_clients_reply_when_they_evaluate_is_looked_at_too(tmp_path):
    for name, metrics in (("loss", {"num-examples": 10, "eval_loss": 0.5}), ("count", {"num-examples": 10})):
        app = app_of(length=0.5, mods=[AuditMod(str(tmp_path / name))])

        @app.evaluate()
        def evaluate(message, context, metrics=metrics):
            return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)

        options = {"fraction_evaluate": 1.0, "min_available_nodes": CLIENTS}
        run(tmp_path / name, FedAvg(**options), app, mechanism=Gaussian(clip=1.0, noise_std=2.0))
    assert row(tmp_path / "loss", "server").proven == inf and statuses(tmp_path / "loss")[COMPLETENESS] == "defect"
    assert statuses(tmp_path / "count")[COMPLETENESS] == "declared"


@pytest.mark.parametrize("kind", ["other model", "more arrays"])
def test_messages_to_clients_that_are_not_the_recorded_model_prove_nothing(kind, tmp_path):
    class Personal(FedAvg):
        def configure_train(self, server_round, arrays, config, grid):
            messages = list(super().configure_train(server_round, arrays, config, grid))
            last = {n: flwr.app.Array(a.numpy() + 1) for n, a in messages[-1].content["arrays"].items()}
            record = RecordDict({**messages[-1].content})
            record["more" if kind == "more arrays" else "arrays"] = ArrayRecord(last)
            messages[-1].content = record
            return messages

    noise = Gaussian(clip=1.0, noise_std=1.0)
    run(tmp_path / "s", fedavg(Personal), app_of(mods=[AuditMod(str(tmp_path / "s"))]), mechanism=noise)
    assert statuses(tmp_path / "s")[COMPLETENESS] == "contradicted"
    assert row(tmp_path / "s", "downlink").proven == inf


@pytest.mark.parametrize("kind", [FedAdam, FedMedian])
def test_any_strategy_is_recorded_and_its_way_of_merging_is_not_guessed(kind, tmp_path):
    local = LocalDpMod(clipping_norm=1.0, sensitivity=1.0, epsilon=50.0, delta=1e-5)
    run(tmp_path / "s", fedavg(kind), app_of(mods=[AuditMod(str(tmp_path / "s")), local]))
    assert row(tmp_path / "s", "server").multiplier == pytest.approx(0.096896, rel=1e-4)
    # Whoever sees models alone is priced as if it saw every upload.
    assert row(tmp_path / "s", "downlink").proven == pytest.approx(row(tmp_path / "s", "server").proven)


def test_a_strategy_that_fails_leaves_whole_rounds(tmp_path):
    from dpfl_audit.audit.record.recorder import finish

    class Fails(FedAvg):
        def aggregate_train(self, server_round, replies):
            if server_round == 3:
                raise RuntimeError("no")
            return super().aggregate_train(server_round, replies)

    with pytest.raises(RuntimeError):
        run(tmp_path / "s", fedavg(Fails), app_of(), rounds=5)
    finish(tmp_path / "s")
    assert check_setup(tmp_path / "s")[0].manifest.rounds == 2


@pytest.mark.full
def test_the_example_runs_on_ray(tmp_path):
    """An app as the quickstart has it, by Flower's own simulation, in a process of its own."""
    pytest.importorskip("ray", reason="Flower's simulation is not installed: pip install 'flwr[simulation]'")
    example = ROOT / "examples" / "flower" / "digits_app.py"
    made = subprocess.run(
        [sys.executable, str(example), "setup"], cwd=tmp_path, capture_output=True, text=True, timeout=500
    )
    assert made.returncode == 0, made.stderr[-2000:]
    setup, auditor = check_setup(tmp_path / "setup")
    assert faults(setup, auditor) == [] and setup.manifest.clients == [20] * 4 and len(setup.messages) == 2 * 5 + 1
    assert statuses(tmp_path / "setup")["noise"] == "checked" and auditor.truth is not None
    assert len(auditor.truth.inputs) == 80
