"""What the update of a few Adam steps tells of each step's images, with no guess, no order and no label by image.

    python benchmarks/adam_spans.py [--images 24] [--batch 8] [--seed 0] [--rounds 2]

Bundled photographs of 10 classes, network 3×1024 at its initial weights, learning rate .001. First the factors of every
step (`step_factors.py` of the inversion): how near the true images are to the span found, as the PSNR of their
projection, beside that of as many other images; "up to pixels' scales" with the scales that the update leaves open set
to what suits the truth best. Then the images themselves (`by_step.py`), matched with the true ones by the largest sum.
One thread, one run.
"""

from __future__ import annotations

import argparse
import time
from itertools import islice

import quiet  # noqa: F401 - before torch
import torch
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.match.case import Case
from dpfl_audit.attacks.inversion.read.local_training import Recipe
from dpfl_audit.attacks.inversion.read.step_factors import step_factors
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.attacks.inversion.strategies import by_step
from dpfl_audit.attacks.inversion.strategies.simulated import update_distance
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data import photos
from dpfl_audit.defenses.layout import Layout
from exact_inversion import psnr
from torch import Tensor
from torch.nn import functional as F

SHAPE, LR = (3, 32, 32), 1e-3


def workload(images: int, batch: int):
    """The network before training, its target, the batches' images and labels in their order, and as many others."""
    data = photos.load(classes=10, samples=max(20, 2 * images), seed=0)
    module = models.build(
        "mlp", input_shape=SHAPE, classes=10, mean=data.mean, std=data.std, seed=0, widths=[1024] * 3
    ).eval()
    layout = Layout.of(module)
    before = layout.join({name: p.detach().clone() for name, p in module.named_parameters()})
    optimiser = torch.optim.Adam(module.parameters(), lr=LR)
    order = torch.randperm(images, generator=torch.Generator().manual_seed(0))
    for rows in order.split(batch):
        optimiser.zero_grad()
        F.cross_entropy(module(data.inputs[rows]), data.targets[rows]).backward()
        optimiser.step()
    after = layout.join({name: p.detach().clone() for name, p in module.named_parameters()})
    for name, p in module.named_parameters():
        p.data.copy_(layout.split(before)[name])
    sizes = tuple(len(rows) for rows in order.split(batch))
    labels = data.targets[:images]
    target = Target(
        "benchmark", before, before - after, labels, images, recipe=Recipe("adam", LR, sizes, 1), update=after - before
    )
    return module, target, data.inputs[order], data.targets[order], data.inputs[images : images + batch]


def nearness(inputs: list[Tensor], spans: list[Tensor], pixels: Tensor, std: Tensor) -> list[float]:
    """PSNR in dB of each step's inputs [x | 1] (n, i + 1), mean over them, after projection on the span's rows."""
    found = []
    for own, span in zip(inputs, spans):
        basis = torch.linalg.qr(span.double().T)[0]
        rest = ((own * pixels) @ basis @ basis.T / pixels - own)[:, :-1].view(-1, *SHAPE) * std
        found.append(float((-10 * rest.square().flatten(1).mean(1).log10()).mean()))
    return found


def best_scales(inputs: list[Tensor], spans: list[Tensor]) -> Tensor:
    """(i + 1,), pixels' scales that bring the true inputs next to the spans."""
    scales, every = torch.ones(inputs[0].shape[1], dtype=torch.float64), torch.cat(inputs)
    bases = [torch.linalg.qr(span.double().T)[0] for span in spans]
    for _ in range(40):
        near = torch.cat([(own * scales) @ basis @ basis.T for own, basis in zip(inputs, bases)])
        scales = (near * every).sum(0) / every.square().sum(0)
        scales /= scales.mean()
    return scales


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("images", 24), ("batch", 8), ("seed", 0), ("rounds", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    module, target, images, labels, others = workload(args.images, args.batch)
    chain = by_step.open_chain(module)
    assert chain is not None and target.recipe is not None and target.update is not None
    moved, precision, size = by_step.first_update(module, target, target.labels, SHAPE)
    mean, std = chain.mean.double(), chain.std.double()
    begin = time.process_time()

    def with_one(x: Tensor) -> Tensor:
        return torch.cat([((x - mean) / std).flatten(1), torch.ones(len(x), 1)], 1).double()

    own = [with_one(x) for x in images.split(list(target.recipe.sizes))]
    flat = torch.ones(own[0].shape[1], dtype=torch.float64)
    settings, layout = Inversion(objective="cosine"), Layout.of(module)
    rounds = step_factors(moved, target.recipe, mean.float(), std.float(), SHAPE, args.seed, precision, size)
    for number, factors in enumerate(islice(rounds, args.rounds), 1):
        print(f"round {number}: {time.process_time() - begin:.0f} s of CPU for the factors, sharp: {factors.sharp}")
        spans = list(factors.inputs)
        plain, beside = nearness(own, spans, flat, std), nearness([with_one(others)] * len(spans), spans, flat, std)
        scaled = nearness(own, spans, best_scales(own, spans), std)
        for step, row in enumerate(zip(plain, scaled, beside), 1):
            print("  step {}: its images {:.1f} dB, up to pixels' scales {:.1f}; others {:.1f}".format(step, *row))
        begin = time.process_time()
        answer = by_step.images_of(factors, module, target, target.labels, SHAPE, args.seed)
        assert answer is not None
        found, said = answer
        spent = time.process_time() - begin
        case = Case(module, layout, target, said, SHAPE, settings, args.seed)
        far, decibels = update_distance(case, found, said), psnr(found, images)
        right = int((said.sort()[0] == labels.sort()[0]).sum())
        print(
            f"  images: {decibels.mean():.1f} dB, the least {decibels.min():.1f}; {right} labels; their update's"
            f" distance {far:.3f}; {spent:.0f} s of CPU",
            flush=True,
        )
        begin = time.process_time()


if __name__ == "__main__":
    main()
