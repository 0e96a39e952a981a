"""One round of a Flower app in two worlds: training once, mods and noise anew in every draw."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ....defenses.randomness import stream
from ....defenses.terms import Adjacency
from ...owners_code import owners
from ...record.flower.declared import CentralNoise
from ...tensors import real_numbers
from ..planted import training_on
from .app import ClientCall, TakenApart
from .canaries import CLIENT_CANARIES, FAULTY_CANARIES, nothing, opposite
from .loader import OwnData, loaded_records, planted

SEEDS = 2**32  # np.random.seed takes no larger ones
Raw = Callable[[str | None, int], Any]  # (world, seed) → what the audited client replies before its mods


@dataclass(frozen=True, eq=False)
class AppClient:
    """One client: the app's own code, the message that it gets, and its context."""

    code: TakenApart
    message: Any
    context: Any

    @property
    def sent(self) -> dict[str, NDArray]:
        """The model that it gets, by name."""
        return arrays_in(self.message.content, "the message to train")

    def trains(self, seed: int) -> Any:
        """What the app's own function replies, before any mod. Raises ValueError where it replies with an error."""
        seed_all(seed)
        return _called(self.code.function, self.message, self.context, "the client's training").content

    def replies(self, raw: Any) -> Any:
        """The message that goes out where the app's own function replied with `raw`."""
        from flwr.app import Message

        def replied(message: Any, context: Any) -> Any:
            del context
            return Message(content=copy.deepcopy(raw), reply_to=message)

        return _called(self.code.through(replied), self.message, self.context, "a mod")


def seed_all(seed: int) -> None:
    """All of torch's, NumPy's and Python's own randomness, which mods and trainings draw from."""
    # Where there is no GPU, torch.manual_seed spends most of a draw on remembering who seeded those to come.
    torch.manual_seed(seed) if torch.cuda.is_available() else torch.default_generator.manual_seed(seed)
    np.random.seed(seed % SEEDS)
    random.seed(seed)


def _called(call: ClientCall, message: Any, context: Any, whose: str) -> Any:
    """A reply with arrays. Raises ValueError where it is none."""
    from flwr.app import Message

    with owners(whose):
        reply = call(copy.deepcopy(message), copy.deepcopy(context))
    if not isinstance(reply, Message):
        raise ValueError(f"{whose} replied with a {type(reply).__name__}; expected a Message")
    if reply.has_error():
        raise ValueError(f"{whose} replied with an error: {reply.error.reason}")
    _arrays_of(reply.content, f"the reply of {whose}")
    return reply


def arrays_in(content: Any, what: str) -> dict[str, NDArray]:
    """The arrays of a message by name. Raises ValueError where it has none."""
    with owners(what):
        return {name: array.numpy() for name, array in _arrays_of(content, what).items()}


def _arrays_of(content: Any, what: str) -> Any:
    records = list(content.array_records.values())
    if len(records) != 1 or not len(records[0]):
        raise ValueError(f"{what} has {len(records)} records of arrays; expected one with a model's")
    return records[0]


def with_arrays(content: Any, arrays: Mapping[str, NDArray]) -> Any:
    """The same content with other arrays."""
    from flwr.app import Array, ArrayRecord

    made = copy.deepcopy(content)
    key = next(iter(made.array_records))
    made[key] = ArrayRecord({name: Array(np.asarray(value)) for name, value in arrays.items()})
    return made


@dataclass(frozen=True, eq=False)
class ClientUnit:
    """The client as a whole: its raw reply is replaced. World None is nothing of it (zero_out), or a reply that points
    the other way (replace_one); any other a canary by name. anew: training too is run in every draw, in either world.
    """

    client: AppClient
    adjacency: Adjacency
    anew: bool
    seed: int
    kept: dict[str, Any] = field(default_factory=dict)

    def __call__(self, world: str | None, seed: int) -> Any:
        if str(world) not in self.kept or self.anew:
            self.kept[str(world)] = self._made(world, self._trained(seed))
        return self.kept[str(world)]

    def _trained(self, seed: int) -> Any:
        if self.anew:
            return self.client.trains(seed)
        if "training" not in self.kept:
            self.kept["training"] = self.client.trains(stream(self.seed, "training"))
        return self.kept["training"]

    def _made(self, world: str | None, reply: Any) -> Any:
        without = nothing if self.adjacency == "zero_out" else opposite
        change = without if world is None else {**CLIENT_CANARIES, **FAULTY_CANARIES}[world]
        return with_arrays(reply, change(self.client.sent, arrays_in(reply, "the reply")))


@dataclass(frozen=True, eq=False)
class RecordUnit:
    """One record of the client's: it trains with a canary in its place, or without. anew: as of `ClientUnit`."""

    client: AppClient
    data: OwnData
    canaries: Mapping[str, Any]
    adjacency: Adjacency
    anew: bool
    seed: int
    kept: dict[str, Any] = field(default_factory=dict)

    def __call__(self, world: str | None, seed: int) -> Any:
        if str(world) not in self.kept or self.anew:
            self.kept[str(world)] = self._trained(world, seed if self.anew else stream(self.seed, "training"))
        return self.kept[str(world)]

    def _trained(self, world: str | None, seed: int) -> Any:
        some = next(iter(self.canaries.values()))
        canary = some if world is None else self.canaries[world]

        trained: list[Any] = []

        def change(loaded: Any) -> Any:
            made = planted(loaded, canary, present=world is not None, adjacency=self.adjacency)
            if self.adjacency == "zero_out":
                trained.append(loaded_records(made))
            return made

        with training_on(trained), self.data.changed(change):
            return self.client.trains(seed)


@dataclass(frozen=True, eq=False)
class AppRound:
    """What an observer gets of a round: (world, seed) → a vector. raw: of the audited client, by world.

    clients: the audited one first. others: the raw replies of the rest. strategy: None for an observer who gets the
    audited client's own reply; else the one that merges all, and is seen to. leaves: whether world None is that the
    client is not there (zero_out). Where a bound follows how many updates it clips, it then counts as half of one: a
    reply of nothing says 0 and another may say 1, and the noise on the count is for ½ (arXiv:1905.03871, Theorem 1).
    """

    raw: Raw
    clients: Sequence[AppClient]
    others: Sequence[Any] = ()
    strategy: Any | None = None
    leaves: bool = False

    def __call__(self, world: str | None, seed: int) -> NDArray[np.float64]:
        replies = self.replies(world, seed)
        if self.strategy is None:
            return _vector(arrays_in(replies[0].content, "the reply"))
        strategy, merged = self.merged(replies)
        model = _vector(merged)
        noise = CentralNoise.of(strategy)
        if noise is None or not noise.adaptive:
            return model
        half = 0.0
        if self.leaves and world is None:
            half = noise.clip_rate / 2 / len(replies)
        return np.concatenate([model, [log(noise.clip) - half]])

    def replies(self, world: str | None, seed: int) -> list[Any]:
        """The messages that go out, the audited client's first; of it alone where nobody merges them."""
        raw = self.raw(world, seed)
        seed_all(stream(seed, "mods"))  # no number that training drew
        others = [] if self.strategy is None else zip(self.clients[1:], self.others)
        return [self.clients[0].replies(raw), *(client.replies(other) for client, other in others)]

    def merged(self, replies: Sequence[Any]) -> tuple[Any, dict[str, NDArray]]:
        """The strategy after it merged them, and the model's arrays. Raises ValueError where it merges nothing."""
        strategy: Any = None
        with owners("the strategy"):
            strategy = copy.deepcopy(self.strategy)  # which may keep a state, such as an adaptive bound
            arrays, _ = strategy.aggregate_train(1, replies)
            if arrays is None:
                merged = None
            else:
                merged = {name: array.numpy() for name, array in arrays.items()}
        if merged is None:
            raise ValueError("the strategy merged nothing of the replies of round 1")
        return strategy, merged

    @property
    def sizes(self) -> list[int]:
        """How many numbers each tensor has; a bound that follows the updates, and is sent on, is one more."""
        sizes = [value.size for value in self.clients[0].sent.values()]
        noise = None if self.strategy is None else CentralNoise.of(self.strategy)
        return sizes + ([1] if noise is not None and noise.adaptive else [])


def _vector(arrays: Mapping[str, NDArray]) -> NDArray[np.float64]:
    return np.concatenate(
        [real_numbers(v, f"array {n!r}", torch.float64).numpy().reshape(-1) for n, v in arrays.items()]
    )
