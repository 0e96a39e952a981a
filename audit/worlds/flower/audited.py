"""`dpfl_audit.audit_flower`: a lower bound on the ε of a Flower app's own client, of one round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from math import isfinite
from typing import Any

from ....defenses.nearest import instead
from ....defenses.progress import Progress
from ...errors import BadInput, bad_input
from ...extras import needed
from ...options.option import called_with, part
from ...options.own_code import FlowerOptions
from ..function import audit_mechanism
from ..outcome import OwnAudit
from ..ranges import check_bounds_asked, check_draws_asked, check_words_asked, whole
from ..transcript import own_randomness_kept
from .client_round import AppRound
from .first_round import task_identity
from .opened import CLIENTS, app_of, canary_worlds, opened_app, unit_asked
from .replayed import FlowerReplay

MOST_CLIENTS = 100_000  # each has a node of its own


@dataclass(frozen=True, eq=False)
class FlowerCall(FlowerOptions):
    """What `audit_flower` is called with."""

    app: Any
    _: KW_ONLY
    config: Mapping[str, Any] | None = None
    name: str = ""
    progress: Progress | None = None


@called_with(FlowerCall, check=False)
def audit_flower(call: FlowerCall) -> OwnAudit:
    """A lower bound on the ε of a Flower app, of one round, by the app's own client function, mods and strategy.

    The app's server says what it sends; a client of it trains as it does; and its mods (and the strategy, where the
    server's noise is asked about) are run in every draw, so that all that is redrawn is their noise. Training once is
    sound where the noise comes after it, as behind a clip any two replies are neighbours. Where no such noise is known,
    training is run anew in every draw.

    Args:
        app: a ClientApp, or where one is: FILE.py or package.module, either with :NAME, or a Flower app's folder.
        server: its ServerApp, or where that is; None: beside the ClientApp.
        model: a state dict, an nn.Module or a list of arrays, as the weights that are sent, instead of a server.
        config: the run's config.
        claim, delta: the ε that is claimed, at which δ; None: of a client under zero_out those of the app's LocalDpMod.
        unit: what the canary is; None: a record with `data`, else the client. adjacency: how the worlds differ.
        observer: "server", who gets the client's own reply, or "downlink", who gets the merged model. None: whom the
            app's noise hides it from.
        canary: "auto", the one that moves what is seen most, or one by name. Of the client: trained (what it really
            trained), long (a thousand times that), scalars (numbers without a dimension). Of a record: existing,
            mislabelled, blank, crafted.
        data: the function that gives a client its records, or its name; needed for unit "record". It gives (inputs,
            targets), a map-style data set, a DataLoader, or several of which the first is trained on.
        client: whose reply it is, by partition id. clients: how many there are; None: 10.
        anew: whether training is run in every draw; None: where no noise is known to come after it.
        gaussian: whether the noise is known to be Gaussian of one size; None: as the app's parameters say.
        replay: replay the round first (`dpfl_audit.replay`), without draws; what that finds is among the notes.
        draws, calibration, confidence, seed, progress: as in `audit_mechanism`. name: on the page.

    Raises:
        BadInput: in one sentence: Flower is missing, no app is there, nobody says which model is sent, δ or ε, a reply
            is an error, or as `audit_mechanism` says.
    """
    needed("flwr", "audit_flower", "flower")
    with bad_input("audit_flower"):
        check_bounds_asked(delta=call.delta or 0.0, claim=call.claim, confidence=call.confidence, seed=call.seed)
        check_draws_asked(call.draws, call.calibration)
        flags = {name: flag for name, flag in part(call, ("anew", "gaussian")).items() if flag is not None}
        seen = "server" if call.observer is None else call.observer
        check_words_asked(call.unit or "client", call.adjacency, seen, **flags)
        whole("clients", CLIENTS if call.clients is None else call.clients, 1, MOST_CLIENTS)
        whole("client", call.client, 0, MOST_CLIENTS)
    known = app_of(call.app, call.server, call.config, call.name)
    asked = unit_asked(call.unit, call.data)
    with bad_input(known.name), task_identity(), own_randomness_kept():
        opened = opened_app(known, call.model, call.client, call.clients, call.observer, call.seed, call.progress)
        noise = opened.noise
        claimed, at = call.claim, call.delta
        if noise is not None and at is None:
            at = noise.delta
            if claimed is None and (asked, call.adjacency) == ("client", "zero_out"):
                claimed = noise.epsilon
        if claimed is not None and not isfinite(claimed):  # a mod that promises nothing
            claimed = None
        if at is None:
            raise BadInput("which δ? An ε says nothing without it: give --delta 1e-5 (0 for pure DP)")
        again = not opened.hidden if call.anew is None else call.anew
        raw, named = canary_worlds(opened.clients[0], asked, call.adjacency, call.data, known, again, call.seed)
        leaves = (asked, call.adjacency) == ("client", "zero_out")
        update = AppRound(raw, opened.clients, opened.others, opened.strategy, leaves)

        def called(world: str | None, draw: int) -> Any:
            with bad_input(known.name):  # before somebody takes it for the sentence of a function
                return update(world, draw)

        made = audit_mechanism(
            called,
            candidates=_chosen(named, call.canary),
            delta=at,
            claim=claimed,
            draws=call.draws,
            calibration=call.calibration,
            sizes=update.sizes,
            confidence=call.confidence,
            seed=call.seed,
            gaussian=(noise is not None and noise.one_size and not again) if call.gaussian is None else call.gaussian,
            unit=asked,
            adjacency=call.adjacency,
            observer=opened.observer,
            name=known.name,
            code=known.code,
            progress=call.progress,
        )
    notes, parameters = [*made.about.notes], {}
    if call.claim is None and claimed is not None:
        notes.append("The claim is what the app's LocalDpMod is for.")
    if noise is not None:
        notes += noise.sentences(asked, call.adjacency, at)
        parameters = noise.parameters()
    if call.replay:
        notes += FlowerReplay(**part(call, FlowerReplay)).of(known).sentences
    notes += [*opened.remarks, _trained_words(again)]
    about = replace(
        made.about,
        told=f"one round of the app's own code; {made.about.told}",
        parameters=parameters,
        notes=tuple(notes),
        claimed_by="framework" if call.claim is None else "owner",
    )
    return replace(made, about=about)


def _chosen(named: Sequence[str], canary: str) -> dict[str, str]:
    if canary == "auto":
        return {name: name for name in named}
    if canary not in named:
        raise BadInput(f"--canary {canary}: no such canary here{instead(canary, ['auto', *named])}")
    return {canary: canary}


def _trained_words(anew: bool) -> str:
    if anew:
        return (
            "No noise is known to come after training, so training was run anew in every draw; one round was audited."
        )
    return (
        "Training was run once in either world, and is known to the attacker; mods and noise were run anew in every"
        " draw. One round was audited."
    )
