"""On the server: a grid that records what goes through it, for apps that no strategy of Flower's leads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from threading import RLock
from typing import Any

from ...errors import BadInput
from ..recorder import Recorder
from .declared import merges_by_mean
from .mods import round_of
from .strategy import RECORDS, Flow


def record_server(server_app: Any, folder: str | Path, model: object, *, strategy: Any = None, **options: Any) -> Any:
    """A Flower ServerApp that does what `server_app` does, and records every round that it trains into `folder`.

    For apps of `server_fn` or `strategy=` (the legacy ones), and those whose main function sends messages by itself;
    round a strategy of flwr.serverapp `record_strategy` sees more. Each message to train, and its reply, goes through
    a grid that passes it on. A new round begins with a new server-round or group; without either, with each call that
    sends.

    Args:
        server_app: of the app, as it is. folder, model: as for `record_strategy`.
        strategy: whose clip and noise are read as what is declared, and that merges; None: the app's own, if it is a
            legacy one.
        options: as for `Recorder`, but for share and by: mechanism, claim, average, data, tables, …

    Raises:
        BadInput: Flower is missing, or an option cannot be. What is wrong with the folder is said when the app starts.
    """
    if taken := sorted({"share", "by", "strict"} & set(options)):
        raise BadInput(f"record_server: {taken[0]} is known of a Flower app and cannot be given")
    try:
        from flwr.serverapp import ServerApp
    except ImportError:
        raise BadInput("record_server needs Flower: pip install 'dpfl-audit[flower]'") from None
    recorded = ServerApp()

    @recorded.main()
    def main(grid: Any, context: Any) -> None:
        if not RECORDS.get():
            server_app(grid, context)
            return
        seen = [strategy if strategy is not None else server_app._strategy]
        give, server_app._server_fn = server_app._server_fn, _told(server_app._server_fn, seen)
        watched = _grid_class()(grid, lambda: _flow(folder, model, seen[0], dict(options)))
        try:
            server_app(watched, context)
        except BaseException:
            watched.abandon()
            raise
        finally:
            server_app._server_fn = give
        watched.close()

    return recorded


def _told(server_fn: Any, seen: list[Any]) -> Any:
    """The app's own function, of which it is kept which strategy it makes."""
    if server_fn is None:
        return None

    def told(context: Any) -> Any:
        parts = server_fn(context)
        seen[0] = parts.strategy if seen[0] is None else seen[0]
        return parts

    return told


def _flow(folder: str | Path, model: object, strategy: Any, options: dict[str, Any]) -> Flow:
    options.setdefault("average", "records" if merges_by_mean(strategy) else "unknown")
    given = options.get("mechanism") is not None
    recorder = Recorder(folder, model, share="weights", by="Flower", strict=True, **options)
    return Flow(recorder, Path(folder), strategy, given=given)


@cache
def _grid_class() -> type:
    """Made when it is first asked for, as nothing here imports flwr before."""
    from flwr.serverapp import Grid

    return type("RecordingGrid", (_Recording, Grid), {})


class _Recording:
    """A grid that passes everything on. Legacy apps send one message a call, from several threads."""

    def __init__(self, grid: Any, begin: Callable[[], Flow]) -> None:
        self.grid, self._begin = grid, begin
        self._flow: Flow | None = None
        self._now: int | None = None  # the round that goes on
        self._last: Any = None  # the model that was sent to be evaluated, after the round's replies
        self._early: list[Any] = []  # replies before the first round
        self._pushed: dict[str, int] = {}  # rounds of messages whose replies are not pulled yet
        self._lock = RLock()

    # --- what goes through

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> Iterable[Any]:
        sent = list(messages)
        number = self._went(sent)
        return self._came(list(self.grid.send_and_receive(sent, timeout=timeout)), number)

    def push_messages(self, messages: Iterable[Any]) -> Iterable[str]:
        sent = list(messages)
        number = self._went(sent)
        ids = list(self.grid.push_messages(sent))
        self._pushed |= dict.fromkeys(ids, number)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Any]:
        ids = list(message_ids)
        number = next((self._pushed[one] for one in ids if one in self._pushed), 0)
        return self._came(list(self.grid.pull_messages(ids)), number)

    # --- the rest

    def set_run(self, run: Any) -> None:
        self.grid.set_run(run)

    @property
    def run(self) -> Any:
        return self.grid.run

    def create_message(self, *given: Any, **options: Any) -> Any:
        return self.grid.create_message(*given, **options)

    def get_node_ids(self) -> Iterable[int]:
        return self.grid.get_node_ids()

    def get_nodes(self) -> Iterable[Any]:
        return self.grid.get_nodes()

    def __getattr__(self, name: str) -> Any:
        if name == "grid":
            raise AttributeError(name)
        return getattr(self.grid, name)

    # --- what is recorded

    def _went(self, messages: list[Any]) -> int:
        """Begins a round where these messages are the first of one. Returns its number, as Flower counts."""
        train = [m for m in messages if m.metadata.message_type.startswith("train") and m.content.array_records]
        with self._lock:
            if not train:
                models = [m.content.array_records for m in messages if m.has_content() and m.content.array_records]
                if models and self._flow is not None:
                    self._last = next(iter(models[0].values()))
                return 0
            number = round_of(train[0])
            if self._now is None or number != self._now or number == 0:
                if self._flow is None:
                    self._flow = self._begin()
                elif self._now is not None:
                    self._flow.merged({})
                self._flow.broadcast(train)
                self._flow.others(self._early)
                self._early = []
                self._now, self._last = number, None
            return number

    def _came(self, replies: list[Any], number: int) -> list[Any]:
        with self._lock:
            train = [m for m in replies if m.metadata.message_type.startswith("train")]
            rest = [m for m in replies if not m.metadata.message_type.startswith("train")]
            if self._flow is None:
                self._early += rest
            else:
                self._flow.others(rest)
                if train:
                    self._flow.replies(number, train)
        return replies

    def close(self) -> None:
        """After the app: the setup is made."""
        if self._flow is not None:
            self._flow.merged({})
            self._flow.close(self._last)

    def abandon(self) -> None:
        """The app failed: whole rounds stay, and `audit import` makes a setup of them."""
        if self._flow is not None:
            self._flow.recorder.abandon()
