"""Canaries: what an auditor plants in one of two worlds; telling the worlds apart demonstrates a privacy loss."""

from .base import Canary, UpdateCanary
from .crafted import CraftedRecord
from .gradients import DiracGradient
from .initial import CraftedStart
from .records import Blank, Existing, Filled, Mislabelled
from .secret import PlantedSecret
from .updates import DiracUpdate, NotFinite, RandomUpdate
from .words import NewWords

RECORD_CANARIES: dict[str, Canary] = {
    c.name: c
    for c in (
        DiracGradient(),
        Blank(),
        Filled(),
        Mislabelled(),
        Existing(),
        CraftedRecord("direction"),
        CraftedRecord("length"),
        NewWords(),
        PlantedSecret(),
    )
}
CLIENT_CANARIES: dict[str, UpdateCanary] = {c.name: c for c in (RandomUpdate(), DiracUpdate(), NotFinite())}

__all__ = [
    "CLIENT_CANARIES",
    "RECORD_CANARIES",
    "Blank",
    "Canary",
    "CraftedRecord",
    "CraftedStart",
    "DiracGradient",
    "DiracUpdate",
    "Existing",
    "Filled",
    "Mislabelled",
    "NewWords",
    "NotFinite",
    "PlantedSecret",
    "RandomUpdate",
    "UpdateCanary",
]
