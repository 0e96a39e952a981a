"""FedAvg (McMahan et al. 2017, arXiv:1602.05629, Alg. 1; THESIS 2.1.2): the empty scheme."""

from __future__ import annotations

from ..local import LocalTraining
from ..schedule import FixedRounds
from ..scheme import Scheme
from .base import Parameters, Population, Preset, update_rule


def build(parameters: Parameters, local: LocalTraining, population: Population) -> Scheme:
    """Every client trains, the server takes the mean: w ← w + (1/N) Σ Δw_i.

    Assumes nothing and claims nothing. Provable: nothing; what leaves a client is unbounded and un-noised, ε = ∞.

    >>> scheme = PRESET.scheme(Parameters(), LocalTraining(), Population((600,) * 100))
    >>> scheme.client, scheme.server, scheme.claim
    ((), (), None)
    """
    return Scheme(
        name="fedavg",
        source=PRESET.source,
        local=local,
        share=parameters.share,
        update=update_rule(parameters.share, local),
        schedule=FixedRounds(parameters.rounds),
    )


PRESET = Preset(
    name="fedavg",
    title="Federated averaging without any protection",
    source="McMahan et al. 2017, arXiv:1602.05629; THESIS 2.1.2",
    parameters=Parameters,
    build=build,
    needs="nothing",
    claimed_unit="none",
    provable="no",
    why="nothing: values are sent without clip or noise (ε = ∞)",
    group="baselines",
)
