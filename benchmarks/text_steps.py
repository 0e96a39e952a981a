"""How much of sentences comes back from an update of several local steps: all-MiniLM-L6-v2 with a classifier.

    python benchmarks/text_steps.py FOLDER_OF_MODEL in_domain_train.tsv [--batch 4] [--repeats 5] [--epoch]

The model and the sentences: as `text.py`. Every step is of the same batch; a row of one step is the ceiling of what
several can tell. Adam starts with no memory, as a client that trains anew each round.

With --epoch a client of 16 sentences trains once over them, a batch a step, by torch's own optimisers with weight
decay. The attacker is told of the update alone. The known-order ceiling is an attacker who is told besides what nobody
is: which sentences were in which step, in their order. It is handed what every step moved the weights by, and the
weights before it, and reads each by the same attack; what it has more than that of the update is the worth of order.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable
from dataclasses import replace

import torch
from dpfl_audit.attacks.base import Knowledge, PublicFacts, View
from dpfl_audit.attacks.text.attack import TextInversion
from dpfl_audit.defenses.data.vocabulary import vocabulary_of
from dpfl_audit.defenses.engine import looped
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import LocalJob, LocalTraining
from dpfl_audit.metrics.text import TextsBeside, counted_words, score_texts
from text import LENGTH, encoder, of_model_and_sentences, sentences_of, view_of
from torch import Tensor, nn
from torch.nn import functional as F

SETTINGS = (
    ("sgd", 0.01, 1),
    ("sgd", 0.01, 3),
    ("sgd", 0.1, 3),
    ("sgd", 0.01, 10),
    ("adam", 1e-4, 1),
    ("adam", 1e-4, 3),
)
CLIENT = 16  # sentences
EPOCHS = (("adamw", 5e-5, 0.01), ("sgd", 0.01, 0.0), ("sgd", 0.01, 0.01))  # with their weight decay
SCORES = ("words_told", "words_wrong", "rouge1", "rouge2", "whole")


def main() -> None:
    parser = of_model_and_sentences(__doc__)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--epoch", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    data = sentences_of(given.sentences, given.model, LENGTH)
    words = vocabulary_of(data.description)
    assert words is not None
    module, layout, start = encoder(given.model, data)
    others = [counted_words(words.spoken(record)) for record in data.auxiliary_inputs.tolist()]
    if given.epoch:
        return of_an_epoch(given, data, module, start, others)
    print("| optimiser | lr | steps | words told | wrong | ROUGE-1 | -2 | whole | others' ROUGE-1 |\n|" + "---|" * 9)
    for optimiser, lr, steps in SETTINGS:
        total = torch.zeros(len(SCORES) + 1)
        for k in range(given.repeats):
            own = torch.arange(k * given.batch, (k + 1) * given.batch)
            training = LocalTraining(optimiser=optimiser, lr=lr, batch_size=given.batch, steps=steps, epochs=None)
            batches = own.repeat(steps, 1)
            job = LocalJob(module, layout, training, start, data.inputs, data.targets, batches, "update", 0.1)
            view = view_of(module, layout, start, looped([job])[0].value, given.batch, data, words)
            facts = PublicFacts("fedavg", "update", optimiser, lr, given.batch, steps, None, noise_std=0.0)
            found = read(
                replace(view, facts=facts, messages=(view.messages[0], replace(view.messages[1], kind="update")))
            )
            said = [[counted_words(words.spoken(r)) for r in x.tolist()] for x in (data.inputs[own], found.texts)]
            told = counted_words(words.spoken(found.words.tolist()))
            scores = score_texts(TextsBeside(said[0], [], others), said[1], told)
            control = scores["controls"]["other_texts"]["rouge1"]
            total += torch.tensor([*(scores[name] or 0.0 for name in SCORES), control]) / given.repeats
        figures = " | ".join(f"{value:.3g}" for value in total.tolist())
        print(f"| {optimiser} | {lr:g} | {steps} | {figures} |", flush=True)


def of_an_epoch(given, data, module: nn.Module, start: Tensor, others) -> None:
    words, layout = vocabulary_of(data.description), Layout.of(module)
    assert words is not None
    print("| optimiser | lr | decay | told of | words told | wrong | ROUGE-1 | -2 | whole | others' ROUGE-1 | s |")
    print("|" + "---|" * 11, flush=True)

    def scored(own: Tensor, found) -> Tensor:
        said = [[counted_words(words.spoken(r)) for r in x] for x in (data.inputs[own].tolist(), texts_of(found))]
        told = counted_words(words.spoken(sorted({int(word) for each in found for word in each.words})))
        scores = score_texts(TextsBeside(said[0], [], others), said[1], told)
        return torch.tensor([*(scores[name] or 0.0 for name in SCORES), scores["controls"]["other_texts"]["rouge1"]])

    def seen(before: Tensor, after: Tensor, optimiser: str, lr: float, count: int) -> View:
        view = view_of(module, layout, before, after - before, count, data, words)
        facts = PublicFacts("fedavg", "update", optimiser, lr, given.batch, 1, None, noise_std=0.0)
        return replace(view, facts=facts, messages=(view.messages[0], replace(view.messages[1], kind="update")))

    for optimiser, lr, decay in EPOCHS:
        total = torch.zeros(2, len(SCORES) + 2)
        for k in range(given.repeats):
            own = torch.arange(k * CLIENT, (k + 1) * CLIENT)
            way = trained(module, layout, start, data, own.split(given.batch), (optimiser, lr, decay))
            begin = time.process_time()
            of_update = [read(seen(start, way[-1], optimiser, lr, CLIENT))]
            between = time.process_time()
            of_steps = [read(seen(*step, optimiser, lr, given.batch)) for step in zip(way, way[1:])]
            spent = (between - begin, time.process_time() - between)
            for row, found, seconds in zip(total, (of_update, of_steps), spent, strict=True):
                row += torch.cat([scored(own, found), torch.tensor([seconds])]) / given.repeats
        for row, told in zip(total.tolist(), ("the update", "every step in its order"), strict=True):
            figures = " | ".join(f"{value:.3g}" for value in row)
            print(f"| {optimiser} | {lr:g} | {decay:g} | {told} | {figures} |", flush=True)


def texts_of(found) -> list[list[int]]:
    return [text for each in found for text in each.texts.tolist()]


def trained(
    module: nn.Module, layout: Layout, start: Tensor, data, batches: Iterable[Tensor], how: tuple[str, float, float]
) -> list[Tensor]:
    """The weights (d,) before the first step and after each."""
    optimiser, lr, decay = how
    network = copy.deepcopy(module).requires_grad_(True)
    parameters = dict(network.named_parameters())
    with torch.no_grad():
        for name, value in layout.split(start).items():
            parameters[name].copy_(value)
    kind = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[optimiser]
    steps, way = kind(network.parameters(), lr=lr, weight_decay=decay), [start]
    for rows in batches:
        steps.zero_grad()
        F.cross_entropy(network(data.inputs[rows]), data.targets[rows]).backward()
        steps.step()
        way.append(layout.join({name: value.detach().clone() for name, value in parameters.items()}))
    return way


def read(view: View):
    """What the attack reads of the only message."""
    attack, nothing = TextInversion(), Knowledge({}, torch.zeros(0), torch.zeros(0))
    return attack.run_part(attack.parts(view, nothing)[0], view, nothing, 0)


if __name__ == "__main__":
    main()
