"""A training that was recorded, of somebody else's code: what its owner says of clip and noise. Nothing here trains it,
so it stands in no list of schemes; a setup may name it.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ..local import LocalTraining
from ..schedule import FixedRounds
from ..scheme import Scheme, Step
from ..steps.clip import Clip
from ..steps.perturb import Perturb
from .base import Parameters, Population, Preset, update_rule


class RecordedParameters(Parameters):
    """Of the first round; what other rounds had stands in their releases."""

    clip: float | None = Field(default=None, gt=0, description="norm that bounds what noise is added to, as declared")
    noise_std: float | None = Field(default=None, gt=0, description="in parameter units, as declared")
    law: Literal["gaussian", "laplace"] = Field(
        default="gaussian", description="of the noise; of Laplace's the norm is L1"
    )
    by: Literal["client", "server"] | None = Field(default=None, description="who clips and adds noise, as declared")


def build(parameters: RecordedParameters, local: LocalTraining, population: Population) -> Scheme:
    """Federated averaging with what clients are declared to do to their values.

    Assumes what the owner declares. Claim: none of its own. Provable: what the declared releases prove; the scheme that
    is built here stands in where an attacker trains shadow models, and is never what was trained.

    >>> declared = RecordedParameters(clip=2.0, noise_std=6.0, by="client")
    >>> scheme = RECORDED.scheme(declared, LocalTraining(), Population((9,)))
    >>> len(scheme.client), scheme.claim
    (2, None)
    """
    p = parameters
    steps: tuple[Step, ...] = ()
    if p.by == "client" and p.clip and p.noise_std:
        order = 1 if p.law == "laplace" else 2
        steps = (Clip(p.clip, order), Perturb(noise_std=p.noise_std, mechanism=p.law))
    return Scheme(
        name="recorded",
        source=RECORDED.source,
        local=local,
        share=p.share,
        client=steps,
        update=update_rule(p.share, local),
        schedule=FixedRounds(p.rounds),
    )


RECORDED = Preset(
    name="recorded",
    title="A training that was recorded; clip and noise are as its owner declares",
    source="recorded by its owner",
    parameters=RecordedParameters,
    build=build,
    needs="a recording",
    claimed_unit="none of its own",
    provable="depends",
    why="what the declared clip and noise prove, where nothing contradicts them",
)
