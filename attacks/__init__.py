"""All attacks by name: one line in this list each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .base import Attack
from .inversion.make import make as make_inversions
from .membership import CapturedMembership, LossThreshold, ShadowMembership
from .membership.make import maker


@dataclass(frozen=True)
class Kind:
    """A line about the attack, and how it is made from its config table: `make(settings, quick, device)`; ValueError in
    one sentence.
    """

    about: str
    make: Callable[[Mapping[str, Any], bool, str], list[Attack]]


ATTACKS: dict[str, Kind] = {
    "inversion": Kind("gradient inversion: images out of captured gradients, updates or weights", make_inversions),
    "membership-loss": Kind("membership by the final model's loss (Yeom et al.)", maker(LossThreshold)),
    "membership-cosine": Kind(
        "membership by the cosine of a record's gradient and the captured uploads, averaged over rounds",
        maker(CapturedMembership, statistic="cosine"),
    ),
    "membership-gradient-difference": Kind(
        "membership by 2⟨g, u⟩ − ‖g‖² over captured uploads (plain SGD)",
        maker(CapturedMembership, statistic="gradient-difference"),
    ),
    "membership-local-loss": Kind(
        "membership by the loss of the sender's own model", maker(CapturedMembership, statistic="loss")
    ),
    "membership-loss-trajectory": Kind(
        "membership by the loss over all global models", maker(CapturedMembership, statistic="loss-trajectory")
    ),
    "membership-fedmia": Kind(
        "membership by the cosine compared with other clients' uploads (FedMIA; 5 captured clients or more)",
        maker(CapturedMembership, statistic="fedmia"),
    ),
    "membership-shokri": Kind(
        "shadow models and an attack classifier per class (Shokri et al.)", maker(ShadowMembership, method="shokri")
    ),
    "membership-lira": Kind(
        "likelihood ratio against shadow models, online (Carlini et al.)", maker(ShadowMembership, method="lira-online")
    ),
    "membership-lira-offline": Kind(
        "likelihood of non-membership by shadow models, one-sided", maker(ShadowMembership, method="lira-offline")
    ),
    "membership-rmia": Kind(
        "relative likelihoods against a population (RMIA, offline)", maker(ShadowMembership, method="rmia")
    ),
}

__all__ = ["ATTACKS", "Kind"]
