"""THESIS table 4.5: cosine against Euclidean reconstruction, by noise and clip."""

from __future__ import annotations

from functools import partial

from .reconstructed import LEAK, LPIPS, NOISE, NOTABLE, ONCE, PSNR, reads, single_end
from .trends import CORRELATION, Trend, TrialFigures, rank_correlation
from .trial_table import TableCell, TrialTable

# (objective, C, σ) → PSNR, probability of leakage, LPIPS; THESIS table 4.5. euclidean-naive is its eq. 4.12.
PUBLISHED: dict[tuple[str, float, float], tuple[float, float, float]] = {
    ("euclidean-naive", 0.1, 0.01): (17.1171, 0.54, 0.1146),
    ("cosine", 0.1, 0.01): (20.7342, 0.58, 0.0329),
    ("euclidean-naive", 0.1, 0.1): (16.6834, 0.54, 0.1164),
    ("cosine", 0.1, 0.1): (16.2349, 0.53, 0.1052),
    ("euclidean-naive", 1.0, 0.01): (20.0328, 0.50, 0.0829),
    ("cosine", 1.0, 0.01): (19.3725, 0.52, 0.0436),
    ("euclidean-naive", 1.0, 0.1): (12.1396, 0.21, 0.2525),
    ("cosine", 1.0, 0.1): (9.2355, 0.23, 0.3874),
    ("euclidean-naive", 10.0, 0.01): (12.1396, 0.21, 0.2525),
    ("cosine", 10.0, 0.01): (10.4285, 0.26, 0.3385),
    ("euclidean-naive", 10.0, 0.1): (7.8497, 0.21, 0.4113),
    ("cosine", 10.0, 0.1): (7.2322, 0.20, 0.4675),
}
NAMES = {
    "euclidean-naive": "Euclidean distance",
    "cosine": "Cosine similarity",
    "euclidean": "Euclidean, clip modelled",
}
SETTINGS = tuple(dict.fromkeys((clip, sigma) for _, clip, sigma in PUBLISHED))
SMALL, LARGE = ((0.1, 0.01),), ((1.0, 0.1), (10.0, 0.01), (10.0, 0.1))  # σC under .01, and above


def strategy_cell_name(objective: str, clip: float, sigma: float) -> str:
    return f"{objective} C={clip:g} σ={sigma:g}"


CELLS = tuple(
    TableCell(
        strategy_cell_name(objective, clip, sigma),
        {"reconstruction": NAMES[objective], "C": f"{clip:g}", "σ": f"{sigma:g}"},
        {"scheme": {"clip": clip, "sigma": sigma}},
        dict(zip(("psnr", "leak_probability", "lpips"), PUBLISHED.get((objective, clip, sigma), ()))),
        reads(objective),
    )
    for clip, sigma in SETTINGS
    for objective in NAMES
)


def cosine_lead(trial: TrialFigures, over: str, clip: float, sigma: float) -> float:
    """By how much the cosine's PSNR is above another objective's."""
    return (
        trial[strategy_cell_name("cosine", clip, sigma)]["psnr"] - trial[strategy_cell_name(over, clip, sigma)]["psnr"]
    )


def _falling_lead(trial: TrialFigures, over: str) -> float:
    return -rank_correlation([c * s for c, s in SETTINGS], [cosine_lead(trial, over, c, s) for c, s in SETTINGS])


TRENDS = (
    Trend(
        "Does the cosine win at little noise (C = .1, σ = .01)?",
        "yes",
        "its PSNR (dB) less the Euclidean's",
        lambda trial: cosine_lead(trial, "euclidean-naive", *SMALL[0]),
        least=NOTABLE,
    ),
    Trend(
        "Does the Euclidean distance win at much noise (σC of .1 and 1)?",
        "yes",
        "its PSNR (dB) less the cosine's, mean of three settings",
        lambda trial: -sum(cosine_lead(trial, "euclidean-naive", c, s) for c, s in LARGE) / len(LARGE),
        least=NOTABLE,
    ),
    Trend(
        "Does the cosine's lead fall with σC?",
        "yes",
        "−rank correlation of its lead and σC",
        partial(_falling_lead, over="euclidean-naive"),
        within=CORRELATION,
    ),
    Trend(
        "Does the Euclidean distance win at much noise once it models the clip?",
        "not asked; ours",
        "its PSNR (dB) less the cosine's, mean of three settings",
        lambda trial: -sum(cosine_lead(trial, "euclidean", c, s) for c, s in LARGE) / len(LARGE),
        least=NOTABLE,
    ),
)

NOTES = (
    NOISE,
    (
        "Euclidean distance: eq. 4.12, between the candidate's unclipped gradient and the clipped message. Clip"
        " modelled (ours): the candidate's gradient is clipped too."
    ),
    (
        "Published Euclidean rows at (C, σ) = (1, .1) and (10, .01) are the same to every digit, which no two runs are:"
        " one of them is not a measurement of its own. Its cosine rows are those of table 4.3."
    ),
    ONCE,
)

TABLE_4_5 = TrialTable(
    "thesis-4.5",
    CELLS,
    (PSNR, LEAK, LPIPS),
    TRENDS,
    NOTES,
    partial(single_end, objectives=tuple(NAMES)),
    trials=3,
    quick_trials=4,
)
