"""Of a state dict: running statistics, counters of batches and what never changes, beside what is trained."""

from __future__ import annotations

import re
from math import inf
from pathlib import Path

import pytest
import torch
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.proven.table import table
from dpfl_audit.audit.record.declared import OUTSIDE, STATISTICS_CLIP, STATISTICS_NOISE
from dpfl_audit.audit.record.mechanism import Declared, Gaussian
from dpfl_audit.audit.record.outside import counts_batches
from dpfl_audit.audit.record.recorder import Recorder
from dpfl_audit.audit.setup.auditor import check_setup
from dpfl_audit.defenses.releases import Sampling
from torch import Tensor, nn

pytestmark = pytest.mark.filterwarnings("ignore:model. ε is priced")

STD = 0.05
NET = nn.Sequential(nn.Flatten(), nn.Linear(36, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 10))
START = {name: value.clone() for name, value in NET.state_dict().items()}
FLOATS = [name for name, value in START.items() if value.is_floating_point()]
PARAMETERS = [name for name, _ in NET.named_parameters()]
COUNTER = "2.num_batches_tracked"
EQUAL = (20, 20, 20, 20)


def recorded(
    folder: Path,
    noisy: list[str] = FLOATS,
    *,
    moving: list[str] = FLOATS,
    raw: int = 4,
    sizes: tuple[int, ...] = EQUAL,
    batches=lambda client, n: -(-n // 5),
    share: str = "weights",
    by: str = "client",
    mechanism: Declared | None = None,
    rounds: int = 3,
    net: nn.Module = NET,
):
    """Whole state dicts; `noisy` tensors are clipped together and get noise, `moving` ones change at all."""
    draw = torch.Generator().manual_seed(0)
    model = {name: value.clone() for name, value in START.items()}

    def clipped(change: dict[str, Tensor]) -> dict[str, Tensor]:
        norm = torch.cat([change[name].flatten() for name in noisy]).norm()
        return {name: v / max(1.0, float(norm)) if name in noisy else v for name, v in change.items()}

    def with_noise(change: dict[str, Tensor]) -> dict[str, Tensor]:
        return {n: v + STD * torch.randn(v.shape, generator=draw) if n in noisy else v for n, v in change.items()}

    with Recorder(
        folder, net, share=share, average="mean", mechanism=mechanism or Gaussian(1.0, STD, by=by), strict=True
    ) as rec:
        for t in range(rounds + 1):
            rec.broadcast(t, model)
            if t == rounds:
                break
            updates = []
            for client, n in enumerate(sizes):
                change = {
                    name: torch.randn(START[name].shape, generator=draw) * (name in moving) * 0.1 for name in FLOATS
                }
                change[COUNTER] = torch.tensor(batches(client, n))
                sent = change if by == "server" else with_noise(clipped(change))
                updates.append(clipped(change) if by == "server" else sent)
                start = model if share == "weights" else dict.fromkeys(model, 0)
                rec.upload(t, client, {name: start[name] + sent[name] for name in model}, num_examples=n)
                if client < raw and by == "client":
                    rec.raw(t, client, {name: start[name] + change[name] for name in model})
            mean = {name: sum(u[name] for u in updates) / len(updates) for name in model}
            mean = with_noise(mean) if by == "server" else mean
            model = {name: (value + mean[name]).to(value.dtype) for name, value in model.items()}
    return {d.what: d for d in check_setup(folder)[1].declared}


def contradicted(found) -> list[str]:
    return [d.what for d in found.values() if d.status == "contradicted"]


def epsilon(folder: Path) -> float:
    return min(row.proven for row in table(folder).rows)


@pytest.mark.parametrize(("share", "sizes"), [("weights", (20, 7, 33, 48)), ("update", EQUAL)])
def test_a_counter_of_batches_beside_noise_on_all_the_rest_is_right(tmp_path, share, sizes):
    found = recorded(tmp_path / "s", share=share, sizes=sizes)
    both = (STATISTICS_CLIP, STATISTICS_NOISE)
    assert [found[what].status for what in ("norm bound", "noise", "independence", *both)] == ["checked"] * 5
    assert "num_batches_tracked" in found[OUTSIDE].said and epsilon(tmp_path / "s") < inf


def test_the_same_without_raw_values_and_by_a_server_is_not_contradicted(tmp_path):
    assert contradicted(recorded(tmp_path / "s", raw=0)) == []
    found = recorded(tmp_path / "t", by="server")
    assert contradicted(found) == [] and found["noise"].status == "checked"
    # No update is longer than the bound, so nothing shows the clip; "checked" was said of clip and noise together.
    assert (found["norm bound"].status, found[STATISTICS_CLIP].status) == ("declared", "declared")
    assert found[STATISTICS_NOISE].status == "checked"


@pytest.mark.parametrize("raw", [1, 4])
def test_running_statistics_without_noise_are_named_and_prove_nothing(tmp_path, raw):
    found = recorded(tmp_path / "s", PARAMETERS, raw=raw)
    assert contradicted(found) == ["noise"] and epsilon(tmp_path / "s") == inf
    assert found["noise"].why.startswith("the running statistics '2.running_mean', '2.running_var' are sent")


def test_running_statistics_that_a_server_leaves_without_noise_are_named(tmp_path):
    found = recorded(tmp_path / "s", PARAMETERS, by="server")
    assert contradicted(found) == ["noise"] and "next model" in found["noise"].why


def test_statistics_that_never_change_and_frozen_layers_need_no_noise(tmp_path):
    found = recorded(tmp_path / "s", PARAMETERS, moving=PARAMETERS, batches=lambda client, n: 0)
    assert contradicted(found) == [] and found["noise"].status == "checked"
    frozen = nn.Sequential(nn.Flatten(), nn.Linear(36, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 10))
    frozen[1].requires_grad_(False)
    head = [name for name in PARAMETERS if not name.startswith("1.")]
    found = recorded(tmp_path / "t", head, moving=head, batches=lambda client, n: 0, net=frozen)
    assert contradicted(found) == [] and "1.weight" not in found[OUTSIDE].said  # nobody sends it
    moved = contradicted(recorded(tmp_path / "u", head, moving=PARAMETERS, net=frozen))
    assert moved == ["frozen parameters"]  # it was not


def test_a_counter_that_tells_more_than_the_number_of_records_proves_nothing(tmp_path):
    found = recorded(tmp_path / "s", batches=lambda client, n: 4 + (client == 2))
    assert contradicted(found) == ["noise"] and {"4", "5", "20"} <= set(re.findall(r"\d+", found["noise"].why))


def test_noise_on_gradients_is_none_on_running_statistics(tmp_path):
    lot = Sampling("poisson", 20, 5, unit="record")
    said = Gaussian(1.0, 1.0, of="record", steps=4, sampling=lot)
    found = recorded(tmp_path / "s", PARAMETERS, mechanism=said)
    assert contradicted(found) == ["noise"] and "gradients" in found["noise"].why
    assert "mixes records" in found["norm bound"].why
    right = recorded(tmp_path / "t", PARAMETERS, mechanism=said, moving=PARAMETERS)
    assert contradicted(right) == [] and right["noise"].status == "declared"


def test_counters_that_differ_tell_who_was_drawn_in_secret(tmp_path):
    lot = Sampling("poisson", 20, 4)
    for sizes, told in ((EQUAL, False), ((20, 20, 20, 60), True)):
        said = Gaussian(1.0, STD, by="server", sampling=lot)
        found = recorded(tmp_path / str(told), by="server", mechanism=said, sizes=sizes)
        assert ("noise" in contradicted(found)) == told


def test_buffers_that_stay_with_clients_are_left_out_of_the_broadcast(tmp_path):
    with Recorder(tmp_path / "s", NET, strict=True) as rec:
        rec.broadcast(0, START)
        with pytest.raises(BadInput, match=r"broadcast without it, as dict\(net.named_parameters"):
            rec.upload(0, 0, {name: START[name] for name in PARAMETERS}, num_examples=5)
        rec.abandon()
    with Recorder(tmp_path / "t", NET, strict=True) as rec:
        rec.broadcast(0, dict(NET.named_parameters()))
        rec.upload(0, 0, [START[name] for name in PARAMETERS], num_examples=5)


@pytest.mark.parametrize("down", [False, True])
def test_every_size_of_a_batch_explains_its_counters(down):
    for batch in (1, 3, 8, 50):
        for epochs in (1, 2, 5):
            counts = [(n, epochs * (n // batch if down else -(-n // batch))) for n in (8, 20, 33, 57, 100)]
            assert counts_batches(counts), (batch, epochs)
    assert not counts_batches([(20, 4), (40, 3)]) and not counts_batches([(20, 0), (20, 1)])


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(40, 40), nn.Linear(40, 40)
        self.second.weight = self.first.weight


@pytest.mark.parametrize("by", ["client", "record"])
def test_tied_weights_that_are_sent_twice_need_no_noise_of_their_own(tmp_path, by):
    net, draw = Tied(), torch.Generator().manual_seed(0)
    lot = Sampling("poisson", 20, 5, unit="record")
    said = Gaussian(1.0, STD) if by == "client" else Gaussian(1.0, 1.0, of="record", steps=4, sampling=lot)

    def twice(change: dict[str, Tensor]) -> dict[str, Tensor]:
        return {**change, "second.weight": change["first.weight"]}

    with Recorder(tmp_path / "s", net, mechanism=said, strict=True) as rec:
        for t in range(3):
            rec.broadcast(t, net)
            change = {name: torch.randn(v.shape, generator=draw) for name, v in net.named_parameters()}
            norm = torch.cat([v.flatten() for v in change.values()]).norm()
            sent = {name: v / norm + STD * torch.randn(v.shape, generator=draw) for name, v in change.items()}
            rec.upload(t, 0, twice(sent), num_examples=20)
            rec.raw(t, 0, twice(change))
    found = {d.what: d for d in check_setup(tmp_path / "s")[1].declared}
    assert contradicted(found) == [] and found["noise"].status == ("checked" if by == "client" else "declared")


def test_running_statistics_of_a_bare_state_dict_are_known_by_their_names(tmp_path):
    said = Gaussian(1.0, 1.0, of="record", steps=4, sampling=Sampling("poisson", 20, 5, unit="record"))
    with Recorder(tmp_path / "s", START, mechanism=said, strict=True) as rec:
        rec.broadcast(0, START)
        rec.upload(0, 0, {n: v.new_ones(v.shape) for n, v in START.items()}, num_examples=20)
    found = {d.what: d for d in check_setup(tmp_path / "s")[1].declared}
    assert contradicted(found) == ["noise"] and "'2.running_mean', '2.running_var'" in found["noise"].why
