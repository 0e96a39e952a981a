"""The auditor's half of a setup."""

from __future__ import annotations

from dataclasses import dataclass

from .folder import Setup, Truth
from .ledger import Ledger


@dataclass(frozen=True, eq=False)
class Auditor:
    setup: Setup

    @classmethod
    def open(cls, setup: Setup) -> Auditor:
        return cls(setup)

    @property
    def truth(self) -> Truth | None:
        return self.setup.truth

    @property
    def ledger(self) -> Ledger | None:
        return self.setup.ledger

    @property
    def edited(self) -> list[str]:
        return self.setup.edited
