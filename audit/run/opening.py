"""Open: read a setup, check it and what is asked, choose the attacks. Nothing is written."""

from __future__ import annotations

from pathlib import Path

from ...defenses.progress import Progress
from ...defenses.terms import Observer
from ...metrics import perceptual
from .. import scoring
from ..errors import BadInput, bad_input
from ..proven.rows import check_observers
from ..scoring.membership_entries import check_membership
from ..setup.auditor import Auditor, check_setup
from ..setup.config import CANARY
from ..setup.folder import Setup
from ..worlds.federation.plan import canary_settings
from .ablation import to_ablate, without_knowledge
from .choosing import NOT_OURS, chosen_attacks
from .job import Job
from .options import RunOptions, check_settings, settings_of, spelled_out
from .public_half import PublicHalf
from .times import with_affordable_classifiers
from .variants import variants_of


def opened(folder: Path, options: RunOptions, progress: Progress | None = None) -> Job:
    """Read, check and choose; writes nothing.

    Args:
        folder: the setup. options: what to attack with. progress: told what is being done.

    Raises:
        BadInput: the setup or an option is wrong, or nothing can be run.
    """
    if options.attacks and options.minutes is not None:
        raise BadInput("--minutes chooses attacks where none is named by --attack; give one of the two")
    setup, auditor = check_setup(folder, progress)  # all of it, before anything is written
    if progress is not None:
        progress(0, 0, "choosing attacks")
    return asked_of(setup, auditor, options)


def asked_of(setup: Setup, auditor: Auditor, options: RunOptions) -> Job:
    """What is asked of a setup that was read and checked. Raises BadInput as `opened` does."""
    folder = setup.folder
    if setup.diverged_at_once:
        raise BadInput(
            f"{folder}: training diverged in round 0, so there is nothing to attack; lower [local] lr or the noise, and"
            " train again"
        )
    with bad_input("--observer"):
        observers = tuple(map(Observer.parse, options.observers)) or (setup.config.audit.observer,)
    if auditor.ledger is not None and not auditor.ledger.participations():
        raise BadInput(
            f"{folder}: no client sent anything in a round that ended finite, so there is nothing to attack and nothing"
            " to price"
        )
    if options.ablate:
        options = to_ablate(options)
    options = spelled_out(options, setup)
    options = with_affordable_classifiers(setup, options)
    half = PublicHalf(setup, auditor.drawn_labels, observers, options)
    names, chosen_by_us = options.attacks, None
    if not names:
        chosen_by_us, half = chosen_attacks(half, auditor)
        names, options = tuple(ran.attack for ran in chosen_by_us.ran), half.options
    attacks = tuple(chosen for name in names if name != CANARY for chosen in variants_of(name, half))
    if any(name.startswith(("attribute", "membership")) for name in names):
        check_membership(auditor, setup.knowledge())
    canaries = None
    if CANARY in names:
        canaries = canary_settings(settings_of(CANARY, setup, options), options.quick)
    if canaries is not None and setup.manifest.recorded is not None:
        raise BadInput(f"attack {CANARY}: {NOT_OURS}")
    check_settings(options.overrides, names, named=bool(options.attacks))
    if canaries is not None and auditor.ledger is not None:
        with bad_input("[attack.canary] observers"):
            check_observers(auditor.ledger, [Observer.parse(name) for name in canaries.observers])
    with bad_input("--lpips-weights"):
        lpips = scoring.LEFT_OUT if options.pixels_only else perceptual.find(options.lpips_weights)
    if options.ablate:
        ablated, not_withheld = without_knowledge(attacks, half)
    else:
        ablated, not_withheld = (), {}
    return Job(half, auditor, attacks, canaries, chosen_by_us, lpips, ablated, not_withheld)
