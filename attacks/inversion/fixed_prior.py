"""The inversion with a fixed prior that runs beside those whose prior grows with the noise.

A strong prior makes pictures look more like the originals, and smooths away what tells these from each other: on
`photos` (mlp 256-256, .01·C of noise, 16 images) the cosine's prior that grows is 3 dB nearer and picks out 0 to 2
images, a fixed one of .01 picks out 8 or 9. Looks and re-identification each need their strongest attack.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..base import Knowledge, Part, View
from .attack import Inversion

TV = 0.01


@dataclass(frozen=True)
class FixedPrior(Inversion):
    """The inversion on messages with noise of known size alone: without it, one whose prior grows is the same.

    prior: tells its entries from the others' in results.
    """

    prior: str = field(default="fixed", init=False)

    def parts(self, view: View, knowledge: Knowledge) -> list[Part]:
        """Those of `Inversion` whose noise is known; none where there is none. Raises ValueError as that one does."""
        return [
            part
            for part in super().parts(view, knowledge)
            if any(target.noise_std > 0 for target in part.content.targets)
        ]
