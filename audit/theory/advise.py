"""What the papers' own analysis would choose, scheme by scheme (`audit advise`)."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from . import Recommendation, component, decentralised, fednore, geometric, iteration, nbafl

_Recommender = tuple[Callable[..., Recommendation], Mapping[str, Any]]

_BY_SCHEME: dict[str, tuple[_Recommender, ...]] = {
    "geometric": ((geometric.recommend_rounds, {}), (geometric.recommend_schedule, {})),
    "nbafl": ((nbafl.recommend_rounds, {}), (nbafl.recommend_participants, {})),
    "dpfedavg-laplace": (
        (iteration.recommend_local_steps, {"mechanism": "laplace"}),
        (iteration.recommend_rounds, {"mechanism": "laplace"}),
    ),
    "dpfedavg-gaussian": (
        (iteration.recommend_local_steps, {"mechanism": "gaussian"}),
        (iteration.recommend_rounds, {"mechanism": "gaussian"}),
    ),
    "component": ((component.recommend_rounds, {}),),
    "fednore1": ((fednore.recommend_rounds, {}),),
    "anonymous-gossip": (
        (decentralised.recommend_rounds, {}),
        (decentralised.recommend_participants, {}),
        (decentralised.recommend_neighbours, {}),
    ),
    "anonymous-leader": (
        (decentralised.recommend_rounds, {"neighbours": None, "eigenvalue": None}),
        (decentralised.recommend_participants, {"neighbours": None, "eigenvalue": None}),
    ),
}

SCHEMES = tuple(_BY_SCHEME)
"""The schemes whose papers analyse their convergence; for the others there is nothing to advise."""

_NEEDED = {"anonymous-gossip": {"neighbours"}, "dpfedavg-gaussian": {"delta"}}
"""Parameters that a recommender can do without but the scheme cannot."""


def accepted(scheme_name: str) -> dict[str, bool]:
    """The names `advise` takes for a scheme; True where it must be given.

    >>> accepted("component")
    {'epsilon': True, 'delta': True, 'sigma': True, 'max_rounds': False}
    """
    names: dict[str, bool] = {}
    for function, fixed in _recommenders(scheme_name):
        for name, parameter in inspect.signature(function).parameters.items():
            if name not in fixed:
                needed = parameter.default is parameter.empty or name in _NEEDED.get(scheme_name, ())
                names[name] = names.get(name, False) or needed
    return names


def advise(scheme_name: str, parameters: Mapping[str, Any]) -> list[Recommendation]:
    """The settings that the scheme's own analysis would choose, each with the assumptions that do not hold.

    parameters: plain numbers by the names of `accepted(scheme_name)`: epsilon, delta, clip (parameter units), samples
    (records a client), clients, participants (clients a round), rounds …; and the constants of the analysis
    (smoothness, pl, convexity, lipschitz, dissimilarity, divergence, initial_gap …), which have defaults. No paper
    states its constants and none is measured here: every recommendation begins by naming the ones it used.

    Raises: ValueError for a scheme without theory, an unknown or a missing name, or an impossible value.

    >>> [rounds] = advise("component", {"epsilon": 2.0, "delta": 1e-5, "sigma": 26.0})
    >>> rounds.what, rounds.value
    ('rounds T', 108.0)
    """
    names = accepted(scheme_name)
    for name in parameters:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(names)}."
            raise ValueError(f"{name} is not a parameter of the theory of {scheme_name}: {hint}")
    missing = [name for name, needed in names.items() if needed and parameters.get(name) is None]
    if missing:
        raise ValueError(f"The theory of {scheme_name} also needs {', '.join(missing)}.")
    advice = []
    for function, fixed in _recommenders(scheme_name):
        taken = inspect.signature(function).parameters
        given = {name: value for name, value in parameters.items() if name in taken}
        advice.append(function(**given, **fixed))
    return advice


def _recommenders(scheme_name: str) -> tuple[_Recommender, ...]:
    if scheme_name not in _BY_SCHEME:
        raise ValueError(
            f"There is no convergence theory for the scheme {scheme_name!r}, only for {', '.join(SCHEMES)}."
        )
    return _BY_SCHEME[scheme_name]
