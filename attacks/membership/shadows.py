"""Shadow federations: the attacker trains as the attacked model was trained, defences included, on its own records."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ... import __version__
from ...defenses.atomic import write_bytes
from ...defenses.data.dataset import Dataset, digest
from ...defenses.engine import CHAIN_CHUNK_JOBS, Engine, batched
from ...defenses.federation import Federation, RoundRecord, run_many
from ...defenses.layout import Layout
from ...defenses.progress import Progress
from ...defenses.randomness import Keystream, generator
from ...defenses.schedule import History, RoundPlan, Schedule, rounds_planned
from ...defenses.scheme import Scheme
from ...defenses.wire import SERVER, Wire
from ...defenses.workers import HERE, Workers
from ..cost import CALL, CLIPPED, NOISE, forward_operations
from .signals import numbers_per_record

MakeFederation = Callable[[Sequence[Tensor], int], Federation]  # rows by client, seed


@dataclass(frozen=True, eq=False)
class ShadowFactory:
    """What the attacker knows of the target's training: `Knowledge.shadow_factory`.

    Nothing here depends on the target's records: shadows train on records of `Knowledge` (candidates and auxiliary
    data), and no factory holds which candidates are members.

    scheme: the target's own. module: its network; every shadow starts from the module's own weights, so they should be
    the target's (the server broadcasts them in round 0). sizes: records by client. digest: names the config in the
    cache's keys. cache: the folder of trained shadows, None for none. evaluate: measure test figures on the auxiliary
    records every round, for schedules that read them. engine, workers: who trains.
    """

    scheme: Scheme
    module: nn.Module
    sizes: tuple[int, ...]
    digest: str = ""
    cache: Path | None = None
    evaluate: bool = False
    engine: Engine = batched
    workers: Workers = HERE

    def check(self, auxiliary: int) -> None:
        """That shadows can be evaluated on so many auxiliary records, where they are to be. Raises ValueError."""
        if self.evaluate and not auxiliary:
            raise ValueError(
                "the scheme's schedule reads test figures, and the attacker has no auxiliary data to measure its"
                " shadows on; capture some"
            )

    def operations(self, shape: tuple[int, ...], rounds: int) -> int:
        """About how many one federation takes: three passes over a record of `shape` in every local step, and noise;
        by DP-SGD a gradient for each record, and noise in every step.

        Args:
            shape: of one record. rounds: until the attacked model.
        """
        local, clients = self.scheme.local, range(len(self.sizes))
        taking_part = len(self.scheme.participation.select(0, clients, Keystream(0, "cost")).members)
        records = sum(self.sizes) // len(self.sizes)  # of a client
        batch = min(local.batch_size, records)
        steps = 1 if self.scheme.share == "gradient" else local.steps or (local.epochs or 1) * -(-records // batch)
        dim = Layout.of(self.module).dim
        computed = 3 * steps * batch * forward_operations(self.module, shape)
        private = NOISE if local.per_example is None else steps * (NOISE + batch * CLIPPED)
        # Clients train as stacks of about `CHAIN_CHUNK_JOBS`, so that each step's calls are paid for once a stack.
        return rounds * taking_part * (steps * CALL // CHAIN_CHUNK_JOBS + computed + private * dim)

    def on(
        self, inputs: Tensor, targets: Tensor, auxiliary: Tensor, classes: int, rounds: int | None = None
    ) -> MakeFederation:
        """Federations over the attacker's own records.

        Args:
            inputs, targets: (N, *shape) and (N,). auxiliary: numbers of the rows that serve to evaluate.
            classes: number of labels, 0 for regression.
            rounds: the round of the attacked model, if before the schedule's end.

        Raises:
            ValueError: the schedule reads test figures, and there are no auxiliary rows.
        """
        self.check(len(auxiliary))
        empty_inputs, empty_targets = inputs[:0], targets[:0]
        test = (inputs[auxiliary], targets[auxiliary]) if self.evaluate else (empty_inputs, empty_targets)
        data = Dataset("shadow", inputs, targets, *test, empty_inputs, empty_targets, classes, (), (), {})
        scheme = self.scheme if rounds is None else replace(self.scheme, schedule=Until(self.scheme.schedule, rounds))
        return lambda clients, seed: Federation(scheme, self.module, data, clients, seed, Wire(), self.evaluate)


@dataclass(frozen=True)
class Until:
    """A schedule that ends after `rounds` rounds, if not before."""

    schedule: Schedule
    rounds: int

    def plan(self, round: int, history: History) -> RoundPlan | None:
        return self.schedule.plan(round, history) if round < self.rounds else None


# --- who is in which shadow


def keep_matrix(shadows: int, records: int, seed: int) -> Tensor:
    """(S, n) bool: True where shadow s is trained on record i. Every record is in exactly half of the shadows, every
    shadow on half of the records.

    Shadows come in complementary pairs, each splitting the records anew. (Ranking random numbers record by record, as
    LiRA's authors do, also puts every record in half of the shadows, but leaves the shadows' sizes to chance.)

    >>> keep = keep_matrix(4, 6, seed=0)
    >>> keep.sum(0).tolist(), keep.sum(1).tolist()
    ([2, 2, 2, 2, 2, 2], [3, 3, 3, 3])

    Raises:
        ValueError: the number of shadows is odd or under 2, so half of them is no number.
    """
    if shadows < 2 or shadows % 2:
        raise ValueError(
            f"shadows is {shadows}, it must be even and at least 2, so that every record is in exactly half of them"
        )
    keep = torch.zeros(shadows, records, dtype=torch.bool)
    for pair in range(0, shadows, 2):
        keep[
            pair, torch.randperm(records, generator=generator(seed, "shadow pair", pair))[: records - records // 2]
        ] = True
        keep[pair + 1] = ~keep[pair]
    return keep


def deal(rows: Tensor, sizes: Sequence[int], rng: torch.Generator) -> list[Tensor]:
    """`rows` dealt at random to clients of these sizes; if rows are fewer, every client gets its share, at least one.

    >>> [len(part) for part in deal(torch.arange(6), (4, 8), torch.Generator())]
    [2, 4]

    Raises:
        ValueError: there are more rows than the sizes add up to, or fewer than clients.
    """
    total = sum(sizes)
    if not len(sizes) <= len(rows) <= total:
        raise ValueError(
            f"{len(rows)} records cannot be dealt to {len(sizes)} clients of {total} records together: between"
            f" {len(sizes)} and {total} are needed"
        )
    shuffled = rows[torch.randperm(len(rows), generator=rng)]
    spare, before, ends = len(rows) - len(sizes), 0, [0]
    for client, size in enumerate(sizes, 1):
        before += size - 1
        ends.append(client + (round(spare * before / (total - len(sizes))) if spare else 0))
    return [shuffled[a:b] for a, b in zip(ends, ends[1:])]


# --- training


def train_shadows(
    make: MakeFederation,
    clients: Sequence[Sequence[Tensor]],
    seeds: Sequence[int],
    *,
    engine: Engine = batched,
    workers: Workers = HERE,
    memory: int = 2**31,
    cache: Path | None = None,
    name: str = "",
    progress: Progress | None = None,
) -> Tensor:
    """The final global models (S, d) of the federations make(clients[s], seeds[s]), trained together by `run_many`.

    Args:
        clients: rows by client, for every shadow. seeds: one a shadow.
        engine: of the local training. workers: who trains the chunks.
        memory: bytes for the training; it decides how many federations train at once, from shapes alone.
        cache: a folder for every chunk of federations, under a key of its records, rows, start weights, seeds, `name`
            and versions. A whole file takes the place of the training; any other file is replaced.
        name: of the config, so that other settings never share a key.

    Raises:
        ValueError: a federation has no global model, or diverged; or there is a `cache` and no `name`.
    """
    if cache is not None and not name:
        raise ValueError(
            "a cache of shadow models needs the config's digest as a name, so that other settings never share a key"
        )
    if not seeds or len(clients) != len(seeds):
        raise ValueError(
            f"there are {len(clients)} lists of rows and {len(seeds)} seeds; one of each is needed for every shadow,"
            " and at least one shadow"
        )
    federations = [make(rows, seed) for rows, seed in zip(clients, seeds)]
    if not federations[0].scheme.topology.central:
        raise ValueError(
            f"the scheme {federations[0].scheme.name!r} has no global model, so shadow models have nothing to be"
            " compared with"
        )
    size = at_once(federations[0], memory)
    planned = max(1, rounds_planned(federations[0].scheme.schedule))
    chunks = [federations[first : first + size] for first in range(0, len(federations), size)]
    paths = [None if cache is None else cache / f"shadows-{_key(c, engine, name)[:32]}.safetensors" for c in chunks]
    dim = Layout.of(federations[0].module).dim
    kept: dict[int, Tensor] = {}
    for n, path in enumerate(paths):
        if path is not None and (held := _read(path, (len(chunks[n]), dim))) is not None:
            kept[n] = held
    todo = [n for n in range(len(chunks)) if n not in kept]

    def watch(place: int) -> Progress:
        def tick(rounds: int, total: int, /, words: str = "") -> None:
            if progress is not None:
                progress(todo[place] * size * planned + rounds, planned * len(federations))

        return tick

    trained = workers.map(partial(_train, engine), (chunks[n] for n in todo), watch)
    for place, (n, weights) in enumerate(zip(todo, trained)):
        kept[n] = weights
        if (path := paths[n]) is not None:
            _write(path, weights)
        watch(place)(planned * len(chunks[n]), 0)
    if progress is not None:
        progress(planned * len(federations), planned * len(federations))
    weights = torch.cat([kept[n] for n in range(len(chunks))])
    diverged = (~torch.isfinite(weights)).any(1)
    if diverged.any():
        raise ValueError(
            f"{int(diverged.sum())} of {len(weights)} shadow federations diverged (their weights are not finite);"
            " shadow attacks need a setup that trains stably"
        )
    return weights


def at_once(federation: Federation, memory: int) -> int:
    """How many federations like this one train together within `memory` bytes: a rule on shapes only.

    A client's training holds about 6 copies of the weights (start, weights, gradient, two moments, result) and, for one
    batch, the inputs and activations twice (values and their gradients); a federation holds all its clients' results.

    >>> from dpfl_audit.defenses.local import LocalTraining
    >>> scheme = Scheme(name="fedavg", source="", local=LocalTraining(batch_size=10))
    >>> x, y = torch.zeros(100, 4), torch.zeros(100, dtype=torch.long)
    >>> data = Dataset("zeros", x, y, x[:0], y[:0], x[:0], y[:0], 2, (), (), {})

    Ten clients of 6·10 + 2·10·6 numbers:

    >>> at_once(Federation(scheme, nn.Linear(4, 2), data, torch.arange(100).split(10), 0), memory=2**20)
    145
    """
    batch = min(federation.scheme.local.batch_size, max(len(rows) for rows in federation.clients))
    activations = 2 * batch * numbers_per_record(federation.module, federation.data.input_shape)
    number = next(federation.module.parameters()).element_size()
    return max(1, memory // (number * len(federation.clients) * (6 * Layout.of(federation.module).dim + activations)))


def _train(engine: Engine, federations: Sequence[Federation], progress: Progress | None) -> Tensor:
    finished, planned = 0, len(federations) * max(1, rounds_planned(federations[0].scheme.schedule))

    def on_round(_: int, __: RoundRecord) -> None:
        nonlocal finished
        finished += 1
        if progress is not None:
            progress(finished, planned)

    return torch.stack([state.models[SERVER].vector for state in run_many(federations, engine, on_round=on_round)])


# --- the cache


def _key(federations: Sequence[Federation], engine: Engine, name: str) -> str:
    """SHA-256 of all that decides the chunk's weights."""
    first = federations[0]
    start = [p.detach() for p in first.module.parameters()]
    content = {
        "config": name,
        "records": digest(first.data.inputs, first.data.targets, first.data.test_inputs, first.data.test_targets),
        "rows": [digest(*federation.clients) for federation in federations],
        "seeds": [federation.seed for federation in federations],
        "scheme": [first.scheme.name, max(1, rounds_planned(first.scheme.schedule))],
        "network": [str(first.module), digest(*start)],
        "engine": f"{engine.__module__}.{getattr(engine, '__qualname__', type(engine).__qualname__)}",
        "versions": [__version__, torch.__version__],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _read(path: Path, shape: tuple[int, ...]) -> Tensor | None:
    """The weights in a cache file, None where it is absent or damaged."""
    if not path.exists():
        return None
    try:
        with safe_open(path, "pt") as file:
            weights, checksum = file.get_tensor("weights"), (file.metadata() or {}).get("sha256")
    except (SafetensorError, OSError):
        return None
    return weights if tuple(weights.shape) == shape and digest(weights) == checksum else None


def _write(path: Path, weights: Tensor) -> None:
    """Several processes may fill one cache."""
    content = save({"weights": weights.contiguous()}, {"sha256": digest(weights)})
    write_bytes(path, content, writer=str(os.getpid()))
