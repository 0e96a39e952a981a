"""One round of a Flower app replayed: what its mods or its strategy add noise to, in two worlds, without statistics."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ....defenses.progress import Progress
from ....defenses.terms import Adjacency, Unit
from ...errors import BadInput, bad_input
from ...record.flower.declared import CentralNoise, LocalNoise
from ...replay.outcome import Replay
from ...replay.records import NeighbourPair, ReplayRecords, faulty
from ...replay.replay import AskedReplay, replay_pairs
from ...replay.tap import Tap
from ..transcript import own_randomness_kept
from .app import FlowerApp
from .canaries import FAULTY_CANARIES
from .client_round import AppRound, RecordUnit, arrays_in, with_arrays
from .first_round import task_identity
from .opened import COUNTS, OpenedApp, canary_worlds, opened_app, unit_asked

NOISE = "add_gaussian_noise_inplace"  # of all of Flower's mods and strategies
FRACTION = "_noisy_fraction"  # of clipped updates, of its adaptive strategies
ONE_REPLY = 1.0  # by which one reply moves the count of clipped updates


@dataclass(frozen=True)
class FlowerReplay:
    """What is asked, by the names of `audit_flower`."""

    adjacency: Adjacency = "zero_out"
    unit: Unit | None = None
    data: Any = None
    observer: str | None = None
    model: Any = None
    client: int = 0
    clients: int | None = None
    seed: int = 0

    @classmethod
    def names(cls) -> set[str]:
        return {one.name for one in fields(cls)}

    def of(self, app: FlowerApp, progress: Progress | None = None, folder: Path | None = None) -> Replay:
        """One round of the app's own code in pairs of worlds: what Flower adds noise to may move by what the noise is
        for, and all else that the observer gets must be equal. Arrays are float64 here, so that rounding is no finding.

        Args:
            app: as of `audit_flower`. progress: of worlds. folder: for replay.json.

        Raises:
            BadInput: no noise of Flower's is declared towards the observer, or as of `audit_flower` and `replay`.
        """
        unit = unit_asked(self.unit, self.data)
        if self.adjacency not in ("zero_out", "replace_one"):
            raise BadInput(f"--replay: adjacency {self.adjacency}; expected zero_out or replace_one, of one round")
        with bad_input(app.name), task_identity(), own_randomness_kept():
            opened = opened_app(app, self.model, self.client, self.clients, self.observer, self.seed, progress)
            if opened.noise is None:
                raise BadInput(
                    f"{app.name}: neither a LocalDpMod nor Flower's private wrapper declares noise towards"
                    f" {opened.observer!r}, so there is no bound to check"
                )
            raw, names = canary_worlds(opened.clients[0], unit, self.adjacency, self.data, app, False, self.seed)
            if isinstance(raw, RecordUnit):
                more = faulty(next(iter(raw.canaries.values())))
                raw, names = replace(raw, canaries={**raw.canaries, **more}), [*names, *more]
            else:
                names += FAULTY_CANARIES
            twice = unit == "record" or self.adjacency == "replace_one"
            told = _told_round(opened, raw, 2.0 if twice else 1.0, self.seed)
            first = ReplayRecords([None], [0], 0)
            absent = {"record": "the record", "client": "the opposite"}[unit]
            if self.adjacency == "zero_out":
                absent = "nothing"
            pairs = [NeighbourPair(f"{n!r} in place of {absent}", first, ReplayRecords([n], [0], 0)) for n in names]
            asked = AskedReplay(app.name, self.adjacency, unit, self.seed, progress, folder)
            return replay_pairs(told, pairs, asked)


def _told_round(
    opened: OpenedApp, raw: Callable[[str | None, int], Any], times: float, seed: int
) -> Callable[[Any, Tap], Any]:
    """A round that tells a tap. times: what a bound is multiplied by where the client does not leave altogether."""
    clients = [replace(one, message=_in_float64(one.message)) for one in opened.clients]

    def as_float64(world: str | None, draw: int) -> Any:
        return _float64_of(raw(world, draw))

    others = [_float64_of(other) for other in opened.others]
    made = AppRound(as_float64, clients, others, opened.strategy)
    local = next((known for mod in clients[0].code.mods if (known := LocalNoise.of(mod)) is not None), None)
    central = None if opened.strategy is None else CentralNoise.of(opened.strategy)

    def round_of(records: Any, tap: Tap) -> None:
        noise = ToldNoise(tap, list(clients[0].sent))
        with noise.told(), _as_it_was_raised():
            if local is not None:
                noise.bound = lambda _: times * local.sensitivity
            replies = made.replies(records[0], seed)
            if made.strategy is None:
                tap.public("the reply", _content(replies[0].content))
                return
            noise.bound = None
            if central is not None and central.noisy:
                noise.bound = lambda std: times * std / central.multiplier  # the noise is z times it
            strategy, merged = made.merged(replies)
            tap.public("the model", merged)
            tap.public("the clip of the next round", getattr(CentralNoise.of(strategy), "clip", None))

    return round_of


@contextmanager
def _as_it_was_raised() -> Iterator[None]:
    """What a mod or a strategy raises leaves: itself, and not the sentence of an audit."""
    try:
        yield
    except ValueError as error:
        raise error.__cause__ or error from None


@dataclass(eq=False)
class ToldNoise:
    """Flower's own noise, told to a tap. names: of a model's arrays. bound: the noise's size → by what it may move what
    noise is added to; None while nobody declares it.
    """

    tap: Tap
    names: Sequence[str]
    bound: Callable[[float], float] | None = None
    _before: list[tuple[Any, str, Any]] = field(default_factory=list)

    @contextmanager
    def told(self) -> Iterator[None]:
        """Within it whoever adds noise by Flower's function, in whichever of its modules, tells the tap."""
        modules = [
            m for n, m in list(sys.modules.items()) if n.startswith("flwr.") and NOISE in getattr(m, "__dict__", {})
        ]
        kinds = [k for m in modules for k in vars(m).values() if isinstance(k, type) and FRACTION in vars(k)]
        try:
            for module in modules:
                self._put(module, NOISE, self._noise(getattr(module, NOISE)))
            for kind in set(kinds):
                self._put(kind, FRACTION, self._fraction(getattr(kind, FRACTION)))
            yield
        finally:
            for holder, name, value in reversed(self._before):
                setattr(holder, name, value)

    def _put(self, holder: Any, name: str, value: Any) -> None:
        self._before.append((holder, name, getattr(holder, name)))
        setattr(holder, name, value)

    def _noise(self, add: Callable[[list[Any], float], None]) -> Callable[[list[Any], float], None]:
        def told(input_arrays: list[Any], std_dev: float) -> None:
            if self.bound is None:
                return add(input_arrays, std_dev)
            self.tap.public("the noise's standard deviation", float(std_dev))
            bare = _without_noise(add, input_arrays, std_dev)
            if len(self.names) == len(input_arrays):
                names = self.names
            else:
                names = [str(i) for i in range(len(input_arrays))]
            places = {name: i for i, name in enumerate(names)}

            def these(unnoised: bool) -> dict[str, Any]:
                return {name: np.array(input_arrays[i]) for name, i in places.items() if bare[i] is unnoised}

            def hold(held: Mapping[str, Any]) -> None:
                for name, value in held.items():
                    input_arrays[places[name]] = value

            hold(self.tap.public("unnoised arrays", these(True)))
            self.tap.query("model", these(False), self.bound(float(std_dev)))
            add(input_arrays, std_dev)
            hold(self.tap.release("model", these(False)))
            return None

        return told

    def _fraction(self, fraction: Callable[..., float]) -> Callable[..., float]:
        def told(strategy: Any, count: int, total: int) -> float:
            self.tap.public("number of replies", total)
            self.tap.query("count of clipped updates", float(count), ONE_REPLY)
            return float(self.tap.release("count of clipped updates", fraction(strategy, count, total)))

        return told


def _without_noise(add: Callable[[list[Any], float], None], arrays: Sequence[Any], std: float) -> list[bool]:
    """Which of them the noise does not reach, such as numbers without a dimension or whole numbers, by trying."""
    kept = np.random.get_state()
    tried = [type(a)(0) if isinstance(a, np.generic) else np.zeros_like(a) for a in arrays]
    add(tried, std)
    np.random.set_state(kept)
    return [not np.any(one) for one in tried]


def _float64_of(content: Any) -> Any:
    sent = arrays_in(content, "the reply")
    return with_arrays(content, {n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in sent.items()})


def _in_float64(message: Any) -> Any:
    made = copy.deepcopy(message)
    made.content = _float64_of(message.content)
    return made


def _content(content: Any) -> Mapping[str, Any]:
    """What a reply holds, but for numbers of records, which neighbours share."""
    beside = [*content.metric_records.values(), *content.config_records.values()]
    figures = {name: value for record in beside for name, value in record.items() if name not in COUNTS}
    return {"arrays": arrays_in(content, "the reply"), "figures": figures}
