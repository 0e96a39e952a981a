"""`dpfl_audit.audit_opacus`: a training with Opacus, audited at what its accountant heard.

Opacus is imported when this is called, and never before.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from math import isfinite
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ...defenses.progress import Progress
from ...defenses.terms import Claimant
from ..errors import BadInput, bad_input
from ..extras import needed
from ..options.option import called_with, part
from ..owners_code import owners
from ..progress import Reporter
from ..replay.adjacency import PAIRS
from ..replay.opacus import ANOTHER, HELD, clip_of, is_private
from ..replay.outcome import Replay
from ..replay.replay import replay
from ..say.words import times
from .composed_steps import DpSgdNumbers
from .dpsgd import TrainingsAsked, audited_trainings, canaries_of, check_trainings, planned_trainings
from .outcome import DEFECT, OwnAudit
from .planted import PlantedDataset
from .transcript import own_randomness_kept

FEW_PAIRS = 2  # neighbours that tell whether an optimiser without noise follows a record


@dataclass(frozen=True, eq=False)
class OpacusCall(TrainingsAsked):
    """What `audit_opacus` is called with."""

    train: Callable[[Any, Any], Any]
    privacy_engine: Any
    dataset: Any
    _: KW_ONLY
    delta: float = 1e-5
    replay: bool = False


@called_with(OpacusCall)
def audit_opacus(call: OpacusCall) -> OwnAudit:
    """A lower bound on the ε of a training with Opacus, per record (`zero_out`), against whoever sees every step.

    σ, q and the number of steps are read from the accountant's history, C from the `DPOptimizer`. The canary takes a
    record's place, and in the other world that place is left out of every batch: the number of records, batches and
    steps is the same, as another number of records would change the steps, which no accountant hides.

    Args:
        train: (dataset, privacy_engine) → anything; your training. It makes itself private by the engine it is given
            (each call gets a fresh one of the same kind), starts from the same weights, seeds nothing, and takes no
            worker processes. See `audit_dpsgd` for what is done with it.
        privacy_engine: yours, after your training: its accountant's history is what is claimed. Before any step, the
            history of the audit's own first training is.
        dataset: what you train on, map-style.
        claim: the ε claimed; None: what the accountant says at `delta`.
        delta: of the claim and the bounds.
        replay: first run it on neighbours of the data with the same coins and releases, as `dpfl_audit.replay` does.
        canaries, place, trainings, confidence, seed, name: as in `audit_dpsgd`. progress: None for one on stderr.

    Raises:
        BadInput: Opacus is not installed, the engine is none or is not used, or as `audit_dpsgd` says.
    """
    opacus = needed("opacus", "audit_opacus", "opacus")
    if not isinstance(call.privacy_engine, opacus.PrivacyEngine):
        raise BadInput(f"privacy_engine is a {type(call.privacy_engine).__name__}; expected an opacus.PrivacyEngine")
    with bad_input("audit_opacus"):
        check_trainings(call.train, call.dataset, call.delta, call)
    with ExitStack() as ends:
        progress = call.progress or ends.enter_context(Reporter())
        ends.enter_context(_noise_found_once())
        return _audited(call, opacus, progress)


def _audited(call: OpacusCall, opacus: Any, progress: Progress) -> OwnAudit:
    seen: list[Any] = []
    divisors: set[float] = set()

    def watched(dataset: Any) -> Any:
        seen.clear()
        engine = opacus.PrivacyEngine(accountant=call.privacy_engine.accountant.mechanism())
        return call.train(dataset, _watched_engine(engine, seen))

    def onward(done: int, total: int, /, words: str = "") -> None:
        progress(done + 1, total + 1, words)  # after the first training

    with bad_input("audit_opacus"):
        canaries = canaries_of(call.dataset, call)
        progress(0, planned_trainings(canaries, call.trainings) + 1, "the first training, for what it declares")
        with own_randomness_kept():
            with owners("dataset"):
                record = call.dataset[call.place]
            whole = PlantedDataset(call.dataset, call.place, record, present=True)  # no canary yet
            with _steps_of_others(seen) as others:
                engine, numbers, remarks = _declared(call.train, call.privacy_engine, whole, opacus, seen, divisors)
        onward(0, planned_trainings(canaries, call.trainings), "the first training, for what it declares")
        remarks += _replayed(call, len(others), divisors)
        stated = _stated(engine, call.delta) if call.claim is None else call.claim
        if stated is None:
            remarks.append("Opacus's accountant states no finite ε.")
        name = call.name or getattr(call.train, "__name__", "train")
        asked = part(call, TrainingsAsked) | {"claim": stated, "name": name, "progress": onward}
        audit = audited_trainings(
            watched, call.dataset, numbers, call.delta, asked, lambda optimiser: is_private(optimiser, seen)
        )
    if call.claim is not None:
        source = "the owner"
    else:
        source = f"Opacus's {engine.accountant.mechanism().upper()} accountant"
    by = () if stated is None else (f"The claim is by {source}.",)
    whose: Claimant = "framework" if call.claim is None else "owner"
    about = replace(audit.about, notes=(*by, *remarks, *audit.about.notes), claimed_by=whose)
    return replace(audit, about=about)


@contextmanager
def _steps_of_others(private: Sequence[Any]) -> Iterator[list[Any]]:
    """The steps of optimisers that are none of these. private: as Opacus makes them."""
    others: list[Any] = []

    def step(optimiser: torch.optim.Optimizer, *_: object) -> None:
        if not is_private(optimiser, private):
            others.append(optimiser)

    handle = register_optimizer_step_pre_hook(step)
    try:
        yield others
    finally:
        handle.remove()


@contextmanager
def _noise_found_once() -> Iterator[None]:
    """The noise that `make_private_with_epsilon` searches for, once for equal arguments and not in every training."""
    engine: Any = importlib.import_module("opacus.privacy_engine")
    search, found = engine.get_noise_multiplier, dict[str, float]()

    def once(**asked: Any) -> float:
        key = repr(sorted(asked.items()))
        if key not in found:
            found[key] = search(**asked)
        return found[key]

    engine.get_noise_multiplier = once
    try:
        yield
    finally:
        engine.get_noise_multiplier = search


def _replayed(call: OpacusCall, others: int, divisors: set[float]) -> list[str]:
    """What replaying says, of the whole training or of what of it stands in question.

    Args:
        call: of the audit. others: steps that optimisers without noise took in the first training. divisors: of sums.
    """
    if not (call.replay or others or len(divisors) > 1):
        return []
    asked: dict[str, Any] = {"engine": call.privacy_engine, "seed": call.seed, "name": call.name}
    try:
        found = replay(call.train, call.dataset, neighbours=PAIRS if call.replay else FEW_PAIRS, **asked)
    except BadInput as error:
        if call.replay:
            raise
        what = "divisors change"
        if others:
            what = f"{times(others, 'step')} by an optimiser without noise are left out"
        return [f"Not checked: {what} ({error})."]
    said = found.sentences if call.replay or found.violations else ()
    return [*said, *_of_others(found, others), *_of_divisors(found, divisors)]


def _of_divisors(found: Replay, divisors: set[float]) -> list[str]:
    if len(divisors) < 2:
        return []
    size = f"from {min(divisors):g} to {max(divisors):g}"
    if any(violation.name == HELD for violation in found.violations):
        return [
            f"{DEFECT} (divisor): steps divide by the batch that came ({size}), and with the record by another number"
            " than without; the accountant prices a fixed one, so that its ε does not hold."
        ]
    return [f"Checked: steps divide by different numbers ({size}), the same with the record and without it."]


def _of_others(found: Replay, others: int) -> list[str]:
    if not others:
        return []
    if touched := [violation for violation in found.violations if violation.name == ANOTHER]:
        return [f"Contradicted: an optimiser without noise takes steps that follow the record ({touched[0]})."]
    return [
        f"Checked: {times(others, 'step')} by an optimiser without noise, which are left out, are the same with the"
        f" record and without it where the noisy steps are held ({len(found.pairs)} neighbours)."
    ]


def _stated(engine: Any, delta: float) -> float | None:
    """What the accountant states, None where that is no finite ε."""
    with owners("the accountant"):
        epsilon = float(engine.accountant.get_epsilon(delta))
    if isfinite(epsilon):
        return epsilon
    return None


def _watched_engine(engine: Any, seen: list[Any], divisors: set[float] | None = None) -> Any:
    """The engine, telling `seen` of every optimiser that it makes private, and `divisors` of what that divides by."""
    make_private = engine.make_private

    def watched(**options: Any) -> Any:
        made = make_private(**options)
        seen.append(made[1])
        if divisors is not None:
            _tell_divisors(made[1], divisors)
        return made

    engine.make_private = watched
    return engine


def _tell_divisors(optimiser: Any, divisors: set[float]) -> None:
    add_noise = optimiser.add_noise

    def told() -> None:
        divisors.add(float(getattr(optimiser, HELD)))
        add_noise()

    optimiser.add_noise = told


def _declared(
    train: Callable[[Any, Any], Any],
    privacy_engine: Any,
    dataset: Any,
    opacus: Any,
    seen: list[Any],
    divisors: set[float],
) -> tuple[Any, DpSgdNumbers, list[str]]:
    """The engine whose history is claimed, what it says, and remarks; by one training of the data as they are."""
    trial = _watched_engine(opacus.PrivacyEngine(accountant=privacy_engine.accountant.mechanism()), seen, divisors)
    with owners("train"):
        train(dataset, trial)
    if not seen:
        raise BadInput("audit_opacus: train never called make_private of the engine it was given; use that one")
    optimiser = seen.pop()
    seen.clear()
    engine = privacy_engine if privacy_engine.accountant.history else trial
    history = engine.accountant.history
    if not history:
        raise BadInput(
            "audit_opacus: the accountant heard of no step, so there is nothing that it claims; give claim=…"
        )
    remarks = []
    if len({(sigma, rate) for sigma, rate, _ in history}) > 1:
        remarks.append("The accountant's history has steps of several kinds; the least noise and rate stand for all.")
    numbers = DpSgdNumbers(
        noise_multiplier=float(min(sigma for sigma, _, _ in history)),
        max_grad_norm=clip_of(optimiser),
        sample_rate=float(min(rate for _, rate, _ in history)),
        steps=int(sum(steps for _, _, steps in history)),
    )
    return engine, numbers, remarks
