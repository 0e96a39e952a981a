"""Judge: the verdict and the warnings, on scores and prices."""

from __future__ import annotations

from collections.abc import Sequence

from .. import scoring
from ..results.format import SCORING, AttackResult, Choice, NotRun, Results
from ..say.verdict import judged
from ..say.warnings import NO_TRUTH, implied
from ..scoring.trained_loss import doubt_of_loss
from . import evidence
from .audited import audited_setup
from .evidence import Plan
from .job import Job
from .pricing import Priced

ASSUME_LOSS = ("inversion", "attribute", "membership")  # kinds of attacks
OTHER_NET = "LPIPS is by SqueezeNet here: not to be compared with values by AlexNet, which most papers report."


def judged_results(
    job: Job,
    plan: Plan,
    collected: evidence.Collected,
    scores: scoring.ScoredAttacks,
    prices: Priced,
    ablated: tuple[AttackResult, ...],
) -> Results:
    """What results.json holds.

    Args:
        job: what was asked for. plan: what could not be tried of it. collected: what failed of it.
        scores, prices: of the attacks and of the messages.
        ablated: weaker than the attacks by intent, so that no verdict is on them.
    """
    attacks = (*_doubted(job, scores.attacks), *prices.attacks)
    chosen_by_us, unfinished = _ran(job.choice, collected)
    setup = audited_setup(job.auditor)
    results = judged(
        digest=job.digest,
        scoring=SCORING,
        setup=setup,
        quick=job.options.quick,
        seed=job.options.seed,
        epsilon=prices.rows,
        attacks=attacks,
        ablated=ablated,
        not_withheld=dict(job.not_withheld),
        choice=chosen_by_us,
        classifiers=scores.classifiers,
        rounds=tuple(job.auditor.rounds),
    )
    measured = any(attack.value("lpips") is not None for attack in attacks)
    by_other = [OTHER_NET] if measured and job.net == "squeeze" else []
    warnings = (*implied(results), *_warnings(job), *by_other, *scores.warnings, *prices.warnings, *plan.refused)
    return results.model_copy(update={"warnings": tuple(dict.fromkeys((*warnings, *unfinished)))})


def _doubted(job: Job, attacks: Sequence[AttackResult]) -> list[AttackResult]:
    """With what is unknown of the loss that inversion and membership inference assume."""
    if not any(attack.kind in ASSUME_LOSS for attack in attacks):
        return list(attacks)
    doubt = doubt_of_loss(job.setup, job.auditor, job.options.allow_model)
    return [attack.having(doubt=doubt or attack.doubt) if attack.kind in ASSUME_LOSS else attack for attack in attacks]


def _ran(chosen_by_us: Choice | None, collected: evidence.Collected) -> tuple[Choice | None, list[str]]:
    """The choice without what failed, which did not run; and a sentence on what failed in parts."""
    brought = {item.evidence.attack for item in collected.evidence}
    parts = [f"Not finished: {name} ({why})." for name, why in collected.failed.items() if name in brought]
    if chosen_by_us is None:
        return None, parts
    lost = {name: why for name, why in collected.failed.items() if name not in brought}
    failed = (NotRun(attack=ran.attack, reason=lost[ran.attack]) for ran in chosen_by_us.ran if ran.attack in lost)
    ran = tuple(ran for ran in chosen_by_us.ran if ran.attack not in lost)
    return chosen_by_us.having(ran=ran, not_run=(*chosen_by_us.not_run, *failed)), parts


def _warnings(job: Job) -> list[str]:
    """What no field of the results says."""
    warnings = []
    if edited := job.auditor.edited:
        warnings.append(
            f"Changed after training: {', '.join(edited)}; what the attacks were given and scored by is not what was"
            " captured."
        )
    if job.auditor.truth is None:
        warnings.append(f"{NO_TRUTH}.")
    if job.auditor.drawn_labels and any(chosen.name == "inversion" for chosen in job.attacks):
        warnings.append(
            "Inversion with known labels is told which records the secret batches drew, which no observer sees. ε holds"
            " for those without that secret, so it does not limit this attack; the ceilings do."
        )
    if job.auditor.truth is not None and job.auditor.ledger is None:
        warnings.append("Whether truth/ was changed after training cannot be told: its seal was in auditor/.")
    return warnings
