"""How a canary audit is set up: its settings, and the plan that says beforehand what it could show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import inf, isfinite
from typing import Any, Literal

from ....attacks.canary import CLIENT_CANARIES, RECORD_CANARIES
from ....attacks.settings import check_types
from ....defenses.nearest import instead
from ....defenses.terms import Adjacency, Unit
from ...errors import BadInput, bad_input
from ...setup.reading import with_tuples
from ...two_worlds.estimators.betting import betting_ceiling, pairs_for

Protocol = Literal["mechanism", "mechanism-redrawn", "rounds", "end-to-end"]

OVERHEAD = 25_000  # a draw costs what drawing so many numbers more would
MOST_DRAWS = 50_000


@dataclass(frozen=True)
class CanarySettings:
    """How to audit. A fixed rule on shapes decides what is left open, never the time it takes: same seed, same results.

    protocols: "mechanism" (noise redrawn, the batch order known to the attacker unless the noise is drawn inside
      training, which is then repeated with batches of its own), "mechanism-redrawn" (a training of
      its own with a batch order of its own in every trial), "rounds" (coin flips in one run), "end-to-end" (whole
      trainings, final model). The first that can be run gives the row's number.
    canaries: names, () for all of the unit; the one that moves the noise-free message furthest is used.
    observers, units, adjacencies: the rows to fill; () for the claim's row and the config's.
    draws: tested trials a world, at most; None: as many as `numbers` allow (at most 50,000).
    stop: end the draws as soon as the claim is refuted or cannot be (without one: the proof); False: take all, for the
      closest bound.
    rounds: of the client's messages in a trial; None: as many as `numbers` allow.
    numbers: how many random numbers may be drawn, in all (10⁹ take some 10 seconds on one core).
    redrawn: trials a world of "mechanism-redrawn". coin_rounds, replicas: of the last two protocols.
    initial_weights: of the trainings of "end-to-end": the federation's "own", or "crafted" by the auditor, who knows
      all records, so that the canary shows most (`CraftedStart`). A proof of DP-SGD holds from any weights; a bound
      from crafted ones refutes it all the same, and says nothing of what the federation's own weights show.
    places: records of the client tried as the canary's place.
    client: who is audited; None: the first captured.
    confidence: of all bounds of a run together.
    quick: a thirtieth of the numbers.
    """

    protocols: tuple[Protocol, ...] = ("mechanism",)
    canaries: tuple[str, ...] = ()
    observers: tuple[str, ...] = ()
    units: tuple[Unit, ...] = ()
    adjacencies: tuple[Adjacency, ...] = ()
    draws: int | None = None
    stop: bool = True
    rounds: int | None = None
    numbers: float = 1.3e10
    redrawn: int = 200
    coin_rounds: int = 300
    replicas: int = 200
    initial_weights: Literal["own", "crafted"] = "own"
    places: int = 2
    client: int | None = None
    confidence: float = 0.95
    quick: bool = False

    def __post_init__(self) -> None:
        known = set(RECORD_CANARIES) | set(CLIENT_CANARIES)
        if unknown := [name for name in self.canaries if name not in known]:
            raise ValueError(f"canaries: {unknown[0]!r} is unknown{instead(unknown[0], sorted(known))}")
        if unknown := [name for name in self.protocols if name not in PROTOCOLS]:
            raise ValueError(f"protocols: {unknown[0]!r} is unknown{instead(unknown[0], PROTOCOLS)}")
        if self.initial_weights not in ("own", "crafted"):
            raise ValueError(f"initial_weights = {self.initial_weights!r}: expected 'own' or 'crafted'")
        if self.initial_weights == "crafted" and "end-to-end" not in self.protocols:
            raise ValueError(
                "initial_weights = 'crafted' is for whole trainings; add 'end-to-end' to protocols, the only one that"
                " has them"
            )
        for name in ("draws", "rounds", "redrawn", "coin_rounds", "replicas", "places"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} = {value}: must be at least 1")
        if self.client is not None and self.client < 0:
            raise ValueError(f"client = {self.client}: must be a client's number, 0 or above")
        if not 0 < self.numbers < inf:
            raise ValueError(f"numbers = {self.numbers}: must be above 0 and finite")
        if not 0.5 < self.confidence < 1:
            raise ValueError(f"confidence = {self.confidence}: must lie in (0.5, 1)")

    def scaled(self) -> CanarySettings:
        """The settings with `quick` carried out."""
        if not self.quick:
            return self
        return replace(
            self,
            numbers=self.numbers / 30,
            redrawn=max(40, self.redrawn // 4),
            coin_rounds=self.coin_rounds,
            replicas=max(40, self.replicas // 4),
            places=1,
        )


def canary_settings(table: Mapping[str, Any], quick: bool = False) -> CanarySettings:
    """The settings in an [attack.canary] table. Raises BadInput in one sentence."""
    values: dict[str, Any] = with_tuples(table)
    known = sorted(f.name for f in fields(CanarySettings))
    if unknown := sorted(set(values) - set(known)):
        raise BadInput(f"[attack.canary]: unknown key {unknown[0]!r}{instead(unknown[0], known)}")
    with bad_input("[attack.canary]"):
        check_types(CanarySettings, values)
        return CanarySettings(**{**values, "quick": quick or bool(values.get("quick"))})


PROTOCOLS: dict[str, str] = {
    "mechanism": (
        "the message's noise drawn anew in every trial; the attacker knows everything else, the batch order included"
    ),
    "mechanism-redrawn": (
        "a local training with a batch order of its own in every trial, which the attacker does not know"
    ),
    "rounds": (
        "one training run, in every round of which a coin decides whether the canary is there; other clients' messages"
        " are known, but for the noise of honest ones where only a model is seen"
    ),
    "end-to-end": "whole trainings, judged by the final model alone",
}
# of the protocol "end-to-end" where the auditor chooses the initial weights
CRAFTED_START = (
    "whole trainings from initial weights that the auditor crafted with knowledge of all records, judged by the final"
    " model alone"
)
# of the protocol "mechanism" where the noise is drawn inside training
NOISE_IN_TRAINING = (
    "the local training repeated with fresh batches and noise in every trial; the attacker knows everything else, and"
    " not the batches"
)
NOISE_IN_OPEN_BATCHES = (
    "the local training repeated with fresh noise in every trial; the attacker knows everything else, the batch order"
    " included"
)


@dataclass(frozen=True)
class AuditPlan:
    """An audit before it starts.

    draws: tested trials a world at most, each of so many `rounds`. calibration: further trials a world.
    ceiling: what a perfect attack could show by counting.
    needed: draws a world for a ceiling above the target, by counting alone; None where that is out of reach or there is
      no target.
    seconds: about how long it will take, None where it was not measured.
    """

    rounds: int
    draws: int
    calibration: int
    ceiling: float
    needed: int | None
    seconds: float | None = None

    @property
    def sentence(self) -> str:
        if self.needed is None:
            enough = ""
        else:
            enough = f"; counting needs {self.needed:,} to exceed the target"
        took = "" if self.seconds is None else f", about {self.seconds:.0f} s"
        return (
            f"up to {self.draws:,} draws a world of {self.rounds} round{'s' * (self.rounds != 1)}{enough}; could show"
            f" ε = {self.ceiling:.3g}{took}"
        )


def planned(
    settings: CanarySettings, *, dim: int, rounds: int, target: float, delta: float, training: float = 0.0
) -> AuditPlan:
    """How many draws of how many rounds fit the settings.

    Args:
        settings: of the audit.
        dim: numbers in a message.
        rounds: messages there are.
        target: the ε to exceed (∞: none).
        delta: of the bounds.
        training: numbers that one draw costs beyond its noise.
    """
    one = dim + OVERHEAD + training
    take = settings.rounds or max(1, min(rounds, int(settings.numbers / (2.5 * 1000 * one))))
    take = min(take, rounds)
    draws = settings.draws or int(min(MOST_DRAWS, max(100, settings.numbers / (2.5 * take * one))))
    needed = needed_draws(target, delta, settings.confidence)
    most = betting_ceiling(draws, delta, 1 - settings.confidence)
    return AuditPlan(take, draws, calibrating(draws), most, needed)


def rounds_tested(tested: int, rounds: int) -> str:
    """That a test of a mechanism is of some rounds alone, in a sentence; "" where it is of all.

    >>> rounds_tested(2, 2), rounds_tested(1, 30)[:29]
    ('', 'The test is of 1 of 30 rounds')
    """
    if tested >= rounds:
        return ""
    return (
        f"The test is of {tested} of {rounds} rounds and shows what these tell at most; --set canary.rounds={rounds}"
        " tests all, with fewer draws or more minutes."
    )


def calibrating(draws: int) -> int:
    """Trials a world to fit the score and make the first bets on; later bets are learned from tested draws too."""
    return min(100, max(50, draws // 4))


def needed_draws(target: float, delta: float, confidence: float) -> int | None:
    """Draws a world for a ceiling above the target ε by counting; None where no number is enough, or for ∞."""
    if isfinite(target):
        return pairs_for(target, delta, 1 - confidence)
    return None


def counting_takes(target: float, delta: float, confidence: float) -> str:
    """How many draws could have exceeded the target ε by counting, in a sentence."""
    needed = needed_draws(target, delta, confidence)
    enough = "no number of draws that can be made"
    if needed is not None:
        enough = f"{needed:,} draws a world without an error"
    return f"To exceed ε = {target:.3g} by counting alone it would take {enough}."
