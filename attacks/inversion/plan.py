"""All methods of inversion, read from the top: one line in this list each."""

from __future__ import annotations

from .match.case import Case
from .match.solution import Solution
from .strategies.by_step import AdaptiveSteps, OneAdaptiveStep
from .strategies.features import FeatureFit, Polish
from .strategies.first_layer import FirstLayerAlone, FirstLayerOfGuess
from .strategies.learned_prior import PriorSearch
from .strategies.row_fit import FitOfRows
from .strategies.search import PixelDescent, Softened
from .strategies.simulated import read_twice
from .strategies.simulating import Simulation, first_reading, second_reading
from .strategies.strategy import Strategy

# By phase; within one, each gets what those before it found.
PLAN: tuple[Strategy, ...] = (
    FirstLayerAlone(),
    OneAdaptiveStep(),
    FeatureFit(),
    PriorSearch(),
    Softened(),
    PixelDescent(),
    FirstLayerOfGuess(),
    Polish(),
    AdaptiveSteps(),
    FitOfRows(),
    Simulation(),
)


def cost(case: Case) -> int:
    """About how many operations all methods take that apply to a case, in both of its readings."""
    return sum(cost_of(strategy, case) for strategy in PLAN)


def cost_of(strategy: Strategy, case: Case) -> int:
    """Those of one method; 0 where it does not apply. A second reading is counted with the simulation that asks for
    it.
    """
    if strategy.phase != "simulate":
        case = first_reading(case)
        return 0 if strategy.applies(case) else strategy.cost(case)
    if strategy.applies(case):
        return 0
    again = cost(second_reading(case)) if read_twice(case) else 0
    return strategy.cost(case) + again


def assumed_by_methods(case: Case, solution: Solution) -> tuple[str, ...]:
    """What the methods took for granted, in plain words."""
    return tuple(words for strategy in PLAN for words in strategy.assumed(case, solution))
