"""How much an observer can learn at least: explicit data sets and clients, priced by `losses`.

Every game is a lower bound on what must be proven: it says what each client sends in two neighbouring worlds, forgets
whatever it does not know how to price, and computes the privacy loss of the rest. Nothing here comes from
`audit.proven`. The games:

- "straight": the subject sends as much as it can in one direction, all others nothing. All messages that the observer
  sees are then one Gaussian (a message is a linear function of all noises), Laplace uploads a product;
- "turned": another client, whose upload is caught, answers to what it sees of the subject in the broadcast;
- "cohort": nobody knows who was drawn, and the others hold the mean back;
- "batches": the records of local DP-SGD, drawn by Poisson sampling;
- "dealt": the same in batches that everybody knows;
- "whole steps": a whole number of steps behind discrete noise, modulo so many of them;
- "answers": numbers that are answered with one of two values;
- "bent": noise that a clip bent, on one axis;
- "in the clear": something is sent without noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, comb, floor, inf, sqrt, tanh

import numpy as np
from dpfl_audit.defenses.aggregate import Mean
from dpfl_audit.defenses.participation import Uniform
from dpfl_audit.defenses.steps.clip import Clip
from dpfl_audit.defenses.steps.discrete import PerturbDiscrete, RoundToSteps, rounded_norm
from dpfl_audit.defenses.steps.momentum import Momentum
from dpfl_audit.defenses.steps.perturb import Perturb
from dpfl_audit.defenses.steps.respond import ClipRange, Respond
from dpfl_audit.defenses.terms import Adjacency, Observer, Unit
from dpfl_audit.defenses.update import Add, Replace
from scipy.special import ndtr

from .compositions import Composition
from .federation import Number, Sent, Traffic, centred, distance, drawn, own_rounds, sent, swings, traffic, weights
from .losses import Mixture, Pair, View, counted, epsilon, joined, sampled, shifted, turned_around

MERGED = ("downlink", "model", "aggregate")
MOST_SUMMED = 40  # Laplace noises: the closed form of their sum has as many terms, squared


@dataclass(frozen=True, order=True)
class Truth:
    """ε of the best game, its name, and whom it is about."""

    epsilon: float = 0.0
    game: str = "none"
    subject: int = 0


def truth(c: Composition, observer: Observer, unit: Unit, adjacency: Adjacency) -> Truth:
    """The most that any game shows of any client."""
    best = Truth()
    seen: set[tuple[str, View]] = set()
    for subject in range(c.clients):
        for game, view in _games(c, observer, unit, adjacency, subject):
            if (game, view) not in seen:
                seen.add((game, view))
                best = max(best, Truth(epsilon(view, c.delta), game, subject), key=lambda t: t.epsilon)
    return best


def _games(
    c: Composition, observer: Observer, unit: Unit, adjacency: Adjacency, subject: int
) -> Iterator[tuple[str, View]]:
    merged = observer.name in MERGED
    if not own_rounds(c, subject) and not (merged and _secret(c)):
        return
    if c.scheme.local.per_example is not None and c.scheme.local.per_example.batches == "disjoint":
        yield from _dealt(c, observer, unit, adjacency, subject)
        return
    if any(isinstance(step, PerturbDiscrete) for step in c.scheme.client):
        for swing in swings(c, subject, unit, adjacency):
            yield from _whole_steps(c, observer, subject, swing)
        return
    if any(isinstance(step, Respond) for step in c.scheme.client):
        yield from _answers(c, observer, unit, adjacency, subject)
        return
    if c.scheme.local.per_example is not None:
        yield from _batches(c, observer, unit, adjacency, subject)
        return
    if merged and _secret(c):
        yield from _cohorts(c, observer, unit, adjacency)
        return
    for swing in swings(c, subject, unit, adjacency):
        if not swing:
            continue
        if not merged and any(_in_the_clear(c, subject, t) for t in swing):
            yield "in the clear", View(inf)
        for axes in sorted({1, len(c.tensors), c.dim}):
            out = traffic(c, subject, swing, axes)
            for seen in _views(c, observer, subject, out):
                yield "straight", View(distance(seen, axes))
            yield from _laplace(c, observer, subject, swing, axes)
        if observer.catches is not None:
            yield from _turned(c, subject, swing, unit, adjacency)
        if not merged and c.dim == 1 and all(sent(c, subject, t).curved for t in swing):
            yield from _bent(c, observer, subject, swing)


def _in_the_clear(c: Composition, client: int, round: int) -> bool:
    what = sent(c, client, round)
    return what.tells_norm or not (what.noisy or what.curved)


# --- straight


def _views(c: Composition, observer: Observer, subject: int, out: Traffic) -> Iterator[list[Number]]:
    """What the observer sees; several where it may choose."""
    uploads = list(out.uploads.values())
    match observer.name:
        case "server":
            yield uploads + out.broadcasts
        case "aggregate":
            yield out.sums + out.broadcasts
        case "downlink":
            yield out.broadcasts
        case "model":
            yield out.broadcasts[-1:]
        case "uplink" if observer.catches is None:
            yield uploads
        case "uplink":
            limit = observer.catches or 0
            for client in range(c.clients):
                own = [out.uploads[t, client] for t in own_rounds(c, client)]
                best = sorted(own, key=lambda n: n.moved / n.std if n.std else inf * bool(n.moved), reverse=True)
                yield from (own[:limit], own[-limit:], best[:limit])
        case _:
            raise ValueError(
                f"the oracle does not know the observer {observer}; say in adversary/oracle.py what it sees"
            )


def _laplace(
    c: Composition, observer: Observer, subject: int, swing: dict[int, float], axes: int
) -> Iterator[tuple[str, View]]:
    whats = {t: sent(c, subject, t) for t in swing}
    if observer.name not in MERGED:
        if not all(what.laplace > 0 and not what.curved for what in whats.values()):
            return
        far = sorted((swing[t] * what.reach.get(axes, 0.0) / what.laplace for t, what in whats.items()), reverse=True)
        if observer.catches is not None:
            hidden = centred(c) or any(what.momentum for what in whats.values())
            first = min(swing)
            if hidden:  # only the first upload of a run stands alone
                far = [swing[first] * whats[first].reach.get(axes, 0.0) / whats[first].laplace] if first == 0 else []
            far = far[: observer.catches]
        elif centred(c) and c.scheme.server:
            return
        yield "straight", View(pairs=_each("laplace", far, axes))
        return
    if c.scheme.gather or any(isinstance(step, Clip) for step in c.scheme.server):
        return
    yield from _laplace_sums(c, observer, subject, swing, axes)


def _laplace_sums(
    c: Composition, observer: Observer, subject: int, swing: dict[int, float], axes: int
) -> Iterator[tuple[str, View]]:
    """A mean of uploads with equal Laplace noises, or Laplace noise on a mean without any."""
    hub = [step for step in c.scheme.server if isinstance(step, Perturb)]
    filtered = any(isinstance(step, Momentum) for step in (*c.scheme.server, *c.scheme.client))
    rounds: list[tuple[float, float, int]] = []  # distance, scale, how many noises
    for t in range(len(c.plans)):
        share, whats = weights(c, t), {m: sent(c, m, t) for m in c.members[t]}
        moved = swing.get(t, 0.0) * share.get(subject, 0.0)
        moved *= whats[subject].reach.get(axes, 0.0) if moved else 0.0
        scales = {round(share[m] * what.laplace, 12) for m, what in whats.items()}
        if any(what.curved or what.gaussian for what in whats.values()):
            return
        if hub and scales == {0.0} and len(hub) == 1 and hub[0].mechanism == "laplace":
            norm, records = whats[c.members[t][0]].clip_norm, sum(c.records[m] for m in share)
            rounds.append((moved, drawn(hub[0], norm, records, len(share)) * c.plans[t].noise / sqrt(2), 1))
        elif not hub and len(scales) == 1 and (scale := scales.pop()) > 0:
            rounds.append((moved, scale, len(share)))
        else:
            return
    if observer.name == "aggregate" and hub:
        yield "in the clear", View(inf)
    elif observer.name != "model":
        if not any(isinstance(step, Momentum) for step in c.scheme.client):
            parts = [(shifted("laplace", moved / scale, n), axes) for moved, scale, n in rounds if moved]
            yield "straight", View(pairs=_grouped(parts))
    elif isinstance(c.scheme.update, Replace) and not centred(c) and not filtered:
        moved, scale, n = rounds[-1]
        if moved:
            yield "straight", View(pairs=((shifted("laplace", moved / scale, n), axes),))
    elif not filtered and not centred(c) and len({scale for _, scale, _ in rounds}) == 1:
        moved, total = sum(moved for moved, _, _ in rounds), sum(n for _, _, n in rounds)
        if moved and total <= MOST_SUMMED:
            yield "straight", View(pairs=((shifted("laplace", moved / rounds[0][1], total), axes),))


def _each(noise: str, ratios: list[float], axes: int) -> tuple[tuple[Pair, int], ...]:
    return _grouped([(shifted(noise, ratio), axes) for ratio in ratios if ratio])


def _grouped(parts: list[tuple[Pair, int]]) -> tuple[tuple[Pair, int], ...]:
    counts: dict[Pair, int] = {}
    for pair, times in parts:
        counts[pair] = counts.get(pair, 0) + times
    return tuple(sorted(counts.items()))


# --- turned around


def _turned(
    c: Composition, subject: int, swing: dict[int, float], unit: Unit, adjacency: Adjacency
) -> Iterator[tuple[str, View]]:
    """One caught upload of somebody who answers, on another axis, to what the broadcast tells of the subject."""
    if c.dim < 2:
        return
    out = traffic(c, subject, swing, 1)
    for client in range(c.clients):
        for t in own_rounds(c, client)[-1:]:
            what, model, upload = sent(c, client, t), out.broadcasts[t], out.uploads[t, client]
            answers = client != subject or (unit == "record" and t not in swing and c.records[client] > 1)
            if not answers or not model.known or not model.moved or not upload.known or what.laplace or not what.noisy:
                continue
            told = inf if model.std == 0 else abs(model.moved) / model.std
            apart = 2 * what.reach.get(1, 0.0) * (1 - what.momentum) / upload.std
            for bias in (-2.0, -1.0, 0.0, 1.0, 2.0) if told < inf else (0.0,):
                chance, otherwise = float(ndtr(told / 2 + bias)), float(ndtr(bias - told / 2))
                yield "turned", View(pairs=((turned_around(chance, otherwise, apart), 1),))


# --- a cohort nobody knows


def _secret(c: Composition) -> bool:
    """Whether who takes part is drawn, and noise is added to what they come to, so that single runs are not told apart
    by their cohorts.
    """
    some = c.scheme.participation
    hub = any(isinstance(step, Perturb) for step in c.scheme.server)
    return isinstance(some, Uniform) and some.size < c.clients and hub


def _cohorts(c: Composition, observer: Observer, unit: Unit, adjacency: Adjacency) -> Iterator[tuple[str, View]]:
    """Everybody sends the same number v·reach and the subject x·reach or x'·reach."""
    assert isinstance(c.scheme.participation, Uniform)
    if not _alike(c):
        return
    m, rounds = c.scheme.participation.size, len(c.plans)
    rate = m / c.clients
    whats = [sent(c, 0, t) for t in range(rounds)]
    raw = not any(what.noisy or what.curved for what in whats)
    if observer.name == "aggregate" and raw:
        if 1 - (1 - rate) ** rounds > c.delta:
            yield "in the clear", View(inf)
        return
    scales = [_hub_noise(c, t, whats[t], with_hub=observer.name != "aggregate") for t in range(rounds)]
    if any(scale is None for scale in scales):
        return
    for axes in sorted({1, len(c.tensors), c.dim}):
        for first, second, held in _stances(c, unit, adjacency):
            parts = []
            for t, what in enumerate(whats):
                noise, size = scales[t] or ("", 0.0)
                if noise == "laplace" and axes > 1:
                    continue
                x, y = (_moved(c, what, axes, m, to, held) * sqrt(axes) / size for to in (first, second))
                if x or y:
                    parts.append((sampled(noise, rate, x, y), 1))
            if observer.name != "model":
                yield "cohort", View(pairs=_grouped(parts))
            elif rounds > 1 and any(isinstance(step, Momentum) for step in c.scheme.server):
                continue
            elif isinstance(c.scheme.update, Replace) or rounds == 1:
                yield "cohort", View(pairs=_grouped(parts[-1:]))
            elif len(set(parts)) == 1 and len(parts) == rounds and parts[0][0].noise == "gaussian":
                (_, x), (_, y) = parts[0][0].p[1], parts[0][0].q[1]
                total = counted(rounds, rate, x / sqrt(rounds), y / sqrt(rounds))
                yield "cohort", View(pairs=((total, 1),))


def _alike(c: Composition) -> bool:
    """Whether every cohort's mean has the same weights and noise, and only linear steps follow."""
    equal = len(set(c.records)) == 1
    uniform = isinstance(c.scheme.aggregate, Mean) and not c.scheme.aggregate.weighted
    known = {_facts(sent(c, client, 0)) for client in range(c.clients)}
    return (equal or (uniform and len(known) == 1)) and not any(isinstance(s, Momentum) for s in c.scheme.client)


def _facts(what: Sent) -> tuple[object, ...]:
    return (tuple(sorted(what.reach.items())), what.gaussian, what.laplace, what.clip_norm, what.curved)


def _stances(c: Composition, unit: Unit, adjacency: Adjacency) -> list[tuple[float, float, float]]:
    """(x, x', v): the subject's value in the two worlds and everybody else's, in units of the reach."""
    lone = unit == "record" and min(c.records) == 1
    if adjacency == "zero_out" and (unit == "client" or lone):
        return [(1.0, 0.0, v) for v in (-1.0, 0.0, 1.0)]
    return [(1.0, -1.0, v) for v in (-1.0, 0.0)]


def _moved(c: Composition, what: Sent, axes: int, senders: int, to: float, held: float) -> float:
    """How far the mean is from where it would be without the subject in it."""
    reach = what.reach.get(axes, 0.0)
    for gather in c.scheme.gather:
        reach = min(reach, gather.norm / sqrt(axes))  # type: ignore[attr-defined]
    limit = inf
    for step in c.scheme.server:
        if isinstance(step, Clip):
            limit = step.norm / sqrt(axes)
            if step.per_layer:
                limit = step.norm / (sqrt(max(c.tensors)) if axes > len(c.tensors) else 1.0)
    if reach == inf:  # the others' mean, then, is as far out as the clip allows, and one outweighs them all
        others = held * limit
        with_subject = to * limit if to or senders == 1 else others
        return with_subject - others
    with_subject = (reach * (held * (senders - 1) + to)) / senders
    return float(np.clip(with_subject, -limit, limit) - np.clip(held * reach, -limit, limit))


def _hub_noise(c: Composition, round: int, what: Sent, with_hub: bool) -> tuple[str, float] | None:
    """The noise on the mean of a round: its kind, and its std or scale. None where that is not one of the two."""
    assert isinstance(c.scheme.participation, Uniform)
    m = c.scheme.participation.size
    if what.curved or what.laplace or (what.noisy and c.scheme.gather):
        return None
    steps = list(c.scheme.server)
    if what.noisy and any(isinstance(step, Clip) for step in steps):
        return None
    clip_norm = what.clip_norm
    for gather in c.scheme.gather:
        clip_norm = gather.norm  # type: ignore[attr-defined]
    stds, kinds = [what.gaussian / sqrt(m)] if what.gaussian else [], {"gaussian"} if what.gaussian else set()
    for step in steps if with_hub else []:
        if isinstance(step, Clip):
            clip_norm = step.norm
        if isinstance(step, Perturb):
            stds.append(drawn(step, clip_norm, m * c.records[0], m) * c.plans[round].noise)
            kinds.add(step.mechanism)
    if kinds == {"laplace"} and len(stds) == 1:
        return "laplace", stds[0] / sqrt(2)
    return ("gaussian", joined(stds)) if kinds == {"gaussian"} else None


# --- batches drawn by Poisson sampling


def _batches(
    c: Composition, observer: Observer, unit: Unit, adjacency: Adjacency, subject: int
) -> Iterator[tuple[str, View]]:
    """The subject's records all have the same clipped gradient: how many of them were drawn, behind the noise."""
    training = c.scheme.local
    assert training.per_example is not None
    sigma = training.per_example.noise_multiplier

    def steps(client: int) -> int:
        return ceil(c.records[client] / min(training.batch_size, c.records[client])) * (training.epochs or 1)

    n, rounds = c.records[subject], own_rounds(c, subject)
    rate, k = min(1.0, training.batch_size / n), steps(subject)
    factor = {t: c.plans[t].noise for t in rounds}
    drawn_at_most = k * (n if unit == "client" else 1)
    opposite = 0.0 if adjacency == "zero_out" else -1.0
    if observer.name not in MERGED:
        unseen_start = c.scheme.share == "weights" and (
            observer.catches is not None or (observer.name == "uplink" and bool(c.scheme.server))
        )
        # where the model sent out is not seen, only the first upload stands alone
        seen = [t for t in rounds if t == 0] if unseen_start else sorted(rounds, key=lambda t: factor[t])
        ones = [1 / (sigma * factor[t] * sqrt(k)) for t in seen[: observer.catches]]
        if ones:
            parts = [(counted(drawn_at_most, rate, one, opposite * one), 1) for one in ones]
            yield "batches", View(pairs=_grouped(parts))
        return
    parts = []
    for t in rounds:
        share = weights(c, t)
        one = share[subject] / (sigma * factor[t] * sqrt(sum(p * p * steps(m) for m, p in share.items())))
        parts.append((counted(drawn_at_most, rate, one, opposite * one), 1))
    if observer.name != "model" or len(c.plans) == 1:
        yield "batches", View(pairs=_grouped(parts))


def _dealt(
    c: Composition, observer: Observer, unit: Unit, adjacency: Adjacency, subject: int
) -> Iterator[tuple[str, View]]:
    """All of the subject's gradients in one direction, of each tensor as long as its clip lets them be."""
    training = c.scheme.local
    rule = training.per_example
    assert rule is not None

    def steps(client: int) -> int:
        return ceil(c.records[client] / min(training.batch_size, c.records[client])) * (training.epochs or 1)

    times = (training.epochs or 1) * (c.records[subject] if unit == "client" else 1)
    moved = times * (1 if adjacency == "zero_out" else 2) * sqrt(len(c.tensors) if rule.per_layer else 1)
    rounds = own_rounds(c, subject)
    if observer.name not in MERGED:
        unseen_start = c.scheme.share == "weights" and (
            observer.catches is not None or (observer.name == "uplink" and bool(c.scheme.server))
        )
        far = {t: moved / (rule.noise_multiplier * c.plans[t].noise * sqrt(steps(subject))) for t in rounds}
        seen = [far[t] for t in far if t == 0] if unseen_start else sorted(far.values(), reverse=True)
        if seen:
            yield "dealt", View(joined(seen[: observer.catches]))
        return
    if observer.name == "model" and len(c.plans) > 1:
        return
    distances = []
    for t in rounds:
        share = weights(c, t)
        noise = rule.noise_multiplier * c.plans[t].noise * sqrt(sum(p * p * steps(m) for m, p in share.items()))
        distances.append(moved * share[subject] / noise)
    yield "dealt", View(joined(distances))


# --- whole numbers of steps, modulo so many

SURELY = 12  # standard deviations that no noise comes to


def _whole_steps(
    c: Composition, observer: Observer, subject: int, swing: dict[int, float]
) -> Iterator[tuple[str, View]]:
    """The subject's value rounded to whole steps, or 0 or its opposite in the other world; the others' are 0."""
    clip, rounded, noise = c.scheme.client
    assert isinstance(clip, Clip) and isinstance(rounded, RoundToSteps) and isinstance(noise, PerturbDiscrete)
    for axes in sorted({1, len(c.tensors), c.dim}):
        here = _rounded(
            sent(c, subject, 0).reach[axes] / rounded.step,
            rounded_norm(clip.norm / rounded.step, c.dim, rounded.beta),
            axes,
        )
        rounds = []
        for t in sorted(swing):
            other = here if swing[t] > 1 else ((1.0, 0.0),)
            other = tuple((chance, -steps) for chance, steps in other)
            sigma = noise.noise_std * c.plans[t].noise / rounded.step
            rounds.append(Pair("discrete", here, other, len(c.members[t]), sigma, noise.modulus))
        if observer.name not in MERGED:
            ones = sorted((replace(pair, summed=1) for pair in rounds), key=lambda pair: pair.sigma)
            if ones:
                yield "whole steps", View(pairs=_grouped([(pair, axes) for pair in ones[: observer.catches]]))
        elif observer.name != "model":
            yield "whole steps", View(pairs=_grouped([(pair, axes) for pair in rounds]))
        elif (last := _last_model(c, rounds)) is not None:
            yield "whole steps", View(pairs=((last, axes),))


def _rounded(size: float, limit: float, axes: int) -> Mixture:
    """On each of so many axes: up or down by chance where even all upwards are within the limit, down else."""
    low = floor(size + 1e-12)
    up = max(0.0, size - low)
    if up == 0 or (low + 1) * sqrt(axes) > limit * (1 - 1e-9):
        return ((1.0, float(low)),)
    return ((1 - up, float(low)), (up, float(low + 1)))


def _last_model(c: Composition, rounds: list[Pair]) -> Pair | None:
    """The sum of all rounds' sums; None where one can go round, has another noise, or the model is no sum of means.

    Only where every round has as many senders, and the value is the same in any run.
    """
    noises = {(pair.summed, pair.sigma) for pair in rounds}
    senders = {len(members) for members in c.members}
    equal = len(noises) == len(senders) == 1 and len({plan.noise for plan in c.plans}) == 1
    if not equal or not isinstance(c.scheme.update, Add) or c.scheme.server:
        return None
    one = rounds[0]
    steps = max(abs(mean) for _, mean in (*one.p, *one.q))
    if 2 * (steps + SURELY * one.sigma * sqrt(one.summed)) >= one.modulus or len(one.p) > 1:
        return None
    (_, here), (_, other) = one.p[0], one.q[0]
    together = len(rounds)
    if one.summed * len(c.plans) > MOST_SUMMED:
        return None
    first, second = ((1.0, together * mean) for mean in (here, other))
    return Pair("discrete", (first,), (second,), one.summed * len(c.plans), one.sigma)


# --- one of two values

FAR = 60.0  # standard deviations between two values: nothing overlaps


def _answers(
    c: Composition, observer: Observer, unit: Unit, adjacency: Adjacency, subject: int
) -> Iterator[tuple[str, View]]:
    """All of the subject's weights at one end of the range, or at the other, or 0 where it is left out; the others' in
    the middle. A mean tells how many have the upper value.
    """
    within, answer = c.scheme.client[-2:]
    assert isinstance(within, ClipRange) and isinstance(answer, Respond)
    spread = tanh(answer.epsilon / 2) / 2
    half = float(np.clip(-within.centre / within.radius, -1, 1))
    alone = adjacency == "zero_out" and (unit == "client" or c.records[subject] == 1)
    rounds = own_rounds(c, subject)
    for end in (1, -1):
        first, second = (0.5 + spread * place for place in (end, half if alone else -end))
        if observer.name not in MERGED:
            count = min(len(rounds), observer.catches or len(rounds))
            yield "answers", View(pairs=((_upper(first, second, 0), c.dim * count),))
            continue
        seen = [t for t in rounds if observer.name != "model" or t == len(c.plans) - 1]
        parts = [(_upper(first, second, len(c.members[t]) - 1), c.dim) for t in seen]
        if parts:
            yield "answers", View(pairs=_grouped(parts))


def _upper(first: float, second: float, others: int) -> Pair:
    """How many numbers have the upper value: one with a chance that differs by world, the others with even chances."""
    ways = [comb(others, j) / 2**others for j in range(others + 1)]

    def mixture(chance: float) -> tuple[tuple[float, float], ...]:
        own = [(1 - chance) * way for way in (*ways, 0.0)]
        total = [a + chance * b for a, b in zip(own, (0.0, *ways))]
        return tuple((way, FAR * j) for j, way in enumerate(total))

    return Pair("gaussian", mixture(first), mixture(second))


# --- bent noise


def _bent(c: Composition, observer: Observer, subject: int, swing: dict[int, float]) -> Iterator[tuple[str, View]]:
    """One number: clip, noise, clip, noise. The clipped noise is a mixture, integrated piece by piece."""
    kinds = [type(step) for step in c.scheme.client]
    if kinds != [Clip, Perturb, Clip, Perturb]:
        return
    first, early, second, late = c.scheme.client
    assert isinstance(first, Clip) and isinstance(second, Clip)
    assert isinstance(early, Perturb) and isinstance(late, Perturb)
    pairs = []
    for t in sorted(swing):
        factor = c.plans[t].noise
        before = drawn(early, first.norm, c.records[subject], 1) * factor
        after = drawn(late, second.norm, c.records[subject], 1) * factor
        ends = (first.norm, first.norm * (1 - swing[t]))
        p, q = (_clipped(mean, before, second.norm, after) for mean in ends)
        pairs.append((Pair("gaussian", p, q), 1))
    yield "bent", View(pairs=_grouped(pairs[: observer.catches]))


NODES, WEIGHTS = np.polynomial.legendre.leggauss(40)


def _clipped(mean: float, std: float, limit: float, unit: float) -> tuple[tuple[float, float], ...]:
    """N(mean, std²) clipped to ± limit, as a mixture of points in multiples of `unit`."""
    low, high = float(ndtr((-limit - mean) / std)), float(ndtr((mean - limit) / std))
    at = limit * NODES
    inner = WEIGHTS * limit * np.exp(-(((at - mean) / std) ** 2) / 2) / (std * sqrt(2 * np.pi))
    points = [(low, -limit / unit), *zip(inner.tolist(), (at / unit).tolist()), (high, limit / unit)]
    return tuple((weight, place) for weight, place in points if weight > 0)
