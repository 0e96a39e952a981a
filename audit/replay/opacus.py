"""A training with Opacus whose optimisers and samplers tell the tap: nothing in the training itself has to change.

Opacus is imported when this is called, and never before.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ..errors import BadInput
from ..extras import needed
from .tap import Tap

PARAMETERS = ("noise_multiplier", "accumulated_iterations", "loss_reduction")
ANOTHER = "gradients of an optimiser without noise"
HELD = "expected_batch_size"  # what gradients are divided by: held after it was compared


def with_opacus(train: Callable[[Any, Any], Any], privacy_engine: Any, adjacency: str) -> Callable[[Any, Tap], Any]:
    """`train(dataset, privacy_engine)` as a training that tells a tap.

    The sum of the clipped gradients is the query, its bound the clip (twice the clip under replace_one); clips, noise,
    divisor, rate, learning rates, the accountant's history and, in the end, parameters and buffers must be the same.

    Args:
        train: as of `audit_opacus`. privacy_engine: whose kind each training gets anew.

    Raises:
        BadInput: Opacus is not installed, or the engine is none.
    """
    opacus = needed("opacus", "replay", "opacus")
    if not isinstance(privacy_engine, opacus.PrivacyEngine):
        raise BadInput(f"engine is a {type(privacy_engine).__name__}; expected an opacus.PrivacyEngine")

    def trained(dataset: Any, tap: Tap) -> Any:
        engine = opacus.PrivacyEngine(accountant=privacy_engine.accountant.mechanism())
        modules: list[Any] = []
        optimisers: list[Any] = []
        make_private = engine.make_private

        def watched(**options: Any) -> Any:
            made = make_private(**options)
            if adjacency == "add_remove" and not options.get("poisson_sampling", True):
                raise ValueError(
                    "batches are not drawn by a coin a record (poisson_sampling=False), so that one record more moves"
                    " all others; ask for zero_out or replace_one"
                )
            modules.append(made[0])
            optimisers.append(made[1])
            _tell(made[1], made[0], tap, adjacency)
            return made

        def another(optimiser: torch.optim.Optimizer, *_: object) -> None:
            if not is_private(optimiser, optimisers):
                of_all = [p.grad for group in optimiser.param_groups for p in group["params"]]
                tap.public(ANOTHER, [None if grad is None else grad.detach() for grad in of_all])

        engine.make_private = watched
        handle = register_optimizer_step_pre_hook(another)
        try:
            with _coins(tap):
                result = train(dataset, engine)
        finally:
            handle.remove()
        if not modules:
            raise ValueError("train never called make_private of the engine it was given; use that one")
        tap.public("accountant", [tuple(entry) for entry in engine.accountant.history])
        for module in modules:
            tap.public("model", {name: value.detach() for name, value in module.state_dict().items()})
        return result

    return trained


def is_private(optimiser: Any, made: Sequence[Any]) -> bool:
    """Whether an optimiser that steps is one of those that Opacus made, or what one of them holds."""
    return any(optimiser in (one, getattr(one, "original_optimizer", None)) for one in made)


def clip_of(optimiser: Any) -> float:
    """The norm that bounds a record's whole gradient, where each layer may have a bound of its own."""
    clip = optimiser.max_grad_norm
    return float(clip if isinstance(clip, int | float) else sum(c * c for c in clip) ** 0.5)


def _tell(optimiser: Any, module: Any, tap: Tap, adjacency: str) -> None:
    """From now on the optimiser tells the tap at every noise."""
    add_noise = optimiser.add_noise
    names = {id(p): name.removeprefix("_module.") for name, p in module.named_parameters()}

    def told() -> None:
        for name in PARAMETERS:
            tap.public(name, getattr(optimiser, name))
        setattr(optimiser, HELD, tap.public(HELD, getattr(optimiser, HELD)))
        tap.public("learning rates", [group.get("lr") for group in optimiser.param_groups])
        clip = clip_of(optimiser)
        bound = 2 * clip if adjacency == "replace_one" else clip
        tap.query("gradient", {names.get(id(p), str(i)): p.summed_grad for i, p in enumerate(optimiser.params)}, bound)
        add_noise()
        for p, noisy in zip(optimiser.params, tap.release("gradient", [p.grad for p in optimiser.params])):
            p.grad = noisy.clone()

    optimiser.add_noise = told


@contextmanager
def _coins(tap: Tap) -> Iterator[None]:
    """Poisson batches are drawn by the tap's coins, whoever else is in the data."""
    sampling: Any = importlib.import_module("opacus.utils.uniform_sampler").UniformWithReplacementSampler

    by_generator = sampling.__iter__

    def batches(sampler: Any) -> Iterator[list[int]]:
        if sampler.num_samples != len(tap.records):
            raise ValueError(
                f"train draws from {sampler.num_samples} records and was given {len(tap.records)}; split them before"
            )
        steps = tap.public("batches in a pass", sampler.steps)
        for _ in range(steps):
            yield tap.drawn(sampler.sample_rate)

    sampling.__iter__ = batches
    try:
        yield
    finally:
        sampling.__iter__ = by_generator
