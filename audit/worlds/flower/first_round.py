"""What a Flower app's server sends its clients in the first round: its own code, before a grid that answers nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ...errors import BadInput, bad_input
from ...owners_code import in_words, owners
from ...record.flower.strategy import RECORDS
from .app import FlowerApp

PATIENCE = 5  # times that nodes are asked for, before it is said that there are too few


@dataclass(frozen=True, eq=False)
class FirstRound:
    """messages: to train, one a sampled client. strategy: which then merges the replies; None where the app's server
    goes its own way, or sends nothing here. grid: that it knows.
    """

    messages: tuple[Any, ...]
    strategy: Any | None
    grid: Any

    def contexts(self, app: FlowerApp, client: int) -> list[Any]:
        """Each message's client: the audited one, and those after it."""
        return [_context(app, (client + k) % self.grid.clients, self.grid.clients) for k in range(len(self.messages))]


class _Sent(BaseException):
    """The server has said what it sends: no `except Exception` of the app is to take it."""

    def __init__(self, messages: Sequence[Any] = (), started: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.messages, self.started = tuple(messages), started


@contextmanager
def task_identity() -> Iterator[None]:
    """Flower's messages are made inside a run alone; here one is pretended. Its own logging is warnings."""
    from flwr.supercore.task_identity import TaskIdentity

    names = ("_run_id", "_task_id", "_node_id")
    before = {name: getattr(TaskIdentity, name) for name in names}
    logger = logging.getLogger("flwr")
    level = logger.level
    for name in names:
        setattr(TaskIdentity, name, 1)
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
        for name, value in before.items():
            setattr(TaskIdentity, name, value)


def first_round(app: FlowerApp, clients: int, model: Any = None) -> FirstRound:
    """What the app's server sends in round 1; without a server, `model`'s weights as Flower's FedAvg sends them.

    Args:
        app: whose server's own main function is run until it sends a message to train.
        clients: how many there are.
        model: a state dict, an nn.Module or a list of arrays, instead of a server.

    Raises:
        BadInput: there is neither, the server fails, or waits for more clients.
    """
    from flwr.app import ArrayRecord, ConfigRecord, Message

    grid = _grid(clients)
    if model is not None:
        with bad_input(app.name), owners("the model"):
            record = ArrayRecord(_arrays(model))
        return FirstRound((_message(app, record, ConfigRecord({"server-round": 1})),), None, grid)
    if app.server is None:
        raise BadInput(
            f"{app.name}: which model is sent? There is no ServerApp beside it; say where one is (--server), or give"
            " the model (--model)"
        )
    token = RECORDS.set(False)
    try:
        sent = _run(app, grid)
    finally:
        RECORDS.reset(token)
    if sent.started is None:
        return FirstRound(sent.messages, None, grid)
    strategy, options = sent.started["strategy"], sent.started
    if options["train_config"] is not None:
        config = options["train_config"]
    else:
        config = ConfigRecord()
    try:
        messages = tuple(strategy.configure_train(1, options["initial_arrays"], config, grid))
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"{app.name}: its strategy raised {in_words(error)}") from error
    if stranger := [one for one in messages if not isinstance(one, Message)]:
        raise BadInput(f"{app.name}: its strategy sends a {type(stranger[0]).__name__}; expected Messages")
    if not messages:
        raise BadInput(f"{app.name}: its strategy sends nobody anything to train in round 1")
    return FirstRound(messages, strategy, grid)


def _run(app: FlowerApp, grid: Any) -> _Sent:
    """The server's own code until it would send something to train."""
    from flwr.app import Context, RecordDict

    assert app.server is not None
    context = Context(1, 0, {}, RecordDict(), dict(app.config))
    try:
        with _stopped_at_start():
            if app.server._main is None:
                return _legacy(app, context, grid)
            app.server(grid, context)
    except _Sent as sent:
        return sent
    except BadInput:
        raise
    except (Exception, SystemExit) as error:
        lacks = f"; its run config has no {error}: --set {str(error).strip(chr(39))}=…" * isinstance(error, KeyError)
        raise BadInput(f"{app.name}: its ServerApp raised {in_words(error)}{lacks}") from error
    raise BadInput(f"{app.name}: its ServerApp ended without sending anything to train")


@contextmanager
def _stopped_at_start() -> Iterator[None]:
    """`Strategy.start` tells what it was called with, and sends nothing."""
    from flwr.serverapp.strategy import Strategy

    start = Strategy.start

    def stopped(self: Any, grid: Any, initial_arrays: Any, *rest: Any, **options: Any) -> Any:
        names = ("num_rounds", "timeout", "train_config")
        given = {**dict(zip(names, rest)), **options}
        raise _Sent(
            started={"strategy": self, "initial_arrays": initial_arrays, "train_config": given.get("train_config")}
        )

    Strategy.start = stopped  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Strategy.start = start  # type: ignore[method-assign]


def _legacy(app: FlowerApp, context: Any, grid: Any) -> _Sent:
    """A ServerApp of `server_fn`: its strategy says what a client is to fit. Its replies are legacy ones, and merged by
    a strategy of another kind, which is not looked at.
    """
    from flwr.app import Message
    from flwr.app.message_type import MessageType
    from flwr.compat.common import recorddict_compat as compat
    from flwr.server.client_manager import SimpleClientManager
    from flwr.server.compat.grid_client_proxy import GridClientProxy

    server = app.server
    assert server is not None
    parts = None
    if server._server_fn is not None:
        parts = server._server_fn(context)
    strategy = parts.strategy if parts is not None else server._strategy
    if strategy is None:
        raise BadInput(f"{app.name}: its ServerApp has no strategy that says what is sent; give the model (--model)")

    class Manager(SimpleClientManager):
        def wait_for(self, num_clients: int, timeout: int = 0) -> bool:
            del timeout
            if self.num_available() < num_clients:
                raise _too_few(grid.clients, num_clients)
            return True

    manager = Manager()
    for node in grid.get_node_ids():
        manager.register(GridClientProxy(node, grid, 1))
    parameters = strategy.initialize_parameters(manager)
    if parameters is None:
        raise BadInput(
            f"{app.name}: its strategy asks a client for the first weights; give them as its initial_parameters, or"
            " here (--model)"
        )
    asked = strategy.configure_fit(1, parameters, manager)
    return _Sent(
        [
            Message(
                content=compat.fitins_to_recorddict(instructions, keep_input=True),
                message_type=MessageType.TRAIN,
                dst_node_id=proxy.node_id,
                group_id="1",
            )
            for proxy, instructions in asked
        ]
    )


def _message(app: FlowerApp, record: Any, config: Any) -> Any:
    """A message to train as Flower's strategies make it, or for an app of `client_fn` as they once did."""
    from flwr.app import Message, RecordDict
    from flwr.app.message_type import MessageType
    from flwr.common import FitIns, ndarrays_to_parameters
    from flwr.compat.common import recorddict_compat as compat

    content = RecordDict({"arrays": record, "config": config})
    if app.client._call is not None:
        arrays = [array.numpy() for array in record.values()]
        instructions = FitIns(ndarrays_to_parameters(arrays), dict(config))
        content = compat.fitins_to_recorddict(instructions, keep_input=True)
    return Message(content=content, message_type=MessageType.TRAIN, dst_node_id=1, group_id="1")


def _arrays(model: Any) -> Any:
    if hasattr(model, "state_dict"):
        return model.state_dict()
    if isinstance(model, Mapping):
        return dict(model)
    return list(model)


def _context(app: FlowerApp, client: int, clients: int) -> Any:
    from flwr.app import Context, RecordDict

    here: dict[str, bool | float | int | str] = {"partition-id": client, "num-partitions": clients}
    return Context(1, client + 1, here, RecordDict(), dict(app.config))


def _too_few(clients: int, wanted: object = "more") -> BadInput:
    return BadInput(f"the strategy waits for {wanted} clients, and there are {clients}; say how many (--clients)")


def _grid(clients: int) -> Any:
    """A grid of so many clients, which stops at the first message to train."""
    from flwr.serverapp.grid import Grid

    class FirstGrid(Grid):
        def __init__(self) -> None:
            self.clients, self.asked = clients, 0

        def set_run(self, run: Any) -> None:
            del run

        @property
        def run(self) -> Any:
            raise BadInput("the ServerApp asks for its run's record, and there is no run here")

        def create_message(
            self, content: Any, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
        ) -> Any:
            from flwr.app import Message

            return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

        def get_node_ids(self) -> Iterable[int]:
            self.asked += 1
            if self.asked > PATIENCE:
                raise _too_few(clients)
            return list(range(1, clients + 1))

        def push_messages(self, messages: Iterable[Any]) -> Iterable[str]:
            return self.send_and_receive(messages)

        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Any]:
            del message_ids
            return []

        def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> Iterable[Any]:
            del timeout
            train = [m for m in messages if m.metadata.message_type.startswith("train")]
            if train:
                raise _Sent(train)
            raise BadInput("the ServerApp asks its clients something else before it trains; give the model (--model)")

    return FirstGrid()
