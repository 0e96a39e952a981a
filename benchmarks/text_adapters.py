"""How many words come back through LoRA adapters alone, by words in a message: all-MiniLM-L6-v2, CoLA sentences.

    python benchmarks/text_adapters.py FOLDER_OF_MODEL in_domain_train.tsv [--ranks 8 16 32] [--repeats 5]

The model and the sentences: as `text.py`. Before the gradient that is read, one step of SGD on 16 other sentences, as a
round of training makes it; "B = 0" is without it. A message holds whole sentences, the last one cut, up to so many
different pairs of a word and a place, of which the adapters of the first layer tell as many as their ranks together.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from dpfl_audit.attacks.base import Knowledge
from dpfl_audit.attacks.text.attack import TextInversion
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data.vocabulary import PAD, vocabulary_of
from dpfl_audit.defenses.engine import looped
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import LocalJob, LocalTraining
from text import of_model_and_sentences, sentences_of, view_of
from torch import Tensor

TARGETS = {"q, v": ["query", "value"], "q, k, v": ["query", "key", "value"]}
OTHERS = 16
LENGTH = 16  # tokens of a sentence at most


def main() -> None:
    parser = of_model_and_sentences(__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 16, 32])
    parser.add_argument("--repeats", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(1)
    data = sentences_of(given.sentences, given.model, LENGTH)
    print("| adapters | rank | together | pairs | words told | wrong | all told | s |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name, targets in TARGETS.items():
        for rank in given.ranks:
            told = rank * len(targets)
            for pairs in (told // 2, told - 1, told, told + told // 4, 0):
                print(f"| {name} | {rank} | {told} | {row(given, data, (rank, targets), pairs)} |", flush=True)


def row(given: argparse.Namespace, data, lora: tuple[int, list[str]], pairs: int) -> str:
    """pairs: 0 for one less than the rank, at B = 0."""
    begun, pairs = pairs > 0, pairs or lora[0] - 1
    words = vocabulary_of(data.description)
    assert words is not None
    about: dict[str, Any] = {"input_shape": data.input_shape, "classes": 2, "mean": (), "std": (), "seed": 0}
    options: dict[str, Any] = {"lora": {"rank": lora[0], "targets": lora[1]}}
    module = models.build(f"hf:{given.model}", vocabulary=len(words), **about, **options)
    layout = Layout.of(module)
    start = layout.join(dict(module.named_parameters())).detach()
    if begun:
        start = start + sent(module, layout, start, data.auxiliary_inputs[:OTHERS], data.auxiliary_targets, "update")
    told = wrong = whole = seconds = 0.0
    for k in range(given.repeats):
        inputs = taken(data.inputs[torch.arange(k, len(data.inputs), given.repeats)], pairs)
        value = sent(module, layout, start, inputs, data.targets, "gradient")
        view, nothing = view_of(module, layout, start, value, len(inputs), data, words), Knowledge({}, inputs, inputs)
        begin, attack = time.perf_counter(), TextInversion()
        read = attack.run_part(attack.parts(view, nothing)[0], view, nothing, 0)
        seconds += (time.perf_counter() - begin) / given.repeats
        true, found = set(inputs.flatten().tolist()) - {PAD}, set(read.words.tolist())
        told += len(true & found) / len(true) / given.repeats
        wrong += len(found - true) / given.repeats
        whole += (true <= found) / given.repeats
    start_words = "" if begun else " (B = 0)"
    return f"{pairs}{start_words} | {told:.3g} | {wrong:.3g} | {whole:.3g} | {seconds:.3g}"


def taken(inputs: Tensor, pairs: int) -> Tensor:
    """Sentences up to so many different pairs of a word and a place, the last one cut."""
    rows, seen = [], set[tuple[int, int]]()
    for record in inputs:
        kept = torch.full_like(record, PAD)
        for place, word in enumerate(record.tolist()):
            if word == PAD or (len(seen) == pairs and (place, word) not in seen):
                break
            seen.add((place, word))
            kept[place] = word
        if bool((kept != PAD).any()):
            rows.append(kept)
        if len(seen) == pairs:
            break
    return torch.stack(rows)


def sent(module, layout: Layout, start: Tensor, inputs: Tensor, targets: Tensor, share) -> Tensor:
    training = LocalTraining(optimiser="sgd", lr=0.1, batch_size=len(inputs), steps=1, epochs=None)
    batch = torch.arange(len(inputs))[None]
    return looped([LocalJob(module, layout, training, start, inputs, targets, batch, share, 0.1)])[0].value


if __name__ == "__main__":
    main()
