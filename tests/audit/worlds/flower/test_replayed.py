"""`audit flower --replay`: what Flower adds noise to, in two worlds, by no statistics: known faults by their sizes."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path

import pytest
from command import called
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.replay.outcome import FINITE_ALONE
from dpfl_audit.audit.worlds.flower.app import flower_app
from dpfl_audit.audit.worlds.flower.replayed import FlowerReplay

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'dpfl-audit[flower]'")
pytestmark = pytest.mark.filterwarnings("ignore")
APP = """
import numpy as np, torch
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import *
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import *
from torch import nn
from torch.utils.data import TensorDataset

RECORDS = 12

class Net(nn.Linear):
    def __init__(self):
        super().__init__(6, 3)
        EXTRA

def whole(message, context, call_next):
    "What is no number counts as nothing, and nothing moves by a hair: Flower's clips take neither."
    reply = call_next(message, context)
    sent = next(iter(message.content.array_records.values()))
    for key, record in reply.content.array_records.items():
        made = {n: (a.numpy(), sent[n].numpy()) for n, a in record.items()}
        good = all(np.isfinite(new).all() for new, _ in made.values())
        made = {n: new if good else old for n, (new, old) in made.items()}
        if all(np.array_equal(made[n], sent[n].numpy()) for n in made):
            made["bias"] = made["bias"] + 1e-9
        reply.content[key] = ArrayRecord({n: Array(np.asarray(a)) for n, a in made.items()})
    return reply

def load_data(client):
    made = torch.Generator().manual_seed(client)
    return TensorDataset(torch.rand(RECORDS, 6, generator=made), torch.arange(RECORDS) % 3)

client_app = ClientApp(mods=[MODS])

@client_app.train()
def train(message, context):
    client = int(context.node_config["partition-id"])
    net = Net()
    net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    loader = torch.utils.data.DataLoader(load_data(client), batch_size=RECORDS)
    inputs, targets = next(iter(loader))
    loss = nn.functional.cross_entropy(net(inputs), targets)
    loss.backward()
    torch.optim.SGD(net.parameters(), lr=0.5).step()
    metrics = MetricRecord({"num-examples": WEIGHT, "train_loss": loss.item()})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)

server_app = ServerApp()

@server_app.main()
def serve(grid, context):
    torch.manual_seed(0)
    STRATEGY.start(grid=grid, initial_arrays=ArrayRecord(Net().state_dict()), num_rounds=1)
"""
PLAIN = "FedAvg(fraction_evaluate=0.0)"
FIXED = f"DifferentialPrivacyServerSideFixedClipping({PLAIN}, 1.0, 0.1, 10)"
FAULTS = ["'infinite'", "'nan'", "'unmoved'"]  # that all of Flower's clips have: 1.41


def replayed(folder: Path, mods="", strategy=PLAIN, extra="", weight="RECORDS", **asked):
    text = APP
    for word, value in {"MODS": mods, "STRATEGY": strategy, "EXTRA": extra, "WEIGHT": weight}.items():
        text = text.replace(word, value)
    (folder / "my_app.py").write_text(text)
    return FlowerReplay(**asked).of(flower_app(str(folder / "my_app.py")))


def sizes(found):
    """What was violated, by canary: kind, and how far it is from the bound."""
    return {v.pair.partition(" in place")[0]: (v.kind, v.distance, v.bound) for v in found.violations}


LOCAL = "LocalDpMod(1.0, SENSITIVITY, 8.0, 1e-5)"
RIGHT = [
    (LOCAL.replace("SENSITIVITY", "1.0") + ", whole", PLAIN, "zero_out", 0.99),
    (LOCAL.replace("SENSITIVITY", "1.0") + ", whole", PLAIN, "replace_one", 0.99),
    ("whole", FIXED, "zero_out", 0.99),
    ("fixedclipping_mod, whole", FIXED.replace("ServerSide", "ClientSide"), "replace_one", 0.99),
]


@pytest.mark.parametrize(("mods", "strategy", "adjacency", "least"), RIGHT)
def test_right_apps_are_not_accused_and_the_bound_is_reached(tmp_path, mods, strategy, adjacency, least):
    found = replayed(tmp_path, mods, strategy, adjacency=adjacency)
    assert found.violations == ()
    assert least < found.longest < 1 + 1e-5 and found.queries == 5


@pytest.mark.parametrize("strategy", [PLAIN, FIXED])
def test_what_is_no_number_and_what_does_not_move_pass_flowers_clips(tmp_path, strategy):
    found = sizes(replayed(tmp_path, LOCAL.replace("SENSITIVITY", "1.0") * (strategy == PLAIN), strategy))
    assert sorted(found) == FAULTS
    bound = pytest.approx(1.0 if strategy == PLAIN else 0.01)
    assert found["'infinite'"] == found["'nan'"] == ("sensitivity", inf, bound)
    assert found["'unmoved'"] == ("invariance", None, None)  # Flower divides by its length


def test_noise_for_another_sensitivity_than_the_clip(tmp_path):
    found = sizes(replayed(tmp_path, LOCAL.replace("SENSITIVITY", "1e-4") + ", whole"))
    assert found["'long'"] == ("sensitivity", pytest.approx(1.0), 1e-4)


def test_the_noise_of_an_adaptive_clip_is_for_the_next_one(tmp_path):
    strategy = f"DifferentialPrivacyServerSideAdaptiveClipping({PLAIN}, 0.8, 10)"
    kind, distance, bound = sizes(replayed(tmp_path, "whole", strategy))["'long'"]
    assert (kind, distance) == ("sensitivity", pytest.approx(0.01))  # the clip of 0.1, of ten clients
    assert bound < 0.0099


def test_a_client_that_weighs_more_than_the_noise_is_for(tmp_path):
    weight = "(41 if client == 0 else 1)"
    found = sizes(replayed(tmp_path, "whole", FIXED, weight=weight))
    assert found["'long'"] == ("sensitivity", pytest.approx(0.1 * 41 / 50), pytest.approx(0.01))


def test_numbers_without_a_dimension_get_no_noise(tmp_path):
    extra = "self.scale = nn.Parameter(torch.tensor(1.0))"
    found = replayed(tmp_path, LOCAL.replace("SENSITIVITY", "1.0") + ", whole", extra=extra)
    assert [(v.kind, v.name) for v in found.violations if "scalars" in v.pair] == [("invariance", "unnoised arrays")]


def test_a_record_moves_the_loss_that_is_replied_beside_the_arrays(tmp_path):
    mods = LOCAL.replace("SENSITIVITY", "1.0") + ", whole"
    for adjacency in ("zero_out", "replace_one"):
        found = replayed(tmp_path, mods, adjacency=adjacency, data="load_data")
        assert ("invariance", "the reply") in {(v.kind, v.name) for v in found.violations}
        assert not [v for v in found.violations if v.kind == "sensitivity"]
    merged = replayed(tmp_path, "whole", FIXED, data="load_data")  # its loss goes to the server, who is trusted
    assert merged.violations == () and merged.queries > 3


def test_without_noise_of_flowers_there_is_no_bound(tmp_path):
    with pytest.raises(BadInput, match="no bound to check"):
        replayed(tmp_path)


def test_the_command_ends_with_1_and_writes_norms(tmp_path, capsys):
    with pytest.raises(BadInput):
        replayed(tmp_path)  # writes the app without noise
    app = tmp_path / "my_app.py"
    app.write_text(app.read_text().replace("mods=[]", "mods=[LocalDpMod(1.0, 1.0, 8.0, 1e-5)]"))
    assert called(capsys, "flower", app, "--replay", "-o", tmp_path / "out")[0] == 1
    written = json.loads((tmp_path / "out" / "replay.json").read_text())
    assert [one["pair"].partition(" in place")[0] for one in written["violations"]] == [*FAULTS[1::-1], FAULTS[2]]
    draws = ("--claim", 8, "--draws", 20, "--calibration", 10)
    assert called(capsys, "flower", app, "--replay", *draws, "-o", tmp_path / "drawn")[0] == 0
    notes = json.loads((tmp_path / "drawn" / "results.json").read_text())["epsilon"][0]["notes"]
    assert [sum(note.startswith(words) for note in notes) for words in ("Violated", FINITE_ALONE)] == [1, 2]
