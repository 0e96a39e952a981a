"""On the server: a strategy that records what another one sends, receives and makes of it, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import BadInput
from ..declared import COMPLETENESS, NOTHING_ELSE
from ..mechanism import Gaussian
from ..recorder import Recorder
from ..recording import Average
from . import defects
from .content import beside, not_as_sent
from .declared import CentralNoise, LocalNoise, merges_by_mean, weight_key
from .mods import DECLARED, KEY, raw_of, records_kept

Arrays = dict[str, np.ndarray]
RECORDS = ContextVar("RECORDS", default=True)  # False while an app is only looked at (`audit flower`)


def record_strategy(strategy: Any, folder: str | Path, model: object, **options: Any) -> Any:
    """A Flower strategy that does what `strategy` does, and records every round of it into `folder`.

    Wrap it last: round Flower's own differentially private wrappers, whose parameters are read as what is declared.
    With `AuditMod` among the clients' mods, partition ids are the clients, LocalDpMod's parameters are declared too,
    and raw values check them. Without it clients are numbered as they come.

    A reply that cannot be recorded is passed on all the same; that it was sent is kept in mind, so that nothing is
    proven that did not run.

    Args:
        strategy: of flwr.serverapp.strategy, or of your own.
        folder: the setup to write. It is made when `start` ends; of a killed run `audit import FOLDER` makes it.
        model: the network whose weights are sent, or its state dict.
        options: as for `Recorder`, but for share, average and by: claim, data, tables, keep, …

    Raises:
        BadInput: an option that cannot be, or a folder that holds something else.
    """
    if taken := sorted({"share", "average", "by", "strict"} & set(options)):
        raise BadInput(f"record_strategy: {taken[0]} is read from the strategy and cannot be given")
    try:
        made = _recording_class()
    except ImportError:
        raise BadInput("record_strategy needs Flower: pip install 'dpfl-audit[flower]'") from None
    if not RECORDS.get():
        return strategy
    declared = options.pop("mechanism", None)
    average: Average = "records" if merges_by_mean(strategy) else "unknown"
    mechanism = _fixed(strategy) if declared is None else declared
    known: dict[str, Any] = {"share": "weights", "average": average, "by": "Flower", "strict": True}
    recorder = Recorder(folder, model, mechanism=mechanism, **known, **options)
    return made(strategy, Flow(recorder, Path(folder), strategy, given=declared is not None))


def _fixed(strategy: Any) -> Gaussian | None:
    """What a fixed clip declares before the first round; None where there is none, or every round has its own."""
    noise = CentralNoise.of(strategy)
    if noise is None or noise.adaptive or not noise.noisy:
        return None
    return Gaussian(clip=noise.clip, noise_std=noise.noise_std, by="server")


@dataclass(frozen=True)
class _Reply:
    """A reply to train as it came. client: None for one without an `AuditMod`. local: what its LocalDpMod is told.
    beside: names of what it holds beside its arrays.
    """

    node: int
    client: int | None
    arrays: Arrays
    count: Any
    local: LocalNoise | None
    clipped: bool | None
    beside: list[str]


class Flow:
    """One training as it goes by. Flower counts rounds from 1, a setup from 0; rounds without a model are left out."""

    def __init__(self, recorder: Recorder, folder: Path, strategy: Any, given: bool) -> None:
        self.recorder, self.folder, self.strategy, self.given = recorder, folder, strategy, given
        self.nodes: dict[int, int] = {}  # whose client each is
        self.bare: set[tuple[int, str]] = set()  # by client, what it sent beside its arrays
        self.sent: Arrays | None = None
        self.bound = 0.0
        self.came: list[_Reply] = []
        self.ended = False
        self.weight_key = weight_key(strategy)

    @property
    def round(self) -> int:
        return self.recorder.next_round - 1

    def broadcast(self, messages: Sequence[Any]) -> None:
        records = [m.content.array_records for m in messages if m.content.array_records]
        if not records or self.ended:
            return
        self.sent, self.came = self._named(_arrays_of(next(iter(records[0].values())))), []
        noise = CentralNoise.of(self.strategy)
        self.bound = 0.0 if noise is None else noise.clip
        try:
            self.recorder.broadcast(self.recorder.next_round, self.sent)
        except BadInput as refused:
            self._end(str(refused))
            return
        if wrong := not_as_sent(messages):
            self.recorder.defect(self.round, COMPLETENESS, NOTHING_ELSE, wrong, breaks=True)

    def replies(self, server_round: int, replies: Sequence[Any]) -> None:
        """Records what came, before anything changes it, and takes the mod's own record off."""
        if self.sent is None:
            return
        self.others(reply for reply in replies if not reply.has_error() and not reply.content.array_records)
        came = [self._read(reply) for reply in replies if not reply.has_error() and reply.content.array_records]
        for one in came:
            client = self._number(one.node, one.client)
            self._unnoised(client, one.beside)
            try:
                self.recorder.upload(
                    self.round, client, one.arrays, one.count, records=records_kept(self.folder, client)
                )
            except BadInput as refused:
                _log(f"dpfl-audit: {refused}")
            try:  # also where its records were refused
                if (raw := raw_of(self.folder, client, server_round)) is not None:
                    self.recorder.raw(self.round, client, self._named(raw))
            except BadInput as refused:
                _log(f"dpfl-audit: {refused}")
        self.came += came
        if not self.given:  # now, as whatever ends the process before the round is merged ends no less that was sent
            self.recorder.declare(self.round, [*self._local(), *self._central()])

    def others(self, replies: Iterable[Any]) -> None:
        """Replies without a model, as to evaluate one: nothing of them is recorded but that they came."""
        for reply in replies:
            if reply.has_error():
                continue
            told = reply.content.config_records.get(KEY)
            if told is not None:
                del reply.content[KEY]
            if self.sent is not None:
                client = self._number(reply.metadata.src_node_id, _client_of(told))
                self._unnoised(client, beside(reply.content, self._counts, arrays=0))

    def merged(self, metrics: Any) -> None:
        """What ran in the round, known by now, and which known defects it shows."""
        if self.sent is None:
            return
        if not self.given:
            self.recorder.declare(self.round, [*self._local(), *self._central()])
        for defect in self._defects(dict(metrics or {})):
            if defect is not None:
                self.recorder.defect(self.round, defect.what, defect.said, defect.why, breaks=defect.breaks)

    def close(self, arrays: Any) -> None:
        if self.ended:
            return
        if self.sent is not None and arrays is not None:
            try:
                self.recorder.broadcast(self.recorder.next_round, self._named(_arrays_of(arrays)))
            except BadInput as refused:
                self._end(str(refused))
                return
        self._close(nothing_more=arrays is not None)  # a loop of its own may hand on a model that no message holds

    def _end(self, why: str) -> None:
        """The training goes on, and the recording cannot: what is sent from now on is in no ledger."""
        _log(f"dpfl-audit: the recording ends here, and nothing is proven: {why}")
        if self.recorder.next_round > 0:
            self.recorder.defect(self.round, COMPLETENESS, NOTHING_ELSE, why, breaks=True)
        self.sent, self.ended = None, True
        self._close()

    def _close(self, *, nothing_more: bool = True) -> None:
        try:
            self.recorder.close(nothing_more=nothing_more)
        except BadInput as refused:
            _log(f"dpfl-audit: {refused}")
            self.recorder.abandon()

    def _read(self, reply: Any) -> _Reply:
        told = reply.content.config_records.get(KEY)
        if told is not None:
            del reply.content[KEY]
        metrics: Any = next(iter(reply.content.metric_records.values()), {})
        declares = told is not None and DECLARED[0] in told
        local = None
        if declares:
            local = LocalNoise(*(float(told[n]) for n in DECLARED))
        count = next((metrics[key] for key in self._counts if key in metrics), None)
        whole = int(count) if isinstance(count, int | float) and count == int(count) else count
        bit = metrics.get("norm_bit")
        arrays = self._named(_arrays_of(next(iter(reply.content.array_records.values()))))
        clipped, more = None if bit is None else bool(bit), beside(reply.content, self._counts)
        return _Reply(reply.metadata.src_node_id, _client_of(told), arrays, whole, local, clipped, more)

    def _named(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """By the model's own names, where they are only numbered, as messages of before have them."""
        numbers = [str(i) for i in range(len(arrays))]
        if set(arrays) != set(numbers):
            return dict(arrays)
        network = self.recorder.network
        names = next((n for n in network.orders if len(n) == len(arrays)), numbers)
        return {name: arrays[number] for name, number in zip(names, numbers)}

    @property
    def _counts(self) -> tuple[str, str]:
        """Metrics that are a reply's number of records, the second in those of before."""
        return self.weight_key, "num_examples"

    def _number(self, node: int, client: int | None) -> int:
        if client is not None:
            self.nodes[node] = client
        return self.nodes.setdefault(node, len(self.nodes))

    def _unnoised(self, client: int, names: Iterable[str]) -> None:
        """Once of each client, as nothing is proven from then on."""
        for what in names:
            if (client, what) not in self.bare:
                self.bare.add((client, what))
                try:
                    self.recorder.unnoised(self.round, client, what)
                except BadInput as refused:
                    _log(f"dpfl-audit: {refused}")

    def _local(self) -> list[Gaussian]:
        """LocalDpMod's, where every client of the round has the same."""
        told = [*{one.local for one in self.came}]
        if len(told) != 1 or told[0] is None or not told[0].noisy:
            return []
        return [Gaussian(clip=told[0].clip, noise_std=told[0].noise_std)]

    def _central(self) -> list[Gaussian]:
        """Flower's strategy wrapper's, with the bounds of this round."""
        noise = CentralNoise.of(self.strategy)
        if noise is None or not noise.noisy:
            return []
        model = Gaussian(clip=self.bound, noise_std=noise.noise_std, by="server")
        if not noise.adaptive:
            return [model]
        if not noise.count_std > 0:  # the bound follows the exact count, so nothing is proven
            return []
        count = Gaussian(clip=1.0, noise_std=noise.count_std, by="server", on="sum", what="count of clipped updates")
        return [model, count]

    def _defects(self, metrics: Mapping[str, object]) -> Iterable[defects.FlowerDefect | None]:
        came, noise = self.came, CentralNoise.of(self.strategy)
        assert self.sent is not None
        local = next((reply.local for reply in came if reply.local is not None), None)
        if local is not None:
            yield defects.other_sensitivity(*local.values)
        if local is not None or noise is not None:
            yield defects.unclipped_tensors({name: value.shape for name, value in self.sent.items()})
        if noise is None or not noise.noisy:
            return
        counts = [reply.count for reply in came if isinstance(reply.count, int)]
        fewer = defects.fewer_than_noise_is_for(len(came), noise.clients)
        yield fewer
        if fewer is None and merges_by_mean(self.strategy):
            yield defects.weights_beyond_noise(counts, noise.clients, noise.multiplier)
        if noise.quantile is not None:
            clipped = sum(self._was_clipped(reply) for reply in came)
            yield defects.moved_the_wrong_way(clipped, len(came), self.bound, noise.clip, noise.quantile)
            yield defects.noise_of_the_next_bound(self.bound, noise.clip)
            yield defects.bits_in_the_open(metrics)

    def _was_clipped(self, one: _Reply) -> bool:
        assert self.sent is not None
        if one.clipped is not None:
            return one.clipped
        squares = (
            np.square(one.arrays[n].astype(np.float64) - v).sum() for n, v in self.sent.items() if n in one.arrays
        )
        return float(np.sqrt(sum(squares))) > self.bound


def _client_of(told: Any) -> int | None:
    """The partition id that an `AuditMod` says, None without one."""
    if told is None or int(told["partition-id"]) < 0:
        return None
    return int(told["partition-id"])


def _arrays_of(record: Any) -> Arrays:
    """Its arrays, each read anew from the record's bytes: wrappers may change replies."""
    return {name: array.numpy() for name, array in record.items()}


def _log(text: str) -> None:
    from logging import WARNING

    from flwr.common import log

    log(WARNING, text)


@cache
def _recording_class() -> type:
    """Made when it is first asked for, as nothing here imports flwr before."""
    from flwr.serverapp.strategy import Strategy

    class RecordingStrategy(Strategy):
        """What `record_strategy` returns."""

        def __init__(self, strategy: Any, flow: Flow) -> None:
            self.strategy, self._flow = strategy, flow

        def __getattr__(self, name: str) -> Any:
            if name in ("strategy", "_flow"):
                raise AttributeError(name)
            return getattr(self.strategy, name)

        def start(self, *args: Any, **options: Any) -> Any:
            """As of any strategy; afterwards the setup is whole, or, where it failed, has all whole rounds."""
            try:
                result = super().start(*args, **options)
            except BaseException:
                self._flow.recorder.abandon()
                raise
            self._flow.close(result.arrays)
            return result

        def configure_train(self, server_round, arrays, config, grid):
            messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
            self._flow.broadcast(messages)
            return messages

        def aggregate_train(self, server_round, replies):
            came = list(replies)
            self._flow.replies(server_round, came)
            arrays, metrics = self.strategy.aggregate_train(server_round, came)
            self._flow.merged(metrics)
            return arrays, metrics

        def configure_evaluate(self, server_round, arrays, config, grid):
            return self.strategy.configure_evaluate(server_round, arrays, config, grid)

        def aggregate_evaluate(self, server_round, replies):
            came = list(replies)
            self._flow.others(came)
            return self.strategy.aggregate_evaluate(server_round, came)

        def summary(self) -> None:
            self.strategy.summary()

    return RecordingStrategy
