"""What the owner declares, one thing after the other: declared, checked, or contradicted by what was recorded.

A sentence has one predicate and one test: what no test looks at is a declaration of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..say.words import times
from ..setup.format import LAST_MODEL, MISSING, RECORDED_CALLS, REPLAYED, RESTART, Declaration
from .across import nothing_added
from .copies import COMPARED
from .independence import independent
from .mechanism import Correlated, Declared
from .noise_tests import (
    LeftOver,
    Tested,
    drawn_as_said,
    drawn_too_evenly,
    drawn_too_often,
    noise_along_values,
    noise_law,
    norm_bound,
    records_as_said,
    tensors_as_long,
    weights_kept,
)
from .recording import Recording
from .rounds import ClosedRound, named
from .sent import Attempt, Refusal, Replayed
from .still import nothing_trained
from .values import first_few
from .whitened import whitened

NOBODY_CAN_TELL = "a recording cannot show it"
NOT_ANOTHER = "no next model is another average of the recorded uploads; what else a server did nobody can tell"
SILENT = 'taken so, as nothing is said of it; if it is not, say data={"first_model": "private"}'
PRIVATE = 'taken so; if they follow from the clients\' values, say scale="private" of the mechanism'
ADDED = "nothing added"
SETTINGS = "public settings"
LACKING = 1 / 3  # of the rounds: where more of them have fewer clients than is usual, that is the usual
CORRELATION = "correlation"
SECRECY = "secrecy of the noise"
COMPLETENESS, NOTHING_ELSE = "completeness", "nothing else was sent than what is recorded"
OUTSIDE = "outside the noise"
STATISTICS_CLIP, STATISTICS_NOISE = "clip of statistics", "noise of statistics"
AVERAGES = {
    "records": "the server takes the mean of the uploads, weighed by their numbers of records",
    "mean": "the server takes the mean of the uploads, weighed all alike",
    "expected": "the server takes the sum of the uploads over as many as are expected",
    "unknown": "nothing of how the server merges uploads",
}


def declarations(
    recording: Recording,
    rounds: Sequence[ClosedRound],
    population: int,
    beside: Sequence[Attempt] = (),
    *,
    held: bool = False,
    names: Sequence[str] = (),
    refusals: Sequence[Refusal] = (),
) -> list[Declaration]:
    """All that is declared of a recording, each with what speaks for it and against it.

    Args:
        recording: its facts. rounds: the finished ones. population: how many clients there are.
        beside: what was sent in rounds that did not become whole, of which nothing was looked at.
        held: nobody but the server gets the model that the last round makes, as whoever closed it says.
        names: of the tensors that are sent. refusals: calls of the recorder that it did not take.
    """
    unseen = [attempt for attempt in beside if attempt.mechanism and attempt.mechanism[0].by == "client"]
    others = sum(len(attempt.sent) for attempt in unseen)
    first = next((r.mechanism[0] for r in rounds if r.mechanism), None)
    made: list[Declaration] = []
    if first is not None:
        made += _of_noise(recording, first, rounds, beside, others)
    if recording.secure_aggregation:
        made.append(_untested("secure aggregation", "secure aggregation: nobody but a client sees its upload"))
    if first is not None:
        made.append(_stated("average", AVERAGES[recording.average], _average(first, rounds)))
    if any(r.noisy_mean for r in rounds):
        said = "the next model is made of the noisy mean and of what was public before, and of nothing else"
        made.append(_untested("server's step", said))
    if first is not None:
        # A proof is of real numbers. This tool's own noise lies on a grid (defenses/grid.py); a loop's seldom does.
        said = "the low bits of what is sent tell nothing, as those of floating-point noise may (Mironov 2012)"
        made.append(_untested("low bits", said))
        said = "the first model was made without the clients' records, by no training, choice or pruning on them"
        if recording.network.frozen:
            said = f"{said}, and so were its frozen parameters"
        if recording.data.first_model == "private":
            said = "the first model was made with the clients' records"
        silent = recording.data.first_model is None
        made.append(_untested("first model", said, SILENT if silent else NOBODY_CAN_TELL))
        made += [_settings(rounds), *_completeness(rounds), *_missing(rounds)]
    elif any(r.unnoised for r in rounds):
        made += _completeness(rounds)
    if held:
        made.append(_last_model(rounds))
    if beside:
        uploads, models = sum(len(a.sent) for a in beside), sum(bool(a.model) for a in beside)
        said = f"{times(models, 'model')} and {times(uploads, 'upload')} were sent in rounds that did not become whole"
        made.append(
            _stated("unfinished rounds", said, Tested("declared", "they are priced, and their values not kept"))
        )
    whole = {r.number for r in rounds}
    if anew := [attempt.number for attempt in beside if attempt.model and attempt.number in whole]:
        said = "a round that was begun again went on with the model that it had begun with"
        made.append(_untested(RESTART, said, other_model(anew[0])))
    if recording.clients is not None:
        made.append(_clients(rounds, recording.clients, population))
    inside = first is not None and first.of == "record"
    made += nothing_trained(recording.network, names, [(len(r.uploads), r.still) for r in rounds], inside)
    defects: dict[tuple[str, str], Declaration] = {}
    for defect in (defect for r in rounds for defect in r.defects):
        defects.setdefault((defect.what, defect.said), defect)  # each once, of the first round that shows it
    return [*made, *_refused(rounds, refusals), *defects.values()]


def _refused(rounds: Sequence[ClosedRound], refusals: Sequence[Refusal]) -> list[Declaration]:
    """That the recording is not whole, where calls were refused. What was sent and counted is priced as bare."""
    lost = [f"client {client} in round {r.number}: {why}" for r in rounds for client, why in r.lost]
    whys = [refusal.why for refusal in refusals] or lost
    if not whys:
        return []
    row = {"what": RECORDED_CALLS, "said": "each of them was taken", "status": "defect", "why": whys[0]}
    if whys[1:]:
        row["why"] += f"; {times(len(whys) - 1, 'call')} more"
    if any(refusal.breaks for refusal in refusals):
        row["status"] = "contradicted"
    return [Declaration.model_validate(row)]


def replayed_said(replayed: Replayed) -> Declaration:
    """A violation refutes what the proof takes for granted; none found leaves it declared."""
    said = "a client's data move what noise is added to by its bound at most, and nothing else that leaves"
    if not replayed.violated:
        return _stated(REPLAYED, said, Tested("declared", " ".join(replayed.sentences).rstrip(".")))
    first, *others = replayed.sentences[:-1]  # the last says what was tried
    more = ""
    if others:
        more = f"; {times(len(others), 'violation')} more"
    why = f"{first.rstrip('.')}{more}; how far they can move it at most, nobody knows, so that no ε follows"
    return _stated(REPLAYED, said, Tested("contradicted", why))


def _of_noise(
    recording: Recording, first: Declared, rounds: Sequence[ClosedRound], beside: Sequence[Attempt], others: int
) -> list[Declaration]:
    """The first mechanism's bound and noise, what lies outside them, and every further mechanism."""
    white = whitened(rounds)
    rounds, correlated = white.rounds, any(isinstance(one, Correlated) for r in rounds for one in r.mechanism)
    residuals = [residual for r in rounds for residual in r.residuals]
    bound, noise = _bound(recording, first, rounds, others), _noise(first, rounds, others, white.least)
    alone = _of_all(_independence(first, residuals), rounds, others)
    added = Tested("declared", NOBODY_CAN_TELL)
    if first.of == "client" and first.law == "gaussian":
        energies = [energy for r in rounds for energy in r.energies]
        added = _of_all(nothing_added(energies, independent=not correlated), rounds, others)
    if correlated:
        alone = _one_matrix(rounds) or Tested(alone.status, f"once the declared matrix is taken off, {alone.why}")
    elif alone.status != "contradicted" and (copies := [copy for r in rounds for copy in r.copies]):
        alone = Tested("contradicted", copies[0])
    elif alone.status == "checked":
        alone = Tested("checked", f"{alone.why}; {COMPARED}")
    apart = (
        "the noises of different messages of one recording do not correlate place by place, and none is another one"
        " moved along or reordered, or repeats itself"
    )
    if correlated:
        apart = "the noises of different rounds hang together as the declared matrix says, and in no other way"
    drawn = "every message's noise is drawn anew"
    if correlated:
        drawn = "the white noise is drawn once"
    secrecy = f"{drawn}, and nobody else knows it or can draw it again, as by a seed that can be guessed"
    ran = [*(r.mechanism for r in rounds), *(attempt.mechanism for attempt in beside)]
    sampled = dict.fromkeys(one for mechanism in ran for one in mechanism if one.sampling is not None)
    further = dict.fromkeys(one for r in rounds for one in r.mechanism[1:])
    return [
        _stated("norm bound", _changing(rounds, "clip_words"), bound),
        _stated("noise", _changing(rounds, "words"), noise),
        _stated(ADDED, "nothing is in a message but the clipped value and its noise, as a momentum would be", added),
        _stated(CORRELATION if correlated else "independence", apart, alone),
        _untested(SECRECY, secrecy),
        *_beside(rounds, bound, noise),
        *(_stated("sampling", _lot_words(one), _lot(one, recording, rounds, beside)) for one in sampled),
        *(_untested(one.what or "further noise", f"{one.clip_words}; {one.words}") for one in further),
    ]


def _one_matrix(rounds: Sequence[ClosedRound]) -> Tested | None:
    """What is wrong where a matrix is not that of all rounds."""
    ran = [r.mechanism for r in rounds]
    others = sum(mechanism != ran[0] for mechanism in ran)
    if others:
        return Tested("contradicted", f"in {others} of {len(ran)} rounds something else is declared than in the first")
    strategy = next(one.strategy for one in ran[0] if isinstance(one, Correlated))
    if rounds[-1].number >= strategy.rounds:
        return Tested("contradicted", f"the matrix has {strategy.rounds} rounds, and round {rounds[-1].number} ran")
    return None


def _settings(rounds: Sequence[ClosedRound]) -> Declaration:
    """Numbers that are priced as public ones. A number of rounds tells, too, where a private loss ends the training."""
    ran = [r.mechanism for r in rounds]
    said = (
        "clip, noise, cohorts, weights, configs and the number of rounds were fixed before the training, or follow from"
        " what was released"
    )
    if any(one.scale == "private" for mechanism in ran for one in mechanism):
        return _untested(SETTINGS, "clip and noise follow from what was not released")
    others = sum(mechanism != ran[0] for mechanism in ran)
    changes = ""
    if others:
        changes = f"in {others} of {len(ran)} rounds clip or noise is not that of the first; "
    return _untested(SETTINGS, said, f"{changes}{PRIVATE}")


def _completeness(rounds: Sequence[ClosedRound]) -> list[Declaration]:
    """What is known to have been sent beside uploads is a defect, by name; that there is nothing more is declared."""
    sent = [(what, client) for r in rounds for client, what in r.unnoised]
    if not sent:
        return [_untested(COMPLETENESS, NOTHING_ELSE)]
    names = ", ".join(repr(what) for what in dict.fromkeys(what for what, _ in sent))
    clients = times(len({client for _, client in sent}), "client")
    why = (
        f"{clients} sent {names} beside the recorded arrays, and no noise is on it, so that nothing is proven towards"
        " whoever sees single uploads; leave it out of what is sent"
    )
    defect = {"what": COMPLETENESS, "said": NOTHING_ELSE, "status": "defect", "why": why}
    return [_untested(COMPLETENESS, f"{NOTHING_ELSE}, and {names}"), Declaration.model_validate(defect)]


def other_model(number: int) -> str:
    """What is wrong with a restart from elsewhere."""
    return (
        f"round {number} began again with another model; if that is not the one that the rounds before have made, they"
        " are of another training, and attacks on all rounds together take them for one"
    )


def _missing(rounds: Sequence[ClosedRound]) -> list[Declaration]:
    """Where nobody draws clients, a round with fewer of them than nearly all others may lack what was sent in it."""
    if any(one.sampling and one.sampling.unit == "client" for r in rounds for one in r.mechanism):
        return []
    counts = Counter(len(r.uploads) + len(r.lost) for r in rounds)
    usual, often = counts.most_common(1)[0]
    fewer = [r.number for r in rounds if len(r.uploads) + len(r.lost) < usual]
    if not fewer or len(fewer) > LACKING * len(rounds):
        return []
    less = f"round {fewer[0]} has uploads of fewer"
    if fewer[1:]:
        less += f", and so have {len(fewer) - 1} more"
    most = f"{often} of {len(rounds)} rounds have uploads of {times(usual, 'client')}"
    why = f"{most}, and {less}: what was sent and is not recorded, is not priced"
    return [_untested(MISSING, "who is missing in a round sent nothing in it", why)]


def _last_model(rounds: Sequence[ClosedRound]) -> Declaration:
    said = f"nobody gets the model that round {rounds[-1].number} makes, so it is not priced"
    why = (
        "no broadcast of it is recorded; if you publish it or hand it on, ε of downlink and model is too low:"
        f" record it with rec.broadcast({len(rounds)}, weights) before the recorder is closed"
    )
    return _stated(LAST_MODEL, said, Tested("declared", why))


def _clients(rounds: Sequence[ClosedRound], clients: int, population: int) -> Declaration:
    seen = {client for r in rounds for client in r.clients}
    fits = Tested("declared", f"{len(seen)} of them sent something")
    if max(seen, default=-1) >= clients:
        fits = Tested("contradicted", f"client {max(seen)} sent something")
    return _stated("clients", f"there are {population} clients", fits)


def _untested(what: str, said: str, why: str = NOBODY_CAN_TELL) -> Declaration:
    return _stated(what, said, Tested("declared", why))


def _stated(what: str, said: str, found: Tested) -> Declaration:
    return Declaration.model_validate({"what": what, "said": said, "status": found.status, "why": found.why})


def _changing(rounds: Sequence[ClosedRound], words: str) -> str:
    """What is declared, of every round together."""
    said = list(dict.fromkeys(getattr(r.mechanism[0], words) for r in rounds if r.mechanism))
    without = sum(not r.mechanism for r in rounds)
    several = said[0]
    if len(said) > 1:
        several += f" at first, {said[-1]} at last"
    if without:
        several += f"; nothing in {without} of {len(rounds)} rounds"
    return several


def _bound(recording: Recording, first: Declared, rounds: Sequence[ClosedRound], others: int) -> Tested:
    if first.of == "record" and any("BatchNorm" in layer for layer in recording.network.layers):
        why = "the network has BatchNorm, which in training mixes records, so that no clip bounds what one of them does"
        return Tested("declared", f"{why}; that it does not train, a recording cannot show")
    if first.of == "record":
        return Tested("declared", "single records' gradients are never sent, so a recording cannot show it")
    return _of_all(norm_bound([projection for r in rounds for projection in r.projections]), rounds, others)


def _of_all(found: Tested, rounds: Sequence[ClosedRound], others: int = 0) -> Tested:
    """Checked is said only where every message that is priced was looked at. others: messages that nobody could."""
    by_clients = [r for r in rounds if r.mechanism and r.mechanism[0].by == "client"]
    messages = others + sum(len(r.uploads) + len(r.lost) for r in by_clients)
    seen = sum(not residual.beside for r in by_clients for residual in r.residuals)
    by_server = [r for r in rounds[:-1] if r.mechanism and r.mechanism[0].by == "server"]  # the last has no next model
    messages, seen = messages + len(by_server), seen + sum(bool(r.residuals) for r in by_server)
    if found.status != "checked" or seen >= messages:
        return found
    return Tested("declared", f"{found.why}; of the {messages - seen} others of {messages} messages nothing is known")


def _noise(first: Declared, rounds: Sequence[ClosedRound], others: int, least: float) -> Tested:
    if wrong := next((why for r in rounds for why in r.lengths), ""):
        return Tested("contradicted", wrong)
    if first.of == "record":
        return Tested("declared", "noise inside local training is mixed with what is trained")
    if wrong := tensors_as_long([tensor for r in rounds for tensor in r.tensors]):
        return Tested("contradicted", wrong)
    of_values = [projection for r in rounds for projection in r.projections if first.by == "client"]
    of_means = [one for r in rounds for one in r.weighed if first.by == "server"]
    if wrong := noise_along_values(of_values, of_means, least):
        return Tested("contradicted", wrong)
    found = noise_law([residual for r in rounds for residual in r.residuals if not residual.beside])
    if found.status == "declared" and first.by == "server" and not any(r.residuals for r in rounds):
        return Tested("declared", "no model was recorded after a round's uploads, to compare with their mean")
    return _of_all(found, rounds, others)


def _beside(rounds: Sequence[ClosedRound], bound: Tested, noise: Tested) -> list[Declaration]:
    """Of tensors that have no noise, and of running statistics, which nobody trains and which tell all the same."""
    made = []
    if harmless := list(dict.fromkeys(name for r in rounds for name in r.harmless)):
        said = f"{first_few([*map(repr, harmless)], 3)} need no noise of their own, as they tell nothing more"
        why = "they never change, or count batches, as many as a client's number of records says, or are sent twice"
        made.append(_stated(OUTSIDE, said, Tested("declared", why)))
    moved = list(dict.fromkeys(name for r in rounds for name in r.moved))
    if moved and noise.status != "contradicted":
        said = f"{named(moved)} are clipped with everything else, as they tell of their batches"
        made.append(_stated(STATISTICS_CLIP, said, Tested(bound.status, "they are looked at with the norm bound")))
        said = f"{named(moved)} get noise with everything else"
        made.append(_stated(STATISTICS_NOISE, said, Tested(noise.status, "they are looked at with the noise")))
    return made


def _independence(first: Declared, residuals: Sequence[LeftOver]) -> Tested:
    """Messages without a raw value show noise that is shared, and not that none is."""
    if first.of != "client":
        return Tested("declared", NOBODY_CAN_TELL)
    exact = [residual for residual in residuals if not residual.beside]
    shared = None
    if len(exact) < len(residuals):
        shared = independent(residuals)
    if shared is not None and shared.status == "contradicted":
        return shared
    return independent(exact)


def _average(first: Declared, rounds: Sequence[ClosedRound]) -> Tested:
    if first.by == "client":
        others = [r.weights for r in rounds if r.weights]
        if others:
            return Tested("contradicted", others[0])
        return Tested("declared", NOT_ANOTHER)
    return _of_all(weights_kept([weighed for r in rounds for weighed in r.weighed]), rounds)


def _lot_words(one: Declared) -> str:
    lot = one.sampling
    assert lot is not None
    how = "exactly, by lot"
    if lot.kind == "poisson":
        how = "on average, each by a coin of its own"
    return f"{lot.cohort:g} of {lot.population} {lot.unit}s are drawn {how}, in secret"


def _lot(one: Declared, recording: Recording, rounds: Sequence[ClosedRound], beside: Sequence[Attempt]) -> Tested:
    lot = one.sampling
    assert lot is not None
    own = [r for r in rounds if one in r.mechanism]
    if lot.unit == "record":
        counts = [upload["num_examples"] for r in own for upload in r.uploads]
        counts += [m.num_examples for a in beside if one in a.mechanism for m in a.sent if not m.why]
        return records_as_said(counts, one.steps, lot.population, lot.cohort, lot.kind)
    if recording.clients is not None and recording.clients < lot.population:
        return Tested("contradicted", f"there are {recording.clients} clients to draw from, not {lot.population}")
    took_part = [{*r.clients, *(client for client, _ in r.lost)} for r in own]
    times = Counter(client for clients in took_part for client in clients)
    if often := drawn_too_often(times, len(own), lot.population, lot.cohort):
        return Tested("contradicted", often)
    if evenly := drawn_too_evenly(took_part, lot.population, lot.cohort, lot.kind):
        return Tested("contradicted", evenly)
    found = drawn_as_said([len(clients) for clients in took_part], lot.population, lot.cohort, lot.kind)
    if found.status == "declared" and lot.kind == "poisson" and recording.average != "expected":
        # `ledger_rows._lot_behind`
        priced = "as it divides by how many took part, each round is priced as an exact draw of so many"
        return Tested("declared", f"{found.why}; {priced} (average = 'expected' is less)")
    return found
