"""Cells whose figures are what an inversion attack makes of a client's messages: trained and attacked together, scored
beside the originals and controls, as `audit train` and `audit run` do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from ...attacks.base import Evidence, Reconstruction
from ...attacks.cells import ChosenAttack
from ...attacks.inversion.make import make_inversions
from ...defenses.data.dataset import Dataset
from ...defenses.progress import Progress, part_of
from ...metrics import classifiers, perceptual
from ...metrics.leakage import score_images
from ..choose.trial import train_whole
from ..devices import model_of
from ..errors import bad_input
from ..files import cache_folder
from ..run.evidence import Collected, Errand, collect_together, plan
from ..scoring.kept_classifiers import kept_reference
from ..scoring.questions import rows_of
from ..setup.auditor import Auditor
from ..setup.capture import Training
from ..setup.experiment import Experiment
from ..setup.folder import Setup, open_setup
from .federations import StandIn, Tables, experiments_of, stand_in, training_name
from .table import Request
from .trial_table import Measure, TableCell, TrialPlan, without_root

BACKBONES = Path("weights") / "lpips_backbones"
FIGURES = ("psnr", "psnr_margin", "leak_probability", "lpips", "pixel_cosine", "pixel_euclidean")
NOISE = "Noise: eq. 4.2, standard deviation σC/n, n = 100 images, on the batch's mean gradient clipped to C."
ONCE = "The thesis ran every cell once."
NOTABLE = 0.5  # dB of PSNR: a smaller difference counts as none
AUXILIARY = 1000  # images that reference classifiers are trained on, as `[capture] auxiliary` has it
UNJUDGED = perceptual.NotMeasured("the table has no probability of leakage")
PSNR = Measure("psnr", "PSNR")
LEAK = Measure("leak_probability", "prob leak", least=0, most=1)
LPIPS = Measure("lpips", "LPIPS", 4, least=0)
COSINE, EUCLIDEAN = Measure("pixel_cosine", "Cos-sim", least=-1, most=1), Measure("pixel_euclidean", "Euc-dis", least=0)


@dataclass(frozen=True)
class ClientScale:
    """The thesis's client (chapter 4), or a smaller one. width: of each of the MLP's three hidden layers. batch: images
    whose mean gradient is shared, of 100. iterations, lr: of the attack.
    """

    width: int
    batch: int
    iterations: int
    lr: float

    @property
    def sentence(self) -> str:
        return (
            f"MLP 3×{self.width}, batches of {self.batch} of the client's 100 images, {self.iterations:,} attack steps"
            f" of {self.lr:g}"
        )


THESIS = ClientScale(1024, 25, 2500, 0.01)  # THESIS 4.2.3 and 4.4
QUICK = ClientScale(256, 8, 100, 0.1)  # ours: a tenfold step and a narrow network, for seconds a cell


def single_end(
    request: Request, *, scale: ClientScale | None = None, objectives: Sequence[str] = ("cosine",)
) -> TrialPlan:
    """THESIS 4.4, single-end (SE): one client with 100 images sends one round's clipped and noised batch gradient.

    Args:
        request: what is asked for. scale: None for the thesis's, or with --quick a smaller one.
        objectives: what the attack compares gradients by, each an attack of its own.

    Raises:
        BadInput: the data set is not there.
    """
    size = scale or request.sized(QUICK, THESIS)
    data = stand_in(request, "CIFAR-100", {"cifar100": "cifar-100-python", "cifar10": "cifar-10-batches-py"}, "photos")
    base = {
        "data": {
            **data.table,
            **({"classes": 100} if data.name == "photos" else {}),
            "clients": 1,
            "samples_per_client": 100,
        },
        "model": {"name": "mlp", "options": {"widths": [size.width] * 3}},
        "local": {"optimiser": "adam", "lr": 0.01, "batch_size": size.batch},
        "scheme": {"name": "ldp", "rounds": 1, "share": "gradient"},
        "capture": {"clients": [0]},
        "claim": "none",
    }
    attack = {"objective": [*objectives], "iterations": size.iterations, "lr": size.lr, "tv": 0.01}
    return inversion_plan(request, base, attack, f"One client, one round, {size.sentence}; labels known.", data)


def inversion_plan(
    request: Request, base: Tables, attack: Tables, setting: str, data: StandIn, *, judged: bool = True
) -> TrialPlan:
    """A plan whose work trains, attacks and scores.

    Args:
        request: for the LPIPS weights under its data root, else torch's cache.
        base: the config that cells change. attack: as its [attack.inversion] would be.
        setting: as of `TrialPlan`. data: what the config's is.
        judged: whether reference classifiers are trained, for the probability of leakage.

    Raises:
        BadInput: the weights are damaged.
    """
    weights = None if request.data_root is None else request.data_root / BACKBONES
    with bad_input("LPIPS"):
        found = perceptual.find(weights if weights is not None and weights.is_dir() else None)
        lpips = found if isinstance(found, perceptual.NotMeasured) else perceptual.load(*found)
    variants = [
        ChosenAttack("inversion", made, {"objective": made.objective})  # type: ignore[attr-defined]
        for made in make_inversions(attack, False, request.device)
    ]

    def work(
        cells: Sequence[TableCell], seed: int, folder: Path, progress: Progress | None
    ) -> Mapping[str, Mapping[str, float]]:
        experiments = experiments_of(base, cells, seed)
        setups, brought = attacked(experiments, variants, seed, folder, progress)
        judges = {id(made.data): _reference(made.data) if judged else UNJUDGED for made in experiments.values()}
        figures = {}
        for (name, made), setup, collected in zip(experiments.items(), setups, brought):
            auditor, by_kind = Auditor.open(setup), dict[str, list[dict[str, Any]]]()
            for item in sorted(collected.evidence, key=lambda item: _round(item.evidence)):
                assert isinstance(item.evidence, Reconstruction)
                kind = reads(item.cell.settings["objective"], item.evidence.manner)
                scores = _scores(setup, auditor, item.evidence, judges[id(made.data)], lpips)
                by_kind.setdefault(kind, []).append(scores)
            figures[name] = {kind: _means(entries) for kind, entries in by_kind.items()}
        return {cell.name: figures[training_name(cell)].get(cell.reads, {}) for cell in cells}

    content = [without_root(base), data.files, attack, str(getattr(lpips, "net", None)), *other_device(request)]
    lacking = (f"LPIPS was not measured: {lpips.reason}.",) if isinstance(lpips, perceptual.NotMeasured) else ()
    return TrialPlan(setting, data.shown, content, work, (*lacking, *where_computed(request)))


def attacked(
    experiments: Mapping[str, Experiment],
    variants: Sequence[ChosenAttack],
    seed: int,
    folder: Path,
    progress: Progress | None,
    trained: float = 0.2,
) -> tuple[list[Setup], list[Collected]]:
    """Trained together and attacked together, as far as that was not done in `folder` before a kill.

    Args:
        experiments: by name. variants: of the attack. seed: of its starts. folder: where setups are.
        progress: called with the work done and its amount, of which training is the share `trained`.
    """
    places = {name: folder / hashlib.sha256(name.encode()).hexdigest()[:12] for name in experiments}
    train_whole(
        [Training(made, places[name] / "setup") for name, made in experiments.items()], part_of(progress, 0.0, trained)
    )
    setups = [open_setup(place / "setup") for place in places.values()]
    errands = [
        Errand(plan([setup.view(setup.config.audit.observer)], variants, setup.knowledge()), place)
        for setup, place in zip(setups, places.values())
    ]
    return setups, collect_together(errands, seed, part_of(progress, trained, 1.0))


def other_device(request: Request) -> tuple[str, ...]:
    """What a plan's content says of it: a GPU rounds otherwise, so that its figures are others than the CPU's."""
    if request.device == "cpu":
        return ()
    return (request.device,)


def where_computed(request: Request) -> tuple[str, ...]:
    """A note, where that was not the CPU."""
    model = model_of(request.device)
    if model:
        return (f"Inversions were computed on {request.device} ({model}).",)
    return ()


def reads(objective: str = "cosine", manner: str = "one-round") -> str:
    """Which of a training's reconstructions a cell is of; several messages' are averaged."""
    return f"{objective} {manner}"


def _round(evidence: Evidence) -> int:
    """The first round its messages are of."""
    if isinstance(evidence, Reconstruction):
        return evidence.round or 0
    return 0


def _scores(
    setup: Setup,
    auditor: Auditor,
    rebuilt: Reconstruction,
    judge: classifiers.Reference | perceptual.NotMeasured,
    lpips: perceptual.Perceptual | perceptual.NotMeasured,
) -> dict[str, Any]:
    """Without line-ups and their tests, which no published table here has: controls are grey and the attack's start."""
    truth, data, rows = auditor.truth, setup.manifest.data, rows_of(auditor, rebuilt)
    assert truth is not None and rows
    return score_images(
        truth.inputs[rows],
        rebuilt.images,
        labels=truth.targets[rows],
        reconstruction_labels=rebuilt.labels,
        start=rebuilt.start,
        classifiers=judge,
        perceptual=lpips,
        noise_scale=(setup.manifest.facts.noise_std or 0.0) * max(setup.manifest.clients),
        normalise=(torch.tensor(data.mean), torch.tensor(data.std)),
    )


def _means(entries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Over messages, and how far PSNR falls from the first to the last; what was not measured is left out."""
    measured = [name for name in FIGURES if all(entry[name] is not None for entry in entries)]
    means = {name: fmean(float(entry[name]) for entry in entries) for name in measured}
    return {**means, "psnr_fall": float(entries[0]["psnr"]) - float(entries[-1]["psnr"])}


def _reference(data: Dataset) -> classifiers.Reference | perceptual.NotMeasured:
    """As `audit run` judges: shipped classifiers, or small ones trained on auxiliary images."""
    if data.name in classifiers.shipped():
        return classifiers.load_reference(data.name)
    inputs, targets = data.auxiliary_inputs[:AUXILIARY], data.auxiliary_targets[:AUXILIARY]
    if min(inputs.shape[2:]) < classifiers.LEAST or len(inputs) < 2 * data.classes:
        return perceptual.NotMeasured("too few or too small auxiliary images to train reference classifiers on")
    colour = inputs.shape[1] == 3
    return kept_reference(cache_folder("classifiers"), inputs, targets, data.classes, seed=0, flip=colour)
