"""Local training as data: what a client does between receiving a model and having something to send."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from .layout import Layout
from .randomness import Keystream
from .wire import Bound, Kind


class Penalty(Protocol):
    """A term added to the local loss whose gradient is known in closed form."""

    def gradient(self, weights: Tensor, start: Tensor, layout: Layout, records: Tensor) -> Tensor:
        """Its gradient (..., d) at `weights` (..., d).

        start: (..., d), the model the round began with. records: (..., 1), the number of the client's records.
        """
        ...


@dataclass(frozen=True)
class Proximal:
    """μ/2 ‖w − w_start‖², gradient μ(w − w_start) (NbAFL eq. 7, arXiv:1911.00222)."""

    mu: float

    def gradient(self, weights: Tensor, start: Tensor, layout: Layout, records: Tensor) -> Tensor:
        return self.mu * (weights - start)


@dataclass(frozen=True)
class DistancePerLayer:
    """λ Σ_layers ‖w − w_start‖ / n: a pull of every layer towards the round's start (Fed-nore-1, THESIS 3.12-3.13).

    Its gradient is λ/n times the unit vector of each layer's distance; the subgradient 0 where a layer has not moved.
    """

    weight: float

    def gradient(self, weights: Tensor, start: Tensor, layout: Layout, records: Tensor) -> Tensor:
        moved = weights - start
        units = []
        for part in layout.slices:
            size = torch.linalg.vector_norm(moved[..., part], dim=-1, keepdim=True)
            units.append(torch.where(size > 0, moved[..., part] / size, 0.0))
        return self.weight / records * torch.cat(units, -1)


@dataclass(frozen=True)
class ScaleByRoot:
    """The factor 1 + c/√n on a loss's gradient, n the number of the client's records (Fed-nore-2, THESIS 3.18)."""

    c: float

    def __call__(self, records: Tensor) -> Tensor:
        return 1 + self.c / records.sqrt()


@dataclass(frozen=True)
class StepClip:
    """A clip inside local training, at every step: of the batch's mean gradient, or of the weights after the step.

    norm: the bound (parameter or gradient units); order: 1 or 2.
    """

    what: str  # "gradient" | "weights"
    norm: float
    order: int = 2


@dataclass(frozen=True)
class PerExample:
    """DP-SGD (Abadi et al. 2016, arXiv:1607.00133, Alg. 1).

    Every record's gradient is clipped to `clip_norm`, their sum noised with std `noise_multiplier` times a scale and
    divided by the expected batch size.

    per_layer: every tensor of a record's gradient is clipped by itself, to the same norm (Wei et al., Fed-CDP).
    batches: "poisson": secret samples of rate batch_size/n. "disjoint": an epoch's records in a public order, each in
      one batch.
    scale: "clip": the clip norm, which is public. "largest": the largest clipped norm in the batch, tensor by tensor
      where these are clipped apart. "mean": the mean over the batch of each record's largest clipped tensor norm, taken
      for `least` where it is less. Only the first is a sensitivity; the others are private (Wei et al., Fed-αCDP).
    adapts: from a client's second round on its clip norm is the one that it remembers (`steps.adapt`).
    """

    clip_norm: float
    noise_multiplier: float
    per_layer: bool = False
    batches: Literal["poisson", "disjoint"] = "poisson"
    scale: Literal["clip", "largest", "mean"] = "clip"
    least: float = 0.0
    adapts: bool = False

    def parts(self, layout: Layout) -> tuple[slice, ...]:
        """What is clipped by itself: the whole gradient, or each tensor of it."""
        return layout.slices if self.per_layer else (slice(0, layout.dim),)


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """How a client trains. Exactly one of `epochs` and `steps` is set (neither matters when a gradient is shared).

    optimiser: sgd | momentum | adam | rmsprop with torch's formulas; its state starts anew every round.
    lr: learning rate, times the round plan's factors. momentum: of "momentum"; smoothing: the constant of RMSprop's
    running mean.
    gradient_scale: what the loss's gradient is multiplied by (penalties are not), a number or a function of the
    client's records.
    loss: as `losses.loss_of` reads it. penalties: terms added to the loss. step_clip: clips at every step. per_example:
    DP-SGD.
    keep_last: also return what the last step began from (component-adaptive noise needs it; see `LocalResult`).
    """

    optimiser: str = "sgd"
    lr: float = 0.1
    batch_size: int = 25
    epochs: int | None = 1
    steps: int | None = None
    momentum: float = 0.9
    smoothing: float = 0.99
    loss: str = "cross_entropy"
    penalties: tuple[Penalty, ...] = ()
    step_clip: StepClip | None = None
    per_example: PerExample | None = None
    keep_last: bool = False
    gradient_scale: float | ScaleByRoot = 1.0

    def scale(self, records: Tensor) -> float | Tensor:
        """What the loss's gradient (..., d) is multiplied by; `records` (..., 1)."""
        return self.gradient_scale if isinstance(self.gradient_scale, float | int) else self.gradient_scale(records)


@dataclass(frozen=True, eq=False)
class LocalJob:
    """One client's local training in one round: all an engine needs, and nothing about who it is.

    start: (d,). inputs (n, *shape), targets (n,): the whole data set, shared by all jobs. batches: (steps, batch) row
    numbers, −1 where a batch is shorter.
    share: "gradient" asks for the first batch's mean gradient instead of training.
    noise_seed: of the noise drawn inside local training (DP-SGD), a stream of its own.
    lr_by_step: factors for local steps 0, 1, …, or ().
    num_examples: the number of the client's records.
    muted: rows of the data set whose loss has weight 0; counts, batches and noise are as if they were there (the
      adjacency zero_out).
    planted: (row, (d,)) pairs: the row's own gradient is this vector instead (a gradient canary; per-example clipping
      only).
    noise: the round's factor on noise drawn inside local training.
    """

    module: nn.Module
    layout: Layout
    training: LocalTraining
    start: Tensor
    inputs: Tensor
    targets: Tensor
    batches: Tensor
    share: Kind
    lr: float
    noise_seed: int = 0
    lr_by_step: tuple[float, ...] = ()
    num_examples: int = 1
    muted: tuple[int, ...] = ()
    planted: tuple[tuple[int, Tensor], ...] = ()
    noise: float = 1.0

    def __post_init__(self) -> None:
        if self.planted and self.training.per_example is None:
            raise ValueError(
                "a gradient can only be planted where every record's gradient is clipped by itself (per_example);"
                " plant a record instead"
            )


@dataclass(frozen=True)
class NoiseInside:
    """What DP-SGD leaves beside its value. All private but `gradient_norm`, which is a function of noised values.

    noise_std: really drawn, of a step's mean gradient: the root mean square over steps and components.
    clipped_norms: Σ of the last batch's clipped norms, each of a record's whole gradient.
    gradient_norm: of the last step's noised mean gradient.
    """

    noise_std: float
    clipped_norms: float
    gradient_norm: float


@dataclass(frozen=True, eq=False)
class LocalResult:
    """The outcome of a job.

    value: (d,) the mean gradient, or trained weights minus start. bound: what local training itself guarantees of the
    value. finite: False where `step_clip` met a value of no finite norm and replaced it by 0: the value sent no longer
    shows it. inside: of DP-SGD whose noise or clip is no public number.

    Only with `keep_last`, of K ≥ 2 local steps: last_start (d,), the weights w_{K−1} that the last step began from;
    last_gradient (d,), the gradient g_{K−1} of the step before, which led there; optimiser, the optimiser's tensors at
    w_{K−1} by torch's names.
    """

    value: Tensor
    last_gradient: Tensor | None = None
    last_start: Tensor | None = None
    bound: Bound | None = field(default=None)
    optimiser: Mapping[str, Tensor] = field(default_factory=dict)
    finite: bool = True
    inside: NoiseInside | None = None


def decision(outputs: Tensor) -> Tensor:
    """The class numbers (n,) that a classifier's outputs (n, C) say: the largest score; of a single score its sign."""
    return outputs.argmax(1) if outputs.shape[1] > 1 else (outputs.squeeze(1) > 0).long()


def batch_order(
    training: LocalTraining, share: Kind, rows: Tensor, round: int, rng_of_epoch, secret: Keystream | None = None
) -> Tensor:
    """The batches (steps, batch) of row numbers a client uses in a round, −1 where a batch is shorter.

    Sharing updates or weights: `epochs` fresh shuffles, or `steps` batches cycling through them. Sharing gradients: one
    batch a round, cycling over rounds through a seeded shuffle per epoch.

    Args:
        training: batch size, epochs or steps, Poisson batches or not. share: what the client sends.
        rows: (n,), the client's row numbers. round: from 0. rng_of_epoch: the generator of an epoch's shuffle.
        secret: draws Poisson batches, which amplify only as long as nobody knows them.
    """
    n, size = len(rows), min(training.batch_size, len(rows))
    per_epoch = -(-n // size)
    if training.per_example is not None and training.per_example.batches == "poisson" and share != "gradient":
        if secret is None:
            raise ValueError("Poisson batches are a secret draw; give batch_order a keystream")
        return poisson_batches(training, rows, secret)
    if share == "gradient":
        first, count = round, 1
    elif training.steps is not None:
        first, count = round * training.steps, training.steps
    else:
        first, count = round * per_epoch * (training.epochs or 1), per_epoch * (training.epochs or 1)
    epochs = range(first // per_epoch, (first + count - 1) // per_epoch + 1)
    shuffled = torch.full((len(epochs), per_epoch * size), -1, dtype=torch.long)
    for i, epoch in enumerate(epochs):
        shuffled[i, :n] = rows[torch.randperm(n, generator=rng_of_epoch(epoch))]
    skipped = first - epochs[0] * per_epoch
    return shuffled.view(-1, size)[skipped : skipped + count].clone()


def poisson_batches(training: LocalTraining, rows: Tensor, secret: Keystream) -> Tensor:
    """Poisson-sampled batches: each record in each step independently with probability batch_size / n."""
    n = len(rows)
    per_epoch = -(-n // min(training.batch_size, n))
    steps = training.steps if training.steps is not None else per_epoch * (training.epochs or 1)
    taken = secret.uniform(steps * n).view(steps, n) < training.batch_size / n
    width = max(1, int(taken.sum(1).max()))
    batches = torch.full((steps, width), -1, dtype=torch.long)
    for i, mask in enumerate(taken):
        batches[i, : int(mask.sum())] = rows[mask]
    return batches
