"""Inversions that run beside those whose prior grows with known noise, where a table names no prior: no prior is the
strongest at everything.

A total variation that grows makes pictures look more like the originals, and smooths away what tells these from each
other: on `photos` (mlp 256-256, .01·C of noise, 16 images) the cosine's is 3 dB nearer and picks out 0 to 2 images, a
fixed one of .01 picks out 8 or 9. Where most of a message is noise, what the attacker's own records have for a
spectrum, and images averaged over what is uncertain of them, are 1 to 6 dB nearer than either
(benchmarks/measured/inversion.md). Looks and re-identification each need their strongest attack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...base import Knowledge, Part, PublicFacts, View
from ..attack import Inversion
from ..read.target import Aim
from ..strategies.kept_denoiser import RECORDS
from ..strategies.learned_prior import STRONG

TV = 0.01


@dataclass(frozen=True)
class Beside(Inversion):
    """An inversion of some messages alone, which names itself.

    prior: tells its entries from the others' in results.
    """

    prior: str = field(default="", init=False)


@dataclass(frozen=True)
class FixedPrior(Beside):
    """The inversion on messages with noise of known size alone: without it, one whose prior grows is the same."""

    prior: str = field(default="fixed", init=False)

    def parts(self, view: View, knowledge: Knowledge) -> list[Part]:
        """Those of `Inversion` whose noise is known; none where there is none. Raises ValueError as that one does."""
        return [
            part
            for part in super().parts(view, knowledge)
            if any(target.noise_std > 0 for target in part.content.targets)
        ]


@dataclass(frozen=True)
class SpectrumPrior(Beside):
    """The inversion with the auxiliary records' spectrum for a prior, on what is noise for at least half."""

    prior: str = field(default="spectrum", init=False)

    def parts(self, view: View, knowledge: Knowledge) -> list[Part]:
        """Those of `Inversion` that have so much noise of known size, all messages of the same images together where
        they are read together (`Target.noise_share`); none where there is none, or where the attacker has too few
        records of the same kind. Raises ValueError as that one does.
        """
        return super().parts(view, knowledge) if len(knowledge.auxiliary_inputs) >= RECORDS else []

    def _with_known_noise(self, aims: Sequence[Aim], facts: PublicFacts) -> list[Aim]:
        return [aim for aim in aims if all(t.noise_share >= STRONG and t.noise_known for t in aim.targets)]
