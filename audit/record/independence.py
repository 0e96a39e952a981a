"""Whether noise has nothing to do with other noise: of another message, of all of them together, or of its own message.

Correlated noise may have the right law in every message, and vanish in their sum. Three things are looked at: each pair
of messages, all weighed sums of messages at once, and each message beside itself, moved on by any number of places.
Each says "contradicted" by chance less than once in a million recordings.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri
from scipy.stats import binomtest

from .noise_tests import ENOUGH, FAR, HEAVY, LAWS, RARE, Alike, LeftOver, Repeat, Tested

MOST_PAIRED = 1024  # messages whose noises are compared with each other
MOST_SIGNS = 2**18  # numbers of a message that are compared with those further on
LEAST_PAIRS = 64  # signs that are compared at least


def independent(residuals: Sequence[LeftOver]) -> Tested:
    """Whether the noises of several messages have nothing to do with each other: correlations between all pairs, beyond
    what values of norm `LeftOver.beside` explain, and, where there are no values, the variance of every weighed sum.

    >>> noise = np.random.default_rng(0).standard_normal((2, 4000))
    >>> one, other = (LeftOver(row, name) for row, name in zip(noise, ("one", "other")))
    >>> independent([one, other]).status, independent([one, LeftOver(one.values, "again")]).status
    ('checked', 'contradicted')
    """
    within, short = _tensors_alike(residuals)
    if wrong := within or _repeated([r for r in residuals if r.exact]):
        return Tested("contradicted", wrong)
    if len(residuals) < 2:
        return Tested("declared", "the noise of two messages is needed, from raw values or second runs")
    pick = np.unique(np.linspace(0, len(residuals) - 1, min(len(residuals), MOST_PAIRED)).astype(int))
    some = [residuals[i] for i in pick]
    sessions = np.array([r.session for r in some])
    wrong, enough = _pairs_alike(some, sessions)
    if wrong:
        return Tested("contradicted", wrong)
    pairs = int((sessions[:, None] == sessions[None, :]).sum() - len(some)) // 2
    if not pairs:
        return Tested("declared", "no two messages of one session show their noise")
    if not enough:
        return Tested("declared", f"two messages must show the noise of {ENOUGH['gaussian']} numbers in common")
    found, hidden = f"the noises of {len(some)} messages do not correlate ({pairs} pairs)", ""
    for session in dict.fromkeys(sessions.tolist()):
        own = [r for r in some if r.session == session and not r.beside]
        wrong, left = _together(own) if len(own) > 1 else ("", "")
        if wrong and all(r.exact for r in own):
            return Tested("contradicted", wrong)
        hidden = hidden or wrong or left
    if wrong := _repeated([r for r in residuals if not r.exact]):
        hidden = hidden or wrong
    if len(some) < len(residuals):
        return Tested("declared", f"{found}; those of {len(residuals) - len(some)} others were not compared")
    if len(set(sessions.tolist())) > 1:
        return Tested("declared", f"{found}; those of before a restart cannot be compared with those after it")
    if short:
        return Tested("declared", f"{found}; the tensor {short!r} is too short to compare it with another of a message")
    if hidden:
        return Tested("declared", f"{found}; {hidden}")
    return Tested("checked", f"{found[:-1]}, and sums of them)")


def _pairs_alike(some: Sequence[LeftOver], sessions: NDArray[np.str_]) -> tuple[str, bool]:
    """Which two messages of a session correlate, "" for none; and whether they share numbers enough to tell."""
    values = np.stack([r.values for r in some])
    seen = np.isfinite(values)
    values = np.where(seen, values, 0.0)
    shared = seen.astype(float) @ seen.T.astype(float)
    held = np.array([r.beside for r in some])
    explained = held[:, None] * held + HEAVY * (FAR + 1) * (held[:, None] + held)  # what values add to the products
    norms = np.sqrt(np.square(values) @ seen.T.astype(float))  # (i, j): of i, where j is known too
    with np.errstate(invalid="ignore", divide="ignore"):
        products = values @ values.T
        correlation = np.sign(products) * np.maximum(0.0, np.abs(products) - explained) / (norms * norms.T)
    correlation = np.nan_to_num(correlation)
    np.fill_diagonal(correlation, 0.0)
    far = np.abs(correlation) * np.sqrt(np.maximum(shared, 1))
    far[shared < 20] = 0.0
    far[sessions[:, None] != sessions[None, :]] = 0.0
    i, j = (int(at) for at in np.unravel_index(int(np.argmax(far)), far.shape))
    if far[i, j] > FAR + 1:
        if correlation[i, j] > 0.999:
            what = "is the same"
        else:
            what = f"correlates by {correlation[i, j]:.2g}"
        return f"the noise of {some[i].name} and of {some[j].name} {what}", True
    return "", float(np.median(shared)) >= ENOUGH["gaussian"]


def _together(own: Sequence[LeftOver]) -> tuple[str, str]:
    """Whether some weighed sum of the messages has another variance than independent noises give, as noises do that
    cancel each other, or have a part in common; and why that cannot be told.

    Of an (m, n) matrix of standard normal numbers all singular values are within √m ± (√n + t), but with chance
    2·exp(−t²/2) (Davidson and Szarek 2001, Theorem 2.13). Numbers of other laws are made normal ones first.
    """
    values = np.stack([r.values for r in own])
    values = values[:, np.isfinite(values).all(axis=0)]
    n, m = values.shape
    t, of_one = sqrt(2 * log(4 / RARE)), sqrt(2 * log(4 * n / RARE))  # the second of a message's own length
    slack = 1.0
    if m:
        slack = (sqrt(n) + t) / sqrt(m)
    if slack >= 1 or of_one >= sqrt(m):
        return "", f"{m} numbers in each of {n} messages are too few to see noises that cancel each other"
    normal = np.stack([row if r.law == "gaussian" else _normal(row, r.law) for r, row in zip(own, values)])
    lengths = np.linalg.norm(normal, axis=1, keepdims=True)
    if not lengths.all():
        return "", "a message has no noise at all"
    normal /= lengths
    variances = np.linalg.eigvalsh(normal @ normal.T)  # of the sums that are furthest off, over those expected
    least, most = ((1 - slack) / (1 + of_one / sqrt(m))) ** 2, ((1 + slack) / (1 - of_one / sqrt(m))) ** 2
    for found, what in ((variances[0], "cancel each other"), (variances[-1], "have a part in common")):
        if not least <= found <= most:
            return (
                f"the noises of {n} messages {what}: a sum of them has {max(0.0, float(found)):.2g} times the variance"
                " of independent ones",
                "",
            )
    return "", ""


def _normal(row: NDArray[np.float64], law: str) -> NDArray[np.float64]:
    return np.asarray(np.sign(row) * -ndtri(np.maximum(LAWS[law](-np.abs(row)), 1e-300)))


def _tensors_alike(residuals: Sequence[LeftOver]) -> tuple[str, str]:
    """What is wrong where two tensors of a message have the same noise, as of a generator that is seeded anew for each;
    and a tensor that is too short to tell, where all of them but the largest are. Signs agree by a coin.
    """
    pairs: dict[tuple[str, str], list[Alike]] = {}
    for r in residuals:
        for pair in r.alike:
            pairs.setdefault((pair.tensor, pair.other), []).append(pair)
    short, long = "", False
    for (one, other), own in pairs.items():
        agreeing, of = sum(p.agreeing for p in own), sum(p.of for p in own)
        if of and float(binomtest(agreeing, of).pvalue) * len(pairs) < RARE:
            return (
                f"the noises of two tensors of a message, {one!r} and {other!r}, agree in {agreeing} signs of {of}",
                "",
            )
        enough = bool(of) and 2.0 ** (1 - of) * len(pairs) < RARE
        short, long = short if enough else short or other, long or enough
    return "", "" if long else short


def strongest_repeat(noise: NDArray[np.float64]) -> Repeat | None:
    """The lag at which the signs of a message's noise agree, or disagree, most; None of too short a message.

    Signs, as those of a part that is repeated agree whatever its size and law, and otherwise by a coin.

    Args:
        noise: (d,), in the message's order; NaN or 0 where it is not known.

    >>> noise = np.random.default_rng(0).standard_normal(1000)
    >>> found = strongest_repeat(np.concatenate([noise, -noise]))
    >>> found.lag, found.agreeing, found.of
    (1000, 0, 1000)
    """
    if len(noise) < 2 * LEAST_PAIRS:
        return None
    signs = np.nan_to_num(np.sign(noise)).astype(np.float32)  # as exact as whole numbers of 2¹⁸ need, at half the time
    known = np.abs(signs)
    alike = _at_every_lag(signs)
    if known.all():
        of = len(noise) - np.arange(len(noise), dtype=float)
    else:
        of = _at_every_lag(known)
    with np.errstate(invalid="ignore", divide="ignore"):
        far = np.where(of >= LEAST_PAIRS, np.square(alike) / of, 0.0)
    far[0] = 0.0
    lag = int(np.argmax(far))
    count = round(float(of[lag]))
    if count:
        return Repeat(lag, (count + round(float(alike[lag]))) // 2, count, len(noise) - 1)
    return None


def _at_every_lag(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Σ of x[i]·x[i + lag] for every lag."""
    size = next_fast_len(2 * len(values), real=True)
    return np.asarray(irfft(np.square(np.abs(rfft(values, size))), size)[: len(values)])


def _repeated(residuals: Sequence[LeftOver]) -> str:
    """Which message repeats its own noise; "" for none. By Hoeffding's bound for coins."""
    rows = [(r.name, r.repeat) for r in residuals if r.repeat is not None]
    for name, found in rows:
        over = 2 * found.agreeing - found.of
        if 2 * exp(-(over**2) / (2 * found.of)) * found.tried * len(rows) < RARE:
            return (
                f"the noise of {name} repeats itself: {found.agreeing} signs of {found.of} are those of {found.lag}"
                " numbers before"
            )
    return ""
