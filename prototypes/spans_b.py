"""What the update of a few Adam steps tells of each step's images: the span that they lie in, with no label or order.

    python benchmarks/adam_spans.py [--images 24] [--batch 8] [--neurons 384] [--iterations 300]

Every weight of the first layer moves by a known function of its gradients at the steps, and a step's gradients are a
matrix of low rank: (errors of its batch) × (its images, 1). Thin factors of every step are fitted to the update of
some neurons by L-BFGS, images in a cosine basis that falls as natural ones do, 1/f; Adam's signs softened, then less.
Factors leave open how a batch's images are mixed and how large a neuron's errors are, so no image is printed, but how
near the true images are to the span found: the PSNR of their projection, beside that of as many other images.
Bundled photographs of 10 classes, network 3×1024 at its initial weights, learning rate .001. One thread, one run.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence

import numpy as np
import sys
import torch
from dpfl_audit.attacks.inversion.local_training import Recipe, linearised
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data import photos
from scipy.optimize import minimize
from torch import Tensor
from torch.nn import functional as F

SHAPE, LR = (3, 32, 32), 1e-3
SOFTENINGS=(3.0,1.0,0.3)
OPPONENT = F.normalize(torch.tensor([[1.0, 1, 1], [1, 0, -1], [1, -2, 1]]), dim=1)  # brightness, and two of colour
OF_COLOUR = torch.tensor([1.0, 0.3, 0.15])  # how much natural images vary along them
RIDGE = 1e-7


def cosines(side: int) -> tuple[Tensor, Tensor]:
    """The orthonormal DCT (side, side), and each coefficient's deviation (3, side, side), pixels' being about .25."""
    k = torch.arange(float(side))
    basis = torch.cos(math.pi * (k + 0.5) * k[:, None] / side) * (2 / side) ** 0.5
    basis[0] /= 2**0.5
    spread = OF_COLOUR[:, None, None] / (1 + (k[:, None] ** 2 + k**2).sqrt())
    return basis, spread * (0.25 * math.prod(SHAPE) ** 0.5 / spread.norm())


BASIS, SPREAD = cosines(SHAPE[-1])


def images_of(coefficients: Tensor) -> Tensor:
    return 0.5 + BASIS.T @ torch.einsum("nouv,oc->ncuv", coefficients * SPREAD, OPPONENT) @ BASIS


def back(slope: Tensor) -> Tensor:
    """The slope with respect to the coefficients."""
    return torch.einsum("ncuv,oc->nouv", BASIS @ slope @ BASIS.T, OPPONENT) * SPREAD


def update(images: int, batch: int):
    """The first layer's update [W | b] over the learning rate, the batches' inputs [x | 1], and the others'."""
    data = photos.load(classes=10, samples=max(20, 2 * images), seed=0)
    module = models.build(
        "mlp", input_shape=SHAPE, classes=10, mean=data.mean, std=data.std, seed=0, widths=[1024] * 3
    ).eval()
    first = [p for p in module.parameters()][:2]
    before = [p.detach().clone() for p in first]
    optimiser = torch.optim.Adam(module.parameters(), lr=LR)
    order = torch.randperm(images, generator=torch.Generator().manual_seed(0)).split(batch)
    for rows in order:
        optimiser.zero_grad()
        F.cross_entropy(module(data.inputs[rows]), data.targets[rows]).backward()
        optimiser.step()
    moved = torch.cat([first[0] - before[0], (first[1] - before[1])[:, None]], 1).detach() / LR
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (data.mean, data.std))
    others = data.inputs[images : images + batch]
    return moved, [data.inputs[rows] for rows in order], others, mean, std


def with_one(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    return torch.cat([((images - mean) / std).flatten(1), torch.ones(len(images), 1)], 1)


def fit(moved: Tensor, sizes: Sequence[int], mean: Tensor, std: Tensor, iterations: int) -> list[Tensor]:
    """Each step's inputs [x | 1] (n, i + 1), mixed in an unknown way, from the update (neurons, i + 1) over lr."""
    rng, recipe = torch.Generator().manual_seed(1), Recipe("adam", 1.0, tuple(sizes), 1)
    parts = [0.3 * torch.randn(n, *SHAPE, generator=rng) for n in sizes]
    parts += [torch.randn(len(moved), n, generator=rng) for n in sizes]

    def split(flat: np.ndarray) -> tuple[list[Tensor], list[Tensor]]:
        pieces = torch.from_numpy(flat).float().split([p.numel() for p in parts])
        shaped = [piece.view_as(p) for piece, p in zip(pieces, parts)]
        return shaped[: len(sizes)], shaped[len(sizes) :]

    def objective(flat: np.ndarray, softening: float) -> tuple[float, np.ndarray]:
        coefficients, errors = split(flat)
        inputs = [with_one(images_of(c), mean, std) for c in coefficients]
        total, derivatives = linearised(recipe, [e @ x for e, x in zip(errors, inputs)], softening)
        rest = total - moved
        slopes = derivatives(2 * rest / rest.numel())
        value = rest.square().mean() + RIDGE * sum(c.square().sum() for c in coefficients)
        of_images = [
            back((e.T @ s)[:, :-1].view(-1, *SHAPE) / std) + 2 * RIDGE * c
            for c, e, s in zip(coefficients, errors, slopes)
        ]
        gradient = of_images + [s @ x.T for s, x in zip(slopes, inputs)]
        return value.item(), torch.cat([g.flatten() for g in gradient]).double().numpy()

    flat = torch.cat([p.flatten() for p in parts]).double().numpy()
    for softening in SOFTENINGS:
        options = {"maxiter": iterations}
        print(softening,time.process_time(),[round(nearness(b,with_one(images_of(c),mean,std),mean,std),1) for b,c in zip(TRUE,split(flat)[0])],objective(flat,softening)[0],flush=True)
        flat = minimize(objective, flat, (softening,), jac=True, method="L-BFGS-B", options=options).x
    return [with_one(images_of(c), mean, std) for c in split(flat)[0]]


def nearness(images: Tensor, span: Tensor, mean: Tensor, std: Tensor) -> float:
    """PSNR in dB of images (n, c, h, w), mean over them, after their inputs were projected on the rows of `span`."""
    basis = torch.linalg.qr(span.double().T)[0]
    inputs = with_one(images, mean, std).double()
    rest = (inputs - inputs @ basis @ basis.T)[:, :-1].view_as(images) * std
    return float((-10 * rest.square().flatten(1).mean(1).log10()).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("images", 24), ("batch", 8), ("neurons", 384), ("iterations", 300)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    moved, batches, others, mean, std = update(args.images, args.batch)
    some = torch.randperm(len(moved), generator=torch.Generator().manual_seed(2))[: args.neurons]
    global TRUE; TRUE=batches
    begin = time.process_time()
    spans = fit(moved[some], [len(b) for b in batches], mean, std, args.iterations)
    print(f"{time.process_time() - begin:.0f} s of CPU")
    torch.save(spans,'/tmp/a3/spans_b.pt')
    for step, (batch, span) in enumerate(zip(batches, spans), 1):
        own = nearness(batch, span, mean, std)
        print(f"step {step}: its images {own:.1f} dB, others {nearness(others, span, mean, std):.1f} dB")


if __name__ == "__main__":
    main()
