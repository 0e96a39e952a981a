"""`audit flower`: an app's own client, mods and strategy in two worlds; exact shifts by hand, refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from math import log, sqrt
from pathlib import Path

import dpfl_audit
import numpy as np
import pytest
import torch
from command import called
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.two_worlds.estimators.bound import GAUSSIAN
from dpfl_audit.audit.two_worlds.estimators.finding import VIOLATED_IF
from dpfl_audit.audit.worlds.flower.app import flower_app, taken_apart
from dpfl_audit.audit.worlds.flower.audited import audit_flower
from dpfl_audit.audit.worlds.flower.client_round import AppRound, ClientUnit
from dpfl_audit.audit.worlds.flower.first_round import first_round, task_identity
from dpfl_audit.audit.worlds.flower.loader import planted, record_canaries
from dpfl_audit.audit.worlds.flower.opened import opened_app
from tiers import quick
from torch.utils.data import DataLoader, TensorDataset

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'dpfl-audit[flower]'")
ROOT = Path(__file__).resolve().parents[4]
DELTA = 1e-5
FEW = {"draws": 100, "calibration": 40}
STD = sqrt(2 * log(1.25 / DELTA)) / 8  # LocalDpMod's noise at ε = 8 for a sensitivity of 1
APP = """
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import *
from torch import nn

def load_data(client):
    made = torch.Generator().manual_seed(client)
    return torch.rand(12, 6, generator=made), torch.arange(12) % 3

def counts(client):
    return 12

client_app = ClientApp(mods=[MODS])

@client_app.train()
def train(message, context):
    client = int(context.node_config["partition-id"])
    net = nn.Linear(6, 3)
    net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    inputs, targets = load_data(client)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.5)
    loss = nn.functional.cross_entropy(net(inputs), targets)
    loss.backward()
    optimiser.step()
    metrics = MetricRecord({"num-examples": counts(client), "train_loss": loss.item()})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)

server_app = ServerApp()

@server_app.main()
def serve(grid, context):
    torch.manual_seed(context.run_config.get("seed", 0))
    strategy = STRATEGY
    strategy.start(grid=grid, initial_arrays=ArrayRecord(nn.Linear(6, 3).state_dict()), num_rounds=3)
"""
PLAIN = "FedAvg(fraction_evaluate=0.0)"


def written(folder: Path, mods: str = "", strategy: str = PLAIN, text: str = APP, name: str = "my_app.py") -> str:
    (folder / name).write_text(text.replace("MODS", mods).replace("STRATEGY", strategy))
    return str(folder / name)


# --- a client's own noise


@pytest.mark.parametrize(
    ("sensitivity", "adjacency", "level", "shift"),
    quick(
        [
            (0.01, "zero_out", VIOLATED_IF, 100 / STD),
            (1.0, "zero_out", "consistent", 1 / STD),
            (1.0, "replace_one", VIOLATED_IF, 2 / STD),
        ],
        *(0, 2),
    ),
)
def test_local_dp_by_its_own_code(sensitivity, adjacency, level, shift, tmp_path):
    """A clipped update is C long and the noise's std is `sensitivity`·STD, so worlds lie C or 2C over it apart."""
    app = written(tmp_path, f"LocalDpMod(1.0, {sensitivity}, 8.0, 1e-5)")
    audit = audit_flower(app, claim=8, delta=DELTA, adjacency=adjacency, draws=300, calibration=80)
    assert audit.finding().level == level and audit.about.observer == "server" and audit.about.canary == "long"
    assert audit.shift == pytest.approx(shift, abs=0.5)  # as measured on 80 draws a world: ±√(2/80)
    exact = gaussian_epsilon(1 / shift, DELTA)
    least = 8 if level.startswith("violated") else 0.6 * exact  # draws end where the claim is refuted
    assert audit.if_gaussian is not None and least < audit.if_gaussian.epsilon < exact
    assert audit.about.parameters["noise_multiplier"] == pytest.approx(sensitivity * STD)
    assert any("train_loss" in note for note in audit.about.notes)
    assert any("of 0.01" in note for note in audit.about.notes) == (sensitivity < 1)


def test_the_servers_own_first_model_hangs_on_the_seed_alone(tmp_path):
    own = 'torch.manual_seed(context.run_config.get("seed", 0))'
    assert own in APP
    app = written(tmp_path, "LocalDpMod(1.0, 0.01, 8.0, 1e-5)", text=APP.replace(own, "pass"))
    made = []
    for outside in (1, 2):
        torch.manual_seed(outside)
        np.random.seed(outside)
        made.append(audit_flower(app, claim=8.0, delta=DELTA, **FEW))
    assert made[0].counted == made[1].counted and made[0].if_gaussian == made[1].if_gaussian
    assert made[0].about == made[1].about


def test_a_claim_is_by_default_what_the_mod_is_for(tmp_path):
    audit = audit_flower(written(tmp_path, "LocalDpMod(1.0, 0.01, 8.0, 1e-5)"), draws=50, calibration=20)
    assert (audit.about.claim, audit.about.delta) == (8.0, 1e-5)
    other = audit_flower(
        written(tmp_path, "LocalDpMod(1.0, 0.01, 8.0, 1e-5)"), adjacency="replace_one", draws=20, calibration=20
    )
    assert other.about.claim is None  # nobody says that the mod's ε is about exchanged clients


@pytest.mark.full
def test_only_recording_mods_are_left_out_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = APP.replace("import torch\n", "import torch\nfrom dpfl_audit import AuditMod, record_strategy\n", 1)
    text = text.replace("@client_app.train()", "@client_app.train(mods=[AuditMod.raw('setup')])")
    strategy = f"record_strategy({PLAIN}, 'setup', nn.Linear(6, 3), claim=8)"
    app = flower_app(written(tmp_path, "AuditMod('setup'), LocalDpMod(1.0, 1.0, 8.0, 1e-5)", strategy, text))
    assert [type(mod).__name__ for mod in taken_apart(app.client).mods] == ["LocalDpMod"]
    assert audit_flower(app, **FEW).finding().level == "consistent"
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".pyc") in (
        ["my_app.py"],
        ["__pycache__", "my_app.py"],
    )


def test_a_number_without_a_dimension_passes_the_clip_and_is_found(tmp_path):
    """np.subtract of 0-d arrays gives scalars, which `array *= factor` does not change."""
    text = APP.replace("nn.Linear(6, 3)", "Net()").replace(
        "client_app =",
        "class Net(nn.Linear):\n"
        "    def __init__(self):\n"
        "        super().__init__(6, 3)\n"
        "        self.scale = nn.Parameter(torch.tensor(1.0))\n"
        "    def forward(self, x):\n"
        "        return super().forward(x) * self.scale\n\n"
        "client_app =",
        1,
    )
    audit = audit_flower(written(tmp_path, "LocalDpMod(1.0, 1.0, 8.0, 1e-5)", text=text), **FEW)
    assert audit.about.canary in ("long", "scalars") and audit.shift > 100
    assert audit.finding().level == VIOLATED_IF


# --- the server's noise


def test_a_servers_fixed_clip_is_asked_about_its_models(tmp_path):
    """z = 1, equal counts: a client moves the mean by C/3, noise is C/3."""
    strategy = f"DifferentialPrivacyServerSideFixedClipping({PLAIN}, 1.0, 0.5, 3)"
    audit = audit_flower(written(tmp_path, strategy=strategy), claim=4.4, delta=DELTA, clients=3, **FEW)
    assert audit.about.observer == "downlink" and audit.finding().level == "consistent"
    assert audit.shift == pytest.approx(1.0, abs=0.5) and audit.about.parameters["noise_multiplier"] == 1.0


@pytest.mark.full
def test_a_heavier_client_is_less_hidden(tmp_path):
    """30 of 50 records weigh .6 where the noise is for 1/3: 1.8 standard deviations."""
    strategy = f"DifferentialPrivacyServerSideFixedClipping({PLAIN}, 1.0, 0.5, 3)"
    text = APP.replace("return 12", "return 30 if client == 0 else 10")
    app = written(tmp_path, strategy=strategy, text=text)
    audit = audit_flower(app, delta=DELTA, clients=3, draws=10, calibration=50)
    assert audit.shift == pytest.approx(1.8, abs=0.5)
    assert audit.about.parameters["noise_multiplier"] == pytest.approx(1 / 1.8)
    assert any("weighted mean" in note for note in audit.about.notes)


@pytest.mark.full
def test_an_adaptive_bound_is_no_state_between_draws_and_judged_by_counting(tmp_path):
    strategy = f"DifferentialPrivacyServerSideAdaptiveClipping({PLAIN}, 0.1, 3, initial_clipping_norm=1.0)"
    audit = audit_flower(written(tmp_path, strategy=strategy), delta=DELTA, clients=3, draws=20, calibration=10)
    assert audit.if_gaussian is None and audit.about.observer == "downlink" and len(audit.scores_in) == 20


def test_who_is_not_there_counts_half_in_a_bound_that_adapts(tmp_path):
    """log C moves by η/n for every update clipped; a client that is not there is ½ from one that is clipped and from
    one that is not. z = 1 beside σ_b = .51 is ε = 4.38 so, and 9.82 if it counted as one that is not clipped.
    """
    strategy = (
        f"DifferentialPrivacyServerSideAdaptiveClipping({PLAIN}, 1e-9, 3, initial_clipping_norm=1.0, clip_norm_lr=0.3,"
        " clipped_count_stddev=1e-9)"
    )
    with task_identity():
        opened = opened_app(flower_app(written(tmp_path, strategy=strategy)), None, 0, 3, None, 0, None)
        unit = ClientUnit(opened.clients[0], "zero_out", False, 0)
        update = AppRound(unit, opened.clients, opened.others, opened.strategy, leaves=True)
        gone, short, clipped = (update(world, 0)[-1] for world in (None, "trained", "long"))
    assert short - gone == pytest.approx(0.05, abs=1e-6) and gone - clipped == pytest.approx(0.05, abs=1e-6)


def test_noise_for_another_number_of_clients_is_not_guessed(tmp_path):
    strategy = f"DifferentialPrivacyServerSideFixedClipping({PLAIN}, 1.0, 0.5, 100)"
    with pytest.raises(BadInput, match="10 of 10 clients are sampled, and the noise is for 100"):
        audit_flower(written(tmp_path, strategy=strategy), delta=DELTA, **FEW)


# --- no noise that is known


@pytest.mark.full
def test_noise_inside_training_is_drawn_anew(tmp_path):
    """Noise 1 on every weight of an update clipped to 1 inside the app's own function: μ = 1, nothing declared."""
    own = (
        "    optimiser.step()\n    start = list(message.content.array_records['arrays']"
        ".to_torch_state_dict().values())\n"
        "    with torch.no_grad():\n"
        "        step = [p - s for p, s in zip(net.parameters(), start)]\n"
        "        norm = float(sum(d.square().sum() for d in step)) ** 0.5\n"
        "        for p, s, d in zip(net.parameters(), start, step):\n"
        "            p.copy_(s + d / max(1, norm) + torch.randn_like(p))\n"
    )
    app = written(tmp_path, text=APP.replace("    optimiser.step()\n", own))
    audit = audit_flower(
        app, delta=DELTA, data="load_data", adjacency="replace_one", canary="blank", draws=40, calibration=20
    )
    assert audit.if_gaussian is None and audit.counted.epsilon < gaussian_epsilon(0.5, DELTA) and audit.shift < 3
    assert any("run anew" in note for note in audit.about.notes)


@pytest.mark.full
def test_an_app_without_any_noise_hides_nobody(tmp_path):
    audit = audit_flower(written(tmp_path), claim=1, delta=DELTA, draws=100, calibration=20)
    assert audit.finding().level == "violated"


# --- one record


def test_a_record_through_the_apps_own_training(tmp_path):
    app = written(tmp_path, "LocalDpMod(1.0, 0.01, 8.0, 1e-5)")
    audit = audit_flower(app, data="load_data", adjacency="replace_one", claim=8, delta=DELTA, **FEW)
    assert audit.about.unit == "record" and audit.finding().level == VIOLATED_IF
    assert {one.name for one in audit.about.searched} == {"mislabelled", "blank", "crafted"}
    assert audit.shift <= 200 / STD * 1.05  # a record can turn a clipped update round, and no more
    with pytest.raises(BadInput, match="ask for --adjacency replace_one"):
        audit_flower(app, data=f"{app}:load_data", delta=DELTA, **FEW)
    with pytest.raises(BadInput, match="never called it"):
        audit_flower(app, data=lambda: None, delta=DELTA, **FEW)


@pytest.mark.parametrize("form", ["arrays", "numpy", "data set", "loader", "loaders"])
def test_a_record_is_planted_in_whatever_loads_data(form):
    inputs, targets = torch.rand(6, 4), torch.arange(6) % 3
    data = TensorDataset(inputs, targets)
    loaded = {
        "arrays": (inputs, targets),
        "numpy": (inputs.numpy(), targets.numpy()),
        "data set": data,
        "loader": DataLoader(data, batch_size=6),
        "loaders": (DataLoader(data, batch_size=6), "a test loader"),
    }[form]

    def batch(made):
        if form in ("arrays", "numpy"):
            return torch.as_tensor(made[0]), torch.as_tensor(made[1])
        if form == "loaders":
            assert made[1].startswith("a test")
            made = made[0]
        return next(iter(made if isinstance(made, DataLoader) else DataLoader(made, batch_size=6)))

    canary = record_canaries(loaded, "replace_one", 0)["crafted"]
    present = batch(planted(loaded, canary, present=True, adjacency="replace_one"))
    absent = batch(planted(loaded, canary, present=False, adjacency="replace_one"))
    assert torch.equal(absent[0], inputs) and torch.equal(absent[1], targets)
    assert torch.equal(present[0][1:], inputs[1:]) and float(present[0][0].abs().min()) >= 3
    assert int(present[1][0]) != int(targets[0])
    if form not in ("arrays", "numpy"):
        assert len(batch(planted(loaded, canary, present=False, adjacency="zero_out"))[0]) == 5
        assert len(batch(planted(loaded, canary, present=True, adjacency="zero_out"))[0]) == 6


def test_records_that_are_dicts():
    records = [{"img": torch.full((2,), float(i)), "label": i % 2} for i in range(4)]
    canary = record_canaries(records, "replace_one", 0)["blank"]
    assert canary["label"] == 1 and float(canary["img"].abs().sum()) == 0
    with pytest.raises(BadInput, match="a dict of 'text' \\(str\\)"):
        record_canaries([{"text": "a"}], "replace_one", 0)


# --- which app, which model


def test_an_apps_folder_with_its_config_and_function_specific_names(tmp_path):
    package = tmp_path / "quick"
    package.mkdir()
    (package / "__init__.py").write_text("")
    text = APP.replace("MODS", "LocalDpMod(1.0, 1.0, 8.0, 1e-5)").replace("STRATEGY", PLAIN)
    (package / "both.py").write_text(text.replace('.get("seed", 0)', '["the.seed"]'))
    (tmp_path / "pyproject.toml").write_text(
        '[tool.flwr.app.components]\nserverapp = "quick.both:server_app"\nclientapp = "quick.both:client_app"\n'
        "[tool.flwr.app.config.the]\nseed = 7\n"
    )
    app = flower_app(str(tmp_path))
    assert app.config == {"the.seed": 7}
    with task_identity():
        (message, *_) = first_round(app, 3).messages
    torch.manual_seed(7)
    start = torch.nn.Linear(6, 3).weight.detach().numpy()
    assert np.array_equal(next(iter(message.content.array_records["arrays"].values())).numpy(), start)
    with pytest.raises(
        BadInput, match=r"KeyError: 'the.seed' \(.*both.py:\d+\); its run config has no 'the.seed': --set the.seed=…"
    ):
        audit_flower(flower_app(str(package / "both.py")), delta=DELTA)
    assert flower_app(str(tmp_path), settings=["the.seed=9", "word=a b"]).config == {"the.seed": 9, "word": "a b"}


LEGACY = """
import numpy as np
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.serverapp import ServerApp

class Client(NumPyClient):
    def fit(self, parameters, config):
        return [p + 0.1 for p in parameters], 10, {"loss": 1.0}

app = ClientApp(client_fn=lambda context: Client().to_client(), mods=[LocalDpMod(1.0, 0.01, 8.0, 1e-5)])

def server_fn(context):
    strategy = FedAvg(initial_parameters=ndarrays_to_parameters([np.zeros((4, 5), dtype=np.float32)]))
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=2))

server = ServerApp(server_fn=server_fn)
"""


@pytest.mark.parametrize("model", [None, [np.zeros((4, 5), dtype=np.float32)]])
def test_an_app_of_before_with_client_fn(model, tmp_path):
    (tmp_path / "old.py").write_text(LEGACY)
    audit = audit_flower(str(tmp_path / "old.py"), model=model, **FEW)
    assert audit.finding().level == VIOLATED_IF and audit.shift == pytest.approx(100 / STD, rel=0.05)


@pytest.mark.parametrize(
    ("change", "options", "sentence"),
    [
        (("client_app =", "another = ClientApp()\nclient_app ="), {}, "holds 2: another, client_app; say which"),
        (("= ClientApp(mods=[])", "= 1"), {}, "cannot be imported: AttributeError"),
        (("server_app = ServerApp()", "server_app = ServerApp()\nother = ServerApp()"), {}, "which model is sent"),
        (("    loss.backward()", "    raise RuntimeError('no GPU')"), {}, "training raised RuntimeError: no GPU ("),
        (("optimiser = ", "net.bias = None; optimiser = "), {}, "do not"),
        pytest.param(
            (PLAIN, "FedAvg(min_available_nodes=20)"),
            {},
            "waits for more clients, and there are 10",
            marks=pytest.mark.full,
        ),
        (("", ""), {"canary": "lnog"}, "did you mean 'long'"),
        (("", ""), {"delta": None}, "which δ?"),
        (("", ""), {"client": 10}, "there are 10, from 0 to 9"),
        (("", ""), {"observer": "model"}, "the 'server', or the 'downlink'"),
        (("", ""), {"unit": "record"}, "of which records?"),
        (("", ""), {"data": "lod_data"}, "did you mean 'load_data'?"),
        (("", ""), {"data": "nowhere"}, "has no 'nowhere'; known are "),
        (("", ""), {"data": "load_data"}, "--data gives arrays"),
        (("@client_app.train()", ""), {}, "the ClientApp has no function for 'train'; it has none"),
    ],
)
def test_bad_input_is_one_sentence(change, options, sentence, tmp_path):
    text = APP.replace("STRATEGY", PLAIN).replace("MODS", "fixedclipping_mod" if "bias" in change[1] else "")
    if "bias" in change[1]:
        text = text.replace("import LocalDpMod", "import LocalDpMod, fixedclipping_mod")
        text = text.replace(PLAIN, f"DifferentialPrivacyClientSideFixedClipping({PLAIN}, 1.0, 1.0, 10)")
    app = written(tmp_path, text=text.replace(*change))
    with pytest.raises(BadInput) as raised:
        audit_flower(app, **{"delta": DELTA, **FEW, **options})
    said = str(raised.value)
    assert sentence in said and "\n" not in said and "__" not in said and "BadInput" not in said


@pytest.mark.parametrize(
    "typed",
    [
        *("--observer nobody", "--claim nan", "--claim inf", "--delta nan", "--draws 0", "--canary nonsense"),
        *("--client 99", "--data nowhere:load", "--data nowhere.py:load", "--server nowhere.py", "--set a"),
        "--model my_app.py:load_data",
    ],
)
def test_a_bad_option_as_typed_is_one_sentence_and_writes_nothing(typed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "LocalDpMod(1.0, 0.01, 8.0, 1e-5)")
    there = sorted(tmp_path.iterdir())
    code, out, err = called(capsys, "flower", "my_app.py", "-o", "results", "--quiet", *typed.split())
    assert (code, out) == (2, "") and err and "\n" not in err, err
    assert sorted(p for p in tmp_path.iterdir() if p.name != "__pycache__") == there


# --- the command


def test_the_command_saves_a_page_and_judges_gates(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "LocalDpMod(1.0, 0.01, 8.0, 1e-5)")
    asked = ("flower", "my_app.py", "--claim", 8, "--delta", DELTA, "--draws", 200, "--calibration", 50)
    code, said, wrong = called(
        capsys, *asked, "-o", "results", "--fail-if", "epsilon_if_gaussian > 8", "--junit", "gates.xml", "--json"
    )
    (row,) = json.loads(said)["results"]["epsilon"]
    assert (
        code == 1
        and row["claimed"] == 8
        and row["demonstrated_on_condition"] > 8
        and 'failures="1"' in Path("gates.xml").read_text()
    )
    results = dpfl_audit.Results.read("results")
    assert results.setup.name == "my_app.py:client_app" and results.setup.clip_norm == 1
    code, _, _ = called(capsys, "report", "results", "-o", "page.html")
    page = Path("page.html").read_text()
    assert code == 0 and "my_app.py:client_app keep" in page
    assert any("100 times" in warning for warning in results.warnings)  # and not in a note alone
    assert "100 times" in page and GAUSSIAN in page
    code, _, wrong = called(capsys, "flower", "yours.py")
    assert code == 2 and "'yours.py'" in wrong


def platform_defaults(folder: Path) -> Path:
    """The example, with what a platform ships: C = 1, sensitivity 1e-4, ε = 10, δ = 1e-5."""
    text = (ROOT / "examples" / "flower" / "digits_app.py").read_text()
    before = "sensitivity=1.0, epsilon=50.0"
    assert before in text
    (folder / "digits_app.py").write_text(text.replace(before, "sensitivity=1e-4, epsilon=10.0"))
    return folder / "digits_app.py"


@pytest.mark.full
def test_a_platforms_defaults_are_refuted_on_its_own_client(tmp_path):
    audit = audit_flower(str(platform_defaults(tmp_path)), draws=100, calibration=20)
    finding = audit.finding()
    assert finding.level == VIOLATED_IF and GAUSSIAN in finding.sentence
    assert audit.about.claim == 10 and not [*tmp_path.glob("setup*")]


@pytest.mark.full
def test_a_platforms_defaults_by_the_command_as_typed(tmp_path):
    """With as many draws as it takes by itself; ten minutes are allowed, and a killed run would say so."""
    platform_defaults(tmp_path)
    asked = [sys.executable, "-m", "dpfl_audit.cli", "flower", "digits_app.py", "-o", "results"]
    made = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert made.returncode == 0, made.stderr[-2000:]
    assert f"violated if {GAUSSIAN}" in made.stdout and "= 10" in made.stdout
    (row,) = dpfl_audit.Results.read(tmp_path / "results").epsilon
    assert row.demonstrated_on_condition > 30  # 1,000 draws can show 35
