"""Images from several local epochs of FedAvg in a CNN: Dimitrov et al. 2022, arXiv:2206.12395."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from ...attacks.base import Reconstruction
from ...attacks.cells import ChosenAttack
from ...attacks.inversion.attack import Inversion
from ...attacks.inversion.presets.published import PRESETS
from ...defenses.progress import Progress
from ...metrics.leakage import score_images
from ..scoring.questions import rows_of
from ..setup.auditor import Auditor
from .federations import experiments_of, stand_in, training_name
from .reconstructed import PSNR, UNJUDGED, attacked, where_computed
from .table import Request
from .trends import Trend, TrialFigures
from .trial_table import Measure, TableCell, TrialPlan, TrialTable, without_root

LEVEL = 19.0  # dB above which an image counts as recovered
EPOCHS = (1, 5, 10)
IMAGES, QUICK_IMAGES, BATCH, LR = 50, 10, 5, 0.004  # Dimitrov et al.'s code, scripts/reconstruct_femnist_table1.sh
ABOVE = Measure("above", "share above 19 dB", least=0, most=1)
GRAY, MEAN = Measure("gray", "PSNR of grey"), Measure("mean", "PSNR of the mean image")
ONE, SIMULATED, SPAN = "one gradient", "fedavg-dimitrov", "fedavg-span"
ATTACKS = {
    ONE: replace(PRESETS["fedavg-dimitrov"].settings, simulated=0),
    SIMULATED: PRESETS["fedavg-dimitrov"].settings,
    SPAN: PRESETS["fedavg-span"].settings,
}
PUBLISHED = {(ONE, 10): 0.10, (SIMULATED, 10): 0.45}
CLIP = 0.05  # below the norm of ten epochs' update, .07 to .3
NOISES = (0.0, 1e-5, 1e-4)  # standard deviations; times √333,526 components, 0, .1 and 1.2 of the clip

FEWER = "Ten images are far easier than the publication's 50: what holds of them need not hold of 50."


def network(channels: int, side: int, classes: int) -> list[list[Any]]:
    """Their CNN for FEMNIST, as the option of `models.layers`."""
    return [
        ["Conv2d", {"in_channels": channels, "out_channels": 32, "kernel_size": 3, "padding": 1}],
        ["ReLU", {}],
        ["AvgPool2d", {"kernel_size": 2}],
        ["Conv2d", {"in_channels": 32, "out_channels": 64, "kernel_size": 3, "padding": 1}],
        ["ReLU", {}],
        ["AvgPool2d", {"kernel_size": 2}],
        ["Flatten", {}],
        ["Linear", {"in_features": 64 * (side // 4) ** 2, "out_features": 100}],
        ["ReLU", {}],
        ["Linear", {"in_features": 100, "out_features": classes}],
    ]


def dimitrov_plan(request: Request) -> TrialPlan:
    """One client trains for E epochs and sends its update; every attack reads the same one.

    Raises:
        BadInput: the data set is not there.
    """
    data = stand_in(request, "FEMNIST", {"fashion_mnist": "FashionMNIST"}, "digits")
    side = 8
    if data.name == "fashion_mnist":
        side = 28
    images = request.sized(QUICK_IMAGES, IMAGES)
    base = {
        "data": {**data.table, "clients": 1, "samples_per_client": images},
        "model": {"name": "layers", "options": {"layers": network(1, side, 10)}},
        "local": {"optimiser": "sgd", "lr": LR, "batch_size": BATCH},
        "scheme": {"name": "fedavg", "rounds": 1, "share": "update"},
        "capture": {"clients": [0]},
        "claim": "none",
    }
    made = {
        name: replace(_short(attack) if request.quick else attack, device=request.device)
        for name, attack in ATTACKS.items()
    }
    variants = [ChosenAttack("inversion", attack, {"objective": name}) for name, attack in made.items()]

    def work(
        cells: Sequence[TableCell], seed: int, folder: Path, progress: Progress | None
    ) -> Mapping[str, Mapping[str, float]]:
        experiments = experiments_of(base, cells, seed)
        setups, brought = attacked(experiments, variants, seed, folder, progress, trained=0.05)
        figures: dict[str, dict[str, dict[str, float]]] = {}
        for name, setup, collected in zip(experiments, setups, brought):
            auditor, auxiliary = Auditor.open(setup), experiments[name].data.auxiliary_inputs[:1000]
            figures[name] = {}
            for item in collected.evidence:
                assert isinstance(item.evidence, Reconstruction)
                figures[name][item.cell.settings["objective"]] = _figures(auditor, item.evidence, auxiliary)
        return {cell.name: figures[training_name(cell)][cell.reads] for cell in cells}

    content = [without_root(base), data.files, {name: asdict(attack) for name, attack in made.items()}]
    iterations = made[SIMULATED].iterations
    simulated = f"{made[SIMULATED].simulated} simulated ({made[SPAN].simulated} of {SPAN})"
    setting = (
        f"One client, {images} images, batches of {BATCH}, E epochs of SGD at {LR}, untrained CNN; labels known, the"
        f" order of batches not. {iterations} iterations, and {simulated}."
    )
    notes = (*((FEWER,) if request.quick else ()), *where_computed(request))
    return TrialPlan(setting, data.shown, content, work, notes)


def _short(attack: Inversion) -> Inversion:
    return replace(attack, iterations=attack.iterations // 4, simulated=attack.simulated // 4)


def _figures(auditor: Auditor, rebuilt: Reconstruction, auxiliary: Any) -> dict[str, float]:
    truth, rows = auditor.truth, rows_of(auditor, rebuilt)
    assert truth is not None and rows
    scores = score_images(
        truth.inputs[rows],
        rebuilt.images,
        labels=truth.targets[rows],
        reconstruction_labels=rebuilt.labels,
        start=rebuilt.start,
        classifiers=UNJUDGED,
        perceptual=UNJUDGED,
        normalise=None,
        auxiliary=auxiliary,
    )
    pairs = [pair["psnr"] for pair in scores["pairs"]]
    controls = {name: float(scores["controls"][name]["psnr"]) for name in ("gray", "mean")}
    share = sum(value > LEVEL for value in pairs) / len(pairs)
    return {"psnr": float(scores["psnr"]), "above": share, **controls}


def cells() -> tuple[TableCell, ...]:
    plain = [
        TableCell(
            f"{attack}, E = {epochs}",
            {"attack": attack, "E": str(epochs), "clip, noise": "–"},
            {"local": {"epochs": epochs}},
            {"above": PUBLISHED[attack, epochs]} if (attack, epochs) in PUBLISHED else {},
            attack,
        )
        for epochs in EPOCHS
        for attack in ATTACKS
    ]
    defended = [
        TableCell(
            defended_name(attack, noise),
            {"attack": attack, "E": str(EPOCHS[-1]), "clip, noise": f"{CLIP:g}, {noise:g}"},
            {"local": {"epochs": EPOCHS[-1]}, "scheme": {"name": "ldp", "clip": CLIP, "noise_std": noise}},
            {},
            attack,
        )
        for noise in NOISES
        for attack in ATTACKS
    ]
    return (*plain, *defended)


def defended_name(attack: str, noise: float) -> str:
    """The cell of an attack on the last of `EPOCHS`, clipped and with noise of this standard deviation."""
    return f"{attack}, E = {EPOCHS[-1]}, clip {CLIP:g}, noise {noise:g}"


def _share(trial: TrialFigures, attack: str) -> float:
    return trial[f"{attack}, E = 10"]["above"]


def _gain(trial: TrialFigures, attack: str) -> float:
    return _share(trial, attack) - _share(trial, ONE)


def _margin(trial: TrialFigures, cell: str) -> float:
    figures = trial[cell]
    return figures["psnr"] - max(figures["gray"], figures["mean"])


TRENDS = tuple(
    trend
    for attack in (SIMULATED, SPAN)
    for trend in (
        Trend(
            f"Does {attack} recover 45 % of the images at E = 10?",
            "yes (> 45 %)" if attack == SIMULATED else "not asked; ours",
            "share above 19 dB",
            partial(_share, attack=attack),
            least=0.45,
            within=(0.0, 1.0),
        ),
        Trend(
            f"Does {attack} recover more at E = 10 than one gradient's reading?",
            "yes (> 45 % against < 10 %)" if attack == SIMULATED else "not asked; ours",
            "share above 19 dB, difference",
            partial(_gain, attack=attack),
            within=(-1.0, 1.0),
        ),
        Trend(
            f"Does {attack} beat the best control at E = 10 (grey, or the mean image)?",
            "not asked; ours",
            "PSNR (dB) above the best control",
            partial(_margin, cell=f"{attack}, E = 10"),
        ),
        *(
            Trend(
                f"Does {attack} beat the best control at E = 10, clip {CLIP:g}, noise {noise:g}?",
                "not asked; ours",
                "PSNR (dB) above the best control",
                partial(_margin, cell=defended_name(attack, noise)),
            )
            for noise in NOISES
        ),
    )
)

DIMITROV = TrialTable(
    "fedavg-dimitrov",
    cells(),
    (ABOVE, PSNR, GRAY, MEAN),
    TRENDS,
    (
        "Published: FEMNIST, 62 classes, > 45 % at E = 10, and < 10 % for their reading as one gradient. Ours: ten"
        " classes, so that images share labels.",
        f"{ONE} is {SIMULATED} without its simulation. {SPAN} is ours: the gradient read half-way, and the span of a"
        " linear layer's inputs.",
        f"Clip {CLIP:g}: of the update's norm, which is .07 to .3 at E = 10 on Fashion-MNIST. Noise: its standard"
        " deviation on each of 333,526 numbers; 1e-5 and 1e-4 make .1 and 1.2 of the clip's norm in all.",
        "The mean image is that of 1,000 auxiliary images, which the attacks do not have.",
    ),
    dimitrov_plan,
    trials=6,
    quick_trials=3,
)
