"""Labels read out of what clients send: accuracy by method, network, update and noise.

    python benchmarks/labels.py [--models mlp lenet cnn] [--sent gradient …] [--seeds 5] [--first 10] [--images 24]
                                [--trained 0] [--without-bias]

Bundled photographs of 10 classes; a client's labels follow a law that is drawn per seed (Dirichlet 1). A gradient, five
steps of SGD (lr .05), and Adam's epoch (lr .001), the last two in batches of 8; after --trained steps of plain SGD on
all records, or at the initial weights. Noise: in each component, as a multiple of the typical (root mean square) one of
what is sent. Accuracy is that of the multiset, Σ_c min(k_c, k̂_c)/n, averaged over the seeds; `auto` is the method that
`labels = "inferred"` picks; the control is the better of a uniform spread and one class. – : not possible.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from typing import Any

import quiet  # noqa: F401 - before torch
import torch
from dpfl_audit.attacks.base import Knowledge, PublicFacts, Seen, View
from dpfl_audit.attacks.inversion.labels.infer import METHODS, infer, read
from dpfl_audit.attacks.inversion.read.target import Target, one_round
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data import photos
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.metrics.labels import label_accuracy, label_control
from torch import Tensor, nn
from torch.nn import functional as F

SHAPE, CLASSES, BATCH = (3, 32, 32), 10, 8
OPTIONS: dict[str, dict[str, Any]] = {"mlp": {"widths": [256, 256]}, "lenet": {}, "cnn": {"channels": [16, 32]}}
NOISE = (0.0, 0.05, 0.5, 2.0)
SENT = {"gradient": ("gradient", "sgd", 0.05, 1), "5 SGD steps": ("update", "sgd", 0.05, 5)}
SENT["Adam's epoch"] = ("update", "adam", 1e-3, 0)
EMPTY = Knowledge({}, torch.zeros(0), torch.zeros(0, dtype=torch.long))


def network(name: str, seed: int, data, steps: int, bias: bool) -> nn.Module:
    module = models.build(
        name, input_shape=SHAPE, classes=CLASSES, mean=data.mean, std=data.std, seed=seed, **OPTIONS[name]
    ).eval()
    if not bias:
        next(m for m in reversed(list(module.modules())) if isinstance(m, nn.Linear)).register_parameter("bias", None)
    optimiser, rng = torch.optim.SGD(module.parameters(), 0.05), torch.Generator().manual_seed(seed)
    for _ in range(steps):
        rows = torch.randint(len(data.inputs), (32,), generator=rng)
        step(module, optimiser, data.inputs[rows], data.targets[rows])
    return module


def step(module: nn.Module, optimiser, inputs: Tensor, labels: Tensor) -> None:
    optimiser.zero_grad()
    F.cross_entropy(module(inputs), labels).backward()
    optimiser.step()


def flat(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def target(module: nn.Module, inputs: Tensor, labels: Tensor, sent: str, noise: float, seed: int) -> Target:
    """One client's message with noise, as an attack takes it. The module is left as trained."""
    share, optimiser, lr, steps = SENT[sent]
    before, rng = flat(module), torch.Generator().manual_seed(seed)
    if share == "gradient":
        grads = torch.autograd.grad(F.cross_entropy(module(inputs), labels), list(module.parameters()))
        value = torch.cat([g.flatten() for g in grads])
    else:
        made = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimiser](module.parameters(), lr)
        epoch = -(-len(labels) // BATCH)
        order = torch.randperm(len(labels), generator=rng)
        for k in range(steps or epoch):
            if k and k % epoch == 0:
                order = torch.randperm(len(labels), generator=rng)
            rows = order[k % epoch * BATCH : (k % epoch + 1) * BATCH]
            step(module, made, inputs[rows], labels[rows])
        value = flat(module) - before
    std = noise * value.square().mean().sqrt().item()
    value = value + std * torch.randn(len(value), generator=rng)
    epochs = None if steps else 1
    facts = PublicFacts("benchmark", share, optimiser, lr, BATCH, epochs, steps or None, noise_std=std)
    messages = (
        Seen("down", 1, "server", ("a",), "weights", 0, lambda: before, True),
        Seen("up", 1, "a", ("server",), share, len(labels), lambda: value, False),
    )
    view = View("server", messages, module, Layout.of(module), facts, SHAPE, CLASSES)
    return one_round(view, EMPTY)[0].target


def measure(name: str, sent: str, noise: float, options: argparse.Namespace) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for seed in range(options.first, options.first + options.seeds):
        data = photos.load(classes=CLASSES, samples=400, seed=seed)
        rng = torch.Generator().manual_seed(seed)
        law = -torch.rand(CLASSES, generator=rng).log()
        rows = torch.multinomial(law[data.targets], options.images, generator=rng)
        module = network(name, seed, data, options.trained, not options.without_bias)
        aim = target(module, data.inputs[rows], data.targets[rows], sent, noise, seed)
        truth, layout = data.targets[rows], Layout.of(module)
        found["control"].append(label_control(truth, data.targets, CLASSES))
        try:
            read_as = read(module, layout, aim, SHAPE)
        except ValueError:  # nothing tells labels here
            continue
        for method, labels_by in METHODS.items():
            try:
                found[method].append(label_accuracy(labels_by(read_as), truth))
            except ValueError:
                continue
        auto = infer(module, layout, aim, SHAPE)
        found["auto"].append(label_accuracy(auto.labels, truth))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--first", type=int, default=10, help="the first seed; all rules but one were set by looking at 0 to 3"
    )
    parser.add_argument("--images", type=int, default=24)
    parser.add_argument("--trained", type=int, default=0)
    parser.add_argument("--models", nargs="+", choices=OPTIONS, default=list(OPTIONS))
    parser.add_argument("--sent", nargs="+", choices=SENT, default=list(SENT))
    parser.add_argument("--without-bias", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    columns = [*METHODS, "auto", "control"]
    print(f"| network, sent, noise | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for name in options.models:
        for sent in options.sent:
            for noise in NOISE:
                found = measure(name, sent, noise, options)
                cells = [f"{100 * sum(found[c]) / len(found[c]):.0f}" if found[c] else "–" for c in columns]
                print(f"| {name}, {sent}, {noise:g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
