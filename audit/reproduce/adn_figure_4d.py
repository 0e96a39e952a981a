"""ADN figure 4(d): accuracy on MNIST of component-adaptive noise and of the schemes it is compared with, by claimed ε.

ADN says neither how it fitted the others to 50 clients nor with which parameters; here the noise of each is what its
own formula claims ε for, over the rounds given. Numbers: the text, and the arrays in themole233/ANDPFL
(`ceshi_fin.py`), which agree where both have one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from statistics import fmean
from typing import Any

from scipy.optimize import brentq

from ...defenses.local import LocalTraining
from ...defenses.presets import PRESETS, Population
from .component_figure_3 import CODE, ENOUGH, STATED_COMPONENT
from .federations import stand_in
from .table import FilledTable, Request
from .trained import ACCURACY, training_plan
from .trends import Trend, TrialFigures
from .trial_table import TableCell, TrialTable

DELTA = 1e-5
EPSILONS = (0.5, 2.0, 8.0)
# scheme → accuracies at these ε, None where nothing is printed or stored.
PUBLISHED_4D: dict[str, tuple[float | None, ...]] = {
    "component": (0.9370, 0.9402, 0.9501),
    "fed-alpha-cdp": (0.8423, None, None),
    "dp-dyns": (0.8308, 0.9125, 0.9388),
    "privatedl": (0.8211, 0.9101, 0.9261),
    "geometric": (0.7351, None, None),
    "adap-dpfl": (0.7125, None, None),
    "ldp-fl": (0.3025, 0.5860, 0.9428),
}
# What a scheme's noise follows from, and what else its table has.
SIGMA: dict[str, dict[str, Any]] = {
    "fed-alpha-cdp": {"schedule": "constant"},
    "dp-dyns": {},
    "adap-dpfl": {"threshold": "constant", "beta": 1.0},
}
EPSILON: dict[str, dict[str, Any]] = {"privatedl": {"delta": DELTA}, "geometric": {"delta": DELTA}, "ldp-fl": {}}
LOCAL: dict[str, dict[str, Any]] = {"privatedl": {"lr": 0.5}, "ldp-fl": {"epochs": 5}}
ROUNDS = {"adap-dpfl": 200, "geometric": 30, "ldp-fl": 10, "privatedl": 40}  # 20 of the others


@dataclass(frozen=True)
class ComparedScale:
    """Of the federation: clients, all of them in every round, records of each, batch size, and how many rounds of
    component-adaptive noise at most.
    """

    clients: int
    records: int
    batch: int
    most_rounds: int = 300


STATED_4D, QUICK_4D = ComparedScale(50, 1000, 100), ComparedScale(20, 60, 30, 94)


def noise_that_claims(name: str, epsilon: float, scheme: dict[str, Any], local: LocalTraining, of: Population) -> float:
    """σ for which the scheme's own formula claims ε over its rounds.

    Args:
        name: of a scheme with a σ. epsilon: ε > 0. scheme: its other parameters. local, of: the federation.
    """
    preset = PRESETS[name]

    def beyond(sigma: float) -> float:
        claim = preset.scheme(preset.parameters(**{**scheme, "sigma": sigma}), local, of).claim
        assert claim is not None and claim.epsilon is not None
        return claim.epsilon(scheme["rounds"], DELTA) - epsilon

    return float(brentq(beyond, 0.3, 200.0, xtol=1e-3))


def compared_cells(scale: ComparedScale) -> tuple[TableCell, ...]:
    """By scheme and ε."""
    cells = []
    population = Population((scale.records,) * scale.clients)
    for name, published in PUBLISHED_4D.items():
        for epsilon, accuracy in zip(EPSILONS, published):
            local: dict[str, Any] = {"optimiser": "sgd", "lr": 0.1, "batch_size": scale.batch}
            scheme: dict[str, Any] = {"name": name, "rounds": ROUNDS.get(name, 20)}
            if name == "component":
                alike = scale.batch / STATED_COMPONENT.batch * sqrt(scale.clients / STATED_COMPONENT.clients)
                sigma, rounds = CODE[epsilon]
                local |= {"optimiser": "rmsprop", "lr": 0.001}
                scheme |= {"reading": "code", "K": 16, "epsilon": ENOUGH, "sigma": sigma * alike}
                scheme |= {"rounds": min(rounds, scale.most_rounds)}
            elif name in EPSILON:
                scheme |= EPSILON[name] | {"epsilon": epsilon}
                local |= LOCAL.get(name, {})
            else:
                own = {**SIGMA[name], "rounds": scheme["rounds"]}
                trained = LocalTraining(batch_size=scale.batch)
                scheme |= own | {"sigma": noise_that_claims(name, epsilon, own, trained, population)}
            shown = {"scheme": name, "claimed ε": f"{epsilon:g}", "rounds": str(scheme["rounds"])}
            figures = {} if accuracy is None else {"test_accuracy": accuracy}
            cells.append(TableCell(f"{name} ε={epsilon:g}", shown, {"scheme": scheme, "local": local}, figures))
    return tuple(cells)


def figure_4d(request: Request) -> FilledTable:
    """The figure in the size asked for. Raises BadInput where the data are not there."""
    data = stand_in(request, "MNIST", {"mnist": "MNIST", "fashion_mnist": "FashionMNIST"}, "digits")
    scale = QUICK_4D if request.quick or data.name == "digits" else STATED_4D
    base = {
        "data": {**data.table, "clients": scale.clients, "samples_per_client": scale.records},
        "model": {"name": "mlp", "options": {"widths": [32]}},
        "claim": "none",
    }
    setting = (
        f"{scale.clients} clients × {scale.records} records, all of them every round, batches of {scale.batch}, MLP of"
        f" 32 hidden units, δ = {DELTA:g} (component: 1e-4, as its code)."
    )
    plan = training_plan(base, setting, data)
    return TrialTable(
        "adn-figure4d",
        compared_cells(scale),
        (ACCURACY,),
        TRENDS_4D,
        NOTES_4D,
        lambda _: plan,
        trials=10,
        quick_trials=3,
    ).run(request)


def _mean(trial: TrialFigures, name: str) -> float:
    return fmean(trial[f"{name} ε={epsilon:g}"]["test_accuracy"] for epsilon in EPSILONS)


def _over(name: str) -> Callable[[TrialFigures], float]:
    return lambda trial: _mean(trial, "component") - _mean(trial, name)


TRENDS_4D = tuple(
    Trend(
        f"Does component-adaptive noise beat {name}?",
        "yes",
        "its accuracy less the other's, mean over ε, from 0.01 on",
        _over(name),
        least=0.01,
    )
    for name in PUBLISHED_4D
    if name != "component"
)
NOTES_4D = (
    (
        "component is the reading of its authors' code with RMSprop, as in component-figure3. Settings of the others"
        " are ours: fed-alpha-cdp at a constant σ (its schedules fix it), adap-dpfl at a constant clip and σ, dp-dyns"
        " in each client, privatedl ours as a whole; rounds as shown, learning rate .1 (privatedl .5), one local epoch"
        " (ldp-fl 5)."
    ),
    (
        "Claims are of different units and worth: LDP-FL's ε is of one weight, privatedl's and component's rest on"
        " private sensitivities, geometric's on Δ = 2C/n. `audit epsilon` says what is proven of each; an equal"
        " claimed ε is no equal protection."
    ),
)
