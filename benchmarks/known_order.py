"""What the true order of batches is worth: images from several local epochs of FedAvg, with and without being told.

    python benchmarks/known_order.py --data-root DIR [--images 50] [--epochs 10] [--seed 20] [--iterations 400]
                                     [--simulated 60] [--preset fedavg-span]

Dimitrov et al.'s setting (arXiv:2206.12395) on Fashion-MNIST's test images: their CNN at its initial weights, batches
of 5, SGD .004, labels known. First `--preset` without its simulation (the guess); from there a simulation on one
set of images in the *true* order, by an attacker who is told what nobody is told, so that what it lacks is not the
order; then what needs not be told: a new order at every iteration, and one order with images of every epoch apart.
Share of images above 19 dB with its 95 % interval, and mean
PSNR. One trial, one thread.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import quiet  # noqa: F401 - before torch
import torch
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.match.objective import Matching
from dpfl_audit.attacks.inversion.match.optimise import adam, with_prior
from dpfl_audit.attacks.inversion.match.span import InputSpan, with_span
from dpfl_audit.attacks.inversion.presets.published import PRESETS
from dpfl_audit.attacks.inversion.read.local_training import Recipe
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.attacks.inversion.strategies.simulated import Simulated
from dpfl_audit.audit.reproduce.fedavg_dimitrov import BATCH, LEVEL, LR, network
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data import load
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.randomness import generator
from dpfl_audit.metrics.intervals import bootstrap_interval, clopper_pearson_interval
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn import functional as F

SHAPE = (1, 28, 28)


def trained(module: nn.Module, images: Tensor, labels: Tensor, epochs: int, seed: int) -> tuple[Target, Tensor]:
    """The target of a client's update, and the order of its images, (epochs, n)."""
    layout, n = Layout.of(module), len(images)
    before = layout.join({name: p.detach().clone() for name, p in module.named_parameters()})
    draw = generator(seed, "benchmark order")
    order = torch.stack([torch.randperm(n, generator=draw) for _ in range(epochs)])
    optimiser = torch.optim.SGD(module.parameters(), lr=LR)
    for rows in order.flatten().split(BATCH):
        optimiser.zero_grad()
        F.cross_entropy(module(images[rows]), labels[rows]).backward()
        optimiser.step()
    update = layout.join({name: p.detach().clone() for name, p in module.named_parameters()}) - before
    for name, p in module.named_parameters():
        p.data.copy_(layout.split(before)[name])
    recipe = Recipe("sgd", LR, (BATCH,) * (epochs * n // BATCH), epochs)
    return Target("benchmark", before, -update / recipe.scale, labels, n, recipe=recipe, update=update), order


def in_true_order(
    module: nn.Module, target: Target, guess: Tensor, order: Tensor, settings: Inversion, iterations: int
) -> Tensor:
    """Images (n, *shape) by a simulation of the training as it was."""
    layout = Layout.of(module)
    assert target.labels is not None
    matching = Matching.of(settings.objective, [target])
    made = Simulated(module, layout, target, target.labels[order], matching)

    def shared(images: Tensor) -> tuple[Tensor, Tensor]:
        value, slope = made(images[0][order.flatten()][None])
        return value, torch.zeros_like(images[0]).index_add_(0, order.flatten(), slope[0])[None]

    assert not isinstance(settings.tv, str)
    total = with_prior(shared, target.weights.new_tensor([settings.tv]))
    total = with_span(total, [InputSpan.of(module, layout, target)] if settings.span else [], settings.span)
    return adam(total, guess[None], iterations, settings.lr / 10)[0][0]


def psnr_of(found: Tensor, images: Tensor, labels: Tensor) -> Tensor:
    """PSNR (dB) of every image, matched within its label."""
    errors = (found[:, None] - images[None]).square().flatten(2).mean(2) + 1e6 * (labels[:, None] != labels[None])
    return -10 * errors[linear_sum_assignment(errors.numpy())].log10()


def report(name: str, found: Tensor, images: Tensor, labels: Tensor, seconds: float) -> None:
    psnr = psnr_of(found, images, labels)
    above = int((psnr > LEVEL).sum())
    low, high = clopper_pearson_interval(above, len(psnr))
    least, most = bootstrap_interval(psnr, seed=0) or (float("nan"), float("nan"))
    level = f"{above / len(psnr):.0%} ({low:.0%} to {high:.0%})"
    print(f"| {name} | {psnr.mean():.1f} dB ({least:.1f} to {most:.1f}) | {level} | {seconds:.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", required=True)
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=400)
    parser.add_argument("--simulated", type=int, default=60)
    parser.add_argument("--preset", default="fedavg-span")
    options = parser.parse_args()
    torch.set_flush_denormal(True)
    data = load("fashion_mnist", root=options.data_root, seed=options.seed)
    rows = torch.randperm(len(data.test_inputs), generator=generator(options.seed, "benchmark"))[: options.images]
    images, labels = data.test_inputs[rows], data.test_targets[rows].sort()[0]
    images = images[data.test_targets[rows].argsort(stable=True)]
    module = models.build(
        "layers",
        input_shape=SHAPE,
        classes=10,
        mean=data.mean,
        std=data.std,
        seed=options.seed,
        layers=network(1, 28, 10),
    ).eval()
    target, order = trained(module, images, labels, options.epochs, options.seed)
    preset = replace(PRESETS[options.preset].settings, iterations=options.iterations, simulated=0, reorder=False)
    print(f"{options.images} images, E = {options.epochs}, seed {options.seed}\n")
    print("| attack | PSNR | above 19 dB | CPU s |\n|---|---|---|---|")
    begin = time.process_time()
    guess = solve(module, [target], SHAPE, preset, 0)[0]
    report(f"{options.preset}, not simulated", guess.images, images, labels, time.process_time() - begin)
    begin = time.process_time()
    told = in_true_order(module, target, guess.images, order, preset, options.simulated)
    report(
        f"the same, {options.simulated} simulated in the true order", told, images, labels, time.process_time() - begin
    )
    for reorder, said in ((True, "a new order at every iteration"), (False, "one order, images of every epoch apart")):
        begin = time.process_time()
        settings = replace(preset, simulated=options.simulated, reorder=reorder)
        own = solve(module, [target], SHAPE, settings, 0)[0]
        report(f"{options.simulated} simulated in {said}", own.images, images, labels, time.process_time() - begin)


if __name__ == "__main__":
    main()
