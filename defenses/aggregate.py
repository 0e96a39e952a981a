"""How a hub merges the values it received."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Protocol

import torch

from .grid import PartialSum, partial_sum, whole_sum, wrapped
from .wire import Bound, Parcel


@dataclass(frozen=True)
class HubWeights:
    """A hub's public weights, scale · k_i of the i-th sender."""

    counts: tuple[int, ...]
    scale: float

    @classmethod
    def of(cls, counts: Sequence[int], whole: float = 1.0) -> HubWeights:
        """whole · k_i / Σ k_i, with the least whole numbers k_i."""
        common = gcd(*counts)
        return cls(tuple(k // common for k in counts), whole * common / sum(counts))


class Aggregate(Protocol):
    @property
    def by_records(self) -> bool:
        """Whether a value's weight depends on its sender's number of records.

        For a secret cohort the bound then depends on who was drawn.
        """
        ...

    def weights(self, num_examples: Sequence[int]) -> HubWeights:
        """Of senders with so many records each, which is public."""
        ...


@dataclass(frozen=True)
class Mean:
    """The mean of the values: uniform, or weighted by the (public) number of records.

    Guarantee: the result's bound holds for any one sender's contribution, and its `noise_std` is the least that
    protects any one sender, its own: others may collude and subtract theirs.
    """

    weighted: bool = False

    @property
    def by_records(self) -> bool:
        return self.weighted

    def weights(self, num_examples: Sequence[int]) -> HubWeights:
        return HubWeights.of(num_examples if self.weighted else [1] * len(num_examples))


@dataclass(frozen=True)
class PopulationMean:
    """Σ (N/b)(n_l/n)·value_l over the b senders of a population of N clients with n records in all (ITER Alg. 1).

    The weights sum to 1 over a population, not over senders whose n_l differ. Guarantee: as `Mean`.
    """

    clients: int
    records: int
    by_records = True

    def weights(self, num_examples: Sequence[int]) -> HubWeights:
        return HubWeights.of(num_examples, sum(num_examples) * self.clients / (len(num_examples) * self.records))


@dataclass(frozen=True)
class FixedMean:
    """Σ value_l / size, whoever sent: a secret cohort's own size must not scale its sum (McMahan et al. 2018, f̃_f).

    Guarantee: as `Mean`.
    """

    size: float
    by_records = False

    def weights(self, num_examples: Sequence[int]) -> HubWeights:
        return HubWeights.of([1] * len(num_examples), len(num_examples) / self.size)


def weighted_sum(parcels: Sequence[Parcel], by: HubWeights, parts: Sequence[PartialSum] | None = None) -> Parcel:
    """Σ w_i · value_i in float64, with the bound, noise and releases that follow; the weights w_i are public.

    First the whole numbers k_i times the values, exactly where these are whole numbers of steps (`grid.total`), then
    one multiplication: products w_i · value_i would each round by their own size, and their sum's last bits would tell
    of single values (Mironov 2012). Values that count modulo a number of steps are summed modulo it, as secure
    aggregation does: how often their sum went round is never computed.

    Args:
        parcels: the values. by: which weights. parts: the values' sum by these counts, where it was computed in parts;
            then nothing is read of the values themselves.
    """
    if parts is None:
        parts = [partial_sum([p.vector for p in parcels], by.counts, [p.step for p in parcels])]
    weights = [by.scale * k for k in by.counts]
    summed, modulus, step = whole_sum(parts), parcels[0].modulus, parcels[0].step
    if any((p.modulus, p.step) != (modulus, step) for p in parcels if p.modulus or modulus):
        raise ValueError("values that count modulo a number of steps can only be summed with their like")
    if modulus:
        summed = wrapped(summed.mul_(1 / step), modulus).mul_(step)
    return Parcel(
        summed.mul_(by.scale),
        bound=_merged_bound(parcels, weights),
        releases=frozenset().union(*(p.releases for p in parcels)),
        inherits=tuple(dict.fromkeys(version for p in parcels for version in p.inherits)),
        noise_std=min((w * torch.as_tensor(p.noise_std).min().item() for p, w in zip(parcels, weights)), default=0.0),
        clip_norm=parcels[0].clip_norm,
        counts=by.counts,
        scale=by.scale,
    )


def _merged_bound(parcels: Sequence[Parcel], weights: Sequence[float]) -> Bound | None:
    bounds = [p.bound for p in parcels if p.bound is not None]
    if len(bounds) < len(parcels) or len({(b.order, b.of, b.centred, b.anywhere) for b in bounds}) > 1:
        return None
    norms = torch.stack([torch.as_tensor(b.norm, dtype=torch.float64) * w for b, w in zip(bounds, weights)]).amax(0)
    private = next((b.private for b in bounds if b.private), "")
    norm = norms if norms.ndim else norms.item()
    return replace(bounds[0], norm=norm, records=max(b.records for b in bounds), private=private)
