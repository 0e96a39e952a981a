"""A relative path in a config that the tool writes means the file that it meant in the user's own config."""

from __future__ import annotations

import json
import os
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from dpfl_audit.audit.choose.again import Again
from dpfl_audit.audit.choose.goals import Goals
from dpfl_audit.audit.choose.opening import StudyOptions, opened_case
from dpfl_audit.audit.choose.outputs import recommended_toml
from dpfl_audit.audit.choose.price import SearchPrice
from dpfl_audit.audit.choose.study import Study
from dpfl_audit.audit.choose.trial import Trial
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import read_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.key import PUBLISHED
from dpfl_audit.audit.setup.paths import rebase

RAW: dict[str, Any] = {
    "data": {"name": "csv", "root": "tables/people.csv", "target": "y", "clients": 2, "samples_per_client": 8},
    "model": {"name": "logistic"},
    "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 8},
    "scheme": {"name": "ldp", "rounds": 2, "clip": 0.5, "sigma": 1.0, "share": "gradient"},
    "attack": {"inversion": {"iterations": 2}},
}


def table_in(folder: Path) -> Path:
    """A config of RAW in it, with the table that it names."""
    rows = "".join(f"{i % 7},{i % 3},{i % 2}\n" for i in range(60))
    (folder / "tables").mkdir(parents=True)
    (folder / "tables" / "people.csv").write_text("a,b,y\n" + rows)
    (folder / "config.toml").write_text(tomlkit.dumps(RAW))
    return folder / "config.toml"


def file_of(config: dict[str, Any], folder: Path) -> Path:
    return (folder / config["data"]["root"]).resolve()


@pytest.mark.parametrize("there", ["study", "a/b/study", "../beside"])
def test_paths_are_rewritten_to_the_same_files_and_stay_relative(there: str, tmp_path: Path) -> None:
    home, moved = tmp_path / "home", json.loads(json.dumps(RAW))
    rebase(moved, home, home / there)
    old, new = (each["data"]["root"] for each in (RAW, moved))
    assert not Path(new).is_absolute() and os.path.normpath(home / there / new) == os.path.normpath(home / old)
    rebase(moved, home / there, home)
    assert moved == RAW  # there and back again


def test_absolute_paths_stay_and_links_to_folders_are_seen_through(tmp_path: Path) -> None:
    absolute = {"data": {"name": "csv", "root": str(tmp_path / "x.csv")}}
    rebase(absolute, tmp_path / "home", tmp_path)
    assert absolute["data"]["root"] == str(tmp_path / "x.csv")
    table_in(tmp_path / "far" / "home")
    (tmp_path / "link").symlink_to(tmp_path / "far" / "home" / "tables")
    linked = {"data": {"root": "link/../config.toml"}}  # the folder above is that of the link's target
    rebase(linked, tmp_path, tmp_path / "study")
    assert file_of(linked, tmp_path / "study") == tmp_path / "far" / "home" / "config.toml"


def test_a_recommended_config_trains_from_the_study_s_folder(tmp_path: Path) -> None:
    """`audit train study/recommended.toml` said that there is no adult.csv in study/."""
    config = table_in(tmp_path / "home")
    config.write_text("# my own words\n" + tomlkit.dumps(RAW))
    options = StudyOptions(vary=("scheme.clip=0.5,1",), goals=Goals(epsilon_at_most=1e9), trials=2, rows="training")
    case = opened_case(config, options, PUBLISHED, config.parent)
    chosen = Trial(number=0, point=case.first, state="measured", proof=case.priced(case.first))
    again, price = Again(trial=0, seeds=(1, 2), outcome=None), SearchPrice(None, 0, ())
    study = Study(case, tmp_path / "elsewhere" / "study", (chosen,), (again,), (), chosen, None, price)
    study.folder.mkdir(parents=True)
    path = study.folder / "recommended.toml"
    path.write_text(recommended_toml(study))
    made = read_config(path)
    assert made.data.root == "../../home/tables/people.csv" and "# my" in path.read_text()
    data, known = build(made, path.parent).data, case.to_price(case.first).data
    assert data.description == known.description and data.inputs.equal(known.inputs)
    beside = replace(study, folder=config.parent)
    assert tomllib.loads(recommended_toml(beside))["data"]["root"] == "tables/people.csv"


def test_a_setup_is_the_same_wherever_its_config_lies(tmp_path: Path) -> None:
    setups = []
    for home in (tmp_path / "one", tmp_path / "deep" / "er" / "two"):
        config = read_config(table_in(home))
        setups.append(train(build(config, home), home / "setups" / "s"))
    one, two = (json.loads((setup / "setup.json").read_text()) for setup in setups)
    assert one == two and one["config"]["data"]["root"] == "tables/people.csv"
