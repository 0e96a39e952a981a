"""What attacks could not use is said while the owner can change it; what is priced without them stays recorded."""

from __future__ import annotations

import importlib
from math import inf, sqrt
from pathlib import Path

import pytest
import torch
from command import called
from dp_accounting import get_epsilon_gaussian
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.proven.table import table
from dpfl_audit.audit.record.mechanism import Gaussian
from dpfl_audit.audit.record.recorder import Recorder
from dpfl_audit.audit.record.usable import mixes_records
from dpfl_audit.audit.setup.auditor import check_setup
from tiers import but
from torch import Tensor, nn

NOISE = Gaussian(clip=1.0, noise_std=0.5)
pytestmark = pytest.mark.filterwarnings("ignore:model. ε is priced")
ROWS, CLASSES = torch.rand(5, 6, generator=torch.Generator().manual_seed(0)), torch.arange(5) % 3
NETS = """
import torch
from torch import nn

class Wide(nn.Module):
    def __init__(self, width=8, classes=3):
        super().__init__()
        self.first, self.last = nn.Linear(6, width), nn.Linear(width, classes)
    def forward(self, x): return self.last(torch.relu(self.first(x)))

class Needs(Wide):
    def __init__(self, width: int, depth: int, classes: int): super().__init__(width, classes)

class Plain(Wide):
    def __init__(self, width, classes): super().__init__(width, classes)

class Shaped(Wide):
    def __init__(self, shape, classes): super().__init__(8, classes); self.first = nn.Linear(shape[0], 8)

class Grown(Wide):
    def __init__(self, shape, classes, width=8):
        super().__init__(width, classes)

class Drawn(Wide):
    def __init__(self): super().__init__(); self.register_buffer("b", torch.rand(2))

def wide16(): return Wide(16, 3)

def wide8(): return Wide(8, 3)

def grown16(shape, classes): return Grown(shape, classes, width=16)

def raises(): raise OSError("no weights here")

number = 3
"""


@pytest.fixture
def nets(tmp_path, monkeypatch):
    (tmp_path / "nets_of_a_test.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return importlib.import_module("nets_of_a_test")


def recorded(folder: Path, net, records=None) -> Path:
    """Two rounds of one client, which sends whole state dicts."""
    start = net.state_dict() if isinstance(net, nn.Module) else net
    with Recorder(folder, net, mechanism=NOISE, strict=True) as rec:
        for t in range(2):
            rec.broadcast(t, start)
            noise = torch.Generator().manual_seed(t)
            rec.upload(
                t, 0, {n: 0.5 * torch.randn(v.shape, generator=noise) for n, v in start.items()}, 5, records=records
            )
    return folder


def proven(folder: Path) -> float:
    rows = table(folder).rows
    return next(r.proven for r in rows if (r.observer, r.unit, r.adjacency) == ("server", "client", "zero_out"))


TWO_ROUNDS = get_epsilon_gaussian(0.5 / sqrt(2), 1e-5)  # 15.46


# --- a class with a constructor of its own


@pytest.mark.parametrize("made", [lambda n: n.Wide(16, 3), lambda n: n.Needs(8, 2, 3), lambda n: n.Plain(8, 3)])
def test_a_constructor_of_other_arguments_is_told_when_the_recorder_opens(made, nets):
    with pytest.raises(BadInput, match=r"^model: an attack makes its network by .*, which .*net\.state_dict\(\)"):
        Recorder("s", made(nets), mechanism=NOISE, strict=True)
    assert not Path("s").exists()
    assert proven(recorded(Path("s"), made(nets).state_dict())) == pytest.approx(TWO_ROUNDS)  # as the sentence advises


def test_where_the_shape_of_a_record_decides_it_is_told_with_the_first_records(nets):
    net = nets.Grown((6,), 3, width=16)
    with Recorder("s", net, mechanism=NOISE, strict=True) as rec:
        rec.broadcast(0, net)
        with pytest.raises(BadInput, match=r"Grown\(\(6,\), 3\), which has no tensor"):
            rec.upload(0, 0, net, 5, records=(ROWS, CLASSES))
    with pytest.raises(BadInput, match=r"Grown\(\(6,\), 3\), which has no tensor"):
        Recorder("t", net, data={"input_shape": [6], "classes": 3}, strict=True)


@pytest.mark.parametrize("made", [lambda n: n.Wide(), lambda n: n.Shaped((6,), 3), lambda n: n.Drawn()])
def test_what_is_built_again_is_recorded_and_draws_nothing(made, nets):
    net, before = made(nets), torch.get_rng_state()
    folder = recorded(Path("s"), net, (ROWS, CLASSES))
    assert torch.equal(torch.get_rng_state(), before)
    setup, auditor = check_setup(folder)
    module = setup.module(f"nets_of_a_test:{type(net).__name__}")
    assert [v.shape for v in module.parameters()] == [v.shape for v in net.parameters()] and auditor.truth is not None


@pytest.mark.parametrize("build", ["nets_of_a_test:wide16", lambda n: n.wide16])
def test_a_constructor_of_other_arguments_is_built_by_what_its_owner_names(build, nets):
    net = nets.Wide(16, 3)
    given = build if isinstance(build, str) else build(nets)
    with Recorder("s", net, mechanism=NOISE, build=given) as rec:
        rec.broadcast(0, net)
        rec.upload(0, 0, net, 5, records=(ROWS, CLASSES))
    setup, auditor = check_setup(Path("s"))
    assert setup.manifest.model.name == setup.owners_code == "nets_of_a_test:wide16" and auditor.truth is not None
    module = setup.module("nets_of_a_test:wide16")
    assert [v.shape for v in module.parameters()] == [v.shape for v in net.parameters()]
    with pytest.raises(BadInput, match="--allow-model nets_of_a_test:wide16"):
        setup.module()


def test_a_builder_of_shapes_is_tried_with_the_first_records(nets):
    net = nets.Grown((6,), 3, width=16)
    with Recorder("s", net, build="nets_of_a_test:grown16", strict=True) as rec:
        rec.broadcast(0, net)
        rec.upload(0, 0, net, 5, records=(ROWS, CLASSES))
    assert check_setup(Path("s"))[0].module("nets_of_a_test:grown16") is not None


@pytest.mark.parametrize(
    ("build", "words"),
    [
        ("nets_of_a_test:wide8", "which has no tensor 'first.weight' of the same shape"),
        ("nets_of_a_test:raises", "OSError: no weights here"),
        ("nets_of_a_test:nobody", "nobody"),
        ("nets_of_a_test:number", "is a int; expected a function"),
        ("not_a_module_of_any:net", "not_a_module_of_any"),
        ("nets_of_a_test", 'expected "module:function"'),
        (lambda: None, 'expected "module:function", or the function, of a file of yours'),
    ],
)
def test_another_builder_is_told_when_the_recorder_opens(build, words, nets):
    with pytest.raises(BadInput, match=words):
        Recorder("s", nets.Wide(16, 3), build=build)
    with pytest.raises(BadInput, match="give the recorder the network as model too"):
        Recorder("s", nets.Wide(16, 3).state_dict(), build="nets_of_a_test:wide16")
    assert not Path("s").exists()


# --- records that no attack can use


class Tokens(nn.Module):
    """strict: as torch's own Embedding is; else it makes whole numbers of whatever comes."""

    def __init__(self, strict: bool = True) -> None:
        super().__init__()
        self.strict, self.table, self.last = strict, nn.Embedding(50, 4), nn.Linear(4, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.last(self.table(ids if self.strict else ids.long()).mean(1))


class Pixels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def stack() -> nn.Sequential:
    return nn.Sequential(nn.Embedding(50, 4), nn.Flatten(), nn.Linear(24, 3))


IDS, SEVERAL, IMAGES = torch.arange(30).reshape(5, 6), torch.ones(5, 3), torch.rand(5, 1, 4, 4)
UNUSABLE = {
    "token ids": (lambda: Tokens(), (IDS, CLASSES), "token ids"),
    "token ids made whole": (lambda: Tokens(strict=False), (IDS, CLASSES), "token ids"),
    "token ids of a stack": (stack, (IDS, CLASSES), "token ids"),
    "several labels": (lambda: nn.Linear(6, 3), (ROWS, SEVERAL), "say what was minimised"),
    "a label a pixel": (Pixels, (IMAGES, torch.zeros(5, 4, 4, dtype=torch.long)), "say what is minimised"),
    "a score a pixel": (Pixels, (IMAGES, CLASSES), r"gives shape \(1, 3, 4, 4\)"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_it_is_told_with_the_first_records_and_priced_without(case, tmp_path):
    made, records, words = UNUSABLE[case]
    net = made()
    sent = {n: 0.5 * torch.randn(v.shape) for n, v in net.state_dict().items()}
    with Recorder(tmp_path / "s", net, mechanism=NOISE, strict=True) as rec:
        rec.broadcast(0, net)
        with pytest.raises(BadInput, match=f"^upload of client 0 in round 0: .*{words}"):
            rec.upload(0, 0, sent, 5, records=records)
        with pytest.raises(BadInput, match=f"^candidates: .*{words}"):
            rec.candidates(*records, [0] * 5)
    setup, auditor = check_setup(tmp_path / "s")
    assert len(setup.messages) == 2 and auditor.truth is None and proven(tmp_path / "s") < inf


def test_what_no_attack_can_build_is_warned_of_when_the_recorder_opens(tmp_path):
    with pytest.warns(UserWarning, match="with Softmax cannot be built again") as caught:
        folder = recorded(tmp_path / "s", nn.Sequential(nn.Linear(6, 3), nn.Softmax(1)))
    assert caught[0].filename == __file__ and proven(folder) == pytest.approx(TWO_ROUNDS, rel=0.01)


@pytest.mark.parametrize("case", ["token ids", "token ids made whole", "a score a pixel"])
def test_it_is_told_at_once_where_the_shape_is_stated(case, tmp_path):
    made, records, words = UNUSABLE[case]
    with pytest.raises(BadInput, match=f"^model: .*{words}"):
        Recorder(tmp_path / "s", made(), data={"input_shape": [*records[0].shape[1:]], "classes": 3}, strict=True)
    assert not (tmp_path / "s").exists()


def test_classes_that_the_network_does_not_give_are_told_at_once(tmp_path):
    with pytest.raises(BadInput, match="gives 3 numbers for a record, and data says classes = 5"):
        Recorder(tmp_path / "s", nn.Linear(6, 3), data={"input_shape": [6], "classes": 5}, strict=True)


def test_whole_numbers_of_a_table_are_numbers(tmp_path):
    folder = recorded(tmp_path / "s", nn.Linear(6, 3), (IDS, CLASSES))
    assert torch.equal(check_setup(folder)[1].truth.inputs, IDS.float())


def test_a_trial_leaves_the_owners_network_as_it_was(tmp_path):
    """Modes of its layers one by one, gradients, hooks that only a backward pass calls."""
    net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 3))
    net[1].eval()
    called: list[object] = []
    net[0].register_full_backward_hook(lambda *_: called.append(1))
    before = {n: v.clone() for n, v in net.state_dict().items()}
    recorded(tmp_path / "s", net, (ROWS, CLASSES))
    assert [layer.training for layer in net] == [True, False, True, True] and net.training and called == []
    assert all(torch.equal(v, before[n]) for n, v in net.state_dict().items()) and net[0].weight.grad is None


@pytest.mark.parametrize(
    "renamed",
    [
        lambda name: f"_module.{name}",
        lambda name: f"module._orig_mod.{name}",
        lambda name: name.replace("1.", "1._fsdp_wrapped_module."),  # as where single blocks are sharded
    ],
)
def test_names_with_a_wrappers_prefix_are_the_models(renamed, tmp_path):
    net = nn.Sequential(nn.Flatten(), nn.Linear(8, 3))
    sent = {n: torch.randn(v.shape) for n, v in net.state_dict().items()}
    with Recorder(tmp_path / "s", net, strict=True) as rec:
        rec.broadcast(0, net)
        rec.upload(0, 0, {renamed(n): v for n, v in sent.items()}, 9)
        with pytest.raises(BadInput, match=r"'1.weight' is missing; .*what came are x.1.weight, y.1.bias"):
            rec.upload(0, 1, {"x.1.weight": sent["1.weight"], "y.1.bias": sent["1.bias"]}, 9)
    setup, _ = check_setup(tmp_path / "s")
    held = setup.load(next(m for m in setup.messages if m.sender == "client-0"))
    assert torch.equal(held, torch.cat([v.flatten() for v in sent.values()]))


WRAPPERS = ["DataParallel", "OptimizedModule", "GradSampleModule", "DistributedDataParallel"]


def wrapped(how: str, net: nn.Module, folder: Path) -> nn.Module:
    if how == "DataParallel":
        return nn.DataParallel(net)
    if how == "OptimizedModule":
        return torch.compile(net)
    if how == "GradSampleModule":
        return pytest.importorskip("opacus").GradSampleModule(net)
    store = torch.distributed.FileStore(str(folder / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    return nn.parallel.DistributedDataParallel(net)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", but(WRAPPERS, "OptimizedModule"))
def test_a_wrapper_is_taken_off_and_named(how, tmp_path, capsys):
    net = nn.Sequential(nn.Flatten(), nn.Linear(6, 3))
    try:
        outer = wrapped(how, net, tmp_path)
        with Recorder(tmp_path / "s", outer, mechanism=NOISE, strict=True) as rec:
            rec.broadcast(0, outer)
            rec.upload(0, 0, outer, 5, records=(ROWS, CLASSES))
    finally:
        if how == "DistributedDataParallel":
            torch.distributed.destroy_process_group()
    setup, auditor = check_setup(tmp_path / "s")
    assert setup.manifest.model.name == "layers" and auditor.truth is not None
    sent = setup.load(next(m for m in setup.messages if m.sender == "client-0"))
    assert torch.equal(sent, torch.cat([p.detach().flatten() for p in net.parameters()]))
    said = called(capsys, "check", str(tmp_path / "s"))[1]
    assert f"without its {how}" in said and "tensors without" in said


def test_a_part_of_a_model_is_not_taken_for_another_part(tmp_path):
    """The names of one tensor end as those of another do."""
    start = {"a.w": torch.zeros(2), "w": torch.zeros(2)}
    with Recorder(tmp_path / "s", start, strict=True) as rec:
        rec.broadcast(0, start)
        with pytest.raises(BadInput, match="'w' is missing"):
            rec.upload(0, 0, {"a.w": torch.ones(2)}, 9)
        rec.abandon()


# --- the noise as the field writes it


def test_a_noise_multiplier_is_the_noise_over_the_clip(tmp_path):
    assert Gaussian(clip=2.0, noise_multiplier=1.5) == Gaussian(clip=2.0, noise_std=3.0)
    told = Gaussian(clip=4.0, noise_multiplier=0.5)
    start = {"w": torch.zeros(200)}
    with Recorder(tmp_path / "s", start, mechanism=told, strict=True) as rec:
        rec.broadcast(0, start)
        rec.upload(0, 0, 2.0 * torch.randn(200), 5)
    assert proven(tmp_path / "s") == pytest.approx(get_epsilon_gaussian(0.5, 1e-5))


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"noise_std": 1.0, "noise_multiplier": 1.0},
        {"noise_multiplier": 1.0, "by": "server"},  # of a mean the sensitivity is clip over how many there are
        *({"noise_multiplier": value} for value in (0, -1, float("nan"), inf, "1", True)),
    ],
)
def test_one_of_both_is_given_and_is_a_number(facts):
    with pytest.raises(BadInput, match=r"^Gaussian: .*noise_multiplier"):
        Gaussian(clip=1.0, **facts)


def test_of_a_servers_sum_the_multiplier_is_over_the_clip():
    told = Gaussian(clip=2.0, noise_multiplier=1.5, by="server", on="sum")
    assert told.noise_std == 3.0 and told.on == "sum"


@pytest.mark.parametrize("batch_first", [True, False])
def test_a_network_that_mixes_the_records_of_a_batch_is_named(batch_first):
    """An LSTM that takes the batch for its time, whose output for a record follows those before it."""

    class Series(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.last = nn.LSTM(4, 6, batch_first=batch_first), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.lstm(x)[0][:, -1])

    torch.manual_seed(0)
    assert mixes_records(Series(), (5, 4), texts=False) != batch_first
    normed = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2))
    assert not mixes_records(normed, (6,), texts=False) and normed.training
