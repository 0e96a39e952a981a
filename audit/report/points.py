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
from pathlib import Path
from typing import Any

from ...defenses.presets import PRESETS
from ..errors import BadInput
from ..judge.judgement import Judgement, judgement_of
from ..lock import holder_of
from ..results.format import Results
from ..say import card as say
from ..say import words
from ..say.accuracy import accuracy_interval, beyond_accuracy, only_ranks, useless
from ..say.leak import refuted
from ..say.loss import three
from .facts import CONSTANTS
from .owner import Owner
from .together import combined


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
            said.append(say.owner_states(own))
        return said or [say.NOT_STATED]


def _epsilon(card: ClaimCard) -> Iterable[str]:
    yield from card.refuted
    yield from card.places


def _unit(card: ClaimCard) -> Iterable[str]:
    rows = card.results.epsilon
    if not rows:
        return
    yield say.units_priced(rows, card.judgement.rows.asked)
    yield say.A_CLIENT


def _utility(card: ClaimCard) -> Iterable[str]:
    setup = card.results.setup
    if setup.test_accuracy is not None:
        yield say.share_right(setup, accuracy_interval(setup))
        if setup.guessing_accuracy is not None:
            yield say.guessed_right(setup.guessing_accuracy, beyond_accuracy(setup))
        yield from filter(None, [useless(setup), only_ranks(setup)])
        if setup.noise_std != 0 or card.results.server_noise_std:
            yield say.WITHOUT_NOISE
    elif card.results.rounds and isinstance(loss := card.results.rounds[-1].get("test_loss"), int | float):
        yield say.test_loss(loss)


def _bias(card: ClaimCard) -> Iterable[str]:
    setup = card.results.setup
    if setup.share_clipped:
        yield say.share_cut(setup)
        yield say.BY_GROUP


def _algorithm(card: ClaimCard) -> Iterable[str]:
    setup = card.results.setup
    preset = PRESETS.get(setup.scheme)
    yield f"{setup.scheme}: {preset.title} ({preset.source})." if preset else f"{setup.scheme}."
    given = {key: value for key, value in setup.parameters.items() if value is not None}
    if given:
        yield f"Parameters: {', '.join(f'{key} = {value}' for key, value in given.items())}."
    numbered = {"client": setup.clients, "round": setup.rounds}
    facts = [words.times(count, noun) for noun, count in numbered.items() if count is not None]
    if setup.share:
        facts.append(f"each sends its {setup.share}")
    if setup.model is not None:
        facts.append(f"model {setup.model.name} of {setup.model.parameters or '?'} numbers")
    facts.append(words.noise(setup.noise_std, card.results.server_noise_std))
    facts.append(f"clip norm {words.number(setup.clip_norm)}" if setup.clip_norm else say.NO_CLIP)
    if setup.clipped_in_training:
        facts.append(say.CLIPPED_INSIDE)
    yield f"Trained: {', '.join(facts)}."


def _correctness(card: ClaimCard) -> Iterable[str]:
    results = card.results
    accountants = [row.accountant for row in results.epsilon if row.accountant not in (None, "none")]
    if accountants:
        yield say.priced_by(list(dict.fromkeys(str(name) for name in accountants)), bool(results.setup.recorded))
    tests = [attack for attack in results.attacks if attack.kind == "canary"]
    if tests:
        yield say.tested_by(list(dict.fromkeys(attack.attack.partition("/")[2] or "one" for attack in tests)))
        yield say.REFUTED if card.refuted else say.NOT_REFUTED
    else:
        yield say.NOT_TESTED
    versions = ", ".join(f"{name} {version}" for name, version in sorted(results.setup.versions.items()))
    if versions:
        yield f"Software: {versions}."


def _side_channels(card: ClaimCard) -> Iterable[str]:
    setup = card.results.setup
    yield say.TIMING
    if setup.recorded or setup.own_code:
        yield say.NOISE_OF_OTHERS
    else:
        yield from (say.FLOATING_POINT, say.RANDOMNESS)
        if setup.noise_key in say.KEYS:
            yield say.KEYS[setup.noise_key]
    if said := constants(card):
        yield f"Public constants: {said}"
    yield say.FIGURES


def _query_model(card: ClaimCard) -> Iterable[str]:
    setup = card.results.setup
    most = max((row.releases for row in card.results.epsilon if row.releases is not None), default=None)
    if setup.rounds is not None:
        noised = setup.noise_std != 0 or bool(card.results.server_noise_std)
        yield say.training_planned(setup.rounds, most, noised)
    if who := list(dict.fromkeys(row.observer for row in card.results.epsilon)):
        yield say.intermediate_seen(who)


def _trust_model(card: ClaimCard) -> Iterable[str]:
    """Whom the proofs need not trust, and what the attackers were granted."""
    finite = {row.observer for row in card.results.epsilon if row.finite}
    seen = dict.fromkeys(row.observer for row in card.results.epsilon)
    if against := [name for name in seen if name in finite]:
        yield say.proven_towards(against, card.judgement.secret)
    if trusted := [name for name in seen if name not in finite]:
        yield say.none_proven_towards(trusted)
    honest = table_of(card.results.setup.config, "audit").get("honest")
    if isinstance(honest, int | float) and any("honest_share" in row.premises for row in card.results.epsilon):
        yield say.honest_share(honest)
    granted = dict.fromkeys(text for attack in card.results.attacks for text in attack.assumed)
    if granted:
        yield say.granted_to_attacks(list(granted))


def constants(card: ClaimCard) -> str:
    """Where the first layer's mean and std are from, "" of own code."""
    source = str(card.results.setup.data.get("statistics_of"))
    if source in CONSTANTS:
        return f"the first layer's mean and std, {CONSTANTS[source]}."
    return ""


def table_of(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A table among the free fields of results, empty where there is none."""
    value = values.get(name)
    if isinstance(value, dict):
        return value
    return {}


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
