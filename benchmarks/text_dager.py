"""DAGER's own code (arXiv:2405.15586) beside ours, on the same gradients of all-MiniLM-L6-v2 with a classifier.

    git clone https://github.com/insait-institute/dager-gradient-inversion DIR   (at 4383e25)
    pip install --target SITE --no-deps transformers==4.45.1 tokenizers==0.20.3 huggingface_hub==0.26.5
    python benchmarks/text_dager.py FOLDER_OF_MODEL in_domain_train.tsv --code DIR --site SITE [--batches 1 2 4 8]

The model and the sentences: as `text.py`. Their code runs as their script for BERT calls it, in a process of its own,
with the transformers that they name, on one thread. No file of theirs is changed; this is put in at run time:

- the model and its tokenizer are opened from the folder, in place of bert-base-uncased from a hub, and the gradient of
  a query's weights stands at every 16th of their parameters for 6 layers, not 12;
- the gradient is the one that ours reads;
- the metric's script, which they fetch, is F of words: they use it to pair what they found, and here ours pairs both;
- peft, which they need for adapters alone, is not there;
- after --cap seconds their search takes the best that it has; a sentence that it never tried is an empty one.

Seconds are CPU seconds of one thread, of both attacks alone, from the gradient on. Both are scored by
`metrics/text.py`, special tokens left out.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from dpfl_audit.attacks.base import Knowledge
from dpfl_audit.attacks.text.attack import TextInversion
from dpfl_audit.defenses.data.vocabulary import Vocabulary, vocabulary_of
from dpfl_audit.metrics.text import TextsBeside, counted_words, score_texts
from text import LENGTH, encoder, gradient_of, of_model_and_sentences, sentences_of, view_of
from torch import Tensor

SCRIPT = ("--split", "val", "--n_inputs", "1", "--l1_filter", "maxB", "--l2_filter", "non-overlap")  # scripts/bert.sh
TOLERANCES = {1: 1e-7, 2: 1e-7, 4: 1e-8, 8: 1e-8, 16: 1e-8, 32: 1e-9}  # of their README, by batch
MOST = 10_000_000  # their maxC
SCORES = ("rouge1", "rouge2", "whole")


def main() -> None:
    parser = of_model_and_sentences(__doc__)
    parser.add_argument("--code", type=Path, required=True)
    parser.add_argument("--site", type=Path, required=True)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cap", type=float, default=600.0, help="CPU seconds of theirs for one batch")
    parser.add_argument("--tolerance", choices=["readme", "none"], default="readme")
    parser.add_argument("--precision", choices=["full", "double"], default="full", help="theirs")
    parser.add_argument("--message", type=Path, help="a file with a gradient: run theirs on it, and nothing else")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.message is not None:
        return theirs(given)
    data = sentences_of(given.sentences, given.model, LENGTH)
    words = vocabulary_of(data.description)
    assert words is not None
    module, layout, start = encoder(given.model, data)
    others = [counted_words(words.spoken(record)) for record in data.auxiliary_inputs.tolist()]
    print("| batch | tokens | their pairs | at the cap | ROUGE-1 | -2 | whole | s | ours: ROUGE-1 | -2 | whole | s |")
    print("|" + "---|" * 12, flush=True)
    for batch in given.batches:
        total = torch.zeros(11, dtype=torch.float64)
        for k in range(given.repeats):
            own = torch.arange(k * batch, (k + 1) * batch)
            value = gradient_of(module, layout, start, data, own)
            texts = [words.text(record) for record in data.inputs[own].tolist()]
            originals = [counted_words(words.spoken(record)) for record in data.inputs[own].tolist()]
            view = view_of(module, layout, start, value, batch, data, words)
            begin, attack, nothing = time.process_time(), TextInversion(), Knowledge({}, torch.zeros(0), torch.zeros(0))
            read = attack.run_part(attack.parts(view, nothing)[0], view, nothing, 0)
            seconds = time.process_time() - begin
            found = in_their_process(given, dict(layout.split(value)), texts)
            row = [float((data.inputs[own] >= 0).sum()), found["pairs"], float(found["capped"])]
            for made, spent in ((found["texts"], found["seconds"]), (read.texts.tolist(), seconds)):
                scores = scored(words, originals, others, made)
                row += [*scores, spent]
            print(f"<!-- {batch}.{k}: {' '.join(f'{x:.3g}' for x in row)} {found['error']} -->", flush=True)
            total += torch.tensor(row, dtype=torch.float64) / given.repeats
        print(f"| {batch} | " + " | ".join(f"{number:.3g}" for number in total.tolist()) + " |", flush=True)


def scored(words: Vocabulary, originals: list, others: list, made: list[list[int]]) -> list[float]:
    said = [counted_words(words.spoken(record)) for record in made]
    scores = score_texts(TextsBeside(originals, [], others), [text for text in said if text], [])
    return [float(scores[name] or 0.0) for name in SCORES]


def in_their_process(given: argparse.Namespace, gradient: dict[str, Tensor], texts: list[str]) -> dict[str, Any]:
    """What their code finds: texts as numbers of words, seconds, the pairs that its first check keeps, whether it came
    to the cap, and how it ended if not well.
    """
    files = importlib.import_module("safetensors.torch")
    with tempfile.TemporaryDirectory() as folder:
        message, answer = Path(folder) / "gradient.safetensors", Path(folder) / "gradient.json"
        files.save_file({name: part.contiguous() for name, part in gradient.items()}, message)
        answer.write_text(json.dumps(texts), encoding="utf-8")
        path = os.pathsep.join([str(given.site), os.environ.get("PYTHONPATH", "")])
        same = [str(given.model), str(given.sentences), "--code", str(given.code), "--site", str(given.site)]
        own = ["--cap", str(given.cap), "--tolerance", given.tolerance, "--precision", given.precision]
        command = [sys.executable, __file__, *same, *own, "--message", str(message)]
        shown = None if os.environ.get("SHOW") else subprocess.DEVNULL
        subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=True, stderr=shown)
        return json.loads(answer.read_text(encoding="utf-8"))


def theirs(given: argparse.Namespace) -> None:
    answer = given.message.with_suffix(".json")
    texts = json.loads(answer.read_text(encoding="utf-8"))
    tolerance = TOLERANCES.get(len(texts)) if given.tolerance == "readme" else None
    asked = ["--dataset", "cola", *SCRIPT, "--batch_size", str(len(texts)), "--precision", given.precision]
    asked += ["--device", "cpu", "--task", "seq_class", *(("--rank_tol", str(tolerance)) if tolerance else ())]
    sys.path.insert(0, str(given.code))
    os.environ.setdefault("HF_TOKEN", "")  # which they read, and nothing is fetched with
    sys.argv = ["attack.py", *asked]
    for name in ("transformers.models.auto.modeling_auto", "transformers.models.bert.modeling_bert"):
        importlib.import_module(name)  # before what is not there, which it looks for
    for name in ("datasets", "peft"):
        made: Any = ModuleType(name)
        made.load_metric = made.load_dataset = None
        sys.modules[name] = made
    attack: Any = importlib.import_module("attack")
    models: Any = importlib.import_module("utils.models")
    for name in ("AutoModelForSequenceClassification", "AutoTokenizer"):
        setattr(models, name, Local(getattr(models, name), given.model))
    gradient = importlib.import_module("safetensors.torch").load_file(given.message)
    with contextlib.redirect_stdout(sys.stderr):
        wrapper = models.ModelWrapper(attack.args)
        wrapper.layer_ids = [*range(5, 5 + 16 * wrapper.model.config.num_hidden_layers, 16)]
        grads = in_their_order(wrapper.model, gradient)
        wrapper.compute_grads = lambda batch, labels: grads
        kept: list[int] = []
        attack.filter_l1 = counting(attack.filter_l1, kept)
        attack.filter_encoder = without_untried(attack.filter_encoder, wrapper)
        begin = time.process_time()
        args = Capped(begin + given.cap, attack.args)
        made, error = [], ""
        try:
            made, _ = attack.reconstruct(args, torch.device("cpu"), (texts, torch.zeros(1)), Pairing(), wrapper)
        except Exception as failed:  # whatever their code raises is its answer
            error = f"{type(failed).__name__}: {failed}"[:200]
    seconds = time.process_time() - begin
    numbers = [wrapper.tokenizer(text, add_special_tokens=False)["input_ids"] for text in made]
    capped = time.process_time() > args.end
    told = {"texts": numbers, "seconds": seconds, "pairs": sum(kept), "capped": capped, "error": error}
    answer.write_text(json.dumps(told), encoding="utf-8")


class Local:
    """What opens a model or a tokenizer, from one folder whatever is asked for."""

    def __init__(self, kind: Any, folder: Path) -> None:
        self.kind, self.folder = kind, folder

    def from_pretrained(
        self, pretrained_model_name_or_path: str, token: str = "", cache_dir: str = "", **settings: Any
    ) -> Any:
        return self.kind.from_pretrained(str(self.folder), local_files_only=True, **settings)


class Capped(argparse.Namespace):
    """Their settings, of which the number of sentences that may be tried ends with the time."""

    def __init__(self, end: float, settings: argparse.Namespace) -> None:
        super().__init__(**{name: value for name, value in vars(settings).items() if name != "maxC"})
        self.end = end

    @property
    def maxC(self) -> int:
        return MOST if time.process_time() < self.end else 0


class Pairing:
    """In place of the metric's script: F of words."""

    def compute(self, predictions: list[str], references: list[str]) -> dict[str, Any]:
        one, other = (Counter(texts[0].split()) for texts in (predictions, references))
        f = 2 * sum((one & other).values()) / max(1, sum(one.values()) + sum(other.values()))
        return {"rouge1": SimpleNamespace(mid=SimpleNamespace(fmeasure=f))}


def in_their_order(model: torch.nn.Module, gradient: dict[str, Tensor]) -> list[Tensor]:
    """Of their model's parameters; zeros of what ours has not, the pooler and their classifier."""
    ours = {name.split("base.")[-1]: part for name, part in gradient.items()}
    lacking = {name for name, _ in model.named_parameters() if name.removeprefix("bert.") not in ours}
    assert all("pooler" in name or "classifier" in name for name in lacking), lacking
    parts = [(ours.get(name.removeprefix("bert.")), value) for name, value in model.named_parameters()]
    return [torch.zeros_like(value) if part is None else part.to(value) for part, value in parts]


def counting(check: Any, kept: list[int]) -> Any:
    """Their first check, whose pairs of a word and a place are counted."""

    def counted(*given: Any) -> Any:
        found = check(*given)
        kept.append(sum(map(len, found[1])))
        return found

    return counted


def without_untried(check: Any, wrapper: Any) -> Any:
    """Their second check, with an empty sentence in place of one that it had no time to try."""

    def tried(*given: Any) -> Any:
        found, scores = check(*given)
        empty = [wrapper.start_token, wrapper.eos_token]
        return [text if min(text) >= 0 else empty for text in found], scores

    return tried


if __name__ == "__main__":
    main()
