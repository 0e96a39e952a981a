"""`dpfl_audit.replay`: a training on a data set and on its neighbours, with the same coins and the same releases."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...defenses.complaint import one_of
from ...defenses.progress import Progress
from ..errors import BadInput, bad_input
from ..owners_code import in_words
from ..worlds.transcript import own_randomness_kept
from .adjacency import ADJACENCIES, PAIRS, ReplayAdjacency
from .equal import differs
from .kept import KeptPairs, PairFound, key_of
from .opacus import with_opacus
from .outcome import Replay
from .records import NeighbourPair, ReplayRecords, pairs
from .tap import Event, Parted, Tap, Violation

Train = Callable[[Any, Any], Any]


def replay(
    train: Train,
    data: Any,
    *,
    adjacency: ReplayAdjacency = "zero_out",
    engine: Any = None,
    neighbours: int = PAIRS,
    canaries: Mapping[str, Any] | None = None,
    seed: int = 0,
    unit: str = "record",
    name: str = "",
    progress: Progress | None = None,
    folder: str | Path | None = None,
) -> Replay:
    """Looks for neighbouring data on which the training breaks what its proof takes for granted, without statistics.

    Each pair's data sets have equal coins (initialisation, sampling, dropout), and the second training goes on with the
    releases of the first. Then what noise is added to may differ by its bound at most, and nothing else that leaves may
    differ at all. A violation is certain up to rounding (10⁻⁵ of the bound); none found is no proof.

    Args:
        train: (data, tap) → anything that leaves; it takes batches by `tap.drawn(rate)`, tells `tap.query(name, value,
            sensitivity)` before noise, goes on with `tap.release(name, noisy)`, and tells `tap.public(name, value)` of
            what else leaves or sets the noise. With `engine`: (data, engine), your training with Opacus as it is.
        data: what it trains on, map-style; a record is one entry of it, or a client.
        adjacency: add_remove, zero_out (a place of weight 0) or replace_one. Only add_remove sees a number of records.
        engine: an opacus.PrivacyEngine, for its kind.
        neighbours: how many pairs. canaries: values by name in place of those that are made of a record.
        seed: of all coins. unit: what an entry is. name: of the training. progress: of pairs.
        folder: for replay.json; neighbours that are finished stay in it, as norms, names and steps, so that the same
            call after a kill goes on with the others.

    Raises:
        BadInput: two trainings on equal data differ, nothing is told, the changed record is never drawn, train raises
            on the data as they are, or an argument is wrong.

    >>> def mean(data, tap):
    ...     total = sum(min(1.0, data[i]) for i in range(len(data)))
    ...     tap.query("sum", total, sensitivity=1.0)
    ...     return tap.release("sum", total + random.gauss(0, 1)) / len(data)
    >>> found = replay(mean, [0.5, 0.25, 0.75, 0.5], adjacency="add_remove", neighbours=1)
    >>> [(violation.kind, violation.name) for violation in found.violations]  # how many there are is no secret
    [('invariance', 'return')]
    """
    if adjacency not in ADJACENCIES:
        raise BadInput(f"replay: {one_of('adjacency', adjacency, ADJACENCIES)}")
    if neighbours < 1:
        raise BadInput(f"replay: neighbours = {neighbours}; expected at least 1")
    called = train if engine is None else with_opacus(train, engine, adjacency)
    title = name or getattr(train, "__name__", "train")
    tried = pairs(data, adjacency, neighbours, seed, canaries, unit)

    def bounded(records: ReplayRecords, tap: Tap) -> Any:
        result = called(records, tap)
        if bare := _unbounded(tap.events):
            raise BadInput(
                f"replay: release {bare!r} has no query before it, so that nothing bounds it; tell the tap of what its"
                " noise is added to by tap.query, or of a value without noise by tap.public"
            )
        return result

    return replay_pairs(bounded, tried, AskedReplay(title, adjacency, unit, seed, progress, folder))


@dataclass(frozen=True)
class AskedReplay:
    """name, adjacency, unit, seed, progress, folder: as of `replay`."""

    name: str
    adjacency: ReplayAdjacency
    unit: str = "record"
    seed: int = 0
    progress: Progress | None = None
    folder: str | Path | None = None


def replay_pairs(train: Train, tried: list[NeighbourPair], asked: AskedReplay) -> Replay:
    """`replay` of neighbours that are made already, and with its errors. train: (records, tap) → what leaves."""
    name, seed, unit, folder = asked.name, asked.seed, asked.unit, asked.folder
    home = None if folder is None else Path(folder)
    with own_randomness_kept(), bad_input("replay"):
        once = _recorded_twice(train, tried[0].data, seed, name)
        kept = KeptPairs.read(home, key_of(once.events, name, asked.adjacency, seed, unit))
        _find(train, tried, once, kept, name, asked.progress)
        found = [kept.found[pair.name] for pair in tried]
        made = Replay(
            name,
            asked.adjacency,
            unit,
            tuple(pair.name for pair in tried),
            max(one.steps for one in found),
            sum(one.moved for one in found),
            max(one.longest for one in found),
            tuple(violation for one in found for violation in one.violations),
        )
        if any(event.kind == "query" for event in once.events) and not made.queries and not made.violations:
            raise ValueError("the changed record was never drawn, so nothing was shown; raise the rate or the steps")
    if home is not None:
        made.save(home)
    kept.done()
    return made


def _recorded_twice(train: Train, records: ReplayRecords, seed: int, name: str) -> Tap:
    """The training on its data as they are, if it does the same again. Raises ValueError."""
    once = _recorded(train, records, seed)
    again, raised = _run(train, Tap(records, seed, once.events, "equal data"), once.result)
    if unequal := (*again.violations, *([] if raised is None else [raised])):
        raise ValueError(f"{name} is not deterministic on equal data ({unequal[0].how}); seed what it draws")
    if again.longest:
        raise ValueError(f"{name} is not deterministic on equal data (a query moves); seed what it draws")
    if not once.events and once.result is None:
        raise ValueError(f"{name} told the tap of nothing and returned nothing, so there is nothing to compare")
    return once


def _unbounded(events: Sequence[Event]) -> str:
    """The first release that nobody was told the bound of, "" where there is none, or no bound of anything."""
    if all(event.kind != "query" for event in events):
        return ""
    pending = 0
    for event in events:
        if event.kind == "release" and not pending:
            return event.name
        pending += {"query": 1, "release": -1}.get(event.kind, 0)
    return ""


def _find(
    train: Train, tried: list[NeighbourPair], once: Tap, kept: KeptPairs, name: str, progress: Progress | None
) -> None:
    """Tries the neighbours that are not kept yet. once: on the data of the first of them."""
    base, recorded = tried[0].data, once
    for number, pair in enumerate(tried):
        if pair.name not in kept.found:
            if pair.data.values is not base.values or pair.data.changed != base.changed:
                base, recorded = pair.data, _recorded(train, pair.data, once.seed)
            tap, raised = _run(train, Tap(pair.neighbour, once.seed, recorded.events, pair.name), recorded.result)
            if pair.neighbour.absent and not pair.neighbour.batched:
                raise ValueError(
                    f"{name} takes no batches, so that no record can be left out of them; take them by tap.drawn(rate)"
                    " or data.__getitems__(places), or ask for add_remove or replace_one"
                )
            kept.add(pair.name, PairFound(tap.steps, tap.moved, tap.longest, tuple(_first_of_each(tap, raised))))
        if progress is not None:
            progress(number + 1, len(tried), "neighbours")


def _first_of_each(tap: Tap, raised: Violation | None) -> list[Violation]:
    """Of one kind and value the first: the next steps repeat it."""
    kept: dict[tuple[str, str], Violation] = {}
    for violation in (*tap.violations, *([] if raised is None else [raised])):
        kept.setdefault((violation.kind, violation.name), violation)
    return list(kept.values())


def _recorded(train: Train, records: ReplayRecords, seed: int) -> Tap:
    """A training on its data as they are, whose errors are the owner's mistake and no finding."""
    tap = Tap(records, seed)
    try:
        tap.result = _called(train, tap)
    except (BadInput, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise ValueError(f"train raised {in_words(error)}") from error
    return tap


def _run(train: Train, tap: Tap, expected: Any = None) -> tuple[Tap, Violation | None]:
    """The training on a neighbour. What it raises there and did not before is something that leaves."""
    try:
        result = _called(train, tap)
        tap.ended()
        how = None
        if expected is not None:
            how = differs(expected, result, "what train returns")
        if how is None:
            return tap, None
        return tap, Violation("invariance", tap.steps, "return", how, "", tap.pair)
    except Parted:
        return tap, None
    except (BadInput, KeyboardInterrupt):
        raise
    except BaseException as error:
        return tap, Violation("invariance", tap.steps, "error", f"train raises {in_words(error)}", "", tap.pair)


def _called(train: Train, tap: Tap) -> Any:
    torch.manual_seed(tap.seed)
    np.random.seed(tap.seed % 2**32)
    random.seed(tap.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the same at every neighbour
        return train(tap.records, tap)
