"""THESIS table 4.1: closeness of reconstructed pixels by noise and clip, one round of single-end learning."""

from __future__ import annotations

from .reconstructed import COSINE, EUCLIDEAN, NOISE, NOTABLE, ONCE, PSNR, reads, single_end
from .trends import CORRELATION, Trend, TrialFigures, rank_correlation
from .trial_table import TableCell, TrialTable

# (σ, C) → PSNR, cosine similarity, Euclidean distance; THESIS table 4.1.
PUBLISHED: dict[tuple[float, float], tuple[float, float, float]] = {
    (0.001, 0.1): (21.47, 0.97, 18.14),
    (0.001, 0.4): (28.52, 0.99, 8.09),
    (0.001, 1.0): (28.61, 0.99, 7.99),
    (0.01, 0.1): (21.63, 0.97, 17.80),
    (0.01, 0.4): (23.66, 0.95, 13.89),
    (0.01, 1.0): (17.84, 0.81, 26.77),
    (0.1, 0.1): (15.92, 0.70, 33.51),
    (0.1, 0.4): (10.22, 0.14, 64.54),
    (0.1, 1.0): (9.29, 0.03, 71.96),
    (1.0, 0.1): (9.12, 0.02, 73.35),
    (1.0, 0.4): (8.97, 0.01, 74.64),
    (1.0, 1.0): (8.95, 0.00, 74.81),
}


def pixel_cell_name(sigma: float, clip: float) -> str:
    return f"σ={sigma:g} C={clip:g}"


CELLS = tuple(
    TableCell(
        pixel_cell_name(sigma, clip),
        {"σ": f"{sigma:g}", "C": f"{clip:g}"},
        {"scheme": {"clip": clip, "sigma": sigma}},
        dict(zip(("psnr", "pixel_cosine", "pixel_euclidean"), published)),
        reads(),
    )
    for (sigma, clip), published in PUBLISHED.items()
)


def _psnr(trial: TrialFigures, sigma: float, clip: float) -> float:
    return trial[pixel_cell_name(sigma, clip)]["psnr"]


TRENDS = (
    Trend(
        "Does leakage fall with the total noise σC?",
        "yes",
        "−rank correlation of PSNR and σC",
        lambda trial: -rank_correlation([s * c for s, c in PUBLISHED], [_psnr(trial, s, c) for s, c in PUBLISHED]),
        within=CORRELATION,
    ),
    Trend(
        "Does quality drop sharply from σC = .01 to .04 (3 dB or more)?",
        "yes",
        "PSNR (dB) at σC = .01, mean of both cells, less that at .04",
        lambda trial: (_psnr(trial, 0.1, 0.1) + _psnr(trial, 0.01, 1.0)) / 2 - _psnr(trial, 0.1, 0.4),
        least=3.0,
    ),
    Trend(
        "Does a larger clip leak more at little noise (σ = .001, C = 1 against .1)?",
        "yes",
        "PSNR (dB)",
        lambda trial: _psnr(trial, 0.001, 1.0) - _psnr(trial, 0.001, 0.1),
        least=NOTABLE,
    ),
    Trend(
        "Does a larger clip protect better at more noise (σ = .01 and .1, C = .1 against 1)?",
        "yes",
        "PSNR (dB), mean of both σ",
        lambda trial: sum(_psnr(trial, s, 0.1) - _psnr(trial, s, 1.0) for s in (0.01, 0.1)) / 2,
        least=NOTABLE,
    ),
)

NOTES = (
    NOISE,
    (
        "Where every gradient is longer than C, the message is C·(g/‖g‖ + σz/n): the cosine does not see the factor C,"
        " so at equal σ C = .1, .4 and 1 then give the same images here, and not in the publication."
    ),
    "Cosine and distance are of pixels normalised by the data set's mean and deviation; published sizes fit that.",
    ONCE,
)

TABLE_4_1 = TrialTable(
    "thesis-4.1", CELLS, (PSNR, COSINE, EUCLIDEAN), TRENDS, NOTES, single_end, trials=3, quick_trials=5
)
