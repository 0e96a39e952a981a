"""Legacy Flower apps, and main loops of one's own, recorded by a grid round the app's own: bit for bit, in rounds."""

from __future__ import annotations

from math import inf
from pathlib import Path

import numpy as np
import pytest
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.proven.table import table
from dpfl_audit.audit.record.declared import COMPLETENESS
from dpfl_audit.audit.record.flower.grid import record_server
from dpfl_audit.audit.record.flower.mods import AuditMod
from dpfl_audit.audit.record.mechanism import Gaussian
from dpfl_audit.audit.record.recorder import finish
from dpfl_audit.audit.setup.auditor import check_setup
from dpfl_audit.audit.setup.strict import faults

flwr = pytest.importorskip("flwr", reason="Flower is not installed: pip install 'dpfl-audit[flower]'")
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.client import NumPyClient  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.clientapp.mod import LocalDpMod  # noqa: E402
from flwr.common import ndarrays_to_parameters  # noqa: E402
from flwr.server import ServerAppComponents, ServerConfig  # noqa: E402
from flwr.server.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg  # noqa: E402
from flwr.serverapp import Grid, ServerApp  # noqa: E402
from flwr.supercore.task_identity import TaskIdentity  # noqa: E402
from torch import nn  # noqa: E402

CLIENTS = 3
NET = nn.Linear(60, 40)
START = [value.detach().numpy() for value in NET.state_dict().values()]


class InlineGrid(Grid):
    """Flower's grid without Ray: every message is answered by the app at once. What clients replied is kept."""

    def __init__(self, app: ClientApp) -> None:
        self.app, self.held, self.replied = app, {}, []
        self.nodes = {900 + c: Context(c, 900 + c, {"partition-id": c}, RecordDict(), {}) for c in range(CLIENTS)}

    def set_run(self, run) -> None: ...

    @property
    def run(self):
        return type("Run", (), {"run_id": 1})()

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        return Message(content, dst_node_id, message_type, group_id=group_id, ttl=ttl)

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        replies = self.send_and_receive(messages)
        ids = [f"{len(self.held)}-{i}" for i in range(len(replies))]
        self.held |= dict(zip(ids, replies))
        return ids

    def pull_messages(self, message_ids):
        return [self.held.pop(one) for one in message_ids]

    def send_and_receive(self, messages, *, timeout=None):
        del timeout
        replies = [self.app(message, self.nodes[message.metadata.dst_node_id]) for message in messages]
        for reply in replies:
            if reply.metadata.message_type.startswith("train"):
                arrays = next(iter(reply.content.array_records.values()))
                self.replied.append(np.concatenate([array.numpy().ravel() for array in arrays.values()]))
        return replies


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


class Client(NumPyClient):
    def fit(self, parameters, config):
        del config
        rng = np.random.default_rng(len(parameters))
        return [(p + rng.normal(size=p.shape)).astype(np.float32) for p in parameters], 10, {}

    def evaluate(self, parameters, config):
        del parameters, config
        return 0.5, 10, {}


def legacy(strategy) -> ServerApp:
    parts = ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=2))
    return ServerApp(server_fn=lambda context: parts)


def fedavg(**options):
    return FedAvg(initial_parameters=ndarrays_to_parameters(START), min_available_clients=CLIENTS, **options)


def run(server_app, folder: Path, mods=(), app: ClientApp | None = None, **options) -> InlineGrid:
    mods = [AuditMod(str(folder)), *mods]
    grid = InlineGrid(app or ClientApp(client_fn=lambda context: Client().to_client(), mods=mods))
    record_server(server_app, folder, NET, **options)(grid, Context(1, 0, {}, RecordDict(), {}))
    return grid


def row(folder: Path, observer: str):
    place = (observer, "client", "zero_out")
    return next(r for r in table(folder).rows if (r.observer, r.unit, r.adjacency) == place)


def uploads(folder: Path) -> list[bytes]:
    setup, auditor = check_setup(folder)
    assert faults(setup, auditor) == []
    return sorted(setup.load(m).numpy().tobytes() for m in setup.messages if m.sender != "server")


def test_a_legacy_app_is_recorded_bit_for_bit(tmp_path):
    folder = tmp_path / "s"
    local = LocalDpMod(clipping_norm=1.0, sensitivity=1.0, epsilon=50.0, delta=1e-5)
    grid = run(legacy(fedavg()), folder, [local, AuditMod.raw(folder)])
    setup, auditor = check_setup(folder)
    assert setup.manifest.rounds == 2 and setup.manifest.clients == [10] * CLIENTS
    assert uploads(folder) == sorted(value.tobytes() for value in grid.replied) and len(grid.replied) == 6
    assert row(folder, "server").multiplier == pytest.approx(0.096896, rel=1e-4)  # √(2 ln 125000)/50
    found = {d.what: d.status for d in auditor.declared}
    assert (found["norm bound"], found["noise"], found["independence"]) == ("checked",) * 3
    last = [m for m in setup.messages if m.sender == "server"][-1]  # the model that is evaluated at the end
    mean = np.mean(np.stack(grid.replied[3:]), 0)
    assert last.round == 2 and np.allclose(setup.load(last).numpy(), mean, atol=1e-6)


def test_a_legacy_strategys_noise_is_read_and_checked(tmp_path):
    private = DifferentialPrivacyServerSideFixedClipping(fedavg(), 1.0, 1.0, CLIENTS)
    run(legacy(private), tmp_path / "s")
    found = {d.what: d.status for d in check_setup(tmp_path / "s")[1].declared}
    assert (found["norm bound"], found["noise"], found["average"]) == ("declared", "checked", "declared")
    assert row(tmp_path / "s", "downlink").multiplier == pytest.approx(1.0)
    assert row(tmp_path / "s", "server").proven == inf


@pytest.mark.parametrize("pulls", [False, True])
def test_a_main_loop_of_ones_own(pulls, tmp_path):
    """It sends and receives, or pushes and pulls, and numbers nothing."""
    grid, seen = main_loop(tmp_path / "s", lambda: {}, pulls)
    assert seen == {"arrays", "metrics"}
    assert check_setup(tmp_path / "s")[0].manifest.rounds == 3 and row(tmp_path / "s", "server").proven < inf
    assert uploads(tmp_path / "s") == sorted(value.tobytes() for value in grid.replied)


@pytest.mark.parametrize("pulls", [False, True])
@pytest.mark.parametrize("kind", ["control variate", "config"])
def test_what_a_reply_holds_beside_its_first_arrays_proves_nothing_towards_the_server(kind, pulls, tmp_path):
    """SCAFFOLD's second ArrayRecord: ε was printed as if it were not there."""
    record = ArrayRecord({"c": flwr.app.Array(np.ones((40, 60), np.float32))})
    main_loop(tmp_path / "s", lambda: {"more": record if kind != "config" else ConfigRecord({"seed": 7})}, pulls)
    defect = next(d for d in check_setup(tmp_path / "s")[1].declared if d.status == "defect")
    assert defect.what == COMPLETENESS and ("'more'" if kind != "config" else "'seed'") in defect.why
    assert row(tmp_path / "s", "server").proven == inf > row(tmp_path / "s", "downlink").proven


def main_loop(folder: Path, more, pulls: bool):
    """Three rounds of an app whose replies hold more records. Returns its grid and the names of what replies hold."""
    app, seen, rng = ClientApp(mods=[AuditMod(str(folder))]), set(), np.random.default_rng(0)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        del context
        got = message.content.array_records["arrays"]
        moved = {n: flwr.app.Array((a.numpy() + rng.normal(size=a.shape)).astype(np.float32)) for n, a in got.items()}
        content = {"arrays": ArrayRecord(moved), "metrics": MetricRecord({"num-examples": 10})}
        return Message(RecordDict({**content, **more()}), reply_to=message)

    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        del context
        for _ in range(3):
            content = RecordDict({"arrays": ArrayRecord(NET.state_dict()), "config": ConfigRecord({"lr": 0.1})})
            messages = [Message(content, node, "train") for node in grid.get_node_ids()]
            replies = grid.pull_messages(grid.push_messages(messages)) if pulls else grid.send_and_receive(messages)
            seen.update(*(reply.content for reply in replies))

    noise = Gaussian(clip=1.0, noise_std=1.0)
    return run(server, folder, app=app, mechanism=noise, average="mean", claim=8), seen


def test_an_app_that_fails_leaves_whole_rounds_and_fails_as_before(tmp_path):
    class Fails(FedAvg):
        def aggregate_fit(self, server_round, results, failures):
            if server_round == 2:
                raise RuntimeError("no")
            return super().aggregate_fit(server_round, results, failures)

    strategy = Fails(initial_parameters=ndarrays_to_parameters(START), min_available_clients=CLIENTS)
    with pytest.raises(RuntimeError, match="no"):
        run(legacy(strategy), tmp_path / "s")
    finish(tmp_path / "s")
    assert check_setup(tmp_path / "s")[0].manifest.rounds == 1


def test_what_is_known_of_the_app_cannot_be_given(tmp_path):
    with pytest.raises(BadInput, match="share is known of a Flower app"):
        record_server(ServerApp(), tmp_path / "s", NET, share="update")
