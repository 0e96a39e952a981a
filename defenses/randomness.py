"""Randomness as an argument: every stream is derived from the run's seed and what it is for."""

from __future__ import annotations

import hashlib

import torch


def stream(seed: int, *purpose: object) -> int:
    """A 63-bit seed for one purpose, e.g. `stream(seed, round, party, "noise")`, independent of those for others.

    >>> stream(0, 1, "noise") == stream(0, 1, "noise") != stream(0, 2, "noise")
    True
    """
    digest = hashlib.sha256(repr((seed, *purpose)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, *purpose: object) -> torch.Generator:
    """A CPU torch generator for one purpose. Draws are made on the CPU so that they are the same on every device."""
    return torch.Generator().manual_seed(stream(seed, *purpose))
