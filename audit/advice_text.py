"""What to change: advice that follows from measured rows and from the proof's own formula, and says which of the two it is."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy.optimize import brentq
from scipy.special import log_ndtr

from .results import Epsilon, Results
from .verdict import USEFUL_EPSILON, checks
from .words import listed, number, observer, percent


def advice(settings: Sequence[Results]) -> list[str]:
    """Sentences for one audited setting, or for several compared ones. Empty only if nothing was measured or priced."""
    several = len(settings) > 1
    found = _smallest_quiet_noise(settings) if several else []
    for results in settings:
        own = [*_clip(results), *_manner(results), *_proof(results)]
        if not several:
            own = [*_alone(results), *own]
        found += [f"{results.setup.title}: {text[0].lower() + text[1:] if not text.startswith('ε') else text}" if several else text for text in own]
    return list(dict.fromkeys(found))


def leaks(results: Results) -> bool:
    """Whether an interval excluded its control, or an ε above 0 was demonstrated."""
    return any(check.excludes for attack in results.attacks for check in checks(attack)) or any((row.demonstrated or 0) > 0 for row in results.epsilon)


def tested(results: Results) -> bool:
    """Whether there is an interval to compare with a control at all."""
    return any(checks(attack) for attack in results.attacks) or any(row.demonstrated is not None for row in results.epsilon)


def _smallest_quiet_noise(settings: Sequence[Results]) -> list[str]:
    """For each clip norm: the smallest noise from which on, upwards, nothing was found. A quiet setting below a leaking one is luck."""
    measured = [results for results in settings if tested(results) and results.setup.noise_std is not None]
    if not measured:
        return ["No setting has both a known noise_std and an interval to judge by, so no noise can be recommended from these results."]
    found = []
    clips = sorted({results.setup.clip_norm for results in measured}, key=lambda clip: (clip is None, clip or 0))
    for clip in clips:
        group = sorted((results for results in measured if results.setup.clip_norm == clip), key=lambda results: results.setup.noise_std or 0)
        where = "" if len(clips) == 1 else " without a clip" if clip is None else f" at clip {number(clip)}"
        last_leak = max((i for i, results in enumerate(group) if leaks(results)), default=-1)
        if last_leak + 1 == len(group):
            found.append(f"Every setting{where} leaked up to the largest noise tried (noise_std {number(group[-1].setup.noise_std)}): try more noise.")
            continue
        quiet = group[last_leak + 1]
        accuracy = f", at a test accuracy of {percent(quiet.setup.test_accuracy)}" if quiet.setup.test_accuracy is not None else ""
        found.append(f"Of the settings measured{where}, “{quiet.setup.title}” (noise_std {number(quiet.setup.noise_std)}) has the least noise at which, "
                     f"and above which, no attack beat its control{accuracy}; these attacks failing does not mean that others would.")
    return found


def _alone(results: Results) -> list[str]:
    if not tested(results):
        return ["Run attacks with the truth at hand before changing anything: nothing was measured here." if not results.attacks else
                "Score the attacks where the training data is at hand: without it nothing can be said about what they reached."]
    if leaks(results):
        return ["Strengthen the noise and attack again: only this one setting was measured, so these results cannot say how much is enough; "
                "`audit tune` tries many, and `audit report` puts several side by side."]
    return ["No attack beat its control here, so these results ask for no change; a smaller noise was not attacked and may do as well."]


def _clip(results: Results) -> list[str]:
    setup = results.setup
    noisy = setup.noise_std is None or setup.noise_std > 0
    if setup.clip_norm is None:
        return ["Clip every contribution to a fixed, public norm: without one no amount of noise proves a finite ε."] if noisy else []
    if setup.share_clipped != 0:
        return []
    median = setup.norm_before_clip_median
    lower = ("" if median is None or not 0 < median < setup.clip_norm else
             f" A clip near {number(median)}, the median norm, would need only {percent(median / setup.clip_norm)} of the noise for the same proof (not re-attacked).")
    return [f"The clip of {number(setup.clip_norm)} changed nothing: no contribution was longer, so what was shared is as sharp as without it.{lower}"]


def _manner(results: Results) -> list[str]:
    """If only the attack over all rounds succeeds, the repetition is what leaks."""
    beaten = {"one-round": False, "all-rounds": False}
    tried = dict(beaten)
    for attack in results.attacks:
        if attack.manner in beaten and checks(attack):
            tried[attack.manner] = True
            beaten[attack.manner] |= any(check.excludes for check in checks(attack))
    if all(tried.values()) and beaten["all-rounds"] and not beaten["one-round"]:
        return ["No single round leaked, all rounds of one client together did: fewer rounds for each client would help (not re-attacked)."]
    return []


def _proof(results: Results) -> list[str]:
    """Where claim and proof differ, what would make the claim true; where the proof is too weak to be of use, the noise it would take."""
    found = []
    for row in results.epsilon:
        claim = row.claimed if row.claimed is not None and math.isfinite(row.claimed) else None
        if row.proven is None or (claim is None and row.proven <= USEFUL_EPSILON) or (claim is not None and row.proven <= claim * 1.001):
            continue
        target = claim if claim is not None else USEFUL_EPSILON
        what = f"the claimed ε = {number(target)}" if claim is not None else f"ε = {number(target)}"
        where = f"per {row.unit} ({row.adjacency}) towards {observer(row.observer)}"
        if math.isinf(row.proven):
            found.append(f"For any finite ε {where}, {listed(_missing(results))}.")
            continue
        noise = noise_for(results.setup.noise_std, row, target)
        if noise is not None:
            found.append(f"Calibrate the noise to the norm that the clip guarantees for {'a whole contribution' if row.unit == 'client' else 'one record'}: "
                         f"to prove {what} {where} over as many rounds takes noise_std {number(noise)} instead of {number(results.setup.noise_std)} (computed, not re-attacked).")
        else:
            found.append(f"ε = {number(row.proven)} is proven {where}, {number(row.proven / target, 2)} times {what}: "
                         "`audit epsilon --target-epsilon` gives the noise it takes (not re-attacked).")
    return found


def _missing(results: Results) -> list[str]:
    setup = results.setup
    absent = []
    if setup.clip_norm is None:
        absent.append("clip every contribution to a fixed, public norm")
    if setup.noise_std == 0:
        absent.append("add noise before anything leaves the client")
    return absent or ["make clip norm and noise scale public constants, and let no step use private data without noise (the notes of the table say which does)"]


def noise_for(noise_std: float | None, row: Epsilon, target: float) -> float | None:
    """The noise_std at which `row.proven` would be `target`, or None unless it is an exact price of unsampled Gaussian noise.

    Releases of unsampled Gaussian noise compose to one with μ² = Σ (sensitivity / noise_std)², so μ goes with 1 / noise_std and
    δ(ε, μ) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) gives both μ (Dong, Roth, Su, arXiv:1905.02383, Cor. 2.13). At δ = 1e-5, μ = 1 has
    ε = 4.38 and μ = √15 has 23.35:

    >>> row = Epsilon(observer="server", unit="client", adjacency="zero_out", delta=1e-5, proven=23.35, accountant="gaussian closed form")
    >>> round(noise_for(1.0, row, target=4.38), 2)
    3.87
    """
    exact = row.accountant is not None and "closed form" in row.accountant.lower()
    if not exact or not noise_std or not row.delta or not 0 < row.delta < 1 or not row.proven or math.isinf(row.proven) or target <= 0:
        return None
    return noise_std * _mu(row.proven, row.delta) / _mu(target, row.delta)


def _mu(epsilon: float, delta: float) -> float:
    """The μ at which Gaussian noise has exactly (ε, δ)."""
    def excess(mu: float) -> float:
        first, second = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
        return math.exp(first) * -math.expm1(min(second - first, 0.0)) - delta

    high = 1.0
    while excess(high) < 0:
        high *= 2
    low = high / 2
    while excess(low) > 0:
        low /= 2
    return float(brentq(excess, low, high, rtol=1e-12))
