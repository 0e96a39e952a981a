"""Engines of local training: a looped one, slow and obvious, and a batched one that stacks jobs of equal shape.

Only this file knows the leading axis. The looped engine shares no training code with the batched one and is its oracle.
"""

from __future__ import annotations

import copy
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import hypot, inf, sqrt
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import pad

from .chain_engine import ChainTrainer
from .grid import in_steps
from .local import LocalJob, LocalResult, LocalTraining, NoiseInside, PerExample
from .losses import loss_of
from .randomness import Keystream
from .steps.clip import clip_in_steps, clip_or_zero, clipped_sum
from .steps.perturb import draw, example_step
from .threads import in_threads
from .update import make_optimiser
from .wire import Bound

Engine = Callable[[Sequence[LocalJob]], list[LocalResult]]


class _Gradient(Protocol):
    def __call__(self, weights: Tensor, rows: Tensor) -> Tensor: ...


# --- the looped engine ---


def looped(jobs: Sequence[LocalJob]) -> list[LocalResult]:
    """Every job by itself, every batch by itself, with torch's own modules and optimisers."""
    return [_train_one(job) for job in jobs]


def _train_one(job: LocalJob) -> LocalResult:
    training, layout = job.training, job.layout
    noise = Keystream(job.noise_seed)
    if job.share == "gradient":
        rows = job.batches[0]
        return LocalResult(_one_gradient(job, job.start, rows[rows >= 0]))
    weights = job.start.clone()
    weights.grad = torch.zeros_like(weights)
    optimiser = make_optimiser(training.optimiser, [weights], job.lr, training.momentum, training.smoothing)
    records = torch.tensor([job.num_examples], dtype=weights.dtype)
    before_last: tuple[Tensor, Tensor, dict[str, Tensor]] | None = None
    gradient: Tensor | None = None
    finite = True
    drawn: list[_Drawn] = []
    for step, rows in enumerate(job.batches):
        rows = rows[rows >= 0]
        if training.keep_last and gradient is not None and step == len(job.batches) - 1:
            before_last = gradient.clone(), weights.detach().clone(), _state_of(optimiser, weights)
        if training.per_example is not None:
            gradient = _one_dp_gradient(job, weights.detach(), rows, noise, drawn)
        else:
            gradient = _one_gradient(job, weights.detach(), rows)
        gradient = training.scale(records) * gradient
        for penalty in training.penalties:
            gradient = gradient + penalty.gradient(weights.detach(), job.start, layout, records)
        if training.step_clip is not None and training.step_clip.what == "gradient":
            gradient, kept = clip_or_zero(gradient, training.step_clip.norm, training.step_clip.order)
            finite = finite and bool(kept)
        if job.lr_by_step:
            optimiser.param_groups[0]["lr"] = job.lr * job.lr_by_step[step]
        weights.grad.copy_(gradient)
        optimiser.step()
        if training.step_clip is not None and training.step_clip.what == "weights":
            clipped, kept = clip_or_zero(weights, training.step_clip.norm, training.step_clip.order)
            weights.copy_(clipped)
            finite = finite and bool(kept)
    last_gradient, last_start, state = before_last or (None, None, {})
    inside = _inside([(each.variance, each.norms, each.size) for each in drawn])
    return LocalResult(weights - job.start, last_gradient, last_start, local_bound(job), state, finite, inside)


@dataclass(frozen=True)
class _Drawn:
    """Of one step of DP-SGD with a private scale or clip: the mean variance of its noise, the sum of its records'
    clipped norms, the norm of the noised mean gradient. A number each, or (K,).
    """

    variance: Any
    norms: Any
    size: Any


def _inside(steps: Sequence[tuple[float, float, float]]) -> NoiseInside | None:
    if not steps:
        return None
    return NoiseInside(sqrt(sum(variance for variance, _, _ in steps) / len(steps)), *steps[-1][1:])


def _state_of(optimiser: torch.optim.Optimizer, weights: Tensor) -> dict[str, Tensor]:
    return {
        name: value.detach().clone() for name, value in optimiser.state[weights].items() if isinstance(value, Tensor)
    }


def _one_gradient(job: LocalJob, weights: Tensor, rows: Tensor) -> Tensor:
    """The mean gradient (d,) over `rows`, by a plain forward and backward pass."""
    named = {name: value.clone().requires_grad_() for name, value in job.layout.split(weights).items()}
    outputs = functional_call(job.module, named, (job.inputs[rows].to(weights.dtype),))
    minimised, targets = loss_of(job.training.loss), job.targets[rows]
    loss = minimised.values(outputs, targets)[_heard(job, rows)].sum() / minimised.size(targets[None])[0]
    return job.layout.join(dict(zip(named, torch.autograd.grad(loss, list(named.values())))))


def _heard(job: LocalJob, rows: Tensor) -> Tensor:
    """Which of `rows` are not muted, a bool for each."""
    return ~torch.isin(rows, torch.tensor(job.muted, dtype=rows.dtype))


def _one_dp_gradient(
    job: LocalJob, weights: Tensor, rows: Tensor, rng: Keystream, drawn: list[_Drawn] | None = None
) -> Tensor:
    rule = job.training.per_example
    assert rule is not None
    step, planted = example_step(rule, job.num_examples, job.noise), dict(job.planted)
    steps = torch.zeros_like(weights, dtype=torch.float64)
    norms: list[list[float]] = []
    for row in rows:
        own = planted.get(int(row))
        if int(row) not in job.muted:
            gradient = _one_gradient(job, weights, row[None]) if own is None else own.to(weights)
            norms.append([])
            for part in rule.parts(job.layout):
                steps[part] += clip_in_steps(gradient[part], rule.clip_norm, step)
                size = float(torch.linalg.vector_norm(gradient[part].double()))
                norms[-1].append(min(size, rule.clip_norm) if size < inf else 0.0)
    std: float | Tensor = rule.noise_multiplier * rule.clip_norm * job.noise
    if rule.scale == "mean":
        largest = [max(rule.least, *each) for each in norms]
        std = rule.noise_multiplier * job.noise * sum(largest) / max(1, len(largest))
    if rule.scale == "largest":
        std = torch.zeros_like(steps)
        for place, part in enumerate(rule.parts(job.layout)):
            std[part] = rule.noise_multiplier * job.noise * max((each[place] for each in norms), default=0.0)
    steps += in_steps(draw("gaussian", std, len(weights), rng), step)
    made = (steps * (step / job.training.batch_size)).to(weights.dtype)
    if drawn is not None and not (rule.scale == "clip" and not rule.adapts):
        variance = float(torch.as_tensor(std, dtype=torch.float64).square().mean()) / job.training.batch_size**2
        drawn.append(_Drawn(variance, sum(hypot(*each) for each in norms), float(made.double().norm())))
    return made


def local_bound(job: LocalJob) -> Bound | None:
    """What the training itself guarantees of the value sent, whatever the data.

    Clipped gradient steps of plain SGD move the weights by at most Σ lr_k · C from the (known) start; weights clipped
    to C after the last step have norm ≤ C. Both hold up to float32's rounding, which goes with the weights' size and
    not with the bound's: `federation` cuts off what is beyond it.
    """
    training = job.training
    clip = training.step_clip
    if clip is None or training.per_example is not None or job.share == "gradient":
        return None
    if clip.what == "weights":
        return Bound(clip.norm, clip.order) if job.share == "weights" else None
    if training.optimiser == "sgd":
        factors = job.lr_by_step or (1.0,) * len(job.batches)
        moved = sum(job.lr * f * clip.norm for f in factors)
        return Bound(moved, clip.order, centred=job.share == "weights")
    return None


# --- the batched engine ---

# A chunk of jobs holds at most this many weights (×4 bytes ×~6 copies ≈ 0.8 GB); a rule on shapes only.
CHUNK_NUMBERS = 2**25
# Chains of linear layers: so that the chunk's weights of every core stay in the processor's cache (4 MB a core). 50
# clients of 199,210 weights took 0.91 s by two cores; in chunks twice as large 1.34 s, half as large 1.07 s.
CHAIN_CHUNK_NUMBERS = 2**20
CHAIN_CHUNK_INPUTS = 2**19  # and so do a step's inputs (2 MB)
# Small chains: fewer would pay more for each step's calls than they compute, more would leave cores idle.
CHAIN_CHUNK_JOBS = 25


def batched(jobs: Sequence[LocalJob]) -> list[LocalResult]:
    """Jobs of equal shape as one array computation over a leading axis; results in the jobs' order.

    Chunks of chains of linear layers are small, so whole chunks are dealt to the processor's cores, each computing with
    one thread: they come out the same on any number of cores. Jobs of a network that does not stack (`stacks`) are
    trained by the looped engine.
    """
    chunks: list[list[int]] = []
    alone: list[list[int]] = []
    results: dict[int, LocalResult] = {}
    for group in _groups(jobs):
        first = jobs[group[0]]
        chain = ChainTrainer.of(first) is not None
        if not chain and not stacks(first.module, tuple(first.inputs.shape[1:])):
            results.update(zip(group, looped([jobs[i] for i in group])))
            continue
        (chunks if chain else alone).extend(
            list(part) for part in np.array_split(group, _parts(first, len(group), chain))
        )
    for chunk in alone:
        results.update(zip(chunk, _train_stack([jobs[i] for i in chunk])))
    for chunk, trained in zip(chunks, in_threads(lambda c: _train_stack([jobs[i] for i in c]), chunks)):
        results.update(zip(chunk, trained))
    return [results[i] for i in range(len(jobs))]


_STACKS: WeakKeyDictionary[nn.Module, dict[tuple[int, ...], bool]] = WeakKeyDictionary()


def stacks(module: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether several weights of a network can be computed as one stack; torch has no such rule for an LSTM.

    Tried once, on one record of `shape` with the network's own weights: the outputs, and a gradient by record.
    """
    known = _STACKS.setdefault(module, {})
    if shape not in known:
        known[shape] = _stacked_once(module, shape)
    return known[shape]


def _stacked_once(module: nn.Module, shape: tuple[int, ...]) -> bool:
    named = {name: value.detach() for name, value in module.named_parameters() if value.requires_grad}
    dtype = next(iter(named.values())).dtype
    record = torch.zeros(shape, dtype=dtype)

    def total(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(module, weights, (x[None],)).sum()

    stack = {name: value[None] for name, value in named.items()}
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
            vmap(total)(stack, record[None])
            vmap(vmap(torch.func.grad(total), in_dims=(None, 0)))(stack, record[None, None])
    except RuntimeError:
        return False
    return True


def _parts(job: LocalJob, count: int, chain: bool) -> int:
    """Into how many chunks `count` jobs like this one go; by their shapes alone, never by the machine."""
    if not chain:
        return -(-count // max(1, CHUNK_NUMBERS // job.layout.dim))
    inputs = job.batches.shape[1] * job.inputs[:1].numel()
    size = max(1, min(CHAIN_CHUNK_NUMBERS // job.layout.dim, CHAIN_CHUNK_INPUTS // inputs))
    return max(-(-count // size), count // CHAIN_CHUNK_JOBS)


def _groups(jobs: Sequence[LocalJob]) -> list[list[int]]:
    groups: dict[tuple, list[int]] = defaultdict(list)
    for i, job in enumerate(jobs):
        key = (
            id(job.module),
            job.training,
            job.share,
            job.lr,
            len(job.batches),
            id(job.inputs),
            id(job.targets),
            job.start.dtype,
            job.lr_by_step,
            job.muted,
            job.noise,
            tuple((row, id(gradient)) for row, gradient in job.planted),
        )
        groups[key].append(i)
    return list(groups.values())


def _train_stack(jobs: Sequence[LocalJob]) -> list[LocalResult]:
    job, training = jobs[0], jobs[0].training
    start = torch.stack([j.start for j in jobs])
    width = max(j.batches.shape[1] for j in jobs)
    batches = torch.stack([pad(j.batches, (0, width - j.batches.shape[1]), value=-1) for j in jobs])
    chain = ChainTrainer.of(job)
    mean_gradient = _stacked_gradient(job) if chain is None else chain.gradient
    if job.share == "gradient":
        return [LocalResult(row.clone()) for row in mean_gradient(start, batches[:, 0])]
    gradient_of: _Gradient = mean_gradient
    drawn: list[_Drawn] = []
    if training.per_example is not None:
        gradient_of = _stacked_dp_gradient(jobs, drawn)
    if chain is not None and _plain_sgd(training):
        trained = chain.sgd(start, batches, [job.lr * f for f in job.lr_by_step or (1.0,) * batches.shape[1]])
        return [LocalResult(value.clone()) for value in trained - start]
    weights = start.clone()
    weights.grad = torch.empty_like(weights)
    optimiser = make_optimiser(
        training.optimiser,
        [weights],
        job.lr,
        training.momentum,
        training.smoothing,
        fused=training.optimiser != "rmsprop",
    )
    records = torch.tensor([[j.num_examples] for j in jobs], dtype=weights.dtype)
    last_gradient = last_start = gradient = None
    state: dict[str, Tensor] = {}
    finite = torch.ones(len(jobs), dtype=torch.bool)
    for step in range(batches.shape[1]):
        if training.keep_last and gradient is not None and step == batches.shape[1] - 1:
            last_gradient, last_start, state = gradient.clone(), weights.clone(), _state_of(optimiser, weights)
        gradient = gradient_of(weights, batches[:, step])
        if training.gradient_scale != 1.0:
            gradient = gradient * training.scale(records)
        for penalty in training.penalties:
            gradient = gradient + penalty.gradient(weights, start, job.layout, records)
        if training.step_clip is not None and training.step_clip.what == "gradient":
            gradient, kept = clip_or_zero(gradient, training.step_clip.norm, training.step_clip.order)
            finite &= kept
        if job.lr_by_step:
            optimiser.param_groups[0]["lr"] = job.lr * job.lr_by_step[step]
        weights.grad = gradient
        optimiser.step()
        if training.step_clip is not None and training.step_clip.what == "weights":
            clipped, kept = clip_or_zero(weights, training.step_clip.norm, training.step_clip.order)
            weights.copy_(clipped)
            finite &= kept
    bound = local_bound(job)
    values = weights - start
    return [
        LocalResult(
            values[k].clone(),
            None if last_gradient is None else last_gradient[k].clone(),
            None if last_start is None else last_start[k].clone(),
            bound,
            {name: value[k].clone() if value.ndim else value.clone() for name, value in state.items()},
            bool(finite[k]),
            _inside([(float(d.variance[k]), float(d.norms[k]), float(d.size[k])) for d in drawn]),
        )
        for k in range(len(jobs))
    ]


def _plain_sgd(training: LocalTraining) -> bool:
    """Whether a step is nothing but w ← w − lr·gradient."""
    hooked = training.penalties or training.step_clip or training.per_example or training.keep_last
    return training.optimiser == "sgd" and training.gradient_scale == 1.0 and not hooked


def _stacked_gradient(job: LocalJob) -> _Gradient:
    """A function (weights (K, d), rows (K, B)) -> mean gradients (K, d); rows of −1 are left out."""

    def outputs_of(weights: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return functional_call(job.module, weights, (inputs,))

    forward = vmap(outputs_of)
    minimised = loss_of(job.training.loss)

    def gradient(weights: Tensor, rows: Tensor) -> Tensor:
        taken = rows >= 0
        safe = rows.clamp_min(0)
        named = {name: value.detach().requires_grad_() for name, value in job.layout.split(weights).items()}
        outputs = forward(named, job.inputs[safe].to(weights.dtype))
        targets = job.targets[safe]
        losses = minimised.values(outputs.flatten(0, 1), targets.flatten(0, 1)).view(rows.shape)
        counts = minimised.size(targets, taken)
        total = (torch.where(taken & _heard(job, rows), losses, 0.0).sum(1) / counts).sum()
        grads = torch.autograd.grad(total, list(named.values()))
        return torch.cat([g.flatten(1) for g in grads], 1)

    return gradient


def _stacked_dp_gradient(jobs: Sequence[LocalJob], drawn: list[_Drawn] | None = None) -> _Gradient:
    """As `_stacked_gradient`, with every record's gradient clipped and noise on their sum (DP-SGD).

    drawn: gets what each step leaves, where its noise or clip is no public number.
    """
    job, rule = jobs[0], jobs[0].training.per_example
    assert rule is not None
    rngs = [Keystream(j.noise_seed) for j in jobs]
    grids = [example_step(rule, j.num_examples, j.noise) for j in jobs]
    grid = torch.tensor(grids, dtype=torch.float64).view(-1, 1, 1)
    values = loss_of(job.training.loss).values
    module = copy.deepcopy(job.module)  # functional_call puts weights into it, and other threads train other chunks

    def loss(named: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return values(functional_call(module, named, (x[None],)), y[None])[0]

    per_example = vmap(vmap(torch.func.grad(loss), in_dims=(None, 0, 0)))
    parts, noting = rule.parts(job.layout), rule.scale != "clip" or rule.adapts

    def gradient(weights: Tensor, rows: Tensor) -> Tensor:
        taken, safe = (rows >= 0) & _heard(job, rows), rows.clamp_min(0)
        steps = torch.zeros_like(weights, dtype=torch.float64)
        norms: list[Tensor] = []
        width = max(1, CHUNK_NUMBERS // max(1, weights.numel()))
        for a in range(0, rows.shape[1], width):
            part = slice(a, a + width)
            grads = per_example(
                job.layout.split(weights), job.inputs[safe[:, part]].to(weights.dtype), job.targets[safe[:, part]]
            )
            flat = torch.cat([g.flatten(2) for g in grads.values()], 2)
            for row, own in job.planted:
                flat = torch.where((rows[:, part] == row)[..., None], own.to(flat), flat)
            for piece in parts:
                steps[:, piece] += clipped_sum(flat[..., piece], rule.clip_norm, grid, taken[:, part])
            if noting:
                norms.append(_clipped_norms(flat, rule.clip_norm, parts) * taken[:, part, None])
        stds: Sequence[float | Tensor] = [rule.noise_multiplier * rule.clip_norm * job.noise] * len(jobs)
        if rule.scale != "clip":
            by_part = _private_scales(torch.cat(norms, 1), taken, rule).mul_(rule.noise_multiplier * job.noise)
            stds = list(by_part.repeat_interleave(torch.tensor([p.stop - p.start for p in parts]), 1))
        dim = weights.shape[1]
        noises = [in_steps(draw("gaussian", s, dim, rng), step) for s, rng, step in zip(stds, rngs, grids)]
        steps += torch.stack(noises)
        made = (steps * (grid[:, 0] / job.training.batch_size)).to(weights.dtype)
        if noting and drawn is not None:
            squares = torch.stack([torch.as_tensor(s, dtype=torch.float64).square().mean() for s in stds])
            whole = torch.linalg.vector_norm(torch.cat(norms, 1), dim=2).sum(1)
            drawn.append(_Drawn(squares / job.training.batch_size**2, whole, made.double().norm(dim=1)))
        return made

    return gradient


def _clipped_norms(gradients: Tensor, norm: float, parts: Sequence[slice]) -> Tensor:
    """Norms (..., parts) of gradients (..., d) after the clip, float64; 0 where one is not finite."""
    sizes = [torch.linalg.vector_norm(gradients[..., part], dim=-1, dtype=torch.float64) for part in parts]
    size = torch.stack(sizes, -1)
    return torch.where(size < inf, size, 0.0).clamp_max_(norm)


def _private_scales(norms: Tensor, taken: Tensor, rule: PerExample) -> Tensor:
    """What noise is scaled by, (K, parts), from clipped norms (K, B, parts) of the records `taken` (K, B)."""
    if rule.scale == "largest":
        return norms.amax(1)
    own = norms.amax(2).clamp_min(rule.least) * taken
    return (own.sum(1) / taken.sum(1).clamp_min(1))[:, None].repeat(1, norms.shape[2])


ENGINES: dict[str, Engine] = {"batched": batched, "looped": looped}
