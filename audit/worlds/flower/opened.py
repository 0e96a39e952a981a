"""An app's first round, ready to be told apart: its clients' replies, who merges them and what noise it declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....defenses.progress import Progress
from ....defenses.randomness import stream
from ....defenses.terms import Adjacency, Observer, Unit
from ...errors import BadInput
from ...owners_code import owners
from ...record.flower.declared import CentralNoise, weight_key
from .app import FlowerApp, flower_app, taken_apart
from .canaries import client_canaries
from .client_round import AppClient, ClientUnit, RecordUnit, arrays_in, seed_all
from .first_round import first_round
from .loader import OwnData, record_canaries
from .noise import AppNoise, local_noise, strategy_noise

CLIENTS = 10  # that there are, where nobody says
COUNTS = ("num-examples", "num_examples")


def unit_asked(unit: Unit | None, data: Any) -> Unit:
    """Whom a canary stands for; where nobody says, a record wherever it is known who has which."""
    if unit == "record" and data is None:
        raise BadInput("of which records? Give the function that loads a client's data (--data), or ask for the client")
    if unit:
        return unit
    if data is None:
        return "client"
    return "record"


def app_of(app: Any, server: Any, config: Mapping[str, Any] | None, name: str) -> FlowerApp:
    if isinstance(app, FlowerApp):
        known = app
    elif isinstance(app, str):
        known = flower_app(app, server if isinstance(server, str) else None)
    else:
        from flwr.clientapp import ClientApp

        if not isinstance(app, ClientApp):
            raise BadInput(f"app is a {type(app).__name__}; expected a ClientApp, or where one is")
        known = FlowerApp("a Flower app", app)
    served = known.server if server is None or isinstance(server, str) else server
    return replace(known, server=served, config={**known.config, **(config or {})}, name=name or known.name)


@dataclass(frozen=True, eq=False)
class OpenedApp:
    """An app's first round, ready to be told apart. hidden: whether noise comes after training. others: the raw
    replies of the other clients.
    """

    clients: Sequence[AppClient]
    others: Sequence[Any]
    strategy: Any | None
    observer: str
    noise: AppNoise | None
    hidden: bool
    remarks: tuple[str, ...]


def opened_app(
    app: FlowerApp,
    model: Any,
    client: int,
    clients: int | None,
    observer: str | None,
    seed: int,
    progress: Progress | None,
) -> OpenedApp:
    """The app's first round, with every client that is needed trained once.

    Args:
        app, model, client, clients, observer, seed: as of `audit_flower`. progress: of clients.

    Raises:
        BadInput: as of `audit_flower`.
    """
    count = CLIENTS if clients is None else clients
    if not 0 <= client < count:
        raise BadInput(f"--client {client}: there are {count}, from 0 to {count - 1} (--clients)")
    seed_all(stream(seed, "server"))  # a server draws the weights that it sends
    first = first_round(app, count, model)
    code = taken_apart(app.client, first.messages[0].metadata.message_type)
    members = [AppClient(code, m, c) for m, c in zip(first.messages, first.contexts(app, client))]
    shapes = {name: value.shape for name, value in members[0].sent.items()}
    local, wrapper = local_noise(code.mods, shapes), CentralNoise.of(first.strategy)
    seen = observer or ("server" if local is not None or wrapper is None else "downlink")
    if str(Observer.parse(seen)) not in ("server", "downlink"):
        raise BadInput(
            f"--observer {seen}: of an app the 'server', or the 'downlink' that gets its models, can be asked"
        )
    if seen == "downlink" and first.strategy is None:
        raise BadInput("--observer downlink: the app's server merges replies by no Flower strategy that is known here")
    if seen == "server":
        members = members[:1]
    elif clients is None and wrapper is not None and len(members) != wrapper.clients:
        raise BadInput(
            f"{len(members)} of {count} clients are sampled, and the noise is for {wrapper.clients}; say"
            " how many clients there are (--clients)"
        )
    replies = []
    for k, member in enumerate(members):
        if progress is not None and len(members) > 1:
            progress(k, len(members), "the clients' own training, once each")
        replies.append(member.trains(stream(seed, "training", *([k] if k else []))))
    key = weight_key(first.strategy)
    central = None
    if seen == "downlink":
        central = strategy_noise(first.strategy, [_count(reply, key) for reply in replies], shapes)
    noise = local if seen == "server" else central
    hidden = local is not None or central is not None
    remarks = _beside(replies[0], {key, *COUNTS})
    return OpenedApp(
        members, replies[1:], first.strategy if seen == "downlink" else None, seen, noise, hidden, tuple(remarks)
    )


def _count(reply: Any, key: str) -> int:
    for record in reply.metric_records.values():
        for name in (key, *COUNTS):
            if isinstance(record.get(name), int | float):
                return int(record[name])
    raise BadInput(
        f"the client's reply tells no number of records ({key!r} of its metrics), by which replies are weighed"
    )


def _beside(reply: Any, counts: set[str]) -> list[str]:
    """What a reply holds beside its arrays, which no noise hides."""
    records = [*reply.metric_records.values(), *reply.config_records.values()]
    others = sorted({name for record in records for name in record} - counts - {"code", "message"})
    if not others:
        return []
    return [
        f"Beside its arrays the reply holds {', '.join(others)}, which no known noise hides; that was not looked at."
    ]


def canary_worlds(
    client: AppClient, unit: Unit, adjacency: Adjacency, data: Any, app: FlowerApp, anew: bool, seed: int
) -> tuple[Any, list[str]]:
    """The raw replies by world, and the canaries' names.

    Args:
        client: audited. unit, adjacency, data, anew: as of `audit_flower`. app: whose `data` may be. seed: of training.

    Raises:
        BadInput: as of `audit_flower`.
    """
    if unit == "client":
        made = ClientUnit(client, adjacency, anew, seed)
        arrays = arrays_in(client.trains(stream(seed, "training")), "the client's training")
        return made, client_canaries(arrays)
    if isinstance(data, str):
        own = OwnData.of(data, app)
    else:
        own = OwnData(getattr(data, "__name__", "data"), data)
    seen: list[Any] = []

    def look(loaded: Any) -> Any:
        seen.append(loaded)
        return loaded

    with own.changed(look):
        client.trains(stream(seed, "training"))
    if not seen:
        raise BadInput(f"--data {own.name}: the client's training never called it; name the function that it calls")
    with owners(f"--data {own.name}"):
        records = record_canaries(seen[0], adjacency, seed)
    return RecordUnit(client, own, records, adjacency, anew, seed), list(records)
