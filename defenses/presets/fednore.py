"""Fed-nore-1, Fed-nore-2 and both: local DP with a changed local loss.

Source: THESIS 3.3, Alg. 3.2, eq. 3.8-3.23, App. B and D, table 3.2.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Annotated, Literal

from pydantic import Field

from ..local import DistancePerLayer, LocalTraining, ScaleByRoot
from ..scheme import Scheme
from . import ldp
from .base import Population, Preset


class FednoreParameters(ldp.LdpParameters):
    """As `ldp`, by default with the median clip, layer by layer (3.8-3.9)."""

    clip: Annotated[float, Field(gt=0)] | Literal["median"] = Field(default="median", description=ldp.CLIP)
    per_layer: bool = Field(
        default=True, description="clip and noise tensor by tensor: the whole has norm C·√(tensors)"
    )
    lam: float = Field(default=1.0, ge=0, description="λ, weight of the term added to the local loss")


class Fednore1Parameters(FednoreParameters):
    """With a penalty on the norm."""

    sensitivity: Literal["current", "past"] = Field(
        default="current", description='S in the added term λσS: norm of the "current" update, or median of "past" ones'
    )


class Fednore2Parameters(FednoreParameters):
    """With a factor inside the loss."""

    form: Literal["literal", "scaled", "scaled-plus"] = Field(
        default="literal", description='"scaled": output error (a − y) times 1 − λσ/√n; "scaled-plus": times 1 + λσ/√n'
    )


class Fednore12Parameters(Fednore1Parameters, Fednore2Parameters):
    """One λ for both terms, as in table 3.2."""


def build1(parameters: Fednore1Parameters, local: LocalTraining, population: Population) -> Scheme:
    """`ldp` with the local loss F(W) + λσS_i (3.13).

    Reading: S_i = ‖W_t − W‖/n_i of the current update, layer by layer: a pull towards the global model, subgradient 0
    where a layer has not moved. With sensitivity = "past" S_i is the median of past norms as in (3.9), a constant: ∇S_i
    = 0 and nothing differs from `ldp`.
    Assumes, claims and proves what `ldp` does. The local training prescribed: that penalty only.

    λ = .5, σ = 8: the weight of the added norms is λσ = 4.

    >>> scheme = FEDNORE1.scheme(Fednore1Parameters(sigma=8.0, lam=0.5), LocalTraining(), Population((600,) * 100))
    >>> scheme.local.penalties
    (DistancePerLayer(weight=4.0),)
    """
    return _build("fednore1", parameters, _nore1(parameters, local, population), population)


def build2(parameters: Fednore2Parameters, local: LocalTraining, population: Population) -> Scheme:
    """`ldp` with the local loss −ln(a_p(1 − λσ/√n_i)) (3.19), a_p the probability of the right class.

    Literally the new factor is a constant inside a logarithm: the gradient is that of cross-entropy, so training equals
    `ldp`, and the loss is undefined from λσ ≥ √n on (λ > 3.06 at the paper's σ = 8, n = 600; its best λ are 10 and
    200), which is refused. form = "scaled" is our reading of Theorem 3: the expected change (a − y)σ/√n of the output
    error (3.18) is taken off it, λ times, so the loss's gradient is multiplied by 1 − λσ/√n_i; "scaled-plus" adds it.
    Assumes, claims and proves what `ldp` does. The local training prescribed: that factor only.

    σ = 8, n = 600: λ may be at most √600/8 = 3.06; at λ = 1, "scaled" leaves 1 − 8/√600 = .673 of the gradient.

    >>> scaled = Fednore2Parameters(sigma=8.0, form="scaled")
    >>> scheme = FEDNORE2.scheme(scaled, LocalTraining(), Population((600,) * 100))
    >>> scheme.local.gradient_scale
    ScaleByRoot(c=-8.0)
    >>> FEDNORE2.scheme(Fednore2Parameters(sigma=8.0, lam=10.0), LocalTraining(), Population((600,) * 100))
    Traceback (most recent call last):
    ValueError: lam·sigma = 80: Fed-nore-2's factor 1 − λσ/√n needs λσ below √n = 24.49 (n = 600, the smallest client)
    """
    return _build("fednore2", parameters, _nore2(parameters, local, population), population)


def build12(parameters: Fednore12Parameters, local: LocalTraining, population: Population) -> Scheme:
    """Both changes of the local loss at once, with one λ (table 3.2).

    Readings, assumptions, claim and proof are those of `fednore1` and `fednore2`. σ = 8, 15 releases, δ = 1e-5:
    15/128 + √(30·11.513)/8 = 2.44.

    >>> scheme = FEDNORE12.scheme(Fednore12Parameters(sigma=8.0), LocalTraining(), Population((600,) * 100))
    >>> round(scheme.claim.epsilon(15, 1e-5), 2), scheme.local.penalties
    (2.44, (DistancePerLayer(weight=8.0),))
    """
    return _build(
        "fednore12", parameters, _nore2(parameters, _nore1(parameters, local, population), population), population
    )


def _nore1(parameters: Fednore1Parameters, local: LocalTraining, population: Population) -> LocalTraining:
    weight = parameters.lam * ldp.sigma_of(parameters, population)
    if parameters.sensitivity == "past" or weight == 0:
        return local
    return replace(local, penalties=(*local.penalties, DistancePerLayer(weight)))


def _nore2(parameters: Fednore2Parameters, local: LocalTraining, population: Population) -> LocalTraining:
    change, n = parameters.lam * ldp.sigma_of(parameters, population), min(population.records)
    if parameters.form != "scaled-plus" and change >= sqrt(n):
        raise ValueError(
            f"lam·sigma = {change:g}: Fed-nore-2's factor 1 − λσ/√n needs λσ below √n = {sqrt(n):.4g} (n = {n}, the"
            " smallest client)"
        )
    if parameters.form == "literal":
        return local
    return replace(local, gradient_scale=ScaleByRoot(change if parameters.form == "scaled-plus" else -change))


def _build(name: str, parameters: FednoreParameters, local: LocalTraining, population: Population) -> Scheme:
    return replace(ldp.build(parameters, local, population), name=name, source=SOURCE)


SOURCE = "Weng 2025 (THESIS) 3.3, Alg. 3.2, eq. 3.8-3.23"

FEDNORE1 = Preset(
    name="fednore1",
    title="Local DP with a local loss that pulls towards the global model",
    source=SOURCE,
    parameters=Fednore1Parameters,
    build=build1,
    needs="σ (or a fixed clip and noise_std) and λ",
    claimed_unit="client (zero_out), Δ = C/n assumed (as ldp)",
    provable="depends",
    why="as ldp: the default median clip proves nothing; with a fixed clip multiplier σ/(n√Λ) for a client",
    shares=("update",),
    noise=("noise_std", "sigma"),
    example={"sigma": 8.0},
)

FEDNORE2 = replace(
    FEDNORE1,
    name="fednore2",
    title="Local DP with the expected change by noise inside the loss; literally the same as plain local DP",
    parameters=Fednore2Parameters,
    build=build2,
    needs="σ (or a fixed clip and noise_std) and λ with λσ < √n",
)

FEDNORE12 = replace(
    FEDNORE2,
    name="fednore12",
    title="Fed-nore-1 and Fed-nore-2 together",
    source=f"{SOURCE}, table 3.2",
    parameters=Fednore12Parameters,
    build=build12,
)
