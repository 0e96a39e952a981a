"""A setup on disk: same seed same bytes, resumed after a kill, checked in one sentence, shown without the truth."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from command import content
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.setup import capture
from dpfl_audit.audit.setup.auditor import Auditor
from dpfl_audit.audit.setup.config import parse_config, read_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.folder import open_setup
from dpfl_audit.defenses.terms import Observer
from dpfl_audit.defenses.wire import client_address

RAW = {
    "seed": 4,
    "data": {"name": "digits", "clients": 3, "samples_per_client": 40},
    "model": {"name": "mlp", "options": {"widths": [16]}},
    "local": {"optimiser": "adam", "lr": 0.01, "batch_size": 20},
    "scheme": {"name": "ldp", "clip": 0.5, "sigma": 1.0, "rounds": 3, "share": "gradient"},
    "capture": {"clients": [0, 1]},
}


def train(folder: Path, raw=RAW, **options) -> Path:
    return capture.train(build(parse_config(raw), folder.parent), folder, **options)


@pytest.fixture(scope="module")
def setup(tmp_path_factory) -> Path:
    return train(tmp_path_factory.mktemp("setup") / "s")


@pytest.fixture
def copy(setup, tmp_path) -> Path:
    return Path(shutil.copytree(setup, tmp_path / "s"))


def test_a_complete_setup_is_left_alone_and_another_one_is_not_overwritten(copy):
    before = content(copy)
    train(copy)
    assert content(copy) == before
    with pytest.raises(BadInput, match=r"another setup.*--force"):
        train(copy, {**RAW, "seed": 9})
    assert content(copy) == before
    train(copy, {**RAW, "seed": 9}, force=True)
    assert content(copy) != before


@pytest.mark.parametrize("kill_after", [0, 1, 2])
def test_an_interrupted_run_resumes_to_the_same_bytes(setup, tmp_path, kill_after):
    """Stopped between two rounds: the same command ends with the same bytes, and no round is trained twice."""

    class Stop(Exception):
        pass

    def stop(done: int, total: int, words: str) -> None:
        if done == kill_after + 1:
            raise Stop

    with pytest.raises(Stop):
        train(tmp_path / "s", progress=stop)
    with pytest.raises(BadInput, match="unfinished"):
        open_setup(tmp_path / "s")
    rounds = []
    train(tmp_path / "s", progress=lambda done, total, words: rounds.append(done))
    assert rounds == list(
        range(kill_after + 1, 4)
    )  # it begins with what was there, so that the time left is the rest's
    assert content(tmp_path / "s") == content(setup)


def test_what_is_captured_is_bounded_and_named(setup):
    found = open_setup(setup, check_tensors=True)
    uploads = [m for m in found.messages if m.sender != "server"]
    assert {m.sender for m in uploads} == {client_address(0), client_address(1)} and len(uploads) == 6
    assert len([m for m in found.messages if m.sender == "server"]) == 4  # three rounds and the final model
    assert not (setup / ".work").exists()
    assert {p.name for p in setup.iterdir()} == {
        "setup.json",
        "rounds.csv",
        "messages.jsonl",
        "tensors",
        "knowledge",
        "auditor",
        "truth",
        "environment.json",
    }


def test_the_captured_labels_are_those_of_the_truth_and_their_order_says_nothing(setup):
    found = open_setup(setup)
    truth = Auditor(found).truth
    assert truth is not None
    for key, labels in found.knowledge().labels.items():
        rows = list(truth.messages[key])
        assert labels.tolist() == sorted(truth.targets[rows].tolist())


def test_views_hold_no_truth_and_the_gradient_fits_the_model_it_was_sent_with(setup):
    found = open_setup(setup)
    view = found.view(Observer("server"))
    assert view.global_model(0).shape == (found.layout.dim,)
    downlink = found.view(Observer("downlink"))
    assert downlink.messages and all(m.broadcast for m in downlink.messages)
    assert [m.round for m in found.view(Observer("model")).messages] == [3]
    with pytest.raises(LookupError):
        found.view(Observer.parse("uplink(1)")).global_model(0)
    with pytest.raises(ValueError, match="observer 'fly'"):
        Observer.parse("fly")


PEOPLE = {"name": "csv", "root": "people.csv", "target": "ill", "clients": 2}
BAD_EXPERIMENTS = {
    "more patches than fit": (
        {"data": {"name": "photos", "classes": 100, "clients": 100, "samples_per_client": 1000}},
        r"\[data\].*fit",
    ),
    "data set": ({"data": {"name": "fotos"}}, "not a data set"),
    "nobody holds a row": ({"data": {**PEOPLE, "partition": "writer"}}, "holder"),
    "holders mixed": ({"data": {**PEOPLE, "partition": "iid", "options": {"holder": "ward"}}}, '"writer"'),
    "a holder left out": (
        {"data": {**PEOPLE, "partition": "writer", "options": {"holder": "ward"}, "clients": 1}},
        "there are 2",
    ),
    "rows left out": (
        {"data": {**PEOPLE, "partition": "writer", "options": {"holder": "ward"}, "samples_per_client": 9}},
        "all of its rows",
    ),
    "the target holds rows": (
        {"data": {**PEOPLE, "partition": "writer", "options": {"holder": "ill"}}},
        "not the target's",
    ),
    "no such holder": ({"data": {**PEOPLE, "partition": "writer", "options": {"holder": "wart"}}}, "'ward'"),
    "empty folder": ({"data": {"name": "mnist", "root": "."}}, r"\[data\]"),
    "partition": (
        {"data": {"name": "digits", "clients": 2, "samples_per_client": 10, "partition": "iit"}},
        "partition",
    ),
    "model": ({"data": {"name": "digits"}, "model": {"name": "mpl"}}, r"\[model\]"),
    "strange model": ({"data": {"name": "digits"}, "model": {"name": "os:system"}}, "--allow-model"),
    "no such client": (
        {"data": {"name": "digits", "clients": 2, "samples_per_client": 10}, "capture": {"clients": [7]}},
        "no client 7",
    ),
}


@pytest.mark.parametrize("case", BAD_EXPERIMENTS)
def test_an_impossible_experiment_is_refused_in_one_sentence(case, tmp_path):
    raw, words = BAD_EXPERIMENTS[case]
    rows = [f"{age},{'ab'[age % 2]},{age % 3 % 2}" for age in range(200)]
    (tmp_path / "people.csv").write_text("\n".join(["age,ward,ill", *rows]))
    with pytest.raises(BadInput, match=words) as error:
        build(parse_config(raw), tmp_path)
    assert "\n" not in str(error.value)


def test_an_override_without_a_value_unsets_the_key(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text('claim = "paper"\n[scheme]\nname = "ldp"\nsigma = 1.0\n')
    config = read_config(path, ["scheme.sigma=", "scheme.noise_std=0.5", "claim="])
    assert config.scheme == {"name": "ldp", "noise_std": 0.5} and config.claim is None
    with pytest.raises(BadInput, match=r"unsets 'scheme\.sigm', which is not set; did you mean 'sigma'"):
        read_config(path, ["scheme.sigm="])
    for known in ("scheme.budget", "data.mean"):  # of another quantity there is nothing to suggest
        with pytest.raises(BadInput, match=f"unsets '{known}', which is not set, so there is nothing to unset$"):
            read_config(path, ["scheme.budget_delta=1e-5", f"{known}="])
    with pytest.raises(BadInput, match=r"\[scheme\]: unknown key 'nmae'; did you mean 'name'\?"):
        read_config(path, ["scheme.nmae=ldp"])


def test_overrides_are_toml_values_or_bare_words(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text('[scheme]\nname = "ldp"\nsigma = 1.0\n')
    config = read_config(path, ["scheme.sigma=2.5", "data.name=digits", "capture.clients=[0]"])
    assert config.parameters().sigma == 2.5 and config.data.name == "digits"
    with pytest.raises(BadInput, match=r"table\.key=value"):
        read_config(path, ["sigma"])
