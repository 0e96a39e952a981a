"""Whatever an owner's code raises, by whichever hook it is called: one sentence with the place, and exit code 2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dpfl_audit
import pytest
import torch
from command import called
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.owners_code import in_words
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

DELTA, FEW = 1e-5, {"draws": 20, "calibration": 10}
PLAIN = "FedAvg(fraction_evaluate=0.0)"
APP = """
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import *
from torch import nn

def load_data(client):
    return torch.rand(12, 6), torch.arange(12) % 3

client_app = ClientApp(mods=[MODS])

@client_app.train()
def train(message, context):
    net = nn.Linear(6, 3)
    net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    inputs, targets = load_data(0)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.5)
    nn.functional.cross_entropy(net(inputs), targets).backward()
    optimiser.step()
    metrics = MetricRecord({"num-examples": 12})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)

server_app = ServerApp()

@server_app.main()
def serve(grid, context):
    STRATEGY.start(grid=grid, initial_arrays=ArrayRecord(nn.Linear(6, 3).state_dict()), num_rounds=3)
"""
QUICK = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "sample_rate": 0.2, "steps": 5, "delta": 1e-5, "trainings": 10}


def line_of(text: str, file: str) -> int:
    return next(i for i, line in enumerate(Path(file).read_text().splitlines(), 1) if text in line)


def test_the_place_is_the_owners_line_and_not_the_librarys():
    try:
        torch.stack([])  # the owner's own line
    except RuntimeError as error:
        assert in_words(error).endswith(f"test_owners_code.py:{line_of('own line', __file__)})")
    try:
        DataLoader(TensorDataset(torch.zeros(2)), batch_size=-1)  # raised inside of torch
    except ValueError as error:
        assert in_words(error).endswith(f"test_owners_code.py:{line_of('inside of', __file__)})")


def test_where_only_a_library_is_called_its_line_is_told():
    with pytest.raises(ValueError, match=r"raised AttributeError: .* \(torch/nn/functional\.py:\d+\)$"):
        dpfl_audit.audit_mechanism(nn.functional.softmax, delta=1e-5)


# --- a function


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyError, SystemExit, RuntimeError, MemoryError])
def test_a_function_from_python(error):
    def update(world: bool, seed: int) -> Any:
        raise error("it")

    with pytest.raises(
        ValueError, match=rf"^update_fn\(False, \d+\) raised {error.__name__}: .*test_owners_code\.py:\d+\)$"
    ):
        dpfl_audit.audit_mechanism(update, delta=1e-5)
    with pytest.raises(ValueError, match=rf"^noiseless\(False\) raised {error.__name__}"):
        dpfl_audit.audit_mechanism(
            lambda w, s: torch.randn(2, generator=torch.Generator().manual_seed(s)) + 9 * w,
            noiseless=lambda w: update(w, 0),
            delta=1e-5,
            draws=10,
        )


# --- DP-SGD


class Raising(Dataset):
    """Records of which one cannot be read."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        if index == 7:
            raise OSError("no such image")
        return torch.zeros(3), 0


def test_a_data_set_and_a_training():
    def train(dataset: Any) -> None:
        raise FloatingPointError("no gradient")

    with pytest.raises(ValueError, match=r"^dataset raised OSError: no such image \(.*test_owners_code\.py:\d+\)$"):
        dpfl_audit.audit_dpsgd(train, Raising(), **QUICK)
    data = [(torch.zeros(3), 0)] * 20
    with pytest.raises(
        ValueError, match=r"^train raised FloatingPointError: no gradient \(.*test_owners_code\.py:\d+\)$"
    ):
        dpfl_audit.audit_dpsgd(train, data, **QUICK)


def by_loader(**options: Any) -> Any:
    """DP-SGD by hand on a loader's batches; its collate is torch's, or another that takes no empty batch."""

    def train(dataset: Any) -> None:
        weights = nn.Parameter(torch.zeros(3))
        optimiser = torch.optim.SGD([weights], lr=0.1)
        for inputs, _ in DataLoader(dataset, **options):
            weights.grad = inputs.sum(0) + torch.randn(3)
            optimiser.step()

    return train


class One:
    """A sampler of one record a batch, the canary's last."""

    def __iter__(self) -> Any:
        yield from ([i] for i in (3, 2, 1, 0))

    def __len__(self) -> int:
        return 4


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 1},
        {"batch_sampler": One()},
        {"batch_size": 1, "collate_fn": lambda batch: [torch.stack(part) for part in zip(*batch)]},
        {"batch_size": 3, "sampler": [1, 2, 3, 0]},
    ],
)
def test_a_record_that_is_alone_in_its_batch(options):
    data = [(torch.ones(3), i % 2) for i in range(4)]
    with pytest.raises(ValueError, match=r"alone in a batch.* raised \w+: .*; take another place, or larger batches$"):
        dpfl_audit.audit_dpsgd(by_loader(**options), data, place=0, **QUICK)


def test_an_error_of_something_else_is_not_called_an_empty_batch():
    def train(dataset: Any) -> None:
        dataset.__getitems__([0, 1])
        raise RuntimeError("no GPU")

    with pytest.raises(ValueError, match=r"^train raised RuntimeError: no GPU \(") as caught:
        dpfl_audit.audit_dpsgd(train, [(torch.ones(3), 0)] * 4, **QUICK)
    assert "alone" not in str(caught.value)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_opacus_and_a_record_that_is_alone():
    """7 records in batches of 3, not by Poisson: the last one is a batch of its own. Of another place all goes on."""
    opacus = pytest.importorskip("opacus")
    start = nn.Linear(3, 2)

    def train(dataset: Any, engine: Any) -> None:
        model = nn.Linear(3, 2)
        model.load_state_dict(start.state_dict())
        made, optimiser, loader = engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=DataLoader(dataset, batch_size=3),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            poisson_sampling=False,
        )
        for inputs, targets in loader:
            optimiser.zero_grad()
            nn.functional.cross_entropy(made(inputs), targets).backward()
            optimiser.step()

    data = TensorDataset(torch.rand(7, 3), torch.arange(7) % 2)
    engine = opacus.PrivacyEngine()
    train(data, engine)
    with pytest.raises(BadInput, match=r"^audit_opacus: the canary's record is alone in a batch"):
        dpfl_audit.audit_opacus(train, engine, data, trainings=15, place=6)
    audit = dpfl_audit.audit_opacus(train, engine, data, trainings=35, place=1)
    assert audit.about.parameters["steps"] == 3 and audit.results().epsilon[0].claimed_by == "framework"


# --- a Flower app


BAD = """
class Bad:
    def __len__(self): return 9
    def __getitem__(self, i): raise OSError("gone")
"""
STRATEGY = """
class Own(FedAvg):
    def HOOK

server_app ="""


def app_with(folder: Path, hook: str, mods: str = "", name: str = "my_app.py") -> str:
    text = APP.replace("MODS", mods).replace("STRATEGY", PLAIN.replace("FedAvg", "Own"))
    (folder / name).write_text(text.replace("server_app =", STRATEGY.replace("HOOK", hook), 1))
    return str(folder / name)


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        ("aggregate_train(self, r, replies): return 1 / 0", "the strategy raised ZeroDivisionError: division by zero"),
        ("aggregate_train(self, r, replies): raise SystemExit(3)", "the strategy raised SystemExit: 3"),
        ("aggregate_train(self, r, replies): return None", "the strategy raised TypeError"),
        ("aggregate_train(self, r, replies): return 5, {}", "the strategy raised AttributeError"),
        ("aggregate_train(self, r, replies): return None, {}", "merged nothing"),
        ("__deepcopy__(self, memo): raise TypeError('a lock')", "the strategy raised TypeError: a lock"),
        ("configure_train(self, *a): raise KeyError('lr')", "its strategy raised KeyError: 'lr'"),
        ("configure_train(self, *a): return [5]", "its strategy sends a int; expected Messages"),
    ],
)
def test_a_strategy(hook, words, tmp_path, monkeypatch, capsys):
    pytest.importorskip("flwr")
    monkeypatch.chdir(tmp_path)
    app_with(tmp_path, hook)
    typed = ("flower", "my_app.py", "--observer", "downlink", "--clients", 2, "--delta", DELTA, "--quiet")
    code, printed, said = called(capsys, *typed, "-o", "results")
    assert (code, printed) == (2, "") and words in said and "my_app.py" in said and not Path("results").exists()
    if "raise " in hook or "1 / 0" in hook:
        assert f"(my_app.py:{line_of('def ' + hook.partition('(')[0], 'my_app.py')})" in said


def test_flowers_own_fault_is_named_with_its_file(tmp_path, monkeypatch, capsys):
    """Its clip divides by the length of an update (flwrlabs/flower#7631); here every client replies what it got."""
    pytest.importorskip("flwr")
    monkeypatch.chdir(tmp_path)
    private = f"DifferentialPrivacyServerSideFixedClipping({PLAIN}, 1.0, 1.0, 2)"
    text = APP.replace("MODS", "").replace("STRATEGY", private).replace("    optimiser.step()\n", "")
    (tmp_path / "my_app.py").write_text(text)
    typed = ("flower", "my_app.py", "--observer", "downlink", "--clients", 2, "--delta", DELTA, "--quiet")
    code, _, said = called(capsys, *typed)
    assert code == 2 and "strategy" in said and "ZeroDivisionError" in said and "(flwr/" in said


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (("    return Message(", "    return None\n    return Message("), {}, "training replied with a NoneType"),
        (
            ("ArrayRecord(net.state_dict())", 'ArrayRecord({"x": torch.zeros(2)})'),
            {},
            "no tensor of floats that it was",
        ),
        (("mods=[]", "mods=[lambda m, c, f: 1 / 0]"), {}, "a mod raised ZeroDivisionError"),
        (("mods=[]", "mods=[lambda m, c, f: None]"), {}, "a mod replied with a NoneType"),
        (
            ("return torch.rand(12, 6), ", "return Bad(), "),
            {"data": "load_data"},
            "--data load_data raised OSError: gone",
        ),
        (("", ""), {"model": {"w": "x"}}, "the model raised"),
    ],
)
def test_a_client_and_its_data(change, options, words, tmp_path):
    pytest.importorskip("flwr")
    text = APP.replace("MODS", "").replace("STRATEGY", PLAIN).replace(*change)
    if "Bad()" in change[1]:
        text = text.replace(
            "inputs, targets = load_data(0)", "load_data(0); inputs, targets = torch.rand(3, 6), [0] * 3"
        )
        text = text.replace("cross_entropy(net(inputs), targets)", "cross_entropy(net(inputs), torch.tensor(targets))")
    (tmp_path / "my_app.py").write_text(text + BAD)
    with pytest.raises(BadInput, match=words):
        dpfl_audit.audit_flower(str(tmp_path / "my_app.py"), delta=DELTA, **FEW, **options)


def test_what_is_no_app():
    pytest.importorskip("flwr")
    with pytest.raises(BadInput, match="app is a int; expected a ClientApp"):
        dpfl_audit.audit_flower(5, delta=DELTA)


class Leaves(BaseException):
    """What is no Exception."""


@pytest.mark.filterwarnings("ignore:model. ε is priced")
@pytest.mark.parametrize("kind", [Leaves, SystemExit, RuntimeError])
@pytest.mark.parametrize("hook", ["state_dict", "forward", "upload"])
def test_a_recorded_network_that_raises_is_one_sentence(hook, kind, tmp_path):
    class Owners(nn.Sequential):
        raises = hook != "upload"

        def state_dict(self, *arguments, **options):
            if self.raises and hook != "forward":
                raise kind("today")
            return super().state_dict(*arguments, **options)

        def forward(self, inputs):
            if hook == "forward":
                raise kind("today")
            return super().forward(inputs)

    def record() -> None:
        net = Owners(nn.Linear(6, 3))
        with dpfl_audit.Recorder(tmp_path / "s", net, data={"classes": 3}, strict=True) as rec:
            rec.broadcast(0, {name: p.detach() for name, p in net.named_parameters()})
            net.raises = hook == "upload"
            rec.upload(0, 0, net, num_examples=2, records=(torch.rand(2, 6), torch.tensor([0, 1])))

    with pytest.raises(BadInput, match=rf"^[^\n]*{kind.__name__}: today[^\n]*$"):
        record()


def test_a_mechanism_that_raises_what_is_no_exception():
    def update_fn(world: bool, seed: int) -> torch.Tensor:
        raise Leaves("today")

    with pytest.raises(ValueError, match=r"^[^\n]*Leaves: today[^\n]*$"):
        dpfl_audit.audit_mechanism(update_fn, delta=DELTA, **FEW)
