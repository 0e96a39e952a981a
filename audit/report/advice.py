"""What to change: advice from measured rows or from the proof's own formula; each sentence says which.

No setting is recommended because attacks failed on it. A recommended one is proven (ε ≤ 10), no leak was found in it,
and no more checks of attacks on it lie above their control than luck explains.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...defenses.terms import Observer
from ..proof.theorems.gaussian import gaussian_multiplier
from ..results.checks import COMPARABLE, USEFUL_EPSILON
from ..results.format import Epsilon
from ..say import advice as say
from ..say.words import number
from .facts import ReportedSetting


def advice(settings: Sequence[ReportedSetting]) -> list[str]:
    """Sentences for one audited setting; for several, those of their comparison, then each one's by its label."""
    if len(settings) == 1:
        return [*_alone(settings[0]), *_of_setting(settings[0])]
    sentences = _comparison(settings)
    for setting in settings:
        if further := _of_setting(setting):
            sentences.append(f"“{setting.label}”: {' '.join(further)}")
    return sentences


def _of_setting(setting: ReportedSetting) -> list[str]:
    return list(dict.fromkeys([*_clip(setting), *_manner(setting), *_proof(setting)]))


def recommendable(setting: ReportedSetting) -> bool:
    """Whether a setting may be recommended: measured, no leak beyond luck, and a useful proof."""
    judgement = setting.judgement
    return (
        judgement.proof == "proven"
        and setting.results.setup.noise_std is not None
        and judgement.measured
        and not judgement.shows_leak
        and not judgement.more_than_luck
    )


def _comparison(settings: Sequence[ReportedSetting]) -> list[str]:
    """For each clip norm the least noise from which on, upwards, every setting may be recommended."""
    known = [s for s in settings if s.judgement.measured and s.results.setup.noise_std is not None]
    if not known:
        return [say.NOT_COMPARABLE]
    norms = {setting.results.setup.clip_norm for setting in known}
    sentences = []
    for clip in sorted(norms, key=lambda clip: (clip is None, clip or 0)):
        group = [setting for setting in known if setting.results.setup.clip_norm == clip]
        sentences.append(_of_clip(sorted(group, key=_amounts), _where(clip) if len(norms) > 1 else ""))
    return sentences


def _where(clip: float | None) -> str:
    return " without a clip" if clip is None else f" at clip {number(clip)}"


def _of_clip(group: Sequence[ReportedSetting], where: str) -> str:
    """group: of one clip norm, the least noise first. A quiet setting below a leaking one is luck."""
    last_leak = max((i for i, setting in enumerate(group) if setting.judgement.shows_leak), default=-1)
    quiet = group[last_leak + 1 :]
    if not quiet:
        attacks = group[-1].results.attacks
        uploads_seen = any(not Observer.parse(attack.observer).sees_merged_only for attack in attacks)
        return say.all_leaked(group[-1].results, group[-1].label, where, uploads_seen)
    last_unfit = max((i for i, setting in enumerate(quiet) if not recommendable(setting)), default=-1)
    if last_unfit + 1 == len(quiet):
        return say.none_fits(quiet[-1].results, quiet[-1].label, where, _why_unfit(quiet[-1]))
    best = quiet[last_unfit + 1]
    return say.least_noise(best.results, best.judgement, best.label, where)


def _why_unfit(quietest: ReportedSetting) -> str:
    """Why a setting without a leak is not recommended."""
    judgement = quietest.judgement
    if judgement.more_than_luck:
        return say.LUCK
    if not judgement.secret and judgement.proven_if_secret:
        return say.KEY_IS_PUBLISHED
    return say.no_stronger_attack(judgement)


def _alone(setting: ReportedSetting) -> list[str]:
    judgement = setting.judgement
    if setting.results.setup.own_code:
        return [say.LOOK_IN_CODE if judgement.refuting("claimed") else say.OTHER_CANARIES]
    if not judgement.measured:
        scored = [attack for attack in setting.results.attacks if attack.scored]
        if scored and all(COMPARABLE in attack.not_measured for attack in scored):
            return [say.PLANT_CANARIES]
        if scored:
            return [say.MEASURE_MORE]
        return [say.SCORE_ATTACKS if judgement.attacked else say.RUN_ATTACKS]
    if judgement.shows_leak:
        return [say.STRENGTHEN]
    if judgement.more_than_luck:
        return [say.ATTACK_AGAIN]
    if not judgement.secret and judgement.proven_if_secret:
        return [say.SECRET_KEY]
    if judgement.proof != "proven":
        return [say.not_proven(judgement)]
    if _unproven(setting):
        return [say.claim_not_proven(judgement)]
    return [say.nothing_to_change(judgement)]


def _clip(setting: ReportedSetting) -> list[str]:
    setup = setting.results.setup
    if setup.clip_norm is None or setup.share_clipped != 0:
        return []
    return [say.useless_clip(setup)]


def _manner(setting: ReportedSetting) -> list[str]:
    """If only the attack over all rounds succeeds, the repetition is what leaks."""
    beaten: dict[str, bool] = {}
    for judged in setting.judgement.attacks:
        manner = judged.attack.manner
        if manner is not None and judged.checks:
            beaten[manner] = beaten.get(manner, False) or any(check.beats for check in judged.checks)
    return [say.FEWER_ROUNDS] if beaten.get("all-rounds") and beaten.get("one-round") is False else []


def _unproven(setting: ReportedSetting) -> list[Epsilon]:
    """The rows whose claim is not proven."""
    claims = [row for row in setting.judgement.epsilon if row.claimed and math.isfinite(row.claimed)]
    return [row for row in claims if row.proven is not None and row.proven > (row.claimed or 0) * 1.001]


def _proof(setting: ReportedSetting) -> list[str]:
    """Where a claim is not proven, what would make it true; elsewhere, what noise a proof of use would take."""
    unproven = _unproven(setting)
    bounding = setting.judgement.rows.bounding
    weak = [row for row in bounding if row.proven is not None and row.proven > USEFUL_EPSILON and row not in unproven]
    return [
        *(_proof_of(row, row.claimed or 0.0, setting, claimed=True) for row in unproven),
        *(_proof_of(row, USEFUL_EPSILON, setting, claimed=False) for row in weak),
    ]


def _proof_of(row: Epsilon, target: float, setting: ReportedSetting, claimed: bool) -> str:
    """What it takes to prove an ε of `target`."""
    setup, what = setting.results.setup, say.target(target, claimed)
    if row.proven is None or math.isinf(row.proven):
        steps = ["clip every contribution to a fixed, public norm"] if setup.clip_norm is None else []
        if setup.noise_std == 0:
            steps.append("add noise before anything leaves the client")
        return say.missing(row, what, steps)
    factor = noise_factor(row, target)
    if factor is None:
        return say.compute_noise(row, what, target, row.secret_key)
    return say.calibrate(row, what, factor, setup)


def _amounts(setting: ReportedSetting) -> tuple[float, float]:
    """What clients add, then what the server does: who sees the uploads is held off by the first alone."""
    return setting.results.setup.noise_std or 0.0, setting.results.server_noise_std or 0.0


def noise_factor(row: Epsilon, target: float) -> float | None:
    """By how much all noise must grow for `row.proven` to become `target`.

    None unless all that is seen amounts to one Gaussian release (`Epsilon.mu`), whose ε is known at any noise.

    Releases of unsampled Gaussian noise compose to one of noise multiplier (Σ z_i⁻²)^(−1/2), which goes with the noise.
    At δ = 1e-5 multiplier 1 has ε = 4.38, and fifteen such releases 23.35, so fifteen need √15 times the noise:

    >>> from ...defenses.releases import GaussianLaw, declare
    >>> from ..proof.certificate import ProofQuestion, prove_settings, row_of
    >>> question = ProofQuestion(Observer("server"), "client", "zero_out", delta=1e-5)
    >>> proof = prove_settings(declare("", 0, GaussianLaw(1.0), 1.0, frozenset({0})), 15, 1.0, question)
    >>> round(noise_factor(row_of(proof), target=4.3772), 2)
    3.87
    """
    if not row.mu or not row.delta or not 0 < row.delta < 1 or not row.proven or math.isinf(row.proven):
        return None
    return row.mu * gaussian_multiplier(target, row.delta)
