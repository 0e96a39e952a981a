"""Membership attacks from their config tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from ..base import Attack
from ..settings import check_keys, check_types
from .attribute import AttributeInference
from .captured_attack import CapturedMembership
from .exposure import ExposedNumbers
from .loss_attack import LossThreshold
from .quantile import QuantileMembership
from .sequence import SequenceMembership
from .shadow_attack import ShadowMembership
from .stacked import StackedMembership

Make = Callable[[Mapping[str, Any], bool, str], list[Attack]]

GONE = ("a", "alternatives", "classifier", "gamma", "manner", "memory_gib")  # settings that there were

_Kind = (
    type[AttributeInference]
    | type[CapturedMembership]
    | type[ExposedNumbers]
    | type[LossThreshold]
    | type[QuantileMembership]
    | type[SequenceMembership]
    | type[ShadowMembership]
    | type[StackedMembership]
)


def maker(kind: _Kind, **fixed: Any) -> Make:
    """A `make(settings, quick, device)` for one attack; `quick` halves the shadows. Membership is computed on the CPU.

    The returned function raises ValueError in one sentence for an unknown key or a value out of range.
    """

    def make(settings: Mapping[str, Any], quick: bool, device: str) -> list[Attack]:
        del device
        check_keys(settings, {f.name for f in fields(kind) if f.init} - set(fixed), GONE)
        check_types(kind, settings)
        values = {**settings, **fixed}
        attack = kind(**values)
        if quick and isinstance(attack, ShadowMembership):
            attack = kind(**{**values, "shadows": min(attack.shadows, max(4, attack.shadows // 4 * 2))})
        return [attack]

    return make
