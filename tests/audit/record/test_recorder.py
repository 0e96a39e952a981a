"""The recorder in a loop: what it keeps whatever happens, and what it refuses in one sentence with nothing lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest
import torch
from command import content
from dp_accounting import get_epsilon_gaussian
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.proven.table import table
from dpfl_audit.audit.record.declared import SETTINGS
from dpfl_audit.audit.record.mechanism import Gaussian, Laplace
from dpfl_audit.audit.record.recorder import Recorder, finish
from dpfl_audit.audit.setup.auditor import check_setup
from dpfl_audit.audit.setup.folder import open_setup
from dpfl_audit.audit.setup.strict import faults
from dpfl_audit.defenses.releases import Sampling
from safetensors.torch import load_file
from torch import nn

NET = nn.Sequential(nn.Flatten(), nn.Linear(36, 40), nn.ReLU(), nn.Linear(40, 3))
START = {name: value.clone() for name, value in NET.state_dict().items()}
WHOLE = {"w": torch.cat([value.flatten() for value in START.values()])}  # no tensor too small to tell its noise
DIM = sum(value.numel() for value in START.values())
NOISE = Gaussian(clip=1.0, noise_std=0.5)


def vector(seed: int, norm: float = 0.5) -> torch.Tensor:
    value = torch.randn(DIM, generator=torch.Generator().manual_seed(seed))
    return norm * value / value.norm()


def noise(seed: int, std: float = 0.5) -> torch.Tensor:
    return std * torch.randn(DIM, generator=torch.Generator().manual_seed(1000 + seed))


def one_round(rec: Recorder, t: int, clients: int = 2, **options) -> None:
    rec.broadcast(t, START)
    for c in range(clients):
        rec.upload(t, c, vector(10 * t + c) + noise(10 * t + c), num_examples=5, **options)


def statuses(folder: Path) -> dict[str, str]:
    return {d.what: d.status for d in check_setup(folder)[1].declared}


def epsilon(folder: Path, observer: str = "server", unit: str = "client", adjacency: str = "zero_out") -> float:
    rows = table(folder).rows
    place = (observer, unit, adjacency)
    return next(row.proven for row in rows if (row.observer, row.unit, row.adjacency) == place)


# --- what it keeps


def test_three_lines_make_a_setup_that_is_priced(tmp_path):
    """One release of multiplier .5, by the exact curve (Balle and Wang 2018)."""
    with Recorder(tmp_path / "s", NET, claim=8, mechanism=NOISE, strict=True) as rec:
        one_round(rec, 0)
    setup, auditor = check_setup(tmp_path / "s")
    assert setup.manifest.status == "complete" and setup.manifest.rounds == 1 and len(setup.messages) == 3
    assert torch.equal(setup.load(next(m for m in setup.messages if m.sender == "client-1")), vector(1) + noise(1))
    assert epsilon(tmp_path / "s") == pytest.approx(get_epsilon_gaussian(0.5, 1e-5))
    assert auditor.truth is None and not (tmp_path / "s" / ".work").exists()


def test_a_second_close_does_nothing_and_a_closed_recorder_takes_nothing(tmp_path):
    rec = Recorder(tmp_path / "s", NET, strict=True)
    one_round(rec, 0)
    assert rec.close() == rec.close() == tmp_path / "s"
    with pytest.raises(BadInput, match="closed"):
        rec.broadcast(1, START)


@pytest.mark.parametrize(
    "form",
    [
        lambda v: {n: p.numpy() for n, p in as_state(v).items()},
        lambda v: [p.numpy() for p in as_state(v).values()],
        lambda v: v.double().numpy(),
        lambda v: as_state(v),
    ],
)
def test_a_value_is_the_same_in_every_form(form, tmp_path):
    with Recorder(tmp_path / "s", NET, mechanism=NOISE, strict=True) as rec:
        rec.broadcast(0, NET)
        rec.upload(0, 0, form(vector(1)), num_examples=3)
    setup, _ = check_setup(tmp_path / "s")
    assert torch.equal(setup.load(next(m for m in setup.messages if m.sender == "client-0")), vector(1))


def as_state(flat: torch.Tensor) -> dict[str, torch.Tensor]:
    parts = flat.split([v.numel() for v in START.values()])
    return {n: p.reshape(v.shape) for (n, v), p in zip(START.items(), parts)}


def test_without_a_network_epsilon_is_priced_and_the_rest_is_said(tmp_path):
    from dpfl_audit.audit import run as runner

    with Recorder(tmp_path / "s", [np.zeros((3, 4)), np.zeros(3)], mechanism=NOISE, strict=True) as rec:
        rec.broadcast(0, [np.zeros((3, 4)), np.zeros(3)])
        rec.upload(0, 0, [np.ones((3, 4)), np.ones(3)], num_examples=3)
    results = runner.run(tmp_path / "s", tmp_path / "r", runner.RunOptions(pixels_only=True))
    assert results.attacks == () and results.choice is not None and results.choice.ran == ()
    assert {one.attack for one in results.choice.not_run} >= {"inversion", "membership-loss", "canary"}
    assert any("built again" in text for text in results.warnings)
    assert any("this tool" in text for text in results.warnings)


def test_without_records_nothing_is_scored_and_epsilon_is_there(tmp_path):
    from dpfl_audit.audit import run as runner

    with Recorder(
        tmp_path / "s", NET, mechanism=NOISE, data={"input_shape": [1, 6, 6], "classes": 3}, strict=True
    ) as rec:
        one_round(rec, 0)
    results = runner.run(tmp_path / "s", tmp_path / "r", runner.RunOptions(pixels_only=True))
    assert not any(attack.scored for attack in results.attacks)
    assert any("truth/" in text for text in results.warnings)
    assert next(row for row in results.epsilon if row.asked).proven == pytest.approx(get_epsilon_gaussian(0.5, 1e-5))


def test_a_canary_is_refused_with_the_reason(tmp_path):
    from dpfl_audit.audit import run as runner

    with Recorder(tmp_path / "s", NET, mechanism=NOISE, strict=True) as rec:
        one_round(rec, 0)
    with pytest.raises(BadInput, match="recording has none"):
        runner.opened(tmp_path / "s", runner.RunOptions(attacks=("canary",)))


# --- declared, checked, contradicted


def test_a_clip_that_does_not_happen_is_seen(tmp_path):
    for clipped in (True, False):
        folder = tmp_path / str(clipped)
        with Recorder(folder, NET, mechanism=Gaussian(clip=1.0, noise_std=0.05), strict=True) as rec:
            rec.broadcast(0, START)
            for c in range(2):
                raw = vector(c, norm=7.0)
                rec.upload(0, c, (raw / 7 if clipped else raw) + noise(c, 0.05), num_examples=5)
                rec.raw(0, c, raw)
        assert statuses(folder)["norm bound"] == ("checked" if clipped else "contradicted")


def test_two_runs_of_a_round_show_the_noise_without_raw_values(tmp_path):
    for std, expected in ((0.5, "checked"), (0.25, "contradicted"), (1.0, "declared")):
        folder = tmp_path / str(std)
        with Recorder(folder, WHOLE, mechanism=Gaussian(clip=20.0, noise_std=0.5), strict=True) as rec:
            rec.broadcast(0, WHOLE)
            rec.upload(0, 0, vector(0) + noise(0, std), num_examples=5)
            rec.again(0, 0, vector(0) + noise(1, std))
        assert statuses(folder)["noise"] == expected, std


def test_a_message_too_short_for_its_noise_contradicts_without_any_raw_value(tmp_path):
    with Recorder(tmp_path / "s", NET, mechanism=NOISE, strict=True) as rec:
        rec.broadcast(0, START)
        rec.upload(0, 0, vector(0), num_examples=5)
    assert statuses(tmp_path / "s")["noise"] == "contradicted" and epsilon(tmp_path / "s") == inf


def test_a_servers_noise_is_what_the_next_model_has_beside_the_mean(tmp_path):
    """Three clients clipped to 1, mean, noise .1: bound 1/3, multiplier .3 towards the downlink."""
    for std, expected in ((0.1, "checked"), (0.05, "contradicted")):
        folder = tmp_path / str(std)
        with Recorder(
            folder, WHOLE, mechanism=Gaussian(clip=1.0, noise_std=0.1, by="server"), average="mean", strict=True
        ) as rec:
            rec.broadcast(0, WHOLE)
            for c in range(3):
                rec.upload(0, c, vector(c, norm=3.0), num_examples=4 + c)
            mean = sum(vector(c, norm=3.0) / 3 for c in range(3)) / 3
            rec.broadcast(1, WHOLE["w"] + mean + noise(0, std))
        assert statuses(folder)["noise"] == expected
        assert epsilon(folder) == inf
        if expected == "checked":
            row = next(r for r in table(folder).rows if r.observer == "downlink" and r.unit == "client")
            assert row.multiplier == pytest.approx(0.3)
            assert statuses(folder)["average"] == "declared"  # twice a weight is .41 of length, four times the noise


def test_a_weighted_mean_is_priced_by_its_largest_weight(tmp_path):
    with Recorder(tmp_path / "s", NET, mechanism=Gaussian(clip=1.0, noise_std=0.1, by="server"), strict=True) as rec:
        rec.broadcast(0, START)
        rec.upload(0, 0, vector(0), num_examples=9)
        rec.upload(0, 1, vector(1), num_examples=1)
        start = torch.cat([v.flatten() for v in START.values()])
        rec.broadcast(1, as_state(start + 0.9 * vector(0) + 0.1 * vector(1) + noise(0, 0.1)))
    row = next(r for r in table(tmp_path / "s").rows if (r.observer, r.unit) == ("downlink", "client"))
    assert row.multiplier == pytest.approx(0.1 / 0.9) and row.releases == 1


def test_sampling_that_did_not_happen_is_seen(tmp_path):
    lot = Sampling("poisson", population=50, cohort=5)
    noise_of_server = Gaussian(clip=1.0, noise_std=0.1, by="server", sampling=lot)
    for clients, expected in ((5, "declared"), (50, "contradicted")):
        with Recorder(
            tmp_path / str(clients), NET, mechanism=noise_of_server, average="mean", clients=50, strict=True
        ) as rec:
            rec.broadcast(0, START)
            for c in range(clients):
                rec.upload(0, c, vector(c), num_examples=5)
            rec.broadcast(1, START)
        assert statuses(tmp_path / str(clients))["sampling"] == expected


@pytest.mark.full
def test_local_dp_sgd_is_priced_by_record(tmp_path):
    """20 steps of multiplier 1 at rate .1: the same events as a dpsgd training of this tool."""
    lot = Sampling("poisson", population=100, cohort=10, unit="record")
    local = Gaussian(clip=1.0, noise_std=1.0, of="record", steps=20, sampling=lot)
    with Recorder(tmp_path / "s", NET, mechanism=local, strict=True) as rec:
        rec.broadcast(0, START)
        rec.upload(0, 0, vector(0), num_examples=100)
    record = epsilon(tmp_path / "s", unit="record")
    assert 1 < record < 10 and statuses(tmp_path / "s")["noise"] == "declared"
    assert epsilon(tmp_path / "s") > 100


def test_a_network_in_float64_is_asked_in_float64_and_sent_in_float32(tmp_path):
    """Tensors of a setup are float32, whatever was sent."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(36, 40), nn.ReLU(), nn.Linear(40, 3)).double()
    inputs, targets = torch.rand(4, 1, 6, 6).double(), torch.tensor([0, 1, 2, 0])
    with Recorder(tmp_path / "s", net, share="gradient", strict=True) as rec:
        rec.broadcast(0, net)
        loss = nn.functional.cross_entropy(net(inputs), targets)
        sent = torch.autograd.grad(loss, list(net.parameters()))
        rec.upload(0, 0, list(sent), num_examples=4, records=(inputs, targets))
    setup, _ = check_setup(tmp_path / "s")
    assert setup.manifest.data.classes == 3


def test_nothing_declared_proves_nothing(tmp_path):
    with Recorder(tmp_path / "s", NET, strict=True) as rec:
        one_round(rec, 0)
    row = next(row for row in table(tmp_path / "s").rows if row.observer == "server")
    assert row.proven == inf and "is declared" in " ".join(row.notes)


# --- hostile recordings: one sentence each, nothing lost


def refused(call, *words: str) -> str:
    with pytest.raises(BadInput) as caught:
        call()
    said = str(caught.value)
    assert "\n" not in said and len(said) < 400 and all(word in said for word in words), said
    return said


def test_calls_out_of_turn(tmp_path):
    with Recorder(tmp_path / "s", NET, mechanism=NOISE, strict=True) as rec:
        refused(lambda: rec.upload(0, 0, START, 5), "broadcast", "first")
        refused(lambda: rec.broadcast(1, START), "expected round 0")
        rec.broadcast(0, START)
        refused(lambda: rec.broadcast(0, START), "expected round 1")
        refused(lambda: rec.broadcast(2, START), "expected round 1")
        refused(lambda: rec.upload(1, 0, START, 5), "round 0 is the one that goes on")
        refused(lambda: rec.raw(0, 0, START), "record its upload first")
        for client in (-1, 1.5, "a", True):
            refused(lambda client=client: rec.upload(0, client, START, 5), "expected a number from 0 on")
        rec.upload(0, 0, vector(0) + noise(0), 5)
    setup, _ = check_setup(tmp_path / "s")
    assert len(setup.messages) == 2 and epsilon(tmp_path / "s") < inf


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: {**s, "1.bias": torch.full((40,), torch.nan)}, ("'1.bias'", "not finite")),
        (lambda s: {**s, "1.bias": torch.zeros(41)}, ("'1.bias'", "(41,)", "(40,)")),
        (lambda s: {n: v for n, v in s.items() if n != "1.bias"}, ("'1.bias'", "missing")),
        (lambda s: {**s, "more": torch.zeros(1)}, ("'more'", "new")),
        (lambda s: [*s.values()][:2], ("2 arrays", "4 tensors")),
        (lambda s: torch.zeros(7), ("(7,)",)),
        (lambda s: "weights.pt", ("weights.pt", "pickle")),
        (lambda s: 3, ("int", "state dict")),
        (lambda s: {**s, "1.bias": "x"}, ("'1.bias'", "str")),
    ],
)
def test_what_is_not_the_models_is_refused_and_proves_nothing_as_it_was_sent(change, words, tmp_path):
    with Recorder(tmp_path / "s", NET, mechanism=NOISE, strict=True) as rec:
        rec.broadcast(0, START)
        rec.upload(0, 0, vector(0) + noise(0), num_examples=5)
        refused(lambda: rec.upload(0, 1, change(START), 5), "upload of client 1 in round 0", *words)
    setup, auditor = check_setup(tmp_path / "s")
    assert [m.sender for m in setup.messages if m.sender != "server"] == ["client-0"]
    assert epsilon(tmp_path / "s") == inf and auditor.ledger.participations() == {0: 1, 1: 1}
    assert "the recording" in " ".join(table(tmp_path / "s").rows[0].notes)


def test_a_client_twice_in_a_round_and_no_records(tmp_path):
    with Recorder(tmp_path / "s", NET, mechanism=NOISE, strict=True) as rec:
        one_round(rec, 0)
        refused(lambda: rec.upload(0, 1, START, 5), "once a round")
        for count in (0, -3, 2.5, None, True):
            refused(lambda count=count: rec.upload(0, 2, START, count), "num_examples", "from 1 on")
    setup, _ = check_setup(tmp_path / "s")
    sent = next(m for m in setup.messages if m.sender == "client-1")
    assert torch.equal(setup.load(sent), vector(1) + noise(1))  # the first one


def test_two_recorders_on_one_folder(tmp_path):
    with Recorder(tmp_path / "s", NET, mechanism=NOISE, strict=True) as rec:
        one_round(rec, 0)
        refused(lambda: Recorder(tmp_path / "s", NET, mechanism=NOISE, strict=True), "writing here")
    refused(lambda: Recorder(tmp_path / "s", NET, mechanism=NOISE, strict=True), "holds a setup already")
    assert check_setup(tmp_path / "s")[0].manifest.rounds == 1


def test_calls_after_the_end_change_nothing(tmp_path):
    rec = Recorder(tmp_path / "s", NET, mechanism=NOISE, strict=True)
    one_round(rec, 0)
    refused(lambda: finish(tmp_path / "s"), "writing here")  # `audit import` while it records
    rec.close()
    before = content(tmp_path / "s", but=())
    for call in (
        lambda: rec.upload(0, 0, START, 5),
        lambda: rec.raw(0, 0, START),
        lambda: rec.again(0, 0, START),
        lambda: rec.declare(0, NOISE),
        lambda: rec.figures(0, test_loss=1.0),
        lambda: rec.candidates(np.ones((2, 36)), np.ones(2), [0, -1]),
    ):
        refused(call, "closed")
    rec.abandon()
    refused(lambda: finish(tmp_path / "s"), "no unfinished recording")
    assert rec.close() == tmp_path / "s" and content(tmp_path / "s", but=()) == before


def test_a_recording_that_cannot_close_is_left_by_its_block(tmp_path):
    """Whoever comes next is told what is there, and not that somebody writes."""
    with pytest.raises(BadInput, match="no client uploaded"), Recorder(tmp_path / "s", NET, strict=True) as rec:
        rec.broadcast(0, START)
    with Recorder(tmp_path / "s", NET, strict=True) as rec:
        one_round(rec, rec.next_round)
    assert check_setup(tmp_path / "s")[0].manifest.rounds >= 1


def test_an_exception_keeps_whole_rounds_and_the_same_recorder_goes_on(tmp_path):
    whole = tmp_path / "whole"
    with Recorder(whole, NET, mechanism=NOISE, strict=True) as rec:
        for t in range(3):
            one_round(rec, t)
    with pytest.raises(KeyError), Recorder(tmp_path / "s", NET, mechanism=NOISE, strict=True) as rec:
        one_round(rec, 0)
        one_round(rec, 1)
        rec.broadcast(2, START)
        raise KeyError
    with pytest.raises(BadInput, match=r"unfinished.*audit import"):
        open_setup(tmp_path / "s")
    refused(
        lambda: Recorder(tmp_path / "s", NET, mechanism=Gaussian(clip=2.0, noise_std=0.5), strict=True),
        "another mechanism",
    )
    with Recorder(tmp_path / "s", NET, mechanism=NOISE, strict=True) as rec:
        assert rec.next_round == 2
        refused(lambda: rec.broadcast(0, START), "expected round 2", "whole round is 1")
        one_round(rec, 2)
    assert content(tmp_path / "s", but=()) == content(whole, but=())


KILLED = """
import sys, time, torch
from torch import nn
from dpfl_audit import Gaussian, Recorder
torch.manual_seed(0)
net = nn.Linear(30, 10)
rec = Recorder(sys.argv[1], net, mechanism=Gaussian(clip=1, noise_std=.5), strict=True)
for t in range(10_000):
    rec.broadcast(t, net.state_dict())
    for c in range(4):
        rec.upload(t, c, net.state_dict(), num_examples=3)
"""


def test_kill_minus_nine_keeps_every_whole_round(tmp_path):
    folder = tmp_path / "s"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(folder)])
    while not (folder / ".work" / "round-0003.json").exists() and process.poll() is None:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    rounds = len(list((folder / ".work").glob("round-*.json")))
    assert rounds >= 4
    finish(folder)
    setup, _ = check_setup(folder)
    assert setup.manifest.rounds == rounds and len(setup.messages) == 5 * rounds


def test_nothing_recorded_makes_no_setup(tmp_path):
    rec = Recorder(tmp_path / "s", NET, strict=True)
    rec.broadcast(0, START)
    refused(rec.close, "no client uploaded anything")
    rec.abandon()


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    refused(lambda: Recorder(tmp_path, NET, strict=True), "not empty")
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_records_are_checked_and_an_upload_is_kept_without_them(tmp_path):
    x, y = torch.rand(5, 1, 6, 6), torch.arange(5) % 3
    with Recorder(tmp_path / "s", NET, mechanism=NOISE, strict=True) as rec:
        rec.broadcast(0, START)
        rec.upload(0, 0, vector(0) + noise(0), 5, records=(x, y))
        for records, words in (
            ((3 * x, y), "pixels"),
            ((x, y + 7), "class numbers"),
            ((x, y[:2]), "(2,)"),
            (x, "inputs"),
        ):
            c = len(rec._open.uploads)
            said = refused(lambda c=c, records=records: rec.upload(0, c, vector(c) + noise(c), 5, records=records))
            assert words in said
    setup, auditor = check_setup(tmp_path / "s")
    assert len(setup.messages) == 6 and epsilon(tmp_path / "s") < inf
    assert [*auditor.truth.messages.values()] == [(0, 1, 2, 3, 4)]
    assert torch.equal(auditor.truth.inputs, x)


def test_records_as_the_network_gets_them_are_turned_back(tmp_path):
    x, y = torch.rand(5, 1, 6, 6), torch.arange(5) % 3
    facts = {"mean": [0.5], "std": [0.5], "normalised": True}
    with Recorder(tmp_path / "s", NET, mechanism=NOISE, data=facts, strict=True) as rec:
        rec.broadcast(0, START)
        rec.upload(0, 0, vector(0) + noise(0), 5, records=((x - 0.5) / 0.5, y))
    setup, auditor = check_setup(tmp_path / "s")
    assert torch.allclose(auditor.truth.inputs, x, atol=1e-6)
    with torch.no_grad():
        module = setup.module()
        module.load_state_dict(setup.layout.split(setup.load(next(m for m in setup.messages if m.sender == "server"))))
        assert torch.allclose(module(x), NET((x - 0.5) / 0.5), atol=1e-5)


def test_a_truth_less_recording_says_nothing_of_private_values_in_public_files(tmp_path):
    """Raw values are compared and forgotten: none of them is in any file, before and after closing."""
    raw = vector(0)
    with Recorder(tmp_path / "s", NET, mechanism=NOISE, strict=True) as rec:
        one_round(rec, 0)
        rec.raw(0, 0, raw)
        rec.raw(0, 1, vector(1))
        rec.broadcast(1, START)
        during = content(tmp_path / "s", but=())
        (tmp_path / "noise.safetensors").write_bytes(during[".work/noise-0000.safetensors"])
    for held in (during, content(tmp_path / "s", but=())):
        assert not any(raw[100:104].numpy().tobytes() in data for data in held.values())
    with pytest.raises(AssertionError):  # what stands in .work is no noise of these coordinates
        left = load_file(tmp_path / "noise.safetensors")["noise"][0]
        assert torch.allclose((vector(0) + noise(0) - raw) / 0.5, left[:DIM].float(), atol=1e-3)
    assert re.search("checked", (tmp_path / "s" / "auditor" / "declared.json").read_text())


# --- the network, and what attacks need of it

OWN = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.head = nn.Linear(4 * 16, 3)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).flatten(1))
"""


def test_a_class_of_ones_own_is_named_and_imported_only_by_the_users_word(tmp_path, monkeypatch):
    (tmp_path / "my_net_of_a_test.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    net = __import__("my_net_of_a_test").Net()
    with Recorder("s", net, mechanism=NOISE, strict=True) as rec:
        rec.broadcast(0, net)
        rec.upload(0, 0, [torch.zeros_like(p) for p in net.parameters()], 5, records=(torch.rand(5, 1, 6, 6), [0] * 5))
    setup, _ = check_setup(Path("s"))
    assert setup.manifest.model.name == "my_net_of_a_test:Net" and setup.manifest.data.classes == 3
    with pytest.raises(BadInput, match="--allow-model my_net_of_a_test:Net"):
        setup.module()
    module = setup.module("my_net_of_a_test:Net")
    module.load_state_dict(setup.layout.split(setup.load(setup.messages[0])) | module.state_dict())
    assert module(torch.rand(2, 1, 6, 6)).shape == (2, 3)


@pytest.mark.filterwarnings("ignore:model. ε is priced")
def test_what_is_sent_beside_parameters_is_kept_and_no_network_is_made_of_it(tmp_path):
    """A BatchNorm's running statistics go over the wire too."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    data = {"input_shape": [1, 6, 6], "classes": 3}
    with Recorder(tmp_path / "s", net, mechanism=NOISE, share="weights", data=data, strict=True) as rec:
        rec.broadcast(0, net)
        rec.upload(0, 0, net, num_examples=5)
    setup, _ = check_setup(tmp_path / "s")
    assert setup.layout.dim == sum(v.numel() for v in net.state_dict().values())
    with pytest.raises(BadInput, match="no network that can be built again"):
        setup.module()


def test_candidates_make_membership_measurable(tmp_path):
    from dpfl_audit.audit import run as runner

    torch.manual_seed(1)
    x, y = torch.rand(40, 1, 6, 6), torch.arange(40) % 3
    with Recorder(tmp_path / "s", NET, mechanism=NOISE, data={"by_lot": True}, strict=True) as rec:
        rec.candidates(x, y, [0] * 20 + [-1] * 20)
        rec.broadcast(0, START)
        rec.upload(0, 0, vector(0) + noise(0), num_examples=20, records=(x[:20], y[:20]))
        rec.broadcast(1, START)
    options = runner.RunOptions(attacks=("membership-loss", "membership-cosine"), pixels_only=True)
    results = runner.run(tmp_path / "s", tmp_path / "r", options)
    assert {a.attack for a in results.attacks} == {"membership-loss", "membership-cosine"}
    assert all(a.value("auc") is not None for a in results.attacks)
    with pytest.raises(BadInput, match="shadow"):
        runner.run(tmp_path / "s", tmp_path / "t", runner.RunOptions(attacks=("membership-lira",), pixels_only=True))


def test_candidates_count_as_the_records_of_uploads_say(tmp_path):
    """Five members that are called nobody's, and five outsiders that are called client 0's: scores of these would hide
    any leak.
    """
    torch.manual_seed(1)
    x, y = torch.rand(40, 1, 6, 6), torch.arange(40) % 3
    right = [0] * 20 + [-1] * 20
    for name, called in (("right", right), ("wrong", [-1] * 5 + [0] * 15 + [0] * 5 + [-1] * 15)):
        with Recorder(tmp_path / name, NET, mechanism=NOISE, data={"by_lot": True}, strict=True) as rec:
            rec.candidates(x, y, called)
            for t in range(2):
                rec.broadcast(t, START)
                half = slice(0, 10) if t else slice(10, 20)  # another half of its records every round
                rec.upload(t, 0, vector(t) + noise(t), num_examples=10, records=(x[half], y[half]))
        _, auditor = check_setup(tmp_path / name)
        assert json.loads((tmp_path / name / "truth" / "membership.json").read_text())["client"] == right
        found = [d.why for d in auditor.declared if d.what == "candidates"]
        assert len(found) == (name == "wrong") and all("nobody's" in why and "5" in why for why in found)


def test_secure_aggregation_is_declared_and_asks_about_sums(tmp_path):
    """Four clients of noise .5: a quarter of the bound behind half of the noise, so twice the multiplier."""
    with Recorder(
        tmp_path / "s", NET, claim=8, mechanism=NOISE, average="mean", secure_aggregation=True, strict=True
    ) as rec:
        one_round(rec, 0, clients=4)
        rec.broadcast(1, START)
    setup, _ = check_setup(tmp_path / "s")
    assert str(setup.config.audit.observer) == str(setup.claim.observer) == "aggregate"
    row = next(r for r in table(tmp_path / "s").rows if r.asked)
    assert row.claimed == 8 and row.proven == pytest.approx(get_epsilon_gaussian(1.0, 1e-5))
    assert statuses(tmp_path / "s")["secure aggregation"] == "declared"


@pytest.mark.few(2)
@pytest.mark.parametrize("law", [Gaussian, Laplace])
@pytest.mark.parametrize("by", ["client", "server"])
def test_clip_and_noise_are_said_to_be_public_numbers_or_prove_nothing(law, by, tmp_path):
    """A median of the round's own norms stands in the broadcasts as the size of their noise: 2.35 was printed, with no
    sentence that would be false."""
    rng = np.random.default_rng(0)
    drawn = rng.normal if law is Gaussian else rng.laplace
    for scale in ("public", "private"):
        with Recorder(tmp_path / scale, WHOLE, average="mean", strict=True) as rec:
            model = WHOLE["w"].double()
            for t, clip in enumerate((1.0, 1.0, 0.5, 0.5)):
                rec.broadcast(t, [model.float()], mechanism=law(clip, 3 * clip, by=by, scale=scale))
                noises = [torch.tensor(drawn(0, 3 * clip, DIM)) for _ in range(2)]
                model = model + sum(noises) / 2 if by == "client" else model + noises[0]
                for c, sent in enumerate(noises if t < 3 else ()):
                    rec.upload(t, c, [sent.float() if by == "client" else torch.zeros(DIM)], num_examples=5)
    rows = {scale: table(tmp_path / scale, observers=["downlink", "aggregate"]).rows for scale in ("public", "private")}
    assert all(row.proven == inf for row in rows["private"])
    found = {scale: next(d for d in check_setup(tmp_path / scale)[1].declared if d.what == SETTINGS) for scale in rows}
    assert {one.status for one in found.values()} == {"declared"} and found["private"].said != found["public"].said
    assert found["public"].why.startswith("in 1 of 3 rounds")
    finite = [row for row in rows["public"] if row.proven < inf]
    assert finite and all(any(found["public"].said in note for note in row.notes) for row in finite)


@pytest.mark.parametrize("secret", [False, True], ids=["uploads seen", "secure aggregation"])
def test_what_is_sent_without_noise_beside_an_upload_is_priced(secret, tmp_path):
    """A loss, sent after the last model went out: only sums are as they would be without it, if the server sees it."""
    for name in ("with", "without"):
        with Recorder(
            tmp_path / name, NET, mechanism=NOISE, average="mean", secure_aggregation=secret, strict=True
        ) as rec:
            one_round(rec, 0)
            rec.broadcast(1, START)
            if name == "with":
                rec.unnoised(1, 1, "loss")
    seers = ["server", "uplink", *(["aggregate"] if secret else [])]
    for observer in ("server", "uplink", "aggregate", "downlink"):
        alone = table(tmp_path / "without", observers=[observer]).rows
        beside = table(tmp_path / "with", observers=[observer]).rows
        places = [(one.proven, other.proven) for one, other in zip(alone, beside, strict=True)]
        assert all(one < inf and other == (inf if observer in seers else one) for one, other in places), observer
    assert statuses(tmp_path / "with")["completeness"] == "defect"


def test_a_close_that_is_killed_is_done_again(tmp_path, monkeypatch):
    from dpfl_audit.audit.record import closing

    def stop(*args):
        raise KeyboardInterrupt

    rec = Recorder(tmp_path / "s", NET, mechanism=NOISE, strict=True)
    one_round(rec, 0)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(closing, "write_sealed", stop)
        rec.close()
    rec.abandon()
    finish(tmp_path / "s")
    with Recorder(tmp_path / "whole", NET, mechanism=NOISE, strict=True) as rec:
        one_round(rec, 0)
    assert content(tmp_path / "s", but=()) == content(tmp_path / "whole", but=())


def test_what_was_recorded_before_and_after_a_kill_is_judged_together(tmp_path):
    for t in range(2):
        rec = Recorder(tmp_path / "s", NET, mechanism=NOISE, strict=True)
        one_round(rec, t)
        for c in range(2):
            rec.raw(t, c, vector(10 * t + c))
        rec.broadcast(t + 1, START)
        rec.abandon()
    finish(tmp_path / "s")
    found = {d.what: d for d in check_setup(tmp_path / "s")[1].declared}
    assert "4 messages" in found["noise"].why
    # A generator that is seeded again after the kill repeats its noise where no pair is compared (fresh eyes).
    assert found["independence"].status == "declared" and "(2 pairs)" in found["independence"].why


# --- Laplace


SCALE = 5e-4  # beside it a value of L1 norm 1, spread over 1,600 numbers, is to be seen
SPIKY = Laplace(clip=1.0, noise_scale=SCALE)


def spiky(seed: int, scale: float = SCALE) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).laplace(scale=scale, size=DIM)).float()


def in_l1(seed: int, norm: float) -> torch.Tensor:
    value = vector(seed)
    return norm * value / value.abs().sum()


def recorded_laplace(folder: Path, drawn, raw: float = 3.0, sent: float = 1.0, **declared) -> None:
    with Recorder(folder, WHOLE, mechanism=replace(SPIKY, **declared), strict=True) as rec:
        for t in range(2):
            rec.broadcast(t, WHOLE)
            for c in range(2):
                seed = 10 * t + c
                rec.upload(t, c, in_l1(seed, sent) + drawn(seed), num_examples=5)
                rec.raw(t, c, in_l1(seed, raw))


def test_laplace_is_priced_by_its_l1_clip_and_checked(tmp_path):
    """Two releases of ε = C/b = 2,000 each; two rounds add up to at most 4,000 at any δ (less by the PLD)."""
    recorded_laplace(tmp_path / "s", spiky)
    found = statuses(tmp_path / "s")
    assert (found["norm bound"], found["noise"], found["independence"]) == ("checked", "checked", "checked")
    setup, auditor = check_setup(tmp_path / "s")
    assert faults(setup, auditor) == [] and setup.manifest.facts.clip_order == 1
    assert setup.manifest.facts.noise_multiplier == pytest.approx(SCALE)
    assert 3000 < epsilon(tmp_path / "s") <= 4000 < epsilon(tmp_path / "s", adjacency="replace_one")


@pytest.mark.parametrize(
    ("drawn", "sent"),
    [
        (lambda seed: spiky(seed, SCALE * 2 / 3), 1.0),  # too small
        (lambda seed: spiky(seed, SCALE * 3 / 2), 1.0),  # another size than priced
        (
            lambda seed: SCALE * 2**0.5 * torch.randn(DIM, generator=torch.Generator().manual_seed(seed)),
            1.0,
        ),  # Gaussian
        (spiky, 3.0),  # not clipped
        (spiky, 1.3),  # clipped to another norm, in four messages of little noise
    ],
)
def test_laplace_that_is_not_as_declared_proves_nothing(drawn, sent, tmp_path):
    recorded_laplace(tmp_path / "s", drawn, sent=sent)
    assert "contradicted" in statuses(tmp_path / "s").values() and epsilon(tmp_path / "s") == inf


@pytest.mark.full
def test_a_right_laplace_is_seldom_contradicted(tmp_path):
    """20 recordings of 4 messages; a check says so by chance less than once in a hundred thousand."""
    for i in range(20):
        recorded_laplace(tmp_path / str(i), lambda seed, i=i: spiky(1000 * i + seed))
        assert "contradicted" not in statuses(tmp_path / str(i)).values(), i


def test_two_runs_of_a_round_show_laplace_noise(tmp_path):
    """The difference of two Laplace draws over √2 has the density (1 + |x|/b)e^(−|x|/b)/4b, b = ½."""
    for scale, status in ((SCALE, "checked"), (0.6 * SCALE, "contradicted")):
        folder = tmp_path / str(scale)
        with Recorder(folder, WHOLE, mechanism=SPIKY, strict=True) as rec:
            rec.broadcast(0, WHOLE)
            for c in range(2):
                rec.upload(0, c, in_l1(c, 1.0) + spiky(c, scale), num_examples=5)
                rec.again(0, c, in_l1(c, 1.0) + spiky(100 + c, scale))
        assert statuses(folder)["noise"] == status


def test_a_servers_laplace_noise_is_what_the_next_model_has_beside_the_mean(tmp_path):
    mechanism = Laplace(clip=1.0, noise_scale=0.05, by="server")
    model = WHOLE["w"]
    with Recorder(tmp_path / "s", WHOLE, mechanism=mechanism, average="mean", strict=True) as rec:
        for t in range(2):
            rec.broadcast(t, model)
            for c in range(2):
                rec.upload(t, c, in_l1(c, 1.0), num_examples=5)
            model = model + (in_l1(0, 1.0) + in_l1(1, 1.0)) / 2 + spiky(t, 0.05)
        rec.broadcast(2, model)
    assert statuses(tmp_path / "s")["noise"] == "checked"
    assert epsilon(tmp_path / "s", "downlink") == pytest.approx(20, abs=4)  # a client moves each mean by ½ in L1


def test_an_l2_clip_bounds_no_l1_norm(tmp_path):
    """A value of L2 norm 1 spread over 1,600 numbers is up to 40 long in L1."""
    with Recorder(tmp_path / "s", NET, mechanism=SPIKY, strict=True) as rec:
        rec.broadcast(0, START)
        rec.upload(0, 0, vector(0, 1.0) + spiky(0), num_examples=5)
        rec.raw(0, 0, vector(0, 1.0))
    assert "contradicted" in statuses(tmp_path / "s").values()


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"clip": 0, "noise_scale": 1}, "clip = 0 must be a number above 0"),
        ({"clip": 1, "noise_scale": -1}, "noise_scale = -1"),
        ({"clip": 1, "noise_scale": 1, "by": "nobody"}, "by = 'nobody'"),
        ({"clip": 1, "noise_scale": 1, "sampling": Sampling("poisson", 10, 2)}, "goes with by = 'server'"),
        ({"clip": 1, "noise_scale": 1, "sampling": Sampling("without_replacement", 10, 2)}, "expected Sampling"),
    ],
)
def test_a_laplace_that_cannot_be_is_refused(numbers, words):
    with pytest.raises(BadInput, match=re.escape(words)):
        Laplace(**numbers)
