"""A setup that names its scheme as versions before did opens, trains and prices as one of today's name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dpfl_audit.audit.files import digest_of_json
from dpfl_audit.audit.proven import table
from dpfl_audit.audit.results.format import AuditedSetup
from dpfl_audit.audit.setup import capture
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.folder import Setup, open_setup
from dpfl_audit.audit.theory.advise import theory_of
from dpfl_audit.defenses.presets import OLD_NAMES


def train(folder: Path, name: str) -> Path:
    raw = {
        "seed": 4,
        "data": {"name": "digits", "clients": 3, "samples_per_client": 20},
        "model": {"name": "logistic"},
        "scheme": {"name": name, "rounds": 2},
    }
    return capture.train(build(parse_config(raw), folder.parent), folder)


def as_written_before(folder: Path, old: str) -> Path:
    """setup.json names the scheme by its old name too, and is sealed with that."""
    path = folder / "setup.json"
    content = json.loads(path.read_text())
    content["scheme"]["name"] = old
    sealed = {key: value for key, value in content.items() if key != "files"}
    content["files"]["setup.json"] = digest_of_json(sealed)
    path.write_text(json.dumps(content))
    return folder


def messages(setup: Setup) -> list[tuple[str, list[float]]]:
    return [(message.id, setup.load(message).tolist()) for message in setup.messages]


@pytest.mark.parametrize(("old", "name"), OLD_NAMES.items())
def test_it_opens_and_nothing_but_the_name_differs(old, name, tmp_path):
    before = as_written_before(train(tmp_path / "old", old), old)
    opened, today = open_setup(before, check_tensors=True), open_setup(train(tmp_path / "new", name))
    assert opened.manifest.scheme.name == opened.scheme.name == name
    assert opened.manifest.config["scheme"]["name"] == old
    assert messages(opened) == messages(today)
    assert table.table(before).rows == table.table(tmp_path / "new").rows


@pytest.mark.parametrize(("old", "name"), OLD_NAMES.items())
def test_results_and_theory_are_found_by_the_old_name(old, name):
    assert AuditedSetup(digest="", scheme=old).scheme == name
    if name != "thesis-baseline":  # nobody has analysed its convergence
        assert theory_of(old) is theory_of(name)
