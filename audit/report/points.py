"""What a claim card says: every point of NIST SP 800-226's list, answered from the results, by the owner, or "not
stated".

NIST SP 800-226 (2025), "Guidelines for Evaluating Differential Privacy Guarantees", orders what a claim rests on as a
pyramid: ε and the unit on top; utility, bias, algorithm, correctness, side channels, query and trust model below;
security, access control and the collection of data at the bottom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any

from ...defenses.presets import PRESETS
from ..errors import BadInput
from ..judge.judgement import Judgement, judgement_of
from ..lock import holder_of
from ..results.format import Results
from ..say import words
from ..say.accuracy import accuracy_interval, useless
from ..say.leak import refuted
from ..say.loss import three
from .facts import CONSTANTS
from .owner import Owner
from .together import combined

NOT_STATED = "Not stated."


@dataclass(frozen=True, eq=False)
class ClaimCard:
    """What there is to answer from.

    results: of one setup, those of several runs together. owner: what its owner says. runs: how many there were.
    """

    results: Results
    owner: Owner
    runs: int = 1

    @cached_property
    def judgement(self) -> Judgement:
        return judgement_of(self.results)

    @cached_property
    def refuted(self) -> list[str]:
        """Which claims and proofs a test refutes, a sentence each."""
        judgement = self.judgement
        ordered = [*judgement.refuting("claimed"), *judgement.refuting("proven")]
        return list(dict.fromkeys(refuted([refutation], "this setup") for refutation in ordered))

    @cached_property
    def places(self) -> list[str]:
        """Each row in a sentence: claimed, proven rounded up, demonstrated rounded down."""
        return [three(row, self.judgement) for row in self.judgement.epsilon]


def make_card(folders: Sequence[Path], owner: Owner | None = None) -> ClaimCard:
    """The card of one RESULTS folder, or of several of one setup. Raises BadInput."""
    read = []
    for folder in folders:
        read.append(Results.read(folder))
        if (holder := holder_of(folder)) is not None:
            raise BadInput(f"{folder}: {holder} is writing here; wait until it has ended")
    for folder, results in zip(folders, read):
        if results.setup.digest != read[0].setup.digest:
            raise BadInput(f"a claim card is about one setup, and {folder} is of another than {folders[0]}")
    return ClaimCard(combined(read), owner or Owner(), len(read))


# --- the points


@dataclass(frozen=True)
class NistPoint:
    """One point of NIST's list: what it is called, the owner's key for it, and the answers that the results give."""

    title: str
    key: str
    answers: Callable[[ClaimCard], Iterable[str]]

    def answered(self, card: ClaimCard) -> list[str]:
        """The results' answers and the owner's own; "Not stated." where there is none."""
        said = list(self.answers(card))
        if self.key and (own := getattr(card.owner, self.key)) is not None:
            said.append(f"The owner states: “{own}”")
        return said or [NOT_STATED]


def _epsilon(card: ClaimCard) -> Iterable[str]:
    yield from card.refuted
    yield from card.places


def _unit(card: ClaimCard) -> Iterable[str]:
    rows = card.results.epsilon
    if not rows:
        return
    row = card.judgement.rows.asked
    asked = "" if row is None else f"; the config asks about one {row.unit} under {row.adjacency}"
    units, adjacencies = (
        words.listed(list(dict.fromkeys(each))) for each in zip(*((r.unit, r.adjacency) for r in rows))
    )
    yield f"Priced for one {units.replace(' and ', ' and one ')}, under {adjacencies}{asked}."
    yield "A client is a party with all its records; whether that is a person, the setup does not know."


def _utility(card: ClaimCard) -> Iterable[str]:
    setup = card.results.setup
    if setup.test_accuracy is not None:
        yield f"The final model has {words.percent(setup.test_accuracy)} of the test split right{_interval(card)}."
        if setup.guessing_accuracy is not None:
            yield f"Guessing without a look at the records gets {words.percent(setup.guessing_accuracy, 3)}."
        yield from filter(None, [useless(setup)])
        if setup.noise_std != 0 or card.results.server_noise_std:
            yield "What it would have right without noise was not measured."
    elif card.results.rounds and isinstance(loss := card.results.rounds[-1].get("test_loss"), int | float):
        yield f"The final model's loss on the test split is {words.number(loss)}."


def _interval(card: ClaimCard) -> str:
    limits = accuracy_interval(card.results.setup)
    if limits is None:
        return ""
    of = f"of {card.results.setup.test_records} records"
    return f" ({of}; 95 % interval {words.percent_at_least(limits[0])} to {words.percent_at_most(limits[1])})"


def _bias(card: ClaimCard) -> Iterable[str]:
    setup = card.results.setup
    if setup.share_clipped:
        share, norm = words.percent(setup.share_clipped), words.number(setup.clip_norm)
        yield f"{share} of contributions were clipped (clip norm {norm}): who sends more than that counts for less."
        yield "By class, group or client, accuracy was not measured."


def _algorithm(card: ClaimCard) -> Iterable[str]:
    setup = card.results.setup
    preset = PRESETS.get(setup.scheme)
    yield f"{setup.scheme}: {preset.title} ({preset.source})." if preset else f"{setup.scheme}."
    given = {key: value for key, value in setup.parameters.items() if value is not None}
    if given:
        yield f"Parameters: {', '.join(f'{key} = {value}' for key, value in given.items())}."
    numbered = {"client": setup.clients, "round": setup.rounds}
    facts = [words.times(count, noun) for noun, count in numbered.items() if count is not None]
    facts += [f"each sends its {setup.share}"] if setup.share else []
    if setup.model is not None:
        facts.append(f"model {setup.model.name} of {setup.model.parameters or '?'} numbers")
    facts.append(words.noise(setup.noise_std, card.results.server_noise_std))
    facts.append(f"clip norm {words.number(setup.clip_norm)}" if setup.clip_norm else "no clip of what is sent")
    facts += ["clipped inside local training"] if setup.clipped_in_training else []
    yield f"Trained: {', '.join(facts)}."


def _correctness(card: ClaimCard) -> Iterable[str]:
    results = card.results
    accountants = [row.accountant for row in results.epsilon if row.accountant not in (None, "none")]
    if accountants:
        by = words.listed(list(dict.fromkeys(str(name) for name in accountants)))
        yield f"Priced by {by}, from the noise and the bounds that the training itself recorded, release by release."
    tests = [attack for attack in results.attacks if attack.kind == "canary"]
    if tests:
        said = words.listed(list(dict.fromkeys(attack.attack.partition("/")[2] or "one" for attack in tests)))
        yield f"Tested with canaries, by the setup's own code with and without one: protocol {said}."
        yield "A test refutes a claim or a proof (above)." if card.refuted else "No test refutes a claim or a proof."
    else:
        yield "The code that ran was not tested with canaries."
    versions = ", ".join(f"{name} {version}" for name, version in sorted(results.setup.versions.items()))
    if versions:
        yield f"Software: {versions}."


def _side_channels(card: ClaimCard) -> Iterable[str]:
    setup = card.results.setup
    yield "Timing: how long anything takes is not hidden."
    yield (
        "Floating point: noise is drawn and added in float64 on a grid of a power of two, so that no last bit tells"
        " what it hides."
    )
    yield (
        "Randomness: numbers of 53 bits by AES-256 in counter mode, no Gaussian one beyond 12.2 standard deviations; a"
        " proof holds against whoever cannot tell them from coin flips."
    )
    if setup.noise_key == "published":
        yield "Key: published, so whoever has the config can draw the noise again and take it off."
    elif setup.noise_key == "secret":
        yield "Key: secret, in the setup's auditor/noise-key, which is not to be shared."
    if said := constants(card):
        yield f"Public constants: {said}"
    yield (
        "Training's own figures (norms, shares clipped, test losses) are exact: they stand in the setup's auditor/ and"
        " in these results, and no ε covers them."
    )


def _query_model(card: ClaimCard) -> Iterable[str]:
    setup = card.results.setup
    most = max((row.releases for row in card.results.epsilon if row.releases is not None), default=None)
    if setup.rounds is not None:
        noised = setup.noise_std != 0 or bool(card.results.server_noise_std)
        what = (
            f"{words.times(most or 0, 'draw')} of noise"
            if noised
            else f"{words.times(most or 0, 'message')} without noise"
        )
        count = "" if most is None else f", at most {what} about one client"
        yield f"Not interactive: a planned training of {words.times(setup.rounds, 'round')}{count}."
    who = list(dict.fromkeys(words.observer(row.observer) for row in card.results.epsilon))
    if who:
        yield f"Intermediate values count: the ε towards {words.listed(who)} are each of all that is seen there."


def _trust_model(card: ClaimCard) -> Iterable[str]:
    """Whom the proofs need not trust, and what the attackers were granted."""
    finite = {row.observer for row in card.results.epsilon if row.proven is not None and row.proven < inf}
    seen = dict.fromkeys(row.observer for row in card.results.epsilon)
    if seen:
        against = [words.observer(name) for name in seen if name in finite]
        trusted = [words.observer(name) for name in seen if name not in finite]
        if against:
            key = "" if card.results.setup.secret_key else ", if the noise's key were secret"
            yield f"A finite ε is proven towards {words.listed(against)}, all honest but curious{key}."
        if trusted:
            yield f"None is proven towards {words.listed(trusted)}: they are trusted with all they see."
    honest = table_of(card.results.setup.config, "audit").get("honest")
    if isinstance(honest, int | float):
        share = words.percent(honest)
        yield f"Where only sums are seen, {share} of the other clients are taken to draw their noise and tell nobody."
    granted = dict.fromkeys(text for attack in card.results.attacks for text in attack.assumed)
    if granted:
        yield f"The attacks that were run assume: {'; '.join(granted)}."


def constants(card: ClaimCard) -> str:
    """Where the first layer's mean and std are from, "" of own code."""
    source = str(card.results.setup.data.get("statistics_of"))
    return f"the first layer's mean and std, {CONSTANTS[source]}." if source in CONSTANTS else ""


def table_of(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A table among the free fields of results, empty where there is none."""
    value = values.get(name)
    return value if isinstance(value, dict) else {}


def _nothing(card: ClaimCard) -> Iterable[str]:
    del card  # no results know
    return ()


POINTS = (
    NistPoint("Privacy loss ε", "", _epsilon),
    NistPoint("Unit of privacy", "unit", _unit),
    NistPoint("Utility", "utility", _utility),
    NistPoint("Bias", "bias", _bias),
    NistPoint("Algorithm", "algorithm", _algorithm),
    NistPoint("Correctness", "correctness", _correctness),
    NistPoint("Side channels", "side_channels", _side_channels),
    NistPoint("Query model", "query_model", _query_model),
    NistPoint("Trust model", "trust_model", _trust_model),
    NistPoint("Security", "security", _nothing),
    NistPoint("Access control", "access_control", _nothing),
    NistPoint("Data collection", "data_collection", _nothing),
)
