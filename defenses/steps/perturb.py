"""Noise. Only `draw` draws it, and whoever adds it to a value writes it into the ledger in the same call (`emit`).

Value and noise are added on a grid, where float64 is exact (`grid`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from math import hypot, isfinite, pi, sqrt, tanh
from typing import Any, Literal

import torch
from torch import Tensor

from ..discrete import discrete_gaussian
from ..grid import TAIL, adds_up, in_steps, noisy, reach, rounded, step_of, wrapped
from ..local import LocalJob, PerExample
from ..randomness import SPARE_BITS, Keystream, centred, fraction
from ..releases import (
    _MAKER,
    CorrelatedLaw,
    DiscreteLaw,
    GaussianLaw,
    LaplaceLaw,
    NoiseFact,
    Release,
    ResponseLaw,
    Sampling,
    Silent,
    declare,
)
from ..scheme import Context
from ..strategies import NoiseStrategy
from ..terms import Unit
from ..wire import Bound, Parcel, as_scalar, opaque_id

Mechanism = Literal["gaussian", "laplace"]
NoiseLaw = Literal["gaussian", "laplace", "discrete"]


def draw(mechanism: NoiseLaw, noise_std: float | Tensor, dim: int, rng: Keystream) -> Tensor:
    """A noise vector (dim,) of float64 with standard deviation `noise_std`, a number or (dim,).

    Gaussian by Box and Muller (1958), two numbers from one radius √(−2 log u); Laplace by ± log u. u has 53 significant
    bits and is at least 2⁻¹⁰⁷: none lies beyond 12.2, or 52.5, standard deviations, where the laws have 10⁻³², or less,
    of their mass. Of 53 bits in all the least u would be far apart, and so would be the radii beyond 5 standard
    deviations: whoever takes a candidate for the value off the sum sees whether what is left has such a radius.
    Discrete Gaussian noise, whole numbers, is that of `discrete_gaussian`.
    The eleven bits that are left of each word move the noise by up to 2⁻²⁶ standard deviations: as much as the gaps
    between the radii nearest to 0, where u is near 1, and far more than those between the angles.
    """
    if mechanism == "discrete":
        return discrete_gaussian(float(noise_std), dim, rng)
    if mechanism == "gaussian":
        half = (dim + 1) // 2
        words = rng.words(3 * half)  # the radii's, the angles', the rest of the radii's
        radius = fraction(words[:half], words[2 * half :]).log_().mul_(-2).sqrt_()
        angle = centred(words[half : 2 * half]).mul_(2 * pi)
        noise = torch.cat([angle.cos().mul_(radius), angle.sin_().mul_(radius)])[:dim]
    else:
        words = rng.words(2 * dim)
        sign = (words[dim:] & 1).mul_(2).sub_(1)
        noise = fraction(words[:dim], words[dim:]).log_().mul_(sign).div_(sqrt(2))
    spare = (words[:dim] & (2**SPARE_BITS - 1)).sub_(2 ** (SPARE_BITS - 1))
    return noise.add_(spare, alpha=2.0**-36).mul_(noise_std)


def release(
    parcel: Parcel,
    noise_std: float | Tensor,
    mechanism: Mechanism,
    context: Context,
    private_scale: str = "",
    also: tuple[float, float] = (0.0, 1.0),
    correlated: CorrelatedDraw | None = None,
) -> Parcel:
    """Add noise of standard deviation `noise_std` and write it into the ledger.

    The Release keeps the std really drawn and the bound really guaranteed. Without a bound, or with a bound or a noise
    scale computed from private data, its `problem` says that nothing can be proven. The bound is that of the value
    rounded to the grid, and stays with the parcel.

    Args:
        parcel: the value. noise_std: in parameter units, a number or (d,), before the round's factor `plan.noise`.
        mechanism: gaussian | laplace. context: gives the seed, the round, the party and the subjects.
        private_scale: why the noise's scale is private, "" if it is public.
        also: what else this release tells, under Gaussian noise of its own (`releases.Gaussian`).
        correlated: how this noise hangs together with that of other rounds; `noise_std` is then a number, of the white
            noise.
    """
    noise_std = noise_std * context.plan.noise
    parents = frozenset(r.id for r in parcel.revealed)
    # A party may draw several times a round, for other values each time.
    name = ("release", context.round, context.party, *sorted(parents))
    correlation = None
    if correlated is None:
        noise = draw(mechanism, noise_std, parcel.vector.numel(), Keystream(context.seed, "noise", *name))
    else:
        noise, correlation = correlated.draw(float(noise_std), parcel, context)
    bound = parcel.bound
    step = step_of(noise_std, reach(bound, parcel.vector, context.start, noise_std, parcel.noise_std, context.senders))
    if _is_above_0(parcel.noise_std):  # the noise of both counts: neither may be on a coarser grid than the sum's
        step = max(step, parcel.step)
    vector = noisy(parcel.vector, noise, step, bounded=bound is not None)
    exact = 0.0 if bound is None else _total_norm(bound.norm, bound.order)
    if bound is not None:
        bound = rounded(bound, step, context.layout.numbers)
    problem = private_scale or _problem(parcel, mechanism)
    if correlation is not None and context.plan.noise != 1:
        problem = problem or "the size of correlated noise changes from round to round"
    hidden = None if problem else bound  # of what nothing is proven, the noise is said as it was drawn
    law: NoiseFact
    if correlation is not None:  # what noise was there before may be of rounds that this one is not independent of
        law = correlation
    elif mechanism == "laplace":
        law = LaplaceLaw(_hiding(hidden, noise_std))
    elif parcel.terms and _is_above_0(parcel.noise_std):
        law = GaussianLaw(_hiding(hidden, noise_std), terms=parcel.terms, also=also)
    else:
        law = GaussianLaw(_hiding(hidden, noise_std), _earlier(hidden, noise_std, parcel.noise_std), also=also)
    context.log["noise_std"] = as_scalar(noise_std)
    drawn = emit(
        opaque_id(context.seed, *name),
        context,
        law,
        None if bound is None else replace(bound, norm=_total_norm(bound.norm, bound.order)),
        parents=parents,
        sampling=context.sampling,
        problem=problem,
        rounding=0.0 if bound is None else max(0.0, _total_norm(bound.norm, bound.order) - exact),
    )
    fresh = mechanism == "gaussian" and correlation is None  # correlated noise adds up with no other
    return replace(
        parcel,
        vector=vector,
        bound=bound,
        releases=frozenset({drawn}) | parcel.told,
        inherits=(),
        noise_std=_root_sum(noise_std, parcel.noise_std) if fresh else parcel.noise_std,
        terms=(),
        step=step if _is_above_0(noise_std) else 0.0,
    )


def emit(name: str, context: Context, law: NoiseFact, bound: Bound | None, **facts: Any) -> Release:
    """The release of noise that was just drawn, about the context's subjects. bound: its norm is a number."""
    known = Bound(0.0) if bound is None else bound
    about = {"centred": known.centred, "anywhere": known.anywhere, "subjects": context.subjects, **facts}
    norm = None if bound is None else float(bound.norm)
    return Release(name, context.round, law, norm, known.order, known.of, known.records, maker=_MAKER, **about)


def _hiding(bound: Bound | None, noise: float | Tensor) -> float:
    """The standard deviation of noise alike in all components that hides the bound as well as this does.

    A bound that is one number for the whole vector and noise that differs by component leaves only the least of it.
    """
    if bound is None:
        return as_scalar(noise)
    if isinstance(bound.norm, Tensor):
        parts = bound.norm.double() / torch.as_tensor(noise, dtype=torch.float64)
        ratio = torch.linalg.vector_norm(parts, bound.order).item()
        return _total_norm(bound.norm, bound.order) / ratio if isfinite(ratio) and ratio else 0.0
    return noise.min().item() if isinstance(noise, Tensor) else noise


def _earlier(bound: Bound | None, noise: float | Tensor, earlier: float | Tensor) -> float:
    """Of two noises together, what the earlier one adds to the other as `_hiding` counts it."""
    if not any(isinstance(value, Tensor) for value in (noise, earlier, bound and bound.norm)):
        return float(earlier)
    alone, both = _hiding(bound, noise), _hiding(bound, _root_sum(noise, earlier))
    return sqrt(max(0.0, both * both - alone * alone))


def release_discrete(parcel: Parcel, noise_std: float, modulus: int, context: Context) -> Parcel:
    """Add discrete Gaussian noise to a value of whole steps, take the sum modulo `modulus` steps, and write it into the
    ledger. The value's own step is the lattice's.

    Guarantee: what goes out is a function of (whole numbers within the bound + discrete Gaussian noise of σ =
    noise_std/step), exactly: nothing is rounded on the way.

    Args:
        parcel: whole numbers of `parcel.step` with a bound, public. noise_std: σ in parameter units, before the round's
            factor `plan.noise`. modulus: even, in steps. context: as for `release`.

    Raises:
        ValueError: the value has no bound or is on no lattice, or σ has too many steps for a table.
    """
    bound, step = parcel.bound, parcel.step
    if bound is None or isinstance(bound.norm, Tensor) or not step > 0:
        raise ValueError("discrete noise needs a value that was clipped and rounded to whole steps before it")
    noise_std = noise_std * context.plan.noise
    parents = frozenset(r.id for r in parcel.revealed)
    name = ("release", context.round, context.party, *sorted(parents))
    noise = draw("discrete", noise_std / step, parcel.vector.numel(), Keystream(context.seed, "noise", *name))
    vector = wrapped((parcel.vector.double() * (1 / step)).add_(noise), modulus).mul_(step)
    context.log["noise_std"] = noise_std
    drawn = emit(
        opaque_id(context.seed, *name),
        context,
        DiscreteLaw(noise_std, step, context.layout.numbers),
        bound,
        parents=parents,
        sampling=context.sampling,
        problem=_problem(parcel, "gaussian"),
    )
    return replace(
        parcel,
        vector=vector,
        releases=frozenset({drawn}) | parcel.told,
        inherits=(),
        noise_std=0.0,  # as of Laplace noise: it adds up with no other kind
        terms=(),
        modulus=modulus,
    )


@dataclass(frozen=True)
class CorrelatedDraw:
    """Where the noise of a hub's rounds is one mechanism. strategy: of the whole training."""

    strategy: NoiseStrategy

    def draw(self, noise_std: float, parcel: Parcel, context: Context) -> tuple[Tensor, CorrelatedLaw]:
        """The round's noise (d,), and how it hangs together with that of the other rounds."""
        if not context.hub or any(isinstance(release.law, CorrelatedLaw) for release in parcel.releases):
            raise ValueError("correlated noise is one chain of a hub's, over the rounds that it merges")
        if context.round >= self.strategy.rounds:
            rounds = self.strategy.rounds
            raise ValueError(
                f"correlated noise was planned for {rounds} rounds; there is none for round {context.round}"
            )
        chain = opaque_id(context.seed, "chain", context.party)
        dim = parcel.vector.numel()

        def white(row: int) -> Tensor:
            return draw("gaussian", noise_std, dim, Keystream(context.seed, "noise", "chain", chain, row))

        correlation = CorrelatedLaw(noise_std, chain, self.strategy.column(context.round))
        if noise_std == 0:
            return torch.zeros(dim, dtype=torch.float64), correlation
        return self.strategy.noise(context.round, white, context.kept), correlation


@dataclass(frozen=True)
class PerturbCorrelated:
    """Noise D Z on a hub's values, Z of `noise_std` in parameter units (`strategies`)."""

    noise_std: float
    correlated: CorrelatedDraw

    def __call__(self, parcel: Parcel, context: Context) -> Parcel:
        private = parcel.bound.private if parcel.bound else ""
        return release(parcel, self.noise_std, "gaussian", context, private, correlated=self.correlated)


def summed_releases(
    parcels: Sequence[Parcel], counts: Sequence[int], scale: float, mechanism: NoiseLaw, context: Context
) -> frozenset[Release] | None:
    """What scale·Σ k_i·value_i reveals to somebody who sees none of the values: each sender's contribution, scale·k_i
    times its bound, behind the noises of all senders, which are independent.

    One release for all senders alike. None where this is not known to be less than what the single values reveal: not
    each of them carries one release of this mechanism and a public bound, noise differs by component, or the sum is not
    sure to be one of whole steps (`adds_up`; discrete noises only if all senders are alike).

    Args:
        parcels: the values. counts: k_i, (n,). scale: what their sum is multiplied by.
        mechanism: of the senders' noise; "laplace" and "discrete" only where it was the last that was done to the
            values.
        context: the hub's.
    """
    terms: Counter[float] = Counter()
    alike: dict[_SummedShare, set[int]] = defaultdict(set)
    stds: list[float] = []
    for parcel, count in zip(parcels, counts, strict=True):
        (first, *others), bound = parcel.releases, parcel.bound
        std = parcel.noise_std if mechanism == "gaussian" else first.noise_std
        whole = not others and not parcel.inherits and first.mechanism == mechanism and first.sampling is None
        if not whole or first.problem or bound is None or bound.private or isinstance(bound.norm, Tensor):
            return None
        if mechanism == "laplace" and isinstance(parcel.clip_norm, Tensor):
            return None
        if isinstance(std, Tensor) or not std > 0:
            return None
        weight = scale * count
        stds.append(std)
        terms[std * weight] += 1
        kind = (bound.of, bound.records, bound.centred, bound.anywhere)
        share = _SummedShare(bound.norm * weight, bound.order, *kind, first.slot, first.rounding * weight)
        alike[share] |= first.subjects
    steps, noises = [parcel.step for parcel in parcels], tuple(sorted(terms.items()))
    law: NoiseFact
    if mechanism == "discrete":
        if len({*counts}) > 1 or len({*steps}) > 1 or len(terms) > 1 or not all(p.modulus for p in parcels):
            return None
        law = DiscreteLaw(0.0, steps[0] * scale * counts[0], context.layout.numbers, noises)
    elif not adds_up(counts, steps, stds, mechanism):
        return None
    else:
        law = LaplaceLaw(0.0, noises) if mechanism == "laplace" else GaussianLaw(0.0, terms=noises)
    return frozenset(
        emit(
            opaque_id(context.seed, "sum", context.round, context.party, *astuple(share)),
            context,
            law,
            Bound(share.norm, share.order, share.of, share.records, centred=share.centred, anywhere=share.anywhere),
            subjects=frozenset(subjects),
            slot=share.slot,
            rounding=share.rounding,
        )
        for share, subjects in alike.items()
    )


@dataclass(frozen=True)
class _SummedShare:
    """One sender's part in a sum: its bound times its weight, and what else its price depends on."""

    norm: float
    order: int
    of: Unit
    records: int
    centred: bool
    anywhere: bool
    slot: str
    rounding: float


def _is_above_0(std: float | Tensor) -> bool:
    return bool((std > 0).all()) if isinstance(std, Tensor) else std > 0


def respond(
    parcel: Parcel, centre: Tensor, radius: Tensor, epsilon: float, context: Context, *, about_zero: bool
) -> Parcel:
    """Every number w of a value in c ± r becomes c + rK or c − rK, K = (e^ε + 1)/(e^ε − 1), so that its mean is w: a
    randomised response (Duchi et al. 2013, arXiv:1302.3203; Sun et al., LDP-FL, arXiv:2007.15789, eq. 2).

    Both values are whole numbers of a step, so that sums are exact and tell of no more than how many are up.
    The one with probability 1/2 + (w − c)/(2rK), which lies between 1/(e^ε + 1) and e^ε/(e^ε + 1): any two values of
    one number have outcomes whose probabilities differ by at most e^ε. A coin of 53 bits rounds them by 2⁻⁵² at most,
    which is added to ε. Nothing else of the value is in what comes out, in any floating-point number's bits. A plan
    without noise gives the mean.

    Args:
        parcel: the value, with its bound. centre, radius: c and r ≥ 0, (d,), public.
        epsilon: ε > 0 of one number. context: as for `release`. about_zero: c is 0, whatever the values and the model.
    """
    largest = 1 / tanh(epsilon / 2)  # K
    parents = frozenset(r.id for r in parcel.revealed)
    name = ("release", context.round, context.party, *sorted(parents))
    c, r = (torch.as_tensor(x, dtype=torch.float64).expand(parcel.vector.shape) for x in (centre, radius))
    step = step_of(0.0, float((c.abs() + r * largest).max())) * 2.0**10 if context.plan.noise else 0.0
    offset = ((parcel.vector.double() - c) / r).nan_to_num(nan=0.0, posinf=1.0, neginf=-1.0).clamp(-1, 1)
    up = Keystream(context.seed, "noise", *name).uniform(len(offset)) < 0.5 + offset / (2 * largest)
    spread = as_scalar(r) * largest
    context.log["noise_std"] = spread
    drawn = emit(
        opaque_id(context.seed, *name),
        context,
        ResponseLaw(spread, epsilon, about_zero=about_zero),
        None if parcel.bound is None else Bound(as_scalar(parcel.bound.norm) * sqrt(context.layout.numbers)),
        parents=parents,
        steps=context.layout.numbers,
        problem=_problem(parcel, "gaussian"),
        centred=parcel.bound is not None and parcel.bound.centred,
        anywhere=parcel.bound is not None and parcel.bound.anywhere,
    )
    if step:
        sign = up.double().mul_(2).sub_(1)
        vector = sign.mul_(in_steps(r * largest, step)).add_(in_steps(c, step)).mul_(step)
    else:
        vector = c + offset * r
    return replace(
        parcel, vector=vector, releases=frozenset({drawn}) | parcel.told, inherits=(), noise_std=0.0, step=step
    )


def summed_responses(parcels: Sequence[Parcel], counts: Sequence[int], context: Context) -> frozenset[Release] | None:
    """What a sum of answers reveals to somebody who sees none of them: for each number how many are up.

    One release for all senders. None where this is not sure: not each of them answered once and all alike, by values of
    the same whole numbers of steps, or they weigh differently.

    Args:
        parcels: the values, whose answers were the last that was done to them. counts: what they weigh. context: the
            hub's.
    """
    first = next(iter(parcels[0].releases))
    for parcel in parcels:
        (own, *others) = parcel.releases
        alike = isinstance(own.law, ResponseLaw) and own.steps == first.steps and own.ratio == first.ratio
        told = bool(others or own.problem or own.sampling or parcel.inherits or parcel.side)
        if not alike or told or not parcel.step > 0 or parcel.step != parcels[0].step:
            return None
    if len({*counts}) > 1 or sum(counts) > 2**26:
        return None
    name = opaque_id(context.seed, "sum", context.round, context.party, "responses")
    subjects = frozenset().union(*(release.subjects for parcel in parcels for release in parcel.releases))
    assert isinstance(first.law, ResponseLaw)
    law = replace(first.law, std=0.0, terms=((first.noise_std, len(parcels)),))
    facts = {"steps": first.steps, "centred": first.centred, "anywhere": first.anywhere, "subjects": subjects}
    return frozenset({emit(name, context, law, Bound(first.bound_norm or 0.0), **facts)})


def raw_release(context: Context, what: str = "raw", problem: str = "the value is sent without noise") -> Release:
    """The release of a value without any noise: what local training hands on. An observer who sees it sees all.

    what: tells apart what a party tells in a round.
    """
    return emit(opaque_id(context.seed, what, context.round, context.party), context, Silent(), None, problem=problem)


def told_release(seed: int, subjects: frozenset[int], problem: str) -> Release:
    """The release of what everybody is told of the subjects' data before the first round."""
    return declare(opaque_id(seed, "told"), 0, Silent(), None, subjects, problem=problem)


def local_release(job: LocalJob, context: Context) -> Release:
    """The release of local DP-SGD: noise drawn inside training, on means of per-example-clipped gradients.

    Each of these is rounded to the grid, which moves it by at most half a step in every component. Tensors that are
    clipped apart give a record a whole norm of √Λ times the clip.
    """
    rule, training = job.training.per_example, job.training
    assert rule is not None
    n, size = context.num_examples, min(training.batch_size, context.num_examples)
    rounding = sqrt(context.layout.numbers) * example_step(rule, n, job.noise)
    norm = rule.clip_norm * sqrt(len(rule.parts(context.layout))) + rounding
    noise = rule.noise_multiplier * rule.clip_norm * job.noise
    inside = None if context.result is None else context.result.inside
    noise_std = noise / training.batch_size if inside is None else inside.noise_std
    context.log["noise_std"] = noise_std
    dealt = rule.batches == "disjoint"
    problem = {"clip": "", "largest": LARGEST_NORM, "mean": MEAN_NORM}[rule.scale]
    return emit(
        opaque_id(context.seed, "local", context.round, context.party),
        context,
        GaussianLaw(noise_std if problem else noise / training.batch_size),
        Bound(norm / training.batch_size, of="record", records=size if dealt else n),
        sampling=Sampling("partition" if dealt else "poisson", n, size, unit="record"),
        steps=len(job.batches),
        problem=problem or ("" if job.share != "gradient" else "the batch was not sampled"),
        rounding=rounding / training.batch_size,
    )


LARGEST_NORM = "the noise is scaled by the largest gradient norm in a private batch"
MEAN_NORM = "the noise is scaled by the mean gradient norm of a private batch"


def example_step(rule: PerExample, records: int, noise: float = 1.0) -> float:
    """The grid's step for a sum of up to so many clipped gradients and its noise, of a round with this factor."""
    std = rule.noise_multiplier * rule.clip_norm * noise
    return step_of(std, records * rule.clip_norm + TAIL * std)


@dataclass(frozen=True)
class Perturb:
    """Gaussian or Laplace noise, of `noise_std` in parameter units or of `noise_multiplier` times the clip norm.

    divided_by: "records" divides `noise_multiplier`·clip by the number of the party's records (THESIS 3.9-3.10: S_i =
      C_i/n_i), which is the paper's scale, not its proof: a whole vector clipped to C has sensitivity C, not C/n.
      "senders" divides it by how many values a hub averaged (Geyer et al.: noise on the sum).
    For Laplace, `noise_multiplier` is scale over clip norm (order 1), so the drawn std is √2 times that.
    """

    noise_multiplier: float | None = None
    noise_std: float | None = None
    divided_by: Literal["nothing", "records", "senders"] = "nothing"
    mechanism: Mechanism = "gaussian"

    def __call__(self, parcel: Parcel, context: Context) -> Parcel:
        private = ""
        if self.noise_std is not None:
            noise_std: float | Tensor = self.noise_std
        else:
            if parcel.clip_norm is None:
                raise ValueError("a noise_multiplier needs a clip before it; clip the value first or give noise_std")
            noise_std = parcel.clip_norm * (self.noise_multiplier or 0.0)
            noise_std = noise_std * (sqrt(2) if self.mechanism == "laplace" else 1.0)
            divisors = {"nothing": 1, "records": context.num_examples, "senders": context.senders}
            noise_std = noise_std / divisors[self.divided_by]
            private = parcel.bound.private if parcel.bound else ""
        return release(parcel, noise_std, self.mechanism, context, private_scale=private)


def _problem(parcel: Parcel, mechanism: Mechanism) -> str:
    bound = parcel.bound
    if bound is None:
        return "nothing bounds the value the noise was added to"
    if bound.private:
        return bound.private
    if mechanism == "laplace" and bound.order != 1:
        return "Laplace noise protects an L1 bound; the value's bound is L2"
    if mechanism == "gaussian" and bound.order == 1:
        return ""  # an L1 bound is an L2 bound
    return ""


def _root_sum(a: float | Tensor, b: float | Tensor) -> float | Tensor:
    """√(a² + b²): the standard deviation of two independent noises together."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return (
            torch.as_tensor(a, dtype=torch.float64).square() + torch.as_tensor(b, dtype=torch.float64).square()
        ).sqrt()
    return hypot(a, b)


def _total_norm(norm: float | Tensor, order: int) -> float:
    return float(torch.linalg.vector_norm(norm.double(), order)) if isinstance(norm, Tensor) else float(norm)
