"""Who holds which records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..nearest import instead

PARTITIONS: dict[str, str] = {
    "iid": "at random",
    "shards": "k distinct classes a client (McMahan et al. 2017); option shards, default 2",
    "dirichlet": "class shares drawn from a Dirichlet distribution; option alpha, default 0.5",
    "sorted": "consecutive pieces of the records sorted by target",
    "writer": "whole writers, a client each (FEMNIST; of a csv, the holders that options = { holder = … } names)",
}


# Why the records of one client may be of another kind than those of another.
UNALIKE = {
    "shards": "each client has a few classes",
    "dirichlet": "each client has its own shares of the classes",
    "sorted": "records were dealt in the order of their targets",
    "writer": "each client has the records of one holder",
    "recorded": "nobody says that a lot dealt the records",
}

BY_LOT = ("iid", "shards", "dirichlet")  # which records of a class a client gets is drawn uniformly


def partition(
    kind: str, targets: Tensor, clients: int, samples_per_client: int | None, generator: torch.Generator, **options: Any
) -> list[Tensor]:
    """Disjoint row numbers of each client's records.

    Args:
        kind: a name in `PARTITIONS`. targets: (n,), class numbers, real targets, or writers for "writer".
        clients: how many there are, at least 1.
        samples_per_client: the same number for every client, rows left over are not dealt; None deals n // clients to
            each, "shards" the most with which all shards are equal, "writer" whole writers.
        generator: of the order. options: of the kind, shards or alpha.

    Raises:
        ValueError: unknown kind or option, or more records asked for than there are.
    """
    if kind not in PARTITIONS:
        raise ValueError(f"{kind!r} is not a partition{instead(kind, PARTITIONS)}")
    known = {"shards": {"shards"}, "dirichlet": {"alpha"}}.get(kind, set())
    unknown = sorted(set(options) - known)
    if unknown:
        raise ValueError(f"{kind} has no option {unknown[0]!r}{instead(unknown[0], sorted(known))}")
    if clients < 1:
        raise ValueError(f"clients = {clients}: at least one is needed")
    each = len(targets) // clients if samples_per_client is None else samples_per_client
    if samples_per_client is None and kind == "shards":
        each = _most(targets, clients, **options)
    if samples_per_client is None and kind == "writer":
        return _writer(targets, clients, None, generator)
    if each < 1 or each * clients > len(targets):
        raise ValueError(
            f"{clients} clients of {max(1, each)} records ask for {clients * max(1, each)}, the training split has"
            f" {len(targets)}"
        )
    return _KINDS[kind](targets, clients, each, generator, **options)


def _iid(targets: Tensor, clients: int, each: int, rng: torch.Generator) -> list[Tensor]:
    order = torch.randperm(len(targets), generator=rng)
    return [order[i * each : (i + 1) * each] for i in range(clients)]


def _sorted(targets: Tensor, clients: int, each: int, rng: torch.Generator) -> list[Tensor]:
    del rng
    order = torch.argsort(targets, stable=True)
    step = len(targets) // clients
    return [order[i * step : i * step + each] for i in range(clients)]


def _shards(targets: Tensor, clients: int, each: int, rng: torch.Generator, *, shards: int = 2) -> list[Tensor]:
    """Every client gets `shards` distinct classes in equal parts (the first ones one more where it does not divide)."""
    classes = [torch.nonzero(targets == c).flatten() for c in targets.unique().tolist()]
    if not 1 <= shards <= min(len(classes), each):
        raise ValueError(
            f"shards = {shards}: between 1 and the number of classes ({len(classes)}) and of records a client ({each})"
        )
    pools = [rows[torch.randperm(len(rows), generator=rng)] for rows in classes]
    used = [0] * len(pools)
    held = []
    for _ in range(clients):
        left = torch.tensor([len(p) - u for p, u in zip(pools, used)])
        # The fullest classes first, ties at random, so that the last clients still find enough distinct classes.
        chosen = (left + torch.rand(len(left), generator=rng)).argsort(descending=True)[:shards].tolist()
        parts = []
        for place, c in enumerate(chosen):
            want = each // shards + (place < each % shards)
            if used[c] + want > len(pools[c]):
                raise ValueError(
                    f"{clients} clients of {each} records from {shards} classes each do not fit: a class has"
                    f" {len(pools[c])} records"
                )
            parts.append(pools[c][used[c] : used[c] + want])
            used[c] += want
        held.append(torch.cat(parts))
    order = torch.randperm(clients, generator=rng).tolist()
    return [held[i] for i in order]


def _dirichlet(targets: Tensor, clients: int, each: int, rng: torch.Generator, *, alpha: float = 0.5) -> list[Tensor]:
    """Every client draws records class by class, shares from Dirichlet(alpha) over the classes that still have any."""
    if not alpha > 0:
        raise ValueError(f"alpha = {alpha}: must be above 0")
    pools = [
        rows[torch.randperm(len(rows), generator=rng)].tolist()
        for rows in (torch.nonzero(targets == c).flatten() for c in targets.unique().tolist())
    ]
    held = []
    for _ in range(clients):
        shares = (
            torch._standard_gamma(torch.full((len(pools),), float(alpha), dtype=torch.float64), generator=rng) + 1e-300
        )
        rows: list[int] = []
        while len(rows) < each:
            left = torch.tensor([float(len(p) > 0) for p in pools], dtype=torch.float64)
            weights = shares * left
            c = int(torch.multinomial(weights if weights.sum() > 0 else left, 1, generator=rng))
            rows.append(pools[c].pop())
        held.append(torch.tensor(rows))
    return held


def _most(targets: Tensor, clients: int, *, shards: int = 2) -> int:
    """The most records a client can have in `shards` equal shards of distinct classes.

    A class makes as many shards as it has room for, at most one a client.
    """
    counts = targets.unique(return_counts=True)[1]
    for size in range(len(targets) // (clients * max(1, shards)), 0, -1):
        if (counts // size).clamp(max=clients).sum() >= clients * shards:
            return size * max(1, shards)
    return max(1, shards)


def _writer(writers: Tensor, clients: int, each: int | None, rng: torch.Generator) -> list[Tensor]:
    """One writer a client with `each` of its records (None: all): all of them in their order, or so many by lot.
    Writers with fewer records are left out.
    """
    ids, counts = writers.unique(return_counts=True)
    usable = ids[counts >= (each or 1)]
    if len(usable) < clients:
        raise ValueError(
            f"only {len(usable)} writers have {each or 1} records or more; {clients} clients were asked for"
        )
    chosen = usable if len(usable) == clients else usable[torch.randperm(len(usable), generator=rng)[:clients]]
    return [torch.nonzero(writers == w).flatten()[:each] for w in chosen.tolist()]


_KINDS: dict[str, Callable[..., list[Tensor]]] = {
    "iid": _iid,
    "shards": _shards,
    "dirichlet": _dirichlet,
    "sorted": _sorted,
    "writer": _writer,
}
