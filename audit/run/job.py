"""A run that was asked for and checked: what `opened` makes and `carry_out` does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

from ...attacks.cells import ChosenAttack
from ...defenses.terms import Observer
from ...metrics import perceptual
from .. import scoring
from ..files import digest_of_file
from ..results.format import Choice
from ..setup.auditor import Auditor
from ..setup.config import CANARY
from ..setup.description import versions
from ..setup.folder import Setup
from ..worlds.federation.plan import CanarySettings
from .options import RunOptions
from .public_half import PublicHalf


@dataclass(frozen=True, eq=False)
class Job:
    """What is asked for, checked: both halves of the setup, and whom and what to try.

    half: the public one, with what is wanted of it. choice: how the attacks were chosen, None where they were named.
    ablated: the attacks without a piece of what they know; not_withheld: by piece, why there is none without it.
    """

    half: PublicHalf
    auditor: Auditor
    attacks: tuple[ChosenAttack, ...]
    canaries: CanarySettings | None
    choice: Choice | None
    lpips: tuple[perceptual.Net, Path] | perceptual.NotMeasured
    ablated: tuple[ChosenAttack, ...] = ()
    not_withheld: Mapping[str, str] = field(default_factory=dict)

    @property
    def setup(self) -> Setup:
        return self.half.setup

    @property
    def observers(self) -> tuple[Observer, ...]:
        return self.half.observers

    @property
    def options(self) -> RunOptions:
        return self.half.options

    @property
    def names(self) -> tuple[str, ...]:
        """Of all that runs, as typed after --attack."""
        names = dict.fromkeys(chosen.name for chosen in self.attacks)
        return (*names, *([] if self.canaries is None else [CANARY]))

    @property
    def net(self) -> perceptual.Net | None:
        """The backbone of LPIPS, None where there is none."""
        if isinstance(self.lpips, perceptual.NotMeasured):
            return None
        return self.lpips[0]

    def depth(self, lpips: perceptual.Perceptual | perceptual.NotMeasured) -> scoring.Depth:
        """How thoroughly it is scored. lpips: the network, loaded."""
        options = self.options
        return scoring.Depth(lpips, not options.pixels_only, not options.shares_only, options.seed)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that decides the results."""
        weights = None
        if not isinstance(self.lpips, perceptual.NotMeasured):
            weights = [self.lpips[0], digest_of_file(self.lpips[1])]
        content = {
            "setup": self.setup.manifest.digest,
            "files": self.setup.manifest.files,  # another noise key gives other messages
            "attacks": [(chosen.name, chosen.settings) for chosen in self.attacks],
            "canaries": None if self.canaries is None else asdict(self.canaries),
            "observers": list(map(str, self.observers)),
            "seed": self.options.seed,
            "quick": self.options.quick,
            "lpips": weights,
            **{name: True for name in ("pixels_only", "shares_only") if getattr(self.options, name)},
            "versions": versions(),
            "truth": self.auditor.truth is not None,
            "auditor": self.auditor.ledger is not None,
            "edited": self.auditor.edited_digests,
        }
        if self.choice is not None:
            content["choice"] = self.choice.model_dump()
        if self.ablated:
            content["ablated"] = [(chosen.name, chosen.settings) for chosen in self.ablated]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
