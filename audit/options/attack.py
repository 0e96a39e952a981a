"""What `audit run` and `dpfl_audit.run` can be asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from .option import Option
from .shared import MODEL_NAME, SEEDS, Device


@dataclass(frozen=True, kw_only=True)
class AttackOptions:
    """What to attack with. attacks: () for every one that applies within `minutes`. minutes: None for 10, and then
    without canaries. observers: () for the config's.
    """

    attacks: Annotated[
        Sequence[str],
        Option(
            "An attack (`audit list attacks`); may be repeated. auto: an inversion by the preset that suits what the"
            " observer is told. Default: every one that applies, within --minutes.",
            flags="--attack",
        ),
    ] = ()
    minutes: Annotated[
        float | None,
        Option(
            "Without --attack: run the attacks that apply, the cheapest first, canaries too, as far as this goes; of an"
            " inversion that is too long as many messages as fit. Counted from shapes, for two cores, and never by a"
            " clock: the same command runs the same attacks everywhere. Default: 10, without canaries."
        ),
    ] = None
    observers: Annotated[
        Sequence[str], Option("Who attacks (`audit list observers`). Default: the config's.", flags="--observer")
    ] = ()
    overrides: Annotated[
        Sequence[str],
        Option(
            "Override an attack's setting, e.g. inversion.iterations=1000.", flags="--set", metavar="ATTACK.KEY=VALUE"
        ),
    ] = ()
    ablate: Annotated[
        bool,
        Option(
            "Also run the inversion without each piece of what it knows (labels, noise, clip, local training,"
            " normalisation statistics), one at a time: what each is worth to the attacker. No verdict or gate is on"
            " these. Without a named attack the inversion alone runs."
        ),
    ] = False
    seed: Annotated[int, Option("Of the attacks.", check=SEEDS, show_default=True)] = 0
    device: Device = "auto"
    lpips_weights: Annotated[Path | str | None, Option("File or folder of LPIPS backbone weights.")] = None
    allow_model: Annotated[
        str | None,
        Option(
            "Import this model of yours, from here or installed, by repeating the setup's [model] name. It is called as"
            " `FUNCTION(input_shape, classes, **options)` and returns a torch.nn.Module. A loss of yours in its file"
            " runs too; beside a model of ours the loss is what is named.",
            metavar=MODEL_NAME,
        ),
    ] = None
    quick: Annotated[bool, Option("A third of the iterations and one message; the report says so.")] = False
