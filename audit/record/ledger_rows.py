"""From a recording's rounds to the ledger of a setup: each message with the releases it reveals, as declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...defenses.federation import UNEQUAL
from ...defenses.randomness import secret_seed
from ...defenses.releases import (
    CorrelatedLaw,
    GaussianLaw,
    LaplaceLaw,
    NoiseFact,
    Release,
    Sampling,
    Silent,
    declare,
    of_lot,
)
from ...defenses.wire import SERVER, opaque_id
from ..setup.format import Declaration
from ..setup.key import PUBLISHED
from ..setup.ledger import release_row
from .mechanism import Correlated, Declared
from .recording import Recording
from .rounds import ClosedRound, recorded_id, weights_of
from .sent import Attempt

LAWS: dict[str, type[GaussianLaw] | type[LaplaceLaw]] = {"gaussian": GaussianLaw, "laplace": LaplaceLaw}
PRIVATE_SCALE = "clip and noise follow from what was not released, so that they tell of it themselves"
UNDECLARED = "nothing is declared that would bound it or hide it"
AGAIN = "a round was begun twice, and which of the correlated noise went out then, nobody says"
BEFORE_SERVER = "the value is sent without noise; the server adds it"


@dataclass(frozen=True)
class LedgerRows:
    """A round's part of the ledger, as a training of this tool writes it."""

    messages: list[dict[str, Any]]
    ledger: list[dict[str, Any]]
    models: list[dict[str, Any]]
    releases: list[dict[str, Any]]

    def __add__(self, other: LedgerRows) -> LedgerRows:
        rows = {name: own + getattr(other, name) for name, own in vars(self).items()}
        return LedgerRows(**rows)


NO_ROWS = LedgerRows([], [], [], [])


class LedgerWriter:
    """Goes through the rounds in order; each version of the model inherits from the one before.

    Args:
        recording: its facts. clients: records of each client. found: what is declared, of which anything contradicted
            makes that nothing can be proven. counts: the num_examples of all that a client sent, by client.
    """

    def __init__(
        self,
        recording: Recording,
        clients: Sequence[int],
        found: Sequence[Declaration],
        counts: Mapping[int, Sequence[int]],
    ) -> None:
        self.recording, self.clients, self.counts = recording, clients, counts
        self.secret = secret_seed(recording.seed, PUBLISHED)
        self.version: str | None = None
        self.before: tuple[ClosedRound, dict[int, list[Release]], str | None] | None = None  # the round it was made in
        self.times = 0  # attempts that are written, which ids are told apart by
        wrong = [d for d in found if d.status == "contradicted"]
        self.problem = "; ".join(f"what is declared of the {d.what} is contradicted: {d.why}" for d in wrong)

    @property
    def _inherited(self) -> list[str]:
        """The id of the model that was broadcast last, none before the first."""
        if self.version is None:
            return []
        return [self.version]

    def begun(self) -> LedgerRows:
        """Of the model that everybody starts from, where it was made with the clients' data: it tells all of it."""
        if self.recording.data.first_model != "private":
            return NO_ROWS
        everybody = frozenset(range(len(self.clients)))
        name = opaque_id(self.secret, "first model")
        made = declare(name, 0, Silent(), None, everybody, problem="the first model was made with the clients' records")
        self.version = opaque_id(self.secret, "first version")
        model = {"id": self.version, "releases": [name], "parents": [], "summed": [name], "merged": [name]}
        return LedgerRows([], [], [model], [release_row(made)])

    def last_model(self, number: int, broadcast: str) -> LedgerRows:
        """Of a model that was broadcast and trained no further."""
        row = self._broadcast(number)
        return LedgerRows(self._public(number, [(broadcast, SERVER, "weights", 0)]), [row], [], [])

    def attempt(self, attempt: Attempt, *, drawn_again: bool, goes_on: bool) -> LedgerRows:
        """What was sent in a round that did not become whole, before the round of its number: priced like any other,
        and not kept.

        drawn_again: another model went out at this place too, so that a server's noise was drawn more than once.
        goes_on: the models that follow may be made of it, as from a checkpoint that was kept before the kill.
        """
        self.times += 1
        number, again = attempt.number, ("attempt", self.times)
        rows = self._beside(number, drawn_again) if attempt.model else NO_ROWS
        ledger: list[dict[str, Any]] = []
        own: dict[int, list[Release]] = {}
        for i, m in enumerate(attempt.sent):
            if m.why:
                why = f"something it sent is not in the recording ({m.why})"
                new = [self._raw(opaque_id(self.secret, "lost", number, m.client, *again, i), number, m.client, why)]
            else:
                new = self._of_client(attempt.mechanism, m.num_examples, number, m.client, *again, i)
            own[m.client] = [*own.get(m.client, []), *new]
            name = opaque_id(self.secret, "sent", number, m.client, *again, i)
            ledger.append(self._upload(name, number, m.client, False, new))
        releases = [r for of_client in own.values() for r in of_client]
        models: list[dict[str, Any]] = []
        if own:  # the server may have had their sum before the kill
            merged = self._merged(attempt.as_round(), own, self.version, *again, lot="")
            releases += [r for r in merged.own if r.id not in {known.id for known in releases}]
            models = [{"id": opaque_id(self.secret, "sum", number, *again), **merged.row}]
            ledger.append(
                self._of_nothing_kept(number, [models[0]["id"]], "sum", held=not self.recording.secure_aggregation)
            )
            if goes_on:
                self.version = models[0]["id"]
        return rows + LedgerRows([], ledger, models, [release_row(r) for r in _sorted(releases)])

    def unseen_model(self, number: int) -> LedgerRows:
        """Of a model that may have been sent after the last round, though no broadcast of it is recorded."""
        self.times += 1
        return self._beside(number, False)

    def held_sum(self, number: int) -> LedgerRows:
        """Of the last round's sum, whose model nobody gets: the server has it all the same. number: the round's."""
        self.times += 1
        return LedgerRows([], [self._of_nothing_kept(number, self._inherited, "sum", held=True)], [], [])

    def _beside(self, number: int, drawn_again: bool) -> LedgerRows:
        """A model that is not kept. drawn_again: made of the same uploads by a server that drew its noise anew."""
        row = self._of_nothing_kept(number, self._inherited, "model")
        if not drawn_again or self.before is None:
            return LedgerRows([], [row], [], [])
        closed, own, parent = self.before
        merged = self._merged(closed, own, parent, "attempt", self.times, lot=_lot_of(closed))
        fresh = [r for r in merged.own if r.parents]  # a server's draws; sums of clients' noises are the same again
        if not fresh:
            return LedgerRows([], [row], [], [])
        version = opaque_id(self.secret, "model", number, SERVER, "attempt", self.times)
        row["inherits"] = [version]
        models = [{"id": version, **merged.row}]
        return LedgerRows([], [row], models, [release_row(r) for r in _sorted(fresh)])

    def _of_nothing_kept(self, number: int, inherits: list[str], what: str, *, held: bool = False) -> dict[str, Any]:
        """A message from the server that no file holds. held: the server keeps it for itself."""
        name = opaque_id(self.secret, "broadcast", number, "attempt", self.times, what)
        row = {**self._broadcast(number), "id": name, "captured": False, "inherits": inherits}
        if held:
            return {**row, "receivers": [SERVER]}
        return row

    def round(self, closed: ClosedRound) -> LedgerRows:
        recording, number = self.recording, closed.number
        ledger = [self._broadcast(number)]
        public = [(closed.broadcast, SERVER, "weights", 0)]
        releases: list[Release] = []
        own: dict[int, list[Release]] = {}
        for upload in closed.uploads:
            client = upload["client"]
            own[client] = self._of_client(closed.mechanism, upload["num_examples"], number, client)
            if upload["kept"]:
                public.append((upload["id"], client, recording.share, upload["num_examples"]))
            ledger.append(self._upload(upload["id"], number, client, upload["kept"], own[client]))
        for i, (client, why) in enumerate(closed.lost):
            name = opaque_id(self.secret, "lost", number, client, i)
            gone = self._raw(name, number, client, f"something it sent is not in the recording ({why})")
            own.setdefault(client, []).append(gone)
            ledger.append(self._upload(name, number, client, False, [gone]))
        for i, (client, what) in enumerate(closed.unnoised):
            name = opaque_id(self.secret, "unnoised", number, client, i)
            bare = self._raw(name, number, client, f"{what} is sent beside the upload, without noise")
            ledger.append(self._upload(name, number, client, False, [bare]))
            if recording.average == "unknown":  # so that the model may be made of it
                own.setdefault(client, []).append(bare)
            else:
                releases.append(bare)
            if recording.secure_aggregation:  # which hides uploads alone
                held = self._of_nothing_kept(number, [], name, held=True)
                ledger.append({**held, "releases": [bare.id]})
        for of_client in own.values():
            releases += of_client
        merged = self._merged(closed, own, self.version, lot=_lot_of(closed))
        self.before = (closed, own, self.version)
        releases += [r for r in merged.own if r.id not in {known.id for known in releases}]
        self.version = opaque_id(self.secret, "model", number, SERVER)
        models = [{"id": self.version, **merged.row}]
        return LedgerRows(self._public(number, public), ledger, models, [release_row(r) for r in _sorted(releases)])

    # --- messages

    def _public(self, number: int, sent: Sequence[tuple[str, int, str, int]]) -> list[dict[str, Any]]:
        everybody = [f"client-{c}" for c in range(len(self.clients))]
        rows = [
            {
                "id": name,
                "round": number,
                "sender": "server" if sender == SERVER else f"client-{sender}",
                "receivers": everybody if sender == SERVER else ["server"],
                "kind": kind,
                "num_examples": count,
                "side": {},
            }
            for name, sender, kind, count in sent
        ]
        return sorted(rows, key=lambda row: str(row["id"]))  # no order that tells of anybody

    def _broadcast(self, number: int) -> dict[str, Any]:
        return {
            "id": recorded_id(self.recording, number, SERVER, "weights", 0),
            "round": number,
            "kind": "weights",
            "sender": SERVER,
            "receivers": list(range(len(self.clients))),
            "captured": True,
            "upload": False,
            "releases": [],
            "inherits": self._inherited,
        }

    def _upload(self, name: str, number: int, client: int, kept: bool, own: Sequence[Release]) -> dict[str, Any]:
        return {
            "id": name,
            "round": number,
            "kind": self.recording.share,
            "sender": client,
            "receivers": [SERVER],
            "captured": kept,
            "upload": True,
            "releases": sorted(r.id for r in own),
            "inherits": [],
        }

    # --- releases

    def _of_client(
        self, mechanism: Sequence[Declared], records: int, number: int, client: int, *more: object
    ) -> list[Release]:
        """What an upload of so many records reveals. number, client, more: told apart by."""
        by_clients = [one for one in mechanism if one.by == "client"]
        if not by_clients:
            why = BEFORE_SERVER if mechanism else UNDECLARED
            return [self._raw(opaque_id(self.secret, "raw", number, client, *more), number, client, why)]
        batches = opaque_id(self.secret, "lot", number, client, *more)
        return [
            of_lot(
                self._release(
                    opaque_id(self.secret, "release", number, client, *more, i),
                    number,
                    one,
                    frozenset({client}),
                    one.clip,
                    records=records if one.of == "record" else 1,
                    lot=_lot_told(one, records, self.counts.get(client, (records,))),
                ),
                batches,
            )
            for i, one in enumerate(by_clients)
        ]

    def _problem_of(self, one: Declared) -> str:
        return self.problem or (PRIVATE_SCALE if one.scale == "private" else "")

    def _raw(self, name: str, number: int, client: int, why: str) -> Release:
        return declare(name, number, Silent(), None, frozenset({client}), problem=why)

    def _release(
        self,
        name: str,
        number: int,
        one: Declared,
        subjects: frozenset[int],
        bound: float,
        *,
        records: int = 1,
        parents: frozenset[str] = frozenset(),
        problem: str = "",
        lot: Sampling | None = None,
    ) -> Release:
        return declare(
            name,
            number,
            self._law(one, number),
            float(bound),
            subjects,
            bound_order=one.order,
            bound_of=one.of,
            records=records,
            sampling=lot,
            parents=parents,
            steps=one.steps,
            problem=self._problem_of(one) or problem,
            centred=self.recording.share == "weights" and one.by == "client" and one.of == "client",
        )

    def _law(self, one: Declared, number: int) -> NoiseFact:
        if isinstance(one, Correlated):
            chain = opaque_id(self.secret, "chain")
            known = number < one.strategy.rounds
            return CorrelatedLaw(float(one.noise_std), chain, one.strategy.column(number) if known else ())
        return LAWS[one.law](float(one.noise_std))

    def _merged(
        self, closed: ClosedRound, own: Mapping[int, Sequence[Release]], parent: str | None, *more: object, lot: str
    ) -> _Merged:
        """What the next model reveals: to whoever sees single uploads, sums, or models alone. more: tells it apart from
        another of the same round. lot: the draw of the clients, "" where it may be that of another attempt or not.
        """
        parents = [] if parent is None else [parent]
        values = sorted(r.id for of_client in own.values() for r in of_client)
        counts = {upload["client"]: upload["num_examples"] for upload in closed.uploads}
        by_server = [one for one in closed.mechanism if one.by == "server"]
        if by_server:
            known = frozenset(values)
            everybody = any(one.sampling for one in by_server)
            about = frozenset(range(len(self.clients)) if everybody else own)
            problem = ""
            if everybody and self._weights_tell(by_server):
                problem = UNEQUAL
            if closed.lost:
                problem = f"what client {closed.lost[0][0]} sent in the round is not in the recording"
            if more and isinstance(by_server[0], Correlated):
                problem = AGAIN
            if self.recording.average == "unknown":
                problem = "nobody says how the server weighs what it merges, so nothing bounds one client's share of it"
            first = by_server[0].sampling
            nobody = 1.0 if first is None else 1 / first.cohort  # a round for which nobody was drawn tells nothing
            most = max(weights_of(self.recording.average, counts, closed.mechanism).values(), default=nobody)
            if about:
                drawn = [
                    of_lot(
                        self._release(
                            opaque_id(self.secret, "server", closed.number, *more, i),
                            closed.number,
                            one,
                            about,
                            self._moved_by_one(one, most, len(counts), weighed=one is closed.mechanism[0]),
                            parents=known,
                            problem=problem,
                            lot=_lot_behind(one.sampling, None if self.recording.average == "expected" else len(own)),
                        ),
                        lot,
                    )
                    for i, one in enumerate(by_server)
                ]
                ids = sorted(r.id for r in drawn)
                row = {"releases": ids, "parents": parents, "summed": values, "merged": ids}
                return _Merged(drawn, row)
        summed = [] if closed.lost else self._summed(closed, counts, *more)
        ids = sorted(r.id for r in summed) if summed else values
        return _Merged(summed, {"releases": values, "parents": parents, "summed": ids, "merged": ids})

    def _moved_by_one(self, one: Declared, most: float, uploads: int, weighed: bool) -> float:
        """How far one client moves what the server adds the noise to. most: of the weights in the mean."""
        if one.on == "mean":
            return one.clip * most
        if weighed and self.recording.average == "records":
            return one.clip * max(1.0, most * uploads)  # a sum is as many means; somebody has more than a share of 1
        return one.clip

    def _weights_tell(self, by_server: Sequence[Declared]) -> bool:
        """Whether a client's weight hangs on who is drawn beside it: two numbers of records differ, of any two clients
        in any two rounds, or somebody who may be drawn never said one.
        """
        told = {count for of_client in self.counts.values() for count in of_client}
        everybody = max((one.sampling.population for one in by_server if one.sampling), default=0)
        return self.recording.average == "records" and (len(told) > 1 or len(self.counts) < everybody)

    def _summed(self, closed: ClosedRound, counts: Mapping[int, int], *more: object) -> list[Release]:
        """One client's part of the mean behind the noises of all, where each adds the same declared noise."""
        known = self.recording.average != "unknown" and len(closed.mechanism) == 1
        if not known or closed.mechanism[0].of == "record" or not counts:
            return []
        one, weights = closed.mechanism[0], weights_of(self.recording.average, counts, closed.mechanism)
        noises: dict[float, int] = {}
        for weight in weights.values():
            noises[weight * one.noise_std] = noises.get(weight * one.noise_std, 0) + 1
        terms = tuple(sorted(noises.items()))
        alike: dict[float, set[int]] = {}
        for client, weight in weights.items():
            alike.setdefault(weight, set()).add(client)
        return [
            declare(
                opaque_id(self.secret, "sum", closed.number, weight, *more),
                closed.number,
                LAWS[one.law](0.0, terms=terms),
                weight * one.clip,
                frozenset(clients),
                bound_order=one.order,
                problem=self._problem_of(one),
                centred=self.recording.share == "weights",
            )
            for weight, clients in sorted(alike.items())
        ]


def _lot_told(one: Declared, count: int, counts: Sequence[int]) -> Sampling | None:
    """The draw that hides a record behind an upload of `count` records. Only a number that no coin moves tells nothing
    of the draw: the population itself, or a larger one, every time. Where it may be what the coins drew, everybody sees
    it: one step is then an exact draw of so many, and of several steps nobody knows which record was in which.
    """
    lot = one.sampling
    if lot is None or lot.kind != "poisson" or lot.unit != "record":
        return lot
    if len({*counts}) == 1 and (count == lot.population or (count > lot.population and len(counts) > 1)):
        return lot
    exact = replace(lot, kind="without_replacement", cohort=float(min(count, lot.population)))
    if one.steps == 1:
        return exact
    return None


def _lot_behind(lot: Sampling | None, took_part: int | None) -> Sampling | None:
    """The draw that hides a client behind a mean of `took_part` clients, None where it divides by a number that no draw
    changes. One over as many as took part moves with every coin, so whoever was
    not drawn is not as if it had sent nothing, and that is what amplifies Poisson sampling. Once their number is known,
    which tells nothing of what they hold, it is an exact draw of so many.
    """
    if lot is None or lot.kind != "poisson" or lot.unit != "client" or took_part is None:
        return lot
    return replace(lot, kind="without_replacement", cohort=float(min(max(took_part, 1), lot.population)))


def _lot_of(closed: ClosedRound) -> str:
    """The draw of a round's clients, by name: whoever adds noise to their values once more draws nobody anew."""
    return f"round {closed.number}"


@dataclass(frozen=True)
class _Merged:
    """Releases that the merged value adds, and the row of models.jsonl."""

    own: list[Release]
    row: dict[str, Any]


def _sorted(releases: Sequence[Release]) -> list[Release]:
    return sorted(releases, key=lambda r: r.id)
