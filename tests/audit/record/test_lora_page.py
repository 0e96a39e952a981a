"""The commands of docs/howto/lora.md, word for word: LoRA trainings of all-MiniLM-L6-v2 by Flower and by Opacus."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from dpfl_audit.audit.record.flower.mods import AuditMod, records_kept

ROOT = Path(__file__).resolve().parents[3]
NEEDED = ("peft", "transformers", "tokenizers", "flwr", "ray", "opacus", "all_minilm_l6_v2")


def typed(part: str) -> list[str]:
    """The commands of a section of the page, but for those that install."""
    page = (ROOT / "docs" / "howto" / "lora.md").read_text(encoding="utf-8")
    section = page.split(f"## {part}\n")[1].split("\n## ")[0]
    lines = [line[2:] for line in section.splitlines() if line.startswith("$ ")]
    return [line for line in lines if not line.startswith("pip install")]


def run(commands: list[str], folder: Path) -> None:
    (folder / "examples").symlink_to(ROOT / "examples")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for command in commands:
        done = subprocess.run(
            command, shell=True, cwd=folder, env=os.environ | {"PATH": path}, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command}\n{done.stderr[-2000:]}"


def of_text(folder: Path) -> list[dict]:
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return [attack for attack in results["attacks"] if attack["attack"] == "inversion-text"]


def test_a_client_keeps_what_a_tokenizer_gives(tmp_path, monkeypatch):
    pytest.importorskip("flwr")
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    given = {"input_ids": torch.tensor([[5, 6], [7, 0]]), "attention_mask": torch.tensor([[1, 1], [1, 0]])}
    mod = AuditMod(str(tmp_path / "s"), records=lambda context: (given, torch.tensor([0, 1])))
    content = RecordDict({"arrays": ArrayRecord({"w": torch.zeros(1)}), "metrics": MetricRecord({"num-examples": 2})})
    message = Message(content=content, dst_node_id=1, message_type="train")
    mod(message, Context(1, 1, {"partition-id": 4}, RecordDict(), {}), lambda message, context: message)
    kept, targets = records_kept(tmp_path / "s", 4)
    assert {name: part.tolist() for name, part in kept.items()} == {name: p.tolist() for name, p in given.items()}
    assert targets.tolist() == [0, 1]


@pytest.mark.full
@pytest.mark.parametrize("part", ["A training with Flower", "A training with Opacus"])
def test_what_the_page_types_runs_and_shows_what_it_says(part, tmp_path):
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        pytest.skip(f"{', '.join(missing)} not installed: pip install 'dpfl-audit[flower,opacus,text]' and the model")
    first = typed("A training with Flower")[:1]  # unpacks the model
    run([*(first if part != "A training with Flower" else []), *typed(part)], tmp_path)
    folders = {"A training with Flower": ("results", "private-results"), "A training with Opacus": ("opacus-results",)}
    for name in folders[part]:
        measured = of_text(tmp_path / name)
        assert len(measured) == 4
        for one in measured:
            assert one["metrics"]["words_told"] == one["metrics"]["whole"] == (1.0 if name == "results" else 0.0)
