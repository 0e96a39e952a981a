"""THESIS table 4.4: reconstruction in federated (FL) and single-end (SE) learning, all rounds together."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .federations import StandIn, stand_in
from .reconstructed import LEAK, LPIPS, NOTABLE, ONCE, PSNR, THESIS, ClientScale, inversion_plan, reads
from .table import FilledTable, Request
from .trends import Trend, TrialFigures
from .trial_table import TableCell, TrialPlan, TrialTable

# (model, C) → PSNR, probability of leakage, LPIPS; THESIS table 4.4.
PUBLISHED: dict[tuple[str, float], tuple[float, float, float]] = {
    ("FL", 0.1): (12.56, 0.57, 0.1916),
    ("FL", 1.0): (12.76, 0.54, 0.1991),
    ("FL", 10.0): (11.00, 0.21, 0.2332),
    ("SE", 0.1): (12.42, 0.55, 0.2202),
    ("SE", 1.0): (12.40, 0.51, 0.2224),
    ("SE", 10.0): (10.69, 0.25, 0.2330),
}
CLIPS = (0.1, 1.0, 10.0)
SIGMA = 0.1  # the noise that the text names beside the table
MANNERS = ("all-rounds", "one-round")
# What tells the three apart. "FL, gradient": ours; a federation whose clients share what SE's does.
FEDERATED = "FL"
SHARED = "FL, gradient"
ALONE = "SE"
MODELS = (FEDERATED, SHARED, ALONE)


@dataclass(frozen=True)
class FederationScale:
    """THESIS 4.4's federation, or a smaller one. clients: with 100 images each. rounds: of FL and SE. epochs: of local
    training. batch: of it.
    """

    clients: int
    rounds: int
    epochs: int
    batch: int


QUICK_LEARNING = ClientScale(128, 8, 60, 0.1)  # a message of local training is of a hundred images
PUBLISHED_SCALE, QUICK_SCALE = FederationScale(40, 15, 5, 20), FederationScale(5, 3, 5, 20)


def learning_cell_name(model: str, clip: float, manner: str) -> str:
    return f"{model} C={clip:g} {manner}"


def learning_cells(scale: FederationScale) -> tuple[TableCell, ...]:
    """Cells whose tables have the federation's size."""
    return tuple(
        TableCell(
            learning_cell_name(model, clip, manner),
            {"model": model, "C": f"{clip:g}", "manner": manner},
            {
                "data": {"clients": 1 if model == ALONE else scale.clients},
                "local": {"batch_size": scale.batch, "epochs": scale.epochs} if model == FEDERATED else {},
                "scheme": {
                    "clip": clip,
                    "rounds": scale.rounds,
                    "share": "update" if model == FEDERATED else "gradient",
                },
            },
            dict(zip(("psnr", "leak_probability", "lpips"), PUBLISHED.get((model, clip), ())))
            if manner == "all-rounds"
            else {},
            reads(manner=manner),
        )
        for model in MODELS
        for clip in CLIPS
        for manner in MANNERS
    )


def learning_plan(
    request: Request, data: StandIn, scale: FederationScale, *, size: ClientScale | None = None
) -> TrialPlan:
    """FL and SE on the same images.

    Args:
        request: what is asked for. data: what they are of. scale: of the federation.
        size: None for the thesis's client, or with --quick a smaller one.
    """
    size = size or request.sized(QUICK_LEARNING, THESIS)
    base = {
        "data": {**data.table, **({"classes": 10} if data.name == "photos" else {}), "samples_per_client": 100},
        "model": {"name": "mlp", "options": {"widths": [size.width] * 3}},
        "local": {"optimiser": "adam", "lr": 0.01, "batch_size": size.batch},
        "scheme": {"name": "ldp", "sigma": SIGMA},
        "capture": {"clients": [0]},
        "claim": "none",
    }
    attack = {"iterations": size.iterations, "lr": size.lr, "tv": 0.01}
    sentence = (
        f"σ = {SIGMA:g}, MLP 3×{size.width}, {scale.rounds} rounds, 100 images a client, {scale.clients} clients in FL,"
        f" {size.iterations:,} attack steps of {size.lr:g}; FL sends the update of {scale.epochs} local epochs, SE the"
        f" gradient of a batch of {size.batch} a round."
    )
    return inversion_plan(request, base, {**attack, "objective": "cosine"}, sentence, data)


def _mean(trial: TrialFigures, model: str, manner: str, figure: str = "psnr") -> float:
    return sum(trial[learning_cell_name(model, clip, manner)][figure] for clip in CLIPS) / len(CLIPS)


TRENDS = (
    Trend(
        "Does federated learning leak more than single-end learning?",
        "yes",
        "PSNR (dB) of FL less SE, all rounds together, mean over C",
        lambda trial: _mean(trial, FEDERATED, "all-rounds") - _mean(trial, ALONE, "all-rounds"),
    ),
    Trend(
        "Does it where both share a batch's gradient?",
        "not asked; ours",
        "PSNR (dB) of FL (gradient) less SE, all rounds together, mean over C",
        lambda trial: _mean(trial, SHARED, "all-rounds") - _mean(trial, ALONE, "all-rounds"),
    ),
    Trend(
        "Does federated learning leak for longer (both sharing a gradient)?",
        "yes",
        "fall of one round's PSNR (dB) from the first to the last round, SE less FL (gradient), mean over C",
        lambda trial: _mean(trial, ALONE, "one-round", "psnr_fall") - _mean(trial, SHARED, "one-round", "psnr_fall"),
        least=NOTABLE,
    ),
    Trend(
        "Does the attack on all rounds beat that on one round (SE)?",
        "yes",
        "PSNR (dB) of all rounds together less the mean over rounds, mean over C",
        lambda trial: _mean(trial, ALONE, "all-rounds") - _mean(trial, ALONE, "one-round"),
        least=NOTABLE,
    ),
)

NOTES = (
    (
        "Published PSNR of FL is .27 dB above SE's on average. The table names no noise; the text beside it has σ ="
        " .1. It compares all-round attacks; one-round rows, averaged over rounds, and FL with a shared gradient have"
        " no published numbers."
    ),
    (
        "All rounds, ours: where every message is of all records (FL's epochs) one set of images has to explain all"
        " messages, each at its own round's model. Where each is of a batch of its own (a shared gradient) nothing"
        " joins them: the images are those of the attacks on single rounds, compared with those of all rounds."
    ),
    (
        "FL sends what five local epochs of Adam changed; an attack that reads it as a gradient gets little. The thesis"
        " says that the SE client trains an epoch; here it shares one batch's gradient a round, as in table 4.3."
    ),
    ONCE,
)


def table_4_4(request: Request) -> FilledTable:
    """The table in the size asked for. Raises BadInput where the data are not there."""
    data = stand_in(request, "CIFAR-100", {"cifar100": "cifar-100-python", "cifar10": "cifar-10-batches-py"}, "photos")
    scale = request.sized(QUICK_SCALE, PUBLISHED_SCALE)
    if data.name == "photos":  # of which there are no 4,000
        scale = replace(scale, clients=QUICK_SCALE.clients)
    plan = learning_plan(request, data, scale)
    cells = learning_cells(scale)
    return TrialTable(
        "thesis-4.4", cells, (PSNR, LEAK, LPIPS), TRENDS, NOTES, lambda _: plan, trials=3, quick_trials=3
    ).run(request)
