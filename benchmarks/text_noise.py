"""How many words noise leaves in one full gradient of all-MiniLM-L6-v2: the attack, the plain span test, and controls.

    python benchmarks/text_noise.py FOLDER_OF_MODEL in_domain_train.tsv [--batch 8] [--seeds 3]
    python benchmarks/text_noise.py FOLDER_OF_MODEL in_domain_train.tsv --adapters [--begun] [--batch 1]

The model and the sentences: as `text.py`. Noise is given as its length over the gradient's (rho), and as the noise
multiplier z of a clip that the gradient just passes, with the ε that this proves of one message (δ = 1e-5, zero_out).
"F" is of a message's different words. The plain test is DAGER's (arXiv:2405.15586): the first layer's span with the
rank at the largest gap, and one threshold, the best of a grid on as many other batches with the same noise.

With --adapters LoRA of rank 16 on query and value and the head are trained, at B = 0, or with --begun after a step on
16 other sentences. Sentences have at most 12 tokens, so that the plain test has more ranks than words of one: it takes
A's span, at B = 0 those of the first layer's B, in which a word must lie at once.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import torch
from dpfl_audit.attacks.base import Knowledge
from dpfl_audit.attacks.text.attack import TextInversion
from dpfl_audit.attacks.text.layers import Layers
from dpfl_audit.attacks.text.span import SpanOfInputs
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data.vocabulary import PAD, vocabulary_of
from dpfl_audit.defenses.layout import Layout
from text import LENGTH, encoder, gradient_of, of_model_and_sentences, sentences_of, view_of
from text_adapters import sent
from torch import Tensor

NOISES = (0.01, 0.1, 0.3, 1.0, 2.0, 3.0, 5.0, 10.0, 100.0, 3000.0)
THRESHOLDS = torch.logspace(-6, 0, 61)
DELTA = 1e-5


def main() -> None:
    parser = of_model_and_sentences(__doc__)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--adapters", action="store_true")
    parser.add_argument("--begun", action="store_true")
    parser.add_argument("--plain", action="store_true", help="the plain test alone, which takes seconds")
    parser.add_argument("--noises", type=float, nargs="+", default=NOISES)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.adapters:
        return by_adapters(given)
    data = sentences_of(given.sentences, given.model, LENGTH)
    words = vocabulary_of(data.description)
    assert words is not None
    module, layout, start = encoder(given.model, data)
    layers = Layers.of(module, layout, start, len(words), LENGTH)
    batches = torch.arange(2 * given.seeds * given.batch).split(given.batch)
    length = int((data.inputs[torch.cat(batches)] != PAD).sum(1).max())
    read = torch.cat([x.float() for _, x in layers.of_words(torch.arange(len(words)), length)])  # a GB
    truths = [{*data.inputs[rows].flatten().tolist()} - {PAD} for rows in batches]
    usual = frequent(data.auxiliary_inputs)
    print("| rho | z | proven ε | words told | wrong | F | plain test's F | frequent words' F | another batch's F |")
    print("|" + "---|" * 9, flush=True)
    values = [gradient_of(module, layout, start, data, rows) for rows in batches]
    for rho in given.noises:
        total = torch.zeros(6)
        shares = []
        for k, value in enumerate(values):
            std = rho * float(value.norm()) / len(value) ** 0.5
            noisy = value + std * torch.randn(value.shape, generator=torch.Generator().manual_seed(k))
            part = layout.split(noisy)
            span = SpanOfInputs.of([layers.rows(part, path) for path in layers.groups[0]])
            shares.append(outside(read, span.basis.float()))
            if k >= given.seeds:
                continue
            view = view_of(module, layout, start, noisy, given.batch, data, words, std)
            attack = TextInversion()
            nothing = Knowledge({}, torch.zeros(0), torch.zeros(0))
            told = {*attack.run_part(attack.parts(view, nothing)[0], view, nothing, 0).words.tolist()}
            truth, other = truths[k], truths[given.seeds + k]
            row = [len(told & truth) / len(truth), float(len(told - truth)), f_of(told, truth), 0.0]
            total += torch.tensor([*row, f_of({*usual[: len(truth)]}, truth), f_of(told, other)]) / given.seeds
        fixed = best_threshold(shares[given.seeds :], truths[given.seeds :])
        for share, truth in zip(shares, truths[: given.seeds], strict=False):
            total[3] += f_of(below(share, fixed), truth) / given.seeds
        z = rho / len(start) ** 0.5
        epsilon = gaussian_epsilon(z, DELTA)
        print(
            f"| {rho:g} | {z:.2g} | {epsilon:.3g} | " + " | ".join(f"{x:.3g}" for x in total.tolist()) + " |",
            flush=True,
        )


def by_adapters(given: argparse.Namespace) -> None:
    data = sentences_of(given.sentences, given.model, LENGTH)
    data = replace(data, inputs=data.inputs[(data.inputs != PAD).sum(1) <= 12])
    words = vocabulary_of(data.description)
    assert words is not None
    about = {"input_shape": data.input_shape, "classes": 2, "mean": (), "std": (), "seed": 0}
    lora = {"rank": 16, "targets": ["query", "value"]}
    module = models.build(f"hf:{given.model}", vocabulary=len(words), lora=lora, **about)
    layout = Layout.of(module)
    start = layout.join(dict(module.named_parameters())).detach()
    if given.begun:
        start = start + sent(module, layout, start, data.auxiliary_inputs[:16], data.auxiliary_targets, "update")
    layers = Layers.of(module, layout, start, len(words), 12)
    depths = range(0, 1) if given.begun else range(1, layers.single)
    read = [torch.cat([x.float() for _, x in layers.of_words(torch.arange(len(words)), 12)])]
    read += [] if given.begun else [layers.behind(read[0].double(), depth).float() for depth in depths]
    batches = torch.arange(2 * given.seeds * given.batch).split(given.batch)
    truths = [{*data.inputs[rows].flatten().tolist()} - {PAD} for rows in batches]
    usual = frequent(data.auxiliary_inputs)
    print("| rho | z | proven ε | words told | wrong | F | sentences whole | plain | frequent | another's | s |")
    print("|" + "---|" * 11, flush=True)
    values = [sent(module, layout, start, data.inputs[rows], data.targets[rows], "gradient") for rows in batches]
    for rho in given.noises:
        total, shares = torch.zeros(8), []
        for k, value in enumerate(values):
            std = rho * float(value.norm()) / len(value) ** 0.5
            noisy = value + std * torch.randn(value.shape, generator=torch.Generator().manual_seed(k))
            part = layout.split(noisy)
            spans = [SpanOfInputs.of([layers.rows(part, p) for p in layers.groups[d]]) for d in depths]
            shares.append(
                torch.stack([outside(x, s.basis.float()) for x, s in zip(read[-len(depths) :], spans)]).amax(0)
            )
            if k >= given.seeds or given.plain:
                continue
            view = view_of(module, layout, start, noisy, given.batch, data, words, std)
            attack, known = TextInversion(), Knowledge({}, data.auxiliary_inputs, data.auxiliary_targets)
            begin = time.process_time()
            found = attack.run_part(attack.parts(view, known)[0], view, known, 0)
            told, texts = {*found.words.tolist()}, {tuple(text) for text in found.texts.tolist()}
            guessed = ({*found.texts.flatten().tolist()} | told) - {PAD}
            truth, other = truths[k], truths[given.seeds + k]
            whole = sum(tuple(text) in texts for text in data.inputs[batches[k]].tolist()) / given.batch
            row = [len(told & truth) / len(truth), len(told - truth), f_of(guessed, truth), whole, 0.0]
            row += [f_of({*usual[: len(truth)]}, truth), f_of(guessed, other), time.process_time() - begin]
            total += torch.tensor(row) / given.seeds
        fixed = best_threshold(shares[given.seeds :], truths[given.seeds :])
        for share, truth in zip(shares, truths[: given.seeds], strict=False):
            total[4] += f_of(below(share, fixed), truth) / given.seeds
        z = rho / len(start) ** 0.5
        figures = " | ".join(f"{x:.3g}" for x in total.tolist())
        print(f"| {rho:g} | {z:.2g} | {gaussian_epsilon(z, DELTA):.3g} | {figures} |", flush=True)


def best_threshold(shares: list[Tensor], truths: list[set[int]]) -> float:
    """Of the grid, by the sum of F."""
    worth = [sum(f_of(below(s, t), w) for s, w in zip(shares, truths, strict=True)) for t in THRESHOLDS.tolist()]
    return float(THRESHOLDS[worth.index(max(worth))])


def outside(read: Tensor, basis: Tensor) -> Tensor:
    """The least share outside of a span of what each word makes the first layer read, at its best place."""
    parts = []
    for x in read.split(1024):
        inside = (x @ basis).square().sum(-1) / x.square().sum(-1)
        parts.append((1 - inside).clamp_min(0).sqrt().amin(1))
    return torch.cat(parts)


def below(shares: Tensor, threshold: float) -> set[int]:
    return {*torch.nonzero(shares < threshold).flatten().tolist()}


def f_of(told: set[int], truth: set[int]) -> float:
    """
    >>> f_of({1, 2}, {2, 3}), f_of(set(), {1})
    (0.5, 0.0)
    """
    return 2 * len(told & truth) / (len(told) + len(truth))


def frequent(texts: Tensor) -> list[int]:
    """The words of texts, the most frequent first."""
    words, counts = texts[texts != PAD].unique(return_counts=True)
    return words[counts.argsort(descending=True)].tolist()


if __name__ == "__main__":
    main()
