"""Plan: the cells of all attacks, from the public half alone."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from ...attacks import ATTACKS
from ...defenses.terms import Observer
from ...defenses.workers import Workers
from ..errors import BadInput
from ..setup.config import CANARY
from . import choice, evidence
from .choosing import of_a_recording
from .evidence import Plan
from .job import Job
from .variants import variants_of


def planned_cells(job: Job, workers: Workers) -> Plan:
    """workers: who trains shadows. Raises BadInput: no observer's view allows one of the attacks; what does apply."""
    if not job.attacks:
        return Plan((), job.setup.knowledge(), ())
    ground, knowledge = job.half.ground, job.half.ground.knowledge
    factory = knowledge.shadow_factory
    if factory is not None and factory.workers is not workers:
        knowledge = replace(knowledge, shadow_factory=replace(factory, workers=workers))
    try:
        return choice.as_chosen(evidence.plan(ground.views, (*job.attacks, *job.ablated), knowledge), job.choice)
    except ValueError as refused:
        if job.setup.manifest.recorded is None:
            why = str(refused)
        else:
            why = of_a_recording(str(refused))
        raise BadInput(f"attack: {why}; {_others(job)}") from refused
    finally:
        ground.read.clear()


def _others(job: Job) -> str:
    """What to name in place of an attack that is refused."""
    ground = job.half.ground
    variants = {}
    for name, kind in ATTACKS.items():
        if not any(kind.arises(view) for view in ground.views):
            continue
        with suppress(BadInput):  # a table of an attack that nobody asked for
            variants[name] = variants_of(name, job.half)
    names = [*choice.applying(ground.views, variants, ground.knowledge).work]
    recorded = job.setup.manifest.recorded is not None
    if job.auditor.ledger is not None and job.auditor.truth is not None and not recorded:
        names.append(CANARY)
    what = "nothing else applies either"
    if names:
        what = f"what applies to this setup and observer: {', '.join(names)}"
    what += _by_the_server(job)
    if len(ground.knowledge.candidate_ids) or any(name.startswith("membership") for name in job.names):
        return what
    return f"{what}; membership attacks need candidates {'by rec.candidates(…)' if recorded else 'in [capture]'}"


def _by_the_server(job: Job) -> str:
    """That what is refused applies to the server, who sees every upload; "" where it does not."""
    server = Observer.parse("server")
    if server in job.observers:
        return ""
    ground = replace(job.half, observers=(server,)).ground
    with suppress(ValueError, BadInput):
        evidence.plan(ground.views, job.attacks, ground.knowledge)
        return f"; {' and '.join(job.names)} {'applies' if len(job.names) == 1 else 'apply'} to --observer server"
    return ""
