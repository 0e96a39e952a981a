"""What to change: advice from measured rows or from the proof's own formula; each sentence says which.

No setting is recommended because attacks failed on it. A recommended one is proven (ε ≤ 10), no leak was found in it,
and no interval of any attack on it lies above its control, not even one that many checks explain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..proven.gaussian import gaussian_multiplier
from ..results.checks import USEFUL_EPSILON, checks, refutations
from ..results.format import LEVELS, Epsilon, Results
from ..results.levels import bounding_rows, level, proof
from ..results.words import (
    accuracy_said,
    at_most,
    listed,
    noise,
    number,
    observer,
    percent_at_most,
    proof_said,
    sees_uploads,
)


def advice(settings: Sequence[Results], labels: Sequence[str] = ()) -> list[str]:
    """Sentences for one audited setting; for several, those of their comparison, then each one's own by its label."""
    if len(settings) == 1:
        return [*_alone(settings[0]), *_own(settings[0])]
    names = list(labels) or [results.setup.title for results in settings]
    sentences = _comparison(settings, names)
    for results, label in zip(settings, names, strict=True):
        if own := _own(results):
            sentences.append(f"“{label}”: {' '.join(own)}")
    return sentences


def _own(results: Results) -> list[str]:
    return list(dict.fromkeys([*_clip(results), *_manner(results), *_proof(results)]))


def shows_leak(results: Results) -> bool:
    """Whether a leak was found, of any size; a claim that is false while the proof holds is none."""
    return level(results.attacks, results.epsilon) != LEVELS[0] and not results.verdict.only_claim


def measured(results: Results) -> bool:
    """Whether there is anything to compare with a control at all."""
    return results.verdict.measured


def above_chance(results: Results) -> bool:
    """Whether some interval lies above its control, by luck or not."""
    return any(check.low > check.control for own in checks(results.attacks, results.epsilon) for check in own)


def recommendable(results: Results) -> bool:
    """Whether a setting may be recommended: measured, no leak and no interval above chance, and a useful proof."""
    return (
        results.verdict.proof == "proven"
        and results.setup.noise_std is not None
        and measured(results)
        and not shows_leak(results)
        and not above_chance(results)
    )


def _comparison(settings: Sequence[Results], names: Sequence[str]) -> list[str]:
    """For each clip norm the least noise from which on, upwards, every setting may be recommended.

    A quiet setting below a leaking one is luck.
    """
    called = {id(results): name for results, name in zip(settings, names, strict=True)}
    known = [results for results in settings if measured(results) and results.setup.noise_std is not None]
    if not known:
        return [
            "No setting has both a known noise_std and an interval to judge by, so no noise can be recommended from"
            " these results."
        ]
    sentences = []
    clips = sorted({results.setup.clip_norm for results in known}, key=lambda clip: (clip is None, clip or 0))
    for clip in clips:
        group = sorted((results for results in known if results.setup.clip_norm == clip), key=_amounts)
        where = "" if len(clips) == 1 else " without a clip" if clip is None else f" at clip {number(clip)}"
        last_leak = max((i for i, results in enumerate(group) if shows_leak(results)), default=-1)
        quiet = group[last_leak + 1 :]
        last_unfit = max((i for i, results in enumerate(quiet) if not recommendable(results)), default=-1)
        if not quiet:
            sentences.append(_all_leaked(group[-1], called[id(group[-1])], where))
        elif last_unfit + 1 == len(quiet):
            sentences.append(_none_fit(quiet[-1], called[id(quiet[-1])], where))
        else:
            best = quiet[last_unfit + 1]
            accuracy = (
                "" if best.setup.test_accuracy is None else f", at a test accuracy of {accuracy_said(best.setup)}"
            )
            sentences.append(
                f"Of the settings measured{where}, “{called[id(best)]}” ({_noise(best)}) has the least noise at which"
                f" ε ≤ {at_most(best.verdict.proven)} is proven and no leak was found, there and with more"
                f" noise{accuracy}."
            )
    return sentences


KEY_IS_PUBLISHED = "the key of this noise is published, so what is proven does not hold against whoever has the config"


def _none_fit(quietest: Results, name: str, where: str) -> str:
    """Why none of the settings without a leak is recommended, by the one with the most noise."""
    if above_chance(quietest):
        why = "an interval lies above chance there, though among so many checks that may be luck: attack it again"
    elif not quietest.setup.secret_key and proof(quietest.attacks, quietest.epsilon) == "proven":
        why = KEY_IS_PUBLISHED
    else:
        why = f"that these attacks failed rules out no stronger one ({proof_said(quietest.verdict)})"
    return f"No setting{where} can be recommended: “{name}” ({_noise(quietest)}) shows no leak, but {why}."


def _alone(results: Results) -> list[str]:
    if results.setup.own_code:
        return _of_own_code(results)
    if not results.attacks and not measured(results):
        return ["Run attacks with the truth at hand before changing anything: nothing was measured here."]
    if not measured(results):
        return [
            "Score the attacks where the training data is at hand: without it nothing can be said about what they"
            " reached."
        ]
    if shows_leak(results):
        return [
            "Strengthen the noise and attack again: only this one setting was measured, so these results cannot say how"
            " much is enough; `audit report` puts the results of several settings side by side."
        ]
    if above_chance(results):
        return [
            "Attack again, with more records or another seed: an interval lies above chance, though among so many"
            " checks that may be luck."
        ]
    if not results.setup.secret_key and proof(results.attacks, results.epsilon) == "proven":
        return [f"Train again with a secret noise key: {KEY_IS_PUBLISHED}."]
    if results.verdict.proof != "proven":
        return [
            f"Do not rest on the attacks that failed: {proof_said(results.verdict)}, so nothing rules out a stronger"
            " one."
        ]
    if _unproven(results):
        return [f"No leak was found, but what is claimed is not proven ({proof_said(results.verdict)})."]
    return [
        f"Nothing has to change for what is proven, ε ≤ {at_most(results.verdict.proven)}: no attack beat its control."
        " Less noise would prove less, and was not attacked."
    ]


def _of_own_code(results: Results) -> list[str]:
    if refutations(results.epsilon) or refutations(results.epsilon, on_condition=True):
        return [
            "Look in the function for what gives more away than is claimed, and audit it again; these results cannot"
            " say where it is."
        ]
    return ["Audit it with other canaries before relying on it: a canary that shows little says nothing of others."]


def _clip(results: Results) -> list[str]:
    setup = results.setup
    if setup.clip_norm is None or setup.share_clipped != 0:
        return []
    median = setup.norm_before_clip_median
    lower = ""
    if median is not None and 0 < median < setup.clip_norm:
        lower = (
            f" A clip near {number(median)}, the median norm, would need only"
            f" {percent_at_most(median / setup.clip_norm)} of the noise for the same proof (not re-attacked); the"
            " median is of private data, so choose such a clip by public data."
        )
    return [
        f"The clip of {number(setup.clip_norm)} changed nothing: no contribution was longer, so what was shared is as"
        f" sharp as without it.{lower}"
    ]


def _manner(results: Results) -> list[str]:
    """If only the attack over all rounds succeeds, the repetition is what leaks."""
    beaten = {"one-round": False, "all-rounds": False}
    tried = dict(beaten)
    for attack, own in zip(results.attacks, checks(results.attacks, results.epsilon)):
        if attack.manner in beaten and own:
            tried[attack.manner] = True
            beaten[attack.manner] |= any(check.beats for check in own)
    if all(tried.values()) and beaten["all-rounds"] and not beaten["one-round"]:
        return [
            "All rounds of one client together leaked, where the attacks on a single round did not beat their control:"
            " fewer rounds for each client would help (not re-attacked)."
        ]
    return []


def _claims(results: Results) -> list[Epsilon]:
    return [row for row in results.epsilon if row.claimed is not None and math.isfinite(row.claimed)]


def _unproven(results: Results) -> list[Epsilon]:
    """The rows whose claim is not proven."""
    return [r for r in _claims(results) if r.claimed and r.proven is not None and r.proven > r.claimed * 1.001]


def _proof(results: Results) -> list[str]:
    """Where a claim is not proven, what would make it true; elsewhere, what noise a proof of use would take."""
    unproven = [(row, row.claimed) for row in _unproven(results) if row.claimed]
    bounding = [row for row in bounding_rows(results.attacks, results.epsilon).values() if row is not None]
    weak = [(row, USEFUL_EPSILON) for row in bounding if row.proven is not None and row.proven > USEFUL_EPSILON]
    sentences = []
    said = [row for row, _ in unproven]
    for row, target in [*unproven, *((row, target) for row, target in weak if row not in said)]:
        what = f"{'the claimed ' if target == row.claimed else ''}ε = {number(target)}"
        where = f"per {row.unit} ({row.adjacency}) towards {observer(row.observer)}"
        if row.proven is None or math.isinf(row.proven):
            sentences.append(f"For {what} {where}, {listed(_missing(results))}.")
            continue
        factor = noise_factor(row, target)
        if factor is None:
            known = "Proven" if results.setup.secret_key else "With a secret noise key proven"
            sentences.append(
                f"{known} {where} is ε = {at_most(row.proven)}, not {what}: `audit epsilon --target-epsilon {target:g}`"
                " computes the noise it takes (not re-attacked)."
            )
            continue
        std = results.setup.noise_std
        amount = f"{at_most(factor)} times the noise" + (
            f" (noise_std {at_most(std * factor)} instead of {number(std)})" if std else ""
        )
        key = "" if results.setup.secret_key else " and a secret noise key"
        sentences.append(
            f"Calibrate the noise to what the clip really guarantees for one {row.unit}: to prove {what} {where} over"
            f" as many rounds takes {amount}{key}; computed, not re-attacked."
        )
    return sentences


def _all_leaked(noisiest: Results, name: str, where: str) -> str:
    """The sentence for settings of one clip that all leaked, the one with the most noise too."""
    setup = noisiest.setup
    uploads_seen = any(sees_uploads(attack.observer) for attack in noisiest.attacks)
    if not any(_amounts(noisiest)):
        what = "Training without clip or noise" if setup.clip_norm is None else "Clipping alone"
        return f"{what} (“{name}”, no noise) leaked: noise is needed."
    if not setup.noise_std and uploads_seen:
        return (
            f"Every setting{where} leaked, and a server's noise protects nobody from those who see the uploads"
            f" ({_noise(noisiest)}): noise is needed before anything leaves the client."
        )
    return f"Every setting{where} leaked up to the largest noise tried ({_noise(noisiest)}): more noise is needed."


def _amounts(results: Results) -> tuple[float, float]:
    """What clients add, then what the server does: who sees the uploads is held off by the first alone."""
    return results.setup.noise_std or 0.0, results.server_noise_std or 0.0


def _noise(results: Results) -> str:
    return noise(results.setup.noise_std, results.server_noise_std)


def _missing(results: Results) -> list[str]:
    setup = results.setup
    absent = []
    if setup.clip_norm is None:
        absent.append("clip every contribution to a fixed, public norm")
    if setup.noise_std == 0:
        absent.append("add noise before anything leaves the client")
    return absent or [
        "make clip norm and noise scale public constants, and let no step use private data without noise (the reasons"
        " under the table say which does)"
    ]


def noise_factor(row: Epsilon, target: float) -> float | None:
    """By how much all noise must grow for `row.proven` to become `target`.

    None unless all that is seen amounts to one Gaussian release (`Epsilon.mu`), whose ε is known at any noise.

    Releases of unsampled Gaussian noise compose to one of noise multiplier (Σ z_i⁻²)^(−1/2), which goes with the noise.
    At δ = 1e-5 multiplier 1 has ε = 4.38, and fifteen such releases 23.35, so fifteen need √15 times the noise:

    >>> place = {"observer": "server", "unit": "client", "adjacency": "zero_out", "delta": 1e-5}
    >>> row = Epsilon(**place, proven=23.35, mu=15**0.5)
    >>> round(noise_factor(row, target=4.3772), 2)
    3.87
    """
    if not row.mu or not row.delta or not 0 < row.delta < 1 or not row.proven or math.isinf(row.proven):
        return None
    return row.mu * gaussian_multiplier(target, row.delta)
