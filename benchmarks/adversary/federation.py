"""What a scheme's steps do, read off their definitions: how far a client can reach, which noise is added, and what
every message then is for clients whose values are public but for one.

Nothing here comes from `audit.proven`, or looks at a release.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, inf, sqrt

import numpy as np
from dpfl_audit.defenses.aggregate import Mean, PopulationMean
from dpfl_audit.defenses.steps.clip import Clip, ClipReceived
from dpfl_audit.defenses.steps.components import ClipComponents, PerturbComponents
from dpfl_audit.defenses.steps.discrete import PerturbDiscrete, RoundToSteps
from dpfl_audit.defenses.steps.momentum import Momentum
from dpfl_audit.defenses.steps.perturb import Perturb, PerturbCorrelated
from dpfl_audit.defenses.steps.side import WithNorm
from dpfl_audit.defenses.steps.sparsify import TopK
from dpfl_audit.defenses.strategies import BLT, BandMF, NoiseStrategy, Tree
from dpfl_audit.defenses.terms import Adjacency, Unit
from dpfl_audit.defenses.update import Add, AddWithMomentum, Optimise, Replace

from .compositions import Composition

Reach = dict[int, float]  # on so many axes at once (one number of one tensor, of each tensor, or all) -> size on each


@dataclass(frozen=True)
class Sent:
    """What a client's steps make of its value in a round.

    Args:
        reach: how large the value can be before noise; infinite where nothing bounds it.
        gaussian: std of the Gaussian noise on each number. laplace: scale of the Laplace noise.
        momentum: β of a momentum after the noise, 0 for none.
        clip_norm: what a hub's multiplier multiplies.
        tells_norm: the value's norm goes along in the clear.
        curved: a step after noise, or a memory before it, is not followed here.
    """

    reach: Reach
    gaussian: float = 0.0
    laplace: float = 0.0
    momentum: float = 0.0
    clip_norm: float = 0.0
    tells_norm: bool = False
    curved: bool = False

    @property
    def noisy(self) -> bool:
        return self.gaussian > 0 or self.laplace > 0


def sent(c: Composition, client: int, at: int) -> Sent:
    """What `client` sends in round `at`, by the definitions of the scheme's client steps."""
    plan, n = c.plans[at], c.records[client]
    reach = dict.fromkeys((1, len(c.tensors), c.dim), inf)
    training, gaussian, laplace, momentum, clip_norm = c.scheme.local, 0.0, 0.0, 0.0, 0.0
    tells = curved = False
    if training.step_clip is not None and c.scheme.share != "gradient":
        moved = training.lr * plan.lr * training.step_clip.norm * local_steps(c, client)
        reach = _within(reach, moved, training.step_clip.order)
    for step in c.scheme.client:
        if isinstance(step, WithNorm):
            tells, step = True, step.step
        noisy = gaussian > 0 or laplace > 0
        if isinstance(step, Clip):
            curved, clip_norm = curved or noisy, step.norm
            reach = _each_tensor_within(c, reach, step) if step.per_layer else _within(reach, step.norm, step.order)
        elif isinstance(step, ClipComponents):
            curved, clip_norm = curved or noisy, step.beta / 2 * (step.threshold or inf)
            reach = {k: min(size, clip_norm) for k, size in reach.items()}
        elif isinstance(step, TopK):
            kept = max(1, round(step.share * c.dim))
            curved = curved or (noisy and kept < c.dim)
            reach = {k: size for k, size in reach.items() if k <= kept}
        elif isinstance(step, Momentum):
            momentum, curved = step.beta, curved or not noisy
        elif isinstance(step, PerturbComponents):
            gaussian = float(np.hypot(gaussian, sqrt(c.dim) * step.sigma * 2 * clip_norm * plan.noise))
        elif isinstance(step, RoundToSteps):
            curved = True  # the game "whole steps" follows it, and the noise after it
        elif isinstance(step, PerturbDiscrete):
            gaussian = float(np.hypot(gaussian, step.noise_std * plan.noise))  # its std, nearly
        elif isinstance(step, Perturb):
            std = drawn(step, clip_norm, n, 1) * plan.noise
            curved = curved or laplace > 0
            if step.mechanism == "laplace":
                curved, laplace = curved or gaussian > 0, std / sqrt(2)
            else:
                gaussian = float(np.hypot(gaussian, std))
        else:
            raise TypeError(f"the oracle does not know {step!r}; say in adversary/federation.py what it does")
    return Sent(reach, gaussian, laplace, momentum, clip_norm, tells, curved)


def local_steps(c: Composition, client: int) -> int:
    training, n = c.scheme.local, c.records[client]
    return ceil(n / min(training.batch_size, n)) * (training.epochs or 1)


def drawn(step: Perturb, clip_norm: float, records: int, senders: int) -> float:
    """The std of a noise step before the round's factor."""
    if step.noise_std is not None:
        return step.noise_std
    std = clip_norm * (step.noise_multiplier or 0.0) * (sqrt(2) if step.mechanism == "laplace" else 1.0)
    return std / {"nothing": 1, "records": records, "senders": senders}[step.divided_by]


def _within(reach: Reach, norm: float, order: int) -> Reach:
    return {k: min(size, norm / (sqrt(k) if order == 2 else k)) for k, size in reach.items()}


def _each_tensor_within(c: Composition, reach: Reach, clip: Clip) -> Reach:
    def of(k: int) -> float:
        per_tensor = max(c.tensors) if k > len(c.tensors) else 1
        return clip.norm / (sqrt(per_tensor) if clip.order == 2 else per_tensor)

    return {k: min(size, of(k)) for k, size in reach.items()}


def centred(c: Composition) -> bool:
    """Whether an upload is the model sent out plus something bounded."""
    bounded = any(isinstance(step, Clip | WithNorm) for step in c.scheme.client)
    return c.scheme.share == "weights" and not bounded and not c.scheme.gather


def weights(c: Composition, round: int) -> dict[int, float]:
    """What the hub multiplies each member's value by."""
    members, aggregate = c.members[round], c.scheme.aggregate
    total = sum(c.records[m] for m in members)
    if isinstance(aggregate, PopulationMean):
        return {m: aggregate.clients / len(members) * c.records[m] / aggregate.records for m in members}
    if isinstance(aggregate, Mean):
        return {m: c.records[m] / total if aggregate.weighted else 1 / len(members) for m in members}
    raise TypeError(f"the oracle does not know {aggregate!r}; say in adversary/federation.py what it does")


def own_rounds(c: Composition, client: int) -> list[int]:
    return [t for t, members in enumerate(c.members) if client in members]


# --- whose data, and how far it moves a value


def swings(c: Composition, client: int, unit: Unit, adjacency: Adjacency) -> list[dict[int, float]]:
    """How far the value can move, in units of its reach, by round; one such map for each record that differs.

    A client that is left out moves its value from `reach` to 0, one that is replaced from −reach to reach. So does a
    record that others in the same vector can be turned around by; one that is alone in it counts as the client.
    """
    alone = 1.0 if adjacency == "zero_out" else 2.0
    rounds = own_rounds(c, client)
    if unit == "client":
        return [dict.fromkeys(rounds, alone)]
    training, n = c.scheme.local, c.records[client]
    if c.scheme.share != "gradient":
        clipped_steps = training.step_clip is not None and training.batch_size < n
        # only its own step of each epoch is sure to move
        size = (2.0 if n > 1 else alone) / (local_steps(c, client) if clipped_steps else 1)
        return [dict.fromkeys(rounds, size)]
    batches = {t: c.batch(client, t) for t in rounds}
    found = []
    for row in c.rows[client].tolist():
        of_record = {}
        for t, batch in batches.items():
            if row in batch:
                of_record[t] = 2.0 if len(batch) > 1 else alone
        if of_record not in found:
            found.append(of_record)
    return found


# --- everything that is sent, as numbers on one axis


@dataclass(frozen=True, eq=False)
class Number:
    """One axis of a message: how far it moves between the worlds, and how much of each Gaussian noise is in it.

    Args:
        moved: infinite where nothing bounds it. noise: (noises,), each of std 1.
        known: whether all of its noise is Gaussian and every step it went through was followed.
    """

    moved: float
    noise: np.ndarray
    known: bool = True

    def plus(self, other: Number, factor: float = 1.0) -> Number:
        moved = self.moved + (factor * other.moved if other.moved else 0.0)
        return Number(moved, self.noise + factor * other.noise, self.known and other.known)

    def times(self, factor: float) -> Number:
        return Number(self.moved * factor if self.moved else 0.0, self.noise * factor, self.known)

    @property
    def std(self) -> float:
        return float(np.linalg.norm(self.noise))


@dataclass(eq=False)
class Traffic:
    """Every message of a run in which `subject` moves as far as it can and nobody else says anything.

    uploads: by round and client. sums: by round, before the hub adds noise. broadcasts: of rounds 0 … R, the model sent
    out before each round and the last one.
    """

    uploads: dict[tuple[int, int], Number] = field(default_factory=dict)
    sums: list[Number] = field(default_factory=list)
    broadcasts: list[Number] = field(default_factory=list)


@dataclass(eq=False)
class _Noises:
    size: int
    used: int = 0

    def one(self, std: float) -> np.ndarray:
        noise = np.zeros(self.size)
        if std > 0:
            noise[self.used] = std
            self.used += 1
        return noise


def noise_of_rounds(strategy: NoiseStrategy) -> np.ndarray:
    """(rounds, noises): how much of each independent noise is in what a round adds. Of a banded or Toeplitz matrix its
    inverse; of trees the prefix sums' least-squares estimates from all noisy nodes below their largest ones, or from
    these alone.
    """
    if isinstance(strategy, BandMF):
        return np.linalg.inv(strategy.matrix)
    if isinstance(strategy, BLT):
        return np.linalg.inv(
            np.array([[0.0] * t + list(strategy.coefficients[: strategy.rounds - t]) for t in range(strategy.rounds)]).T
        )
    if not isinstance(strategy, Tree):
        raise TypeError(f"the oracle does not know {strategy!r}; say in adversary/federation.py what it does")
    place: dict[tuple[int, int], int] = {}
    prefixes, before = list[dict[int, float]](), dict[int, float]()
    for t in range(strategy.rounds):
        first = t // strategy.restart * strategy.restart
        if t == first and prefixes:
            before = prefixes[-1]
        sums, left = dict(before), t + 1 - first
        while left:
            size = 1 << (left.bit_length() - 1)
            for (start, leaves), weight in _node_estimate(size, strategy.honaker).items():
                node = place.setdefault((first + start, leaves), len(place))
                sums[node] = sums.get(node, 0.0) + weight
            first, left = first + size, left - size
        prefixes.append(sums)
    out = np.zeros((strategy.rounds, len(place)))
    for t, sums in enumerate(prefixes):
        out[t, list(sums)] = list(sums.values())
    return np.diff(out, axis=0, prepend=0.0)


def _node_estimate(size: int, honaker: bool) -> dict[tuple[int, int], float]:
    """Weights of the noisy nodes (first leaf, leaves) in the estimate of the sum of so many leaves, a power of 2."""
    if not honaker:
        return {(0, size): 1.0}
    nodes = [(start, 1 << h) for h in range(size.bit_length()) for start in range(0, size, 1 << h)]
    tree = np.array([[start <= leaf < start + leaves for leaf in range(size)] for start, leaves in nodes], dtype=float)
    return dict(zip(nodes, np.linalg.pinv(tree).sum(0).tolist()))


def _chain(c: Composition, noises: _Noises) -> np.ndarray | None:
    """The hub's correlated noise, (rounds, noises), whose noises come first; None where it has none."""
    for step in c.scheme.server:
        if isinstance(step, PerturbCorrelated):
            own = noise_of_rounds(step.correlated.strategy) * step.noise_std
            noises.used = own.shape[1]
            return np.pad(own, ((0, 0), (0, noises.size - own.shape[1])))
    return None


def traffic(c: Composition, subject: int, swing: dict[int, float], axes: int) -> Traffic:
    """The messages on one of `axes` equal axes; `swing` is one of `swings`."""
    rounds = len(c.plans)
    noises = _Noises(rounds * (c.clients + 2 * len(c.scheme.server)) + 1)
    chain = _chain(c, noises)
    zero = Number(0.0, np.zeros(noises.size))
    model, hub, moving, own = zero, zero, zero, dict.fromkeys(range(c.clients), zero)
    out = Traffic()
    for t in range(rounds):
        out.broadcasts.append(model)
        merged, share = zero, weights(c, t)
        for client in c.members[t]:
            what = sent(c, client, t)
            reach = what.reach.get(axes, 0.0)
            moved = swing.get(t, 0.0) * reach if client == subject and swing.get(t) else 0.0
            value = Number(moved, noises.one(what.gaussian), not what.curved and what.laplace == 0)
            value = model.plus(value) if centred(c) else value
            if what.momentum:
                own[client] = own[client].times(what.momentum).plus(value, 1 - what.momentum)
                value = own[client]
            out.uploads[t, client] = value
            heard = _received(c, value, what, swing.get(t, 0.0) if client == subject else 0.0, axes)
            merged = merged.plus(heard, share[client])
        out.sums.append(merged)
        if chain is not None:
            merged = merged.plus(Number(0.0, chain[t]))
        merged, hub = _through_hub(c, t, merged, hub, noises, subject, swing, axes)
        if beta := _heavy_ball(c):
            merged = moving = moving.times(beta).plus(merged)
        model = _updated(c, t, model, merged)
    out.broadcasts.append(model)
    return out


def _received(c: Composition, value: Number, what: Sent, swing: float, axes: int) -> Number:
    """After the hub's clips of what it received."""
    for gather in c.scheme.gather:
        if not isinstance(gather, ClipReceived) or gather.norm is None:
            raise TypeError(f"the oracle does not know {gather!r}; say in adversary/federation.py what it does")
        reach = min(what.reach.get(axes, 0.0), gather.norm / sqrt(axes))
        value = Number(swing * reach, value.noise, value.known and not what.noisy)
    return value


def _through_hub(
    c: Composition,
    round: int,
    merged: Number,
    hub: Number,
    noises: _Noises,
    subject: int,
    swing: dict[int, float],
    axes: int,
) -> tuple[Number, Number]:
    members = c.members[round]
    clip_norm = sent(c, members[0], round).clip_norm
    for gather in c.scheme.gather:
        assert isinstance(gather, ClipReceived)
        clip_norm = gather.norm or clip_norm
    for step in c.scheme.server:
        if isinstance(step, Clip):
            clip_norm, limit = step.norm, step.norm if step.per_layer else step.norm / sqrt(axes)
            if step.per_layer and axes > len(c.tensors):
                limit = step.norm / sqrt(max(c.tensors))
            moved = _turned_by_one(c, round, subject, swing, axes, limit, merged.moved)
            merged = Number(moved, merged.noise, merged.known and not merged.noise.any())
        elif isinstance(step, PerturbCorrelated):
            assert step is c.scheme.server[0]  # already in it
        elif isinstance(step, Momentum):
            merged = hub = hub.times(step.beta).plus(merged, 1 - step.beta)
        elif isinstance(step, Perturb):
            std = drawn(step, clip_norm, sum(c.records[m] for m in members), len(members)) * c.plans[round].noise
            known = step.mechanism == "gaussian"
            merged = merged.plus(Number(0.0, noises.one(std if known else 0.0), known))
        else:
            raise TypeError(f"the oracle does not know {step!r}; say in adversary/federation.py what it does")
    return merged, hub


def _turned_by_one(
    c: Composition, round: int, subject: int, swing: dict[int, float], axes: int, limit: float, moved: float
) -> float:
    """How far a clipped mean moves where the others hold it as far back as they can."""
    if not moved:
        return 0.0
    share = weights(c, round)
    size = {m: share[m] * sent(c, m, round).reach.get(axes, 0.0) for m in c.members[round]}
    others = sum(s for m, s in size.items() if m != subject)
    own_back = (swing[round] - 1) * size[subject] if swing[round] > 1 else 0.0
    return min(limit + min(limit, others + own_back), moved)


def _heavy_ball(c: Composition) -> float:
    update = c.scheme.update
    if isinstance(update, AddWithMomentum) or (isinstance(update, Optimise) and update.optimiser == "momentum"):
        return update.momentum
    return 0.0


def _updated(c: Composition, round: int, model: Number, merged: Number) -> Number:
    update = c.scheme.update
    if isinstance(update, Add):
        return model.plus(merged)
    if isinstance(update, AddWithMomentum):
        return model.plus(merged, update.lr * c.plans[round].lr)
    if isinstance(update, Replace):
        return merged
    if isinstance(update, Optimise) and update.optimiser in ("sgd", "momentum"):
        return model.plus(merged, -update.lr * c.plans[round].lr)
    if isinstance(update, Optimise):  # its first step grows with the mean, number by number; no later one is followed
        return merged if round == 0 else Number(0.0, np.zeros_like(merged.noise), known=False)
    raise TypeError(f"the oracle does not know {update!r}; say in adversary/federation.py what it does")


def distance(seen: list[Number], axes: int) -> float:
    """Between the worlds, over the noise: √(Δᵀ Σ⁻¹ Δ) of all numbers seen together, on all axes."""
    numbers = [number for number in seen if number.known and (number.moved or number.noise.any())]
    if not any(number.moved for number in numbers):
        return 0.0
    if any(number.moved == inf for number in numbers):
        return inf
    moved = np.array([number.moved for number in numbers])
    noise = np.stack([number.noise for number in numbers])
    # the least noise that makes one world look like the other
    least, *_ = np.linalg.lstsq(noise, moved, rcond=1e-11)
    if np.abs(noise @ least - moved).max() > 1e-7 * np.abs(moved).max():
        return inf
    return float(np.linalg.norm(least)) * sqrt(axes)
