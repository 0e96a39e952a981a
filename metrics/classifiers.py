"""Reference classifiers: what do networks see in an image, and in its reconstruction?

Weng 2025 (section 4.2.4) compares the averaged outputs of a ResNet, VGG, RepVGG, ShuffleNet and MobileNet. Ours are the
small networks of `families`, trained on the auxiliary split, on which nobody else trains. Any other callables serve.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad, softmax

from .families import FAMILIES, build
from .utility import accuracy

WEIGHTS = Path(__file__).parent / "weights"
BATCH = 256
LEAST = 4  # pixels of a side of what they take
STEPS, BATCH_SIZE = 400, 64  # of training one
EPOCHS = 60  # at most: 300 digits give 97.0 % right after 40 and 97.1 % after 80


@dataclass(frozen=True, eq=False)
class Reference:
    """Classifiers by name, each from images (n, c, h, w) in [0, 1] to logits (n, k), and how good their average is.

    accuracy: of the averaged outputs on images none of them was trained on, None if unknown.
    source: where they come from, for the report.
    """

    members: tuple[tuple[str, Callable[[Tensor], Tensor]], ...]
    accuracy: float | None
    source: str

    def averaged_outputs(self, images: Tensor) -> Tensor:
        """Class probabilities (n, k), averaged over the classifiers, without gradients, in batches; of equal images,
        such as a control's, once.
        """
        distinct, places = images.float().unique(dim=0, return_inverse=True)
        with torch.no_grad():
            return torch.cat([self._average(batch) for batch in distinct.split(BATCH)])[places]

    def _average(self, batch: Tensor) -> Tensor:
        return torch.stack([softmax(member(batch), dim=1) for _, member in self.members]).mean(0)


def shipped() -> tuple[str, ...]:
    """The data sets whose reference classifiers come with the package."""
    return tuple(sorted(path.stem for path in WEIGHTS.glob("*.json")))


@cache
def load_reference(dataset: str) -> Reference:
    """The shipped classifiers of a data set, read once.

    Raises:
        ValueError: none are shipped for it.
    """
    if dataset not in shipped():
        raise ValueError(
            f"no reference classifiers are shipped for {dataset!r}, only for {', '.join(shipped()) or 'none'}; "
            "train_reference makes them from its auxiliary split"
        )
    facts = json.loads((WEIGHTS / f"{dataset}.json").read_text())
    tensors = load_file(WEIGHTS / f"{dataset}.safetensors")
    members = []
    for family in facts["families"]:
        model = build(family, tuple(facts["shape"]), facts["classes"], seed=0)
        prefix = family + "."
        model.load_state_dict({k.removeprefix(prefix): v.float() for k, v in tensors.items() if k.startswith(prefix)})
        members.append((family, model))
    return Reference(tuple(members), facts["test_accuracy"]["average"], f"shipped with dpfl-audit for {dataset}")


def steps_of(images: int, batch_size: int = BATCH_SIZE) -> int:
    """How many steps a classifier of so many images is trained: `STEPS`, or `EPOCHS` where these are fewer.

    >>> steps_of(240), steps_of(800)
    (240, 400)
    """
    return min(STEPS, EPOCHS * -(-images // batch_size))


def train_reference(
    inputs: Tensor,
    targets: Tensor,
    classes: int,
    seed: int,
    *,
    test: tuple[Tensor, Tensor] | None = None,
    steps: int | None = None,
    batch_size: int = BATCH_SIZE,
    lr: float = 3e-3,
    flip: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Reference:
    """One small classifier of each family, trained with AdamW and a one-cycle schedule.

    Each batch is moved by up to a sixteenth of the image's size. The same arguments give the same classifiers on the
    same machine.

    Args:
        inputs: images (n, c, h, w) in [0, 1] of the auxiliary split, which neither clients nor attacks' victims hold.
        targets: (n,) their classes.
        classes: how many there are.
        seed: of initial weights and batches.
        test: images and targets to measure the accuracy on; None: a random fifth is held back for it.
        steps, batch_size, lr: of the training. steps: None for `steps_of` the images that are trained on.
        flip: whether images are mirrored at random (not for digits).
        progress: called with the steps done and their number.

    Raises:
        ValueError: fewer than 10 images, images that are not (n, c, h, w) or smaller than 4×4, or targets outside
          0 … classes − 1.
    """
    n = len(inputs)
    if inputs.ndim != 4 or min(inputs.shape[2:]) < LEAST or n < 10 or targets.shape != (n,):
        raise ValueError(
            f"reference classifiers got images {tuple(inputs.shape)} and targets {tuple(targets.shape)}; "
            "they need 10 or more images (n, c, h, w) of at least 4×4 pixels and a target for each"
        )
    if int(targets.min()) < 0 or int(targets.max()) >= classes:
        raise ValueError(
            f"targets run from {int(targets.min())} to {int(targets.max())}, they must lie in 0 … {classes - 1}"
        )
    if test is None:
        order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
        held, kept = order[: n // 5], order[n // 5 :]
        test, inputs, targets = (inputs[held], targets[held]), inputs[kept], targets[kept]
    steps = steps_of(len(inputs), batch_size) if steps is None else steps
    members = []
    for number, family in enumerate(FAMILIES):
        model = build(family, tuple(inputs.shape[1:]), classes, seed)
        draws = torch.Generator().manual_seed(seed + 1)
        batches = _batches(inputs, targets, steps, batch_size, flip, draws)
        for step, loss in enumerate(_fit(model, batches, steps, lr), 1):
            if not math.isfinite(loss):
                raise ValueError(
                    f"the loss of reference classifier {family} became {loss} at step {step}; lower lr = {lr}"
                )
            if progress:
                progress(number * steps + step, len(FAMILIES) * steps)
        members.append((family, model.requires_grad_(False)))
    reference = Reference(tuple(members), None, f"trained on {len(inputs)} auxiliary images, seed {seed}")
    return replace(reference, accuracy=accuracy(reference.averaged_outputs(test[0]), test[1]))


def _batches(
    inputs: Tensor, targets: Tensor, steps: int, batch_size: int, flip: bool, draws: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """`steps` random batches; one random move for a whole batch, a random mirroring for each image."""
    height, width = inputs.shape[2:]
    margin = min(height, width) // 16
    for _ in range(steps):
        chosen = torch.randint(len(inputs), (batch_size,), generator=draws)
        top, left = torch.randint(2 * margin + 1, (2,), generator=draws).tolist()
        batch = pad(inputs[chosen], (margin,) * 4, mode="reflect")[..., top : top + height, left : left + width]
        if flip:
            batch = torch.where(torch.rand(batch_size, 1, 1, 1, generator=draws) < 0.5, batch.flip(3), batch)
        yield batch, targets[chosen]


def _fit(model: nn.Module, batches: Iterator[tuple[Tensor, Tensor]], steps: int, lr: float) -> Iterator[float]:
    """Trains `model` in place and leaves it in eval mode; yields each step's loss."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=lr, total_steps=steps)
    model.train()
    for images, labels in batches:
        loss = cross_entropy(model(images), labels, label_smoothing=0.05)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        yield loss.item()
    model.eval()
