"""Single images from their gradients in DLG's LeNet: Geiping et al. 2020, table 1, and Zhu et al. 2019."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ...attacks.inversion.presets.published import PRESETS
from .federations import stand_in
from .reconstructed import LPIPS, PSNR, inversion_plan, reads
from .table import Request
from .trends import Trend, TrialFigures
from .trial_table import Measure, TableCell, TrialPlan, TrialTable

MARGIN = Measure("psnr_margin", "PSNR above best control")
IMAGES, QUICK_IMAGES = 5, 3  # a trial; all of a trial have one untrained network
ATTACK = "attack"


@dataclass(frozen=True)
class LenetInversion:
    """An attack by one of our presets. short: its iterations with --quick."""

    preset: str
    short: int

    def plan(self, request: Request) -> TrialPlan:
        """Clients with an image each send its gradient; all at the same untrained weights.

        Raises:
            BadInput: the data set is not there.
        """
        data = stand_in(request, "CIFAR-10", {"cifar10": "cifar-10-batches-py"}, "photos")
        settings = PRESETS[self.preset].settings
        iterations = request.sized(self.short, settings.iterations)
        images = request.sized(QUICK_IMAGES, IMAGES)
        # CIFAR-10's auxiliary records are of the published test split; the bundled set has too few.
        held_out = {} if data.name == "photos" else {"train_on": "auxiliary"}
        base = {
            "data": {**data.table, "clients": images, "samples_per_client": 1, **held_out},
            "model": {"name": "lenet"},
            "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 1},
            "scheme": {"name": "fedavg", "rounds": 1, "share": "gradient"},
            "capture": {"clients": [*range(images)]},
            "claim": "none",
        }
        attack = {
            "objective": [settings.objective],
            "optimiser": settings.optimiser,
            "iterations": iterations,
            "lr": settings.lr,
            "tv": settings.tv,
            "exact": False,
            "manners": ["one-round"],
        }
        setting = f"{images} images a trial, each its own client's; {iterations:,} iterations."
        return inversion_plan(request, base, attack, setting, data, judged=False)

    def cell(self, published: dict[str, float]) -> TableCell:
        objective = PRESETS[self.preset].settings.objective
        return TableCell(ATTACK, {"attack": self.preset}, {}, published, reads(objective))


def figure(trial: TrialFigures, key: str) -> float:
    """Of the one cell."""
    return trial[ATTACK][key]


BEATS_CONTROLS = Trend(
    "Does the attack beat the best control by 3 dB (grey, or its own start)?",
    "not asked; ours",
    "PSNR (dB) above the best control",
    partial(figure, key="psnr_margin"),
    least=3.0,
)


NOTES = (
    "The best control is the better one for each image of a grey one and of the attack's own start.",
    "Labels are known to the attacker, who has the same network and starts once.",
)


def lenet_table(
    name: str, preset: str, published: dict[str, float], level: float, said: str, quick: int, *notes: str
) -> TrialTable:
    """A table of one attack.

    Args:
        name: of the table. preset: of the attack. published: by metric.
        level: dB that the mean is to reach. said: what the publication says of that.
        quick: iterations with --quick. notes: below the table.
    """
    made = LenetInversion(preset, quick)
    reached = Trend(
        f"Is the mean PSNR {level:g} dB or more?", said, "PSNR (dB)", partial(figure, key="psnr"), least=level
    )
    return TrialTable(
        name,
        (made.cell(published),),
        (PSNR, MARGIN, LPIPS),
        (reached, BEATS_CONTROLS),
        (*notes, *NOTES),
        made.plan,
        trials=10,
        quick_trials=3,
    )


INVERTING_GRADIENTS = lenet_table(
    "inverting-gradients-lenet",
    "inverting-gradients",
    {"psnr": 18.0},
    16.0,
    "yes (18.00 ± 3.33)",
    400,
    "Published: CIFAR-10, 100 validation images, one network, batch 1. Ours: images of the published test split, where"
    " the data are CIFAR-10.",
)
DLG = lenet_table(
    "dlg",
    "dlg",
    {},
    25.0,
    "no number; pictures",
    60,
    "The publication optimises labels too, shows pictures and prints no PSNR.",
)
