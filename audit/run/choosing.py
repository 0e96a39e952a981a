"""Which attacks run where none is named: those that apply (`choice.py`), and why others do not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ...attacks import ATTACKS
from ...attacks.cost import minutes
from ...defenses.models import LAYERS
from ..errors import BadInput
from ..results.format import Choice, NotRun
from ..setup.auditor import Auditor
from ..setup.config import CANARY
from ..setup.folder import Setup
from ..worlds.federation.plan import canary_settings
from . import choice, evidence
from .options import INVERSION, RunOptions, settings_of
from .public_half import PublicHalf
from .shortened import fewer_iterations, iterations_set, of_iterations
from .times import canary_work, classifier_operations, scoring_operations
from .variants import variants_of

FEW = 0.6  # of the minutes: a shorter inversion's first message takes no more if it can, as several tell more than one
WITHOUT_EXACT = f"{INVERSION}.exact=false"
NOT_OURS = (
    "a canary is tried by the training's own code, and a recording has none; dpfl_audit.audit_mechanism tries one on a"
    " function of yours"
)


def chosen_attacks(half: PublicHalf, auditor: Auditor) -> tuple[Choice, PublicHalf]:
    """What runs where no attack is named. Canaries, which take minutes, only where minutes are granted.

    Returns:
        The choice, and the half with fewer iterations of an inversion none of whose parts fits otherwise.
    """
    setup, options = half.setup, half.options
    if why := _not_attackable(setup):
        return _chosen(setup, auditor, options, choice.Applying({}, dict.fromkeys(ATTACKS, why))), half
    there = _applying(half)
    half.ground.read[:] = there.cells
    shorter = []
    for fewer in _shorter_inversions(half, there):
        inversion = _applying(half.with_options(fewer), (INVERSION,)).work
        shorter.append((fewer, replace(there, work={**there.work, **inversion})))
    for share in (FEW, 1.0):
        for fewer, its in shorter:
            if _first_message(its) <= share * _limit(options):
                made = _chosen(setup, auditor, fewer, its)
                return _shortened(made, there, fewer), half.with_options(fewer)
    return _chosen(setup, auditor, options, there), half


def costs_of_inversion(half: PublicHalf) -> tuple[Mapping[tuple[str, str], float], Mapping[str, Any]]:
    """Minutes of an inversion with scoring, by observer and key of its parts, and its settings."""
    variants, shape = variants_of(INVERSION, half), tuple(half.setup.manifest.data.input_shape)
    costs: dict[tuple[str, str], float] = defaultdict(float)
    for cell in evidence.plan(half.ground.views, variants, half.ground.knowledge).cells:
        scoring = scoring_operations(cell.part.records, shape, half.options)
        costs[cell.view.observer, cell.part.key] += minutes(cell.part.work + scoring)
    return costs, variants[0].settings


def _limit(options: RunOptions) -> float:
    return options.minutes or choice.DEFAULT_MINUTES


def _applying(half: PublicHalf, names: Collection[str] = ()) -> choice.Applying:
    """names: of attacks; all where none is given."""
    among = names or ATTACKS
    asked = [n for n, kind in ATTACKS.items() if n in among and any(kind.arises(view) for view in half.ground.views)]
    variants = {name: variants_of(name, half) for name in asked}
    shape = tuple(half.setup.manifest.data.input_shape)
    scoring = partial(scoring_operations, shape=shape, options=half.options)
    there = choice.applying(half.ground.views, variants, half.ground.knowledge, scoring)
    return replace(there, first=classifier_operations(half.setup, half.options) if INVERSION in there.work else 0)


def _first_message(there: choice.Applying) -> float:
    """Minutes of an inversion of the first message, with what scores it."""
    return choice.first_of(there.work[INVERSION]) + minutes(there.first)


def _shorter_inversions(half: PublicHalf, there: choice.Applying) -> list[RunOptions]:
    """The options for an inversion whose first message takes half of the minutes, for one without the methods that give
    exact images, and for both; none where a message takes no more than all, or somebody asked for so many iterations.
    """
    choice.check_minutes(_limit(half.options))
    options = half.options
    if not there.work.get(INVERSION) or _first_message(there) <= _limit(options):
        return []
    if any(map(of_iterations, options.overrides)):
        return []
    settings = variants_of(INVERSION, half)[0].settings
    few = iterations_set(*fewer_iterations(settings, _first_message(there), _limit(options) / 2), options.quick)
    exact = (WITHOUT_EXACT,) if settings["exact"] else ()
    shorter = dict.fromkeys([few, exact, (*few, *exact)])
    return [replace(options, overrides=(*options.overrides, *more)) for more in shorter if more]


def _shortened(made: Choice, there: choice.Applying, options: RunOptions) -> Choice:
    """The choice, with a word on an inversion that is shorter. there: with the whole of it."""
    few = next((int(text.partition("=")[2]) for text in options.overrides if of_iterations(text)), None)
    ran = tuple(r.having(iterations=few) if r.attack == INVERSION and few else r for r in made.ran)
    why = choice.shortened_said(_first_message(there), _limit(options), few, WITHOUT_EXACT in options.overrides)
    others = tuple(entry for entry in made.not_run if entry.attack != INVERSION)
    late = [entry.minutes or 0.0 for entry in made.not_run if entry.attack == INVERSION]
    return made.having(ran=ran, not_run=(NotRun(attack=INVERSION, reason=why, minutes=sum(late)), *others))


def _chosen(setup: Setup, auditor: Auditor, options: RunOptions, there: choice.Applying) -> Choice:
    canary = _canary(setup, auditor, options)
    if setup.manifest.recorded is not None:
        there = replace(there, refused={name: of_a_recording(why) for name, why in there.refused.items()})
    if setup.manifest.recorded is not None and not there.work:  # ε and the checks are worth a page of their own
        refused = {**there.refused, **canary.refused}
        lost = tuple(NotRun(attack=name, reason=why) for name, why in refused.items())
        return Choice(minutes=_limit(options), ran=(), not_run=lost)
    if options.minutes is None or not options.canaries:
        made = choice.choose(there, _limit(options))
        if CANARY in canary.work:
            why = choice.NOT_BY_DEFAULT
        else:
            why = canary.refused[CANARY]
        made = made.having(not_run=(*made.not_run, NotRun(attack=CANARY, reason=why)))
    else:
        both = choice.Applying({**there.work, **canary.work}, {**there.refused, **canary.refused})
        made = choice.choose(both, options.minutes)
    if not made.ran and auditor.ledger is None:
        raise BadInput(f"--minutes {made.minutes:g}: no attack is that short, and without auditor/ no ε is priced")
    return made


def _canary(setup: Setup, auditor: Auditor, options: RunOptions) -> choice.Applying:
    """Whether canaries can be tried, and at which cost."""
    settings = canary_settings(settings_of(CANARY, setup, options), options.quick)
    if setup.manifest.recorded is not None:
        return choice.Applying({}, {CANARY: NOT_OURS})
    if auditor.ledger is None or auditor.truth is None:
        lacking = "truth/"
        if auditor.ledger is None:
            lacking = "auditor/"
        return choice.Applying({}, {CANARY: f"{lacking} is absent, and the auditor plays the attacker with it"})
    module = setup.module(options.allow_model)
    return choice.Applying({CANARY: [(canary_work(setup, settings, module), "")]}, {})


def _not_attackable(setup: Setup) -> str:
    """Why no attack can be tried on a recording, "" where some can."""
    recorded = setup.manifest.recorded
    if recorded is None or (recorded.network and recorded.data):
        return ""
    if not recorded.network:
        return (
            "the recording holds no network that can be built again; give the Recorder, trained whole (no frozen"
            f" parameters), a class of yours or a stack of these layers of torch.nn: {', '.join(LAYERS)} and Dropout"
        )
    return (
        "the recording does not say what a record looks like; give the Recorder data={'input_shape': …, 'classes': …}"
    )


def of_a_recording(why: str) -> str:
    """Why an attack cannot be tried, with the remedy that a recording has."""
    if "labels of none" in why:
        return "no upload came with its records, so their labels are not known; rec.upload(…, records=…) tells them"
    if "candidates" in why:
        return "no records to ask about; rec.candidates(…) names some"
    return why
