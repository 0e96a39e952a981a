"""Whose ε a setup is held to: its owner's number, the formula of the scheme's paper, or nobody's."""

from __future__ import annotations

from math import inf

from ...defenses.presets import Preset
from ...defenses.scheme import Claim, Scheme
from ..errors import BadInput
from .config import ClaimTable, Config


def resolved(config: Config, preset: Preset, scheme: Scheme) -> Config:
    """The config with its claim written out, as a setup keeps it. One that names none claims what the scheme's paper
    does, where the parameters are in that paper's terms.

    Raises BadInput where it claims what a paper does not say, or at a δ that is not priced.
    """
    table, audit = config.claim, config.audit
    if table is None:
        paper = scheme.claim is not None and preset.paper_claims(config.parameters())
        table = ClaimTable(whose="paper" if paper else "none")
    if table.whose == "paper" and scheme.claim is None:
        raise BadInput(
            f'claim = "paper": {preset.name!r} has no formula for ε here; use "none", or a [claim] of your own'
        )
    if table.whose == "owner":
        given = {name: value for name, value in table if value is not None}
        asked = {"delta": audit.delta, "unit": audit.unit, "observer": audit.observer, "adjacency": audit.adjacency}
        table = ClaimTable(**{**asked, **given})
        if (table.delta or 0.0) > audit.delta:
            raise BadInput(
                f"[claim] delta = {table.delta:g} is above [audit] delta = {audit.delta:g}, where it claims nothing;"
                f" set [audit] delta to {table.delta:g}"
            )
    return config.model_copy(update={"claim": table})


def stated_claim(config: Config, scheme: Scheme) -> Claim | None:
    """What a setup of this (resolved) config claims; None for nothing."""
    table = config.claim
    assert table is not None
    if table.whose != "owner":
        if table.whose == "paper":
            return scheme.claim
        return None
    epsilon, least = table.epsilon, table.delta
    assert epsilon is not None and least is not None and table.observer and table.unit and table.adjacency
    return Claim(
        lambda releases, delta: epsilon if delta >= least else inf,
        f"ε = {epsilon:g} at δ = {least:g}",
        table.observer,
        table.unit,
        table.adjacency,
        whose="owner",
    )
