"""A config that names its scheme by an old name trains and prices as one of today's name."""

from __future__ import annotations

from pathlib import Path

import pytest
from dpfl_audit.audit.proven import table
from dpfl_audit.audit.setup import capture
from dpfl_audit.audit.setup.config import OLD_NAMES, parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.folder import Setup, open_setup


def train(folder: Path, name: str) -> Path:
    raw = {
        "seed": 4,
        "data": {"name": "digits", "clients": 3, "samples_per_client": 20},
        "model": {"name": "logistic"},
        "scheme": {"name": name, "rounds": 2},
    }
    return capture.train(build(parse_config(raw), folder.parent), folder)


def messages(setup: Setup) -> list[tuple[str, list[float]]]:
    return [(message.id, setup.load(message).tolist()) for message in setup.messages]


@pytest.mark.parametrize(("old", "name"), OLD_NAMES.items())
def test_it_opens_and_nothing_but_the_name_differs(old, name, tmp_path):
    before = train(tmp_path / "old", old)
    opened, today = open_setup(before, check_tensors=True), open_setup(train(tmp_path / "new", name))
    assert opened.manifest.scheme.name == opened.scheme.name == name
    assert opened.manifest.config["scheme"]["name"] == old
    assert messages(opened) == messages(today)
    assert table.table(before).rows == table.table(tmp_path / "new").rows
