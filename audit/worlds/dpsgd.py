"""`dpfl_audit.audit_dpsgd`: a canary record in somebody's own DP-SGD, which is watched step by step.

The accountant of DP-SGD promises its ε to whoever sees the noised gradient of every step, so that is who attacks here.
Two bounds come out of the same trainings:

- by counting, of whole trainings with and without the canary's record: whatever the code does. Thousands of trainings
  would be needed to show much.
- if every step is alike, its noise Gaussian and each record drawn by a coin of its own: from single steps in which the
  record was drawn or was not, of the same world. One step's μ and the rate of draws, both by their lower limits, are
  composed over the steps (`coin_ledger.composed`, which rounds down). Of a training that clips to C and adds noise of
  σC no step's μ exceeds 1/σ, whatever the model does, so that this bound refutes a true claim no more often than it
  states. Between the worlds it could: where other records follow the model, as at a saddle, a late step tells of every
  draw before it, and composing such steps counts each of these again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from math import nan
from typing import Any

from ...defenses.progress import Progress
from ...defenses.randomness import generator
from ..options.option import called_with, part
from ..owners_code import owners
from .composed_steps import CALIBRATION, DpSgdNumbers, judged_trainings
from .outcome import OwnAudit
from .planted import default_canaries
from .ranges import LEAST_DRAWS, check_bounds_asked, check_function, whole
from .transcript import Private, own_randomness_kept
from .watching import PAIRS, SEARCHED, Watching


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingsAsked:
    """What an audit of whole trainings can be asked; `audit_dpsgd` says what each is."""

    claim: float | None = None
    canaries: Mapping[str, Any] | None = None
    place: int = 0
    trainings: int = 300
    confidence: float = 0.95
    seed: int = 0
    name: str = ""
    progress: Progress | None = None


@dataclass(frozen=True, eq=False)
class DpSgdCall(TrainingsAsked):
    """What `audit_dpsgd` is called with."""

    train: Callable[[Any], Any]
    dataset: Any
    _: KW_ONLY
    numbers: DpSgdNumbers | None = None
    noise_multiplier: float = nan
    max_grad_norm: float = nan
    sample_rate: float = nan
    steps: int = 0
    delta: float


@called_with(DpSgdCall)
def audit_dpsgd(call: DpSgdCall) -> OwnAudit:
    """A lower bound on the ε of your own DP-SGD per record, `zero_out`, against whoever sees every step.

    `train` is called some hundreds of times, with a data set in which one record's place holds a canary, or is left out
    of every batch it is drawn into; its length, and with it the number of steps, is the same in either world. What the
    optimiser is given at each step is watched from outside. All of torch's, NumPy's and Python's own randomness is
    seeded before each call, so train must not seed anything itself, and must start from the same weights each time.

    Args:
        train: dataset → anything; your whole training, with a torch optimiser and a DataLoader in this process. Other
            code takes its batches by `dataset.__getitems__(indices)` and returns `dpfl_audit.Steps(released, drawn)`.
        dataset: what you train on, map-style.
        numbers: what your accountant was told; or, instead:
        noise_multiplier, max_grad_norm, sample_rate, steps: these one by one.
        delta: of the bounds.
        claim: the ε that your accountant states.
        canaries: records to try in the place, by name; the one that moves steps most, on trainings that count for
            nothing else, is planted. None: for pairs of input and label the record itself, mislabelled, blank and
            crafted (`planted.default_canaries`).
        place: whose place it is.
        trainings: tested, in either world. 300 of 10 steps at q = .2 showed .71 of ε at σ = 1, .47 at σ = 2.
        confidence: of both bounds together.
        seed: of all trainings.
        name: on the page.
        progress: called with the trainings done and about their number.

    Raises:
        ValueError: a number is out of its range, nothing of the training is to be seen, it seeds itself or starts from
            other weights, its number of steps follows the canary, no canary changes anything, or too few steps have
            one.

    Guarantees: if the training is (ε, δ)-DP per record against whoever sees its steps, counting exceeds ε with
    probability 1 − confidence at most. The other bound does so if its condition holds as well.
    """
    if call.numbers is None:
        declared = DpSgdNumbers(call.noise_multiplier, call.max_grad_norm, call.sample_rate, call.steps)
    else:
        declared = call.numbers
    if not isinstance(declared, DpSgdNumbers):
        raise ValueError(f"numbers is a {type(declared).__name__}; expected DpSgdNumbers(noise_multiplier, …)")
    check_trainings(call.train, call.dataset, call.delta, call)
    return audited_trainings(call.train, call.dataset, declared, call.delta, part(call, TrainingsAsked))


def audited_trainings(
    train: Callable[[Any], Any],
    dataset: Any,
    declared: DpSgdNumbers,
    delta: float,
    asked: Mapping[str, Any],
    private: Private | None = None,
) -> OwnAudit:
    """As `audit_dpsgd`, of what was checked.

    Args:
        train, dataset, declared, delta: of it. asked: the fields of `TrainingsAsked`. private: as of `watched`.
    """
    call = TrainingsAsked(**asked)
    named = canaries_of(dataset, call)
    with own_randomness_kept():
        watching = Watching(train, dataset, call.place, named, call.seed, call.progress, private)
        watching.planned = planned_trainings(named, call.trainings)
        canary, searched = watching.search()
        learned = watching.learn(canary)
        own, judged = learned.scored("calibration", CALIBRATION), learned.scored("tested", call.trainings)
        learned.calls.repeat()
    name = call.name or getattr(train, "__name__", "train")
    judgement = judged_trainings(own, judged, learned, declared, delta, call.confidence)
    audit = judgement.about(name, call.claim, canary, searched, call.trainings, call.seed)
    if call.canaries is not None or len(named) > 1:
        return audit
    alone = (
        "Only the record itself was planted, the weakest canary: it is no pair of numbers and a label of which others"
        " are made; give them by canaries={…}."
    )
    return replace(audit, about=replace(audit.about, notes=(*audit.about.notes, alone)))


def canaries_of(dataset: Any, asked: TrainingsAsked) -> dict[str, Any]:
    """The records to try in the place, by name. Raises ValueError where there is none."""
    rng = generator(asked.seed, "canary record")
    with owners("dataset"):
        others = [dataset[i] for i in range(min(len(dataset), 200))]
        at_place = dataset[asked.place]
        if asked.canaries is None:
            named = default_canaries(at_place, others, rng)
        else:
            named = dict(asked.canaries)
    if not named:
        raise ValueError("canaries are empty; give at least one record to plant")
    return named


def planned_trainings(canaries: Mapping[str, Any], trainings: int) -> int:
    """About how many there will be. trainings: tested, in either world."""
    return 2 * (PAIRS + CALIBRATION + trainings + SEARCHED * len(canaries) * (len(canaries) > 1)) + 20


def check_trainings(train: object, dataset: Any, delta: object, asked: TrainingsAsked) -> None:
    """What an audit of whole trainings is asked.

    Args:
        train, dataset, delta: of `audit_dpsgd`. asked: what else.

    Raises:
        ValueError: something is of another type, or out of its range.
    """
    check_function("train", train)
    check_bounds_asked(delta=delta, claim=asked.claim, confidence=asked.confidence, seed=asked.seed)
    whole("trainings", asked.trainings, LEAST_DRAWS)
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise ValueError(f"dataset is a {type(dataset).__name__}; expected a map-style data set, with a length")
    if len(dataset) == 0:
        raise ValueError("dataset is empty; expected the records that you train on")
    whole("place", asked.place, 0, len(dataset) - 1)
    if asked.canaries is not None and not isinstance(asked.canaries, Mapping):
        raise ValueError(f"canaries are a {type(asked.canaries).__name__}; expected a dict of records by name")
