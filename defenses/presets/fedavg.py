"""FedAvg (McMahan et al. 2017, arXiv:1602.05629; THESIS 2.1.2): the empty scheme."""

from __future__ import annotations

from ..local import LocalTraining
from ..schedule import FixedRounds
from ..scheme import Scheme
from .base import Parameters, Population, Preset, update_rule


def build(parameters: Parameters, local: LocalTraining, population: Population) -> Scheme:
    """No clip, no noise, no claim: what leaves a client is unbounded and ε = ∞."""
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
    provable="nothing: values are sent without clip or noise (ε = ∞)",
)
