"""Bugs that real DP-FL code has had: each is caught, its correct twin is not.

Every case is a scheme (or a function) that claims the exact ε of Gaussian noise of multiplier `SIGMA`, once as it
should be and once with one thing wrong. The audit gets the claim and the code, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import exp
from pathlib import Path

import pytest
import torch
from dpfl_audit.audit.proof.theorems.composition import epsilon as composed
from dpfl_audit.audit.proof.theorems.draw import Draw
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import Experiment, build
from dpfl_audit.audit.worlds.federation.plan import CanarySettings
from dpfl_audit.audit.worlds.federation.rows import Demonstration, Question, demonstrate
from dpfl_audit.audit.worlds.function import audit_mechanism
from dpfl_audit.defenses.local import LocalTraining
from dpfl_audit.defenses.schedule import FixedRounds
from dpfl_audit.defenses.scheme import Context, Gather, Scheme, Step
from dpfl_audit.defenses.steps.clip import Clip, ClipReceived
from dpfl_audit.defenses.steps.perturb import Perturb, release
from dpfl_audit.defenses.steps.quantile import CountWithin, PerturbQuantile, QuantileClip, update_multiplier
from dpfl_audit.defenses.terms import Observer
from dpfl_audit.defenses.wire import Bound, Parcel
from tiers import quick

SIGMA, DELTA = 2.0, 1e-5
CLAIM = gaussian_epsilon(SIGMA, DELTA)
SETTINGS = CanarySettings(draws=450, places=1)
COIN_ROUNDS = 110


@pytest.fixture(scope="module")
def base() -> Experiment:
    """Three clients of 20 records of 30 features, a network of 125 parameters."""
    return build(
        parse_config(
            {
                "data": {"name": "breast_cancer", "clients": 3, "samples_per_client": 20},
                "model": {"name": "mlp", "options": {"widths": [4]}},
                "scheme": {"name": "fedavg", "rounds": 1},
            }
        ),
        Path("."),
    )


def scheme(
    client: tuple[Step, ...] = (), gather: tuple[Gather, ...] = (), server: tuple[Step, ...] = (), rounds: int = 1
) -> Scheme:
    return Scheme(
        name="under test",
        source="",
        local=LocalTraining(optimiser="adam", lr=0.05, batch_size=20, epochs=5),
        client=client,
        gather=gather,
        server=server,
        schedule=FixedRounds(rounds),
    )


# --- the bugs' own code ---


@dataclass(frozen=True)
class NoiseButLastLayer:
    """Noise on every tensor but the last."""

    noise: Perturb

    def __call__(self, parcel: Parcel, context: Context) -> Parcel:
        made = self.noise(parcel, context)
        vector = made.vector.clone()
        vector[context.layout.slices[-1]] = parcel.vector[context.layout.slices[-1]]
        return replace(made, vector=vector)


@dataclass(frozen=True)
class NoiseOfRoundZero:
    """The noise's seed leaves out the round, so every round adds the same noise."""

    noise: Perturb

    def __call__(self, parcel: Parcel, context: Context) -> Parcel:
        made = self.noise(parcel, context)
        nothing = replace(parcel, vector=torch.zeros_like(parcel.vector), releases=frozenset())
        return replace(made, vector=parcel.vector + self.noise(nothing, replace(context, round=0)).vector)


@dataclass(frozen=True)
class CarelessClip:
    """`if norm > C`: false where the norm is not a number."""

    norm: float

    def __call__(self, parcel: Parcel, context: Context) -> Parcel:
        size = parcel.vector.norm()
        vector = parcel.vector * (self.norm / size) if size > self.norm else parcel.vector
        return replace(parcel, vector=vector, bound=Bound(self.norm), clip_norm=self.norm)


@dataclass(frozen=True)
class ShrinkingClip:
    """A clip that is quartered every round, C·4^−round; the noise follows the bound `ahead` rounds later."""

    ahead: int
    norm: float = 1.0

    def __call__(self, parcel: Parcel, context: Context) -> Parcel:
        clipped = Clip(self.norm * 0.25**context.round)(parcel, context)
        return release(clipped, SIGMA * self.norm * 0.25 ** (context.round + self.ahead), "gaussian", context)


@dataclass(frozen=True)
class MovesTheWrongWay(PerturbQuantile):
    """Flower 1.41's adaptive clip: C·exp(−η(share *clipped* − γ)), and the noise is that of the bound it becomes."""

    def __call__(self, parcel: Parcel, context: Context) -> Parcel:
        norm, below = parcel.clip_norm, context.memory.pop("within")
        moved = norm * exp(-self.lr * (0.5 - below / self.cohort - self.quantile))
        made = release(parcel, self.noise_multiplier * moved / self.cohort, "gaussian", context)
        return replace(made, side={"clip_norm": moved})


# --- the cases ---


@dataclass(frozen=True)
class Case:
    """A scheme as it should be and with the bug. observer, unit: of the claim. claim: ε. settings: of the audit."""

    name: str
    correct: Scheme
    bug: Scheme
    observer: str = "server"
    unit: str = "client"
    claim: float = CLAIM
    settings: CanarySettings = field(default=SETTINGS)

    def __str__(self) -> str:
        return self.name


NOISE = Perturb(noise_multiplier=SIGMA)
ON_THE_SUM = Perturb(noise_multiplier=SIGMA, divided_by="senders")
CASES = [
    Case(
        "noise divided by the wrong count",
        scheme(gather=(ClipReceived(1.0),), server=(ON_THE_SUM,)),
        scheme(gather=(ClipReceived(1.0),), server=(Perturb(noise_multiplier=SIGMA, divided_by="records"),)),
        observer="downlink",
    ),
    Case(
        "clip after averaging",
        scheme(gather=(ClipReceived(1.0),), server=(ON_THE_SUM,)),
        scheme(server=(Clip(1.0), ON_THE_SUM)),
        observer="downlink",
        settings=replace(SETTINGS, draws=1000),
    ),
    Case("one layer unnoised", scheme((Clip(1.0), NOISE)), scheme((Clip(1.0), NoiseButLastLayer(NOISE)))),
    Case(
        "noise seed reused",
        scheme((Clip(1.0), NOISE), rounds=COIN_ROUNDS),
        scheme((Clip(1.0), NoiseOfRoundZero(NOISE)), rounds=COIN_ROUNDS),
        claim=gaussian_epsilon(SIGMA / COIN_ROUNDS**0.5, DELTA),
        settings=CanarySettings(protocols=("rounds",), coin_rounds=COIN_ROUNDS, places=1),
    ),
    Case(
        "record-level claim on client-level code",  # one record can turn a clipped update around: 2C, not 2C/n
        scheme((Clip(1.0), Perturb(noise_multiplier=2 * SIGMA))),
        scheme((Clip(1.0), Perturb(noise_multiplier=2 * SIGMA, divided_by="records"))),
        unit="record",
    ),
    Case("clip skipped on NaN", scheme((Clip(1.0), NOISE)), scheme((CarelessClip(1.0), NOISE))),
    Case(
        "adaptive clip that moves the wrong way",  # η = 2, so that one round of it shows; all updates are longer than C
        scheme(
            (QuantileClip(1.0),),
            (CountWithin(),),
            server=(PerturbQuantile(update_multiplier(SIGMA, 3.0), 3.0, 3, lr=2.0),),
        ),
        scheme(
            (QuantileClip(1.0),),
            (CountWithin(),),
            server=(MovesTheWrongWay(update_multiplier(SIGMA, 3.0), 3.0, 3, lr=2.0),),
        ),
        observer="downlink",
    ),
    Case("noise std taken from the next round's bound", scheme((ShrinkingClip(0),)), scheme((ShrinkingClip(1),))),
]


def audit(base: Experiment, made: Scheme, case: Case) -> Demonstration:
    found = demonstrate(
        replace(base, scheme=made),
        case.settings,
        Question(Observer(case.observer), case.unit, "zero_out", DELTA, claimed=case.claim),
    )
    assert not found.not_measured
    return found


@pytest.mark.parametrize("case", quick(CASES, 2, 4, 5, 6), ids=str)
def test_the_bug_is_caught_and_its_correct_twin_is_not(base, case):
    bug, correct = audit(base, case.bug, case), audit(base, case.correct, case)
    assert bug.row.judges(case.claim)[0] > case.claim >= correct.row.judges(case.claim)[0]
    assert (
        bug.row.judges(case.claim)[1] > case.claim < correct.row.judges(case.claim)[1]
    )  # the correct twin had its chance
    assert bug.row.notes[0].startswith("Claim violated")
    assert correct.row.notes[0].startswith("Consistent with the claim")


@pytest.mark.full
def test_reused_noise_shows_in_a_single_round_without_any_assumption(base):
    """By counting alone: one round's ε is at least 2.5, where 1.99 is claimed."""
    case = next(case for case in CASES if case.name == "noise seed reused")
    (entry,) = audit(base, case.bug, case).attacks
    assert entry.value("epsilon") > CLAIM


# --- a bug in a user's own loop ---

STEPS, NOISE_STD = 100, 0.8


def steps_of(fixed: bool) -> Callable[[bool, int], torch.Tensor]:
    """What a server sees of 100 DP-SGD steps: sums of clipped gradients plus noise.

    Here only the canary's gradient, 1, or 0 outside its batches.

    Poisson: the record is in every batch with probability 1/100, by the trial's own coins. Fixed: the data are cut into
    100 batches once.
    """

    def update(world: bool, seed: int) -> torch.Tensor:
        rng = torch.Generator().manual_seed(seed)
        taken = torch.rand(STEPS, generator=rng) < 1 / STEPS
        if fixed:
            taken = torch.arange(STEPS) == 3
        return taken * float(world) + NOISE_STD * torch.randn(STEPS, generator=rng)

    return update


@pytest.mark.full
def test_poisson_claimed_but_fixed_batches_used():
    # 1.51; unsampled 5.68
    claim, _ = composed(((Draw("gaussian", 1 / NOISE_STD, "poisson", 1, STEPS, 1 / NOISE_STD), STEPS),), DELTA)
    bug = audit_mechanism(
        steps_of(True), delta=DELTA, noiseless=lambda world: (torch.arange(STEPS) == 3) * float(world), draws=1000
    )
    correct = audit_mechanism(
        steps_of(False), delta=DELTA, noiseless=lambda world: torch.full((STEPS,), world / STEPS), draws=1000
    )
    assert bug.counted.epsilon > claim >= correct.counted.epsilon
    assert (bug.finding(claim).level, correct.finding(claim).level) == ("violated", "consistent")
