"""What a setup says of itself: the digest of what decides its bytes, versions, and the public facts of its training."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ... import __version__
from ...defenses import engine as engines
from ...defenses.data.dataset import Dataset
from ...defenses.layout import frozen_of
from ...defenses.models import describe
from ...defenses.randomness import stream
from ...defenses.scheme import Scheme
from ...defenses.slices import SLICED, sliceable
from ...defenses.steps.clip import Clip, MedianClip, OwnNorm, SampledSpread
from ...defenses.steps.components import ClipComponents
from ...defenses.steps.respond import ClipRange
from .experiment import Experiment
from .format import FORMAT, ROWS
from .key import drawn_with, keyed, kind_of


def digest_of(experiment: Experiment) -> str:
    """SHA-256 of what decides the bytes, but for the noise key and the training and test rows: the resolved config, the
    other data and the versions.
    """
    return digest_of_parts(experiment.config.model_dump(mode="json"), experiment.data.description, versions())


def digest_of_parts(config: Mapping[str, Any], description: Mapping[str, Any], made_with: Mapping[str, str]) -> str:
    """The same from a setup's own parts."""
    content = {
        "config": config,
        "data": {name: value for name, value in description.items() if name not in ROWS},
        "versions": made_with,
        "format": FORMAT,
        "model_stream": stream(config["seed"], "model"),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def with_key(experiment: Experiment, key: str, engine: str = "batched") -> Experiment:
    """The experiment as it is trained with a key, by an engine."""
    experiment = replace(experiment, key=key)
    apart = values_of(described(experiment), engine_of(experiment, engine))
    return replace(experiment, drawn_with=drawn_with(key, digest_of(experiment), apart))


def engine_of(experiment: Experiment, asked: str) -> str:
    """Which engine trains where `asked` was asked for: a cohort whose hub needs more than a sum is not sliced, and a
    network that does not stack has the looped one.
    """
    if asked == SLICED and sliceable(experiment.scheme):
        return SLICED
    if not engines.stacks(experiment.module, experiment.data.input_shape):
        return "looped"
    if asked == SLICED:
        return "batched"
    return asked


def values_of(description: Mapping[str, Any], engine: str) -> str:
    """What, beside the config, decides the values that noise is added to: the keyed digests of the rows, those of the
    test split that a schedule may follow, and the engine, whose sums differ in their last bits.

    Args:
        description: of the data, with keyed digests.
        engine: which one trains.
    """
    return " ".join([*(str(description[name]) for name in ROWS if name in description), engine])


def described(experiment: Experiment) -> dict[str, Any]:
    """The data's description with keyed digests of the training and the test rows."""
    own = experiment.data.description
    return {**own, **{name: keyed(own[name], experiment.key) for name in ROWS if name in own}}


def versions() -> dict[str, str]:
    import numpy

    return {
        "dpfl-audit": __version__,
        "torch": torch.__version__,
        "torchvision": _torchvision(),
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }


@cache
def _torchvision() -> str:
    """Its version, from the file that states it: to import it takes two seconds, which every command would wait for."""
    spec = find_spec("torchvision")
    if spec is not None and spec.origin is not None:
        text = Path(spec.origin).with_name("version.py").read_text()
        if stated := re.search(r"^__version__ = ['\"](.+)['\"]", text, re.M):
            return stated[1]
    import torchvision

    return torchvision.__version__


def _scaled_in_private(scheme: Scheme) -> bool:
    """Whether clients' noise is scaled by something computed from their own data, so that its size is not public."""
    flat = [step for outer in scheme.client for step in (outer, getattr(outer, "step", None))]
    rule = scheme.local.per_example
    return (rule is not None and (rule.scale != "clip" or rule.adapts)) or any(
        isinstance(s, MedianClip | OwnNorm | SampledSpread) or (isinstance(s, ClipComponents) and s.threshold is None)
        for s in flat
    )


def public_facts(experiment: Experiment, done: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The public hyperparameters an attacker knows, and the noise (mean over rounds) where it is public.

    What training showed of private values, norms and how many were clipped, is in auditor/figures.csv alone: a norm of
    16 digits tells one record from another.
    """
    local, scheme = experiment.scheme.local, experiment.scheme
    clip = next((s for s in scheme.client if isinstance(s, Clip)), None)
    hidden = next((s for s in scheme.client if isinstance(s, MedianClip)), None)
    private = _scaled_in_private(scheme)
    ranged = any(isinstance(s, ClipRange) for s in scheme.client)
    noise = mean_of([r["figures"] for r in done], "noise_std")
    clip_norm = None if clip is None else clip.norm
    inside = bool(local.per_example or local.step_clip)
    sensitivity = "none: nothing bounds what is sent"
    if clip_norm:
        part = "per-layer"
        if clip and not clip.per_layer:
            part = "whole"
        sensitivity = f"C = {clip_norm:g} (the {part} {scheme.share}; client, zero_out)"
    elif ranged:
        sensitivity = "every number into a public range"
    elif inside:
        sensitivity = "bounded inside local training"
    return {
        "share": scheme.share,
        "optimiser": local.optimiser,
        "lr": local.lr,
        "batch_size": local.batch_size,
        "epochs": local.epochs,
        "steps": local.steps,
        "clip_norm": clip_norm,
        "clip_order": 2 if clip is None else clip.order,
        "per_layer": bool((clip or hidden) and (clip or hidden).per_layer),  # type: ignore[union-attr]
        "noise_std": None if private else noise or 0.0,
        "noise_multiplier": None if private or noise is None or not clip_norm else noise / clip_norm,
        "sensitivity": sensitivity,
        "share_clipped": None,
        "clipped_in_training": inside,
        "norm_before_clip_median": None,
        "extra": {
            name: True for name, holds in (("clip_unknown", hidden is not None), ("noise_unknown", private)) if holds
        },
    }


def mean_of(rounds: Sequence[Mapping[str, float]], name: str) -> float | None:
    """A figure's mean over the rounds that have it."""
    values = [figures[name] for figures in rounds if name in figures]
    if values:
        return sum(values) / len(values)
    return None


def numbers_of(tensors: Mapping[str, Tensor]) -> int:
    return sum(value.numel() for value in tensors.values())


def model_part(name: str, parameters: int, layers: Sequence[str], frozen: int) -> dict[str, Any]:
    """The model in setup.json. parameters: numbers that are trained. frozen: that are not."""
    part: dict[str, Any] = {"name": name, "parameters": parameters, "layers": list(layers)}
    if frozen:
        part["frozen"] = frozen
    return part


def _shape_of_targets(data: Dataset) -> dict[str, Any]:
    """As of a `DataPart`; {} for one target a record."""
    if not data.target_shape:
        return {}
    return {"target_shape": list(data.target_shape)}


def manifest_of(
    experiment: Experiment,
    status: str,
    digest: str,
    rounds: int,
    engine: str = "batched",
    done: Sequence[Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """setup.json, but for the seals of the files.

    Args:
        experiment: what was trained.
        status: complete or diverged.
        digest: of all that decides the setup's bytes.
        rounds: finite ones.
        engine: which one trained.
        done: the finished rounds' figures.
    """
    config, data, scheme = experiment.config, experiment.data, experiment.scheme
    claim, stated, frozen = None, experiment.claim, numbers_of(frozen_of(experiment.module))
    if stated is not None:
        claim = {
            "whose": stated.whose,
            "sentence": stated.sentence,
            "observer": str(stated.observer),
            "unit": stated.unit,
            "adjacency": stated.adjacency,
            "delta": config.audit.delta,
        }
    return {
        "format": FORMAT,
        "status": status,
        "name": config.name or scheme.name,
        "seed": config.seed,
        "noise_key": kind_of(experiment.key),
        "digest": digest,
        "rounds": rounds,
        "config": config.model_dump(mode="json"),
        "scheme": {
            "name": experiment.preset.name,
            "title": experiment.preset.title,
            "source": scheme.source,
            "parameters": experiment.parameters.model_dump(mode="json"),
        },
        "clients": [len(c) for c in experiment.clients],
        "facts": public_facts(experiment, done or []),
        "claim": claim,
        "model": model_part(config.model.name, experiment.layout.dim, describe(experiment.module), frozen),
        "layout": {"names": list(experiment.layout.names), "shapes": [list(s) for s in experiment.layout.shapes]},
        "data": {
            "name": data.name,
            "input_shape": list(data.input_shape),
            "classes": data.classes,
            "mean": list(data.mean),
            "std": list(data.std),
            "description": described(experiment),
            **_shape_of_targets(data),
        },
        "engine": {"name": engine, "chunk_numbers": engines.CHUNK_NUMBERS},
        "versions": versions(),
    }
