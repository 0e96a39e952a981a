"""Entries of results as results.json has them, with intervals that beat their controls or do not."""

from __future__ import annotations

from typing import Any

CLEAR = 1e-6  # the p-value of a check that beats its control among any number


def clear(low: float | None, control: float) -> float:
    return CLEAR if low is not None and low > control else 1.0


def image(
    low: float | None = None,
    *,
    chance: float = 0.04,
    share: float | None = None,
    margin: float | None = None,
    margin_low: float | None = None,
    observer: str = "server",
) -> dict[str, Any]:
    intervals = {
        "reidentified": None if low is None else [low, 1.0],
        "psnr_margin": None if margin_low is None else [margin_low, margin_low + 2],
    }
    return {
        "attack": "inversion",
        "observer": observer,
        "metrics": {
            "reidentified": share if share is not None else low,
            "reidentified_chance": chance,
            "psnr_margin": margin,
        },
        "intervals": intervals,
        "p_values": {"reidentified": clear(low, chance), "psnr_margin": clear(margin_low, 0.0)},
    }


def member(
    auc_low: float = 0.4, *, tpr_low: float | None = None, realised: float = 0.01, shuffled: float | None = None
) -> dict[str, Any]:
    point = (
        None
        if tpr_low is None
        else {"fpr": 0.01, "tpr": min(tpr_low + 0.05, 1), "interval": [tpr_low, 1.0], "realised_fpr": realised}
    )
    controls = {} if shuffled is None else {"shuffled": {"auc": shuffled}}
    return {
        "attack": "membership-rmia",
        "observer": "server",
        "metrics": {"auc": auc_low + 0.05, "tpr_at_fpr": [point]},
        "intervals": {"auc": [auc_low, 0.9]},
        "p_values": {"auc": clear(auc_low, max(0.5, shuffled or 0)), "tpr": clear(tpr_low, max(0.01, realised))},
        "controls": controls,
    }


IF_GAUSSIAN = {"condition": "the noise is Gaussian", "demonstrated_on_condition": 55.0, "ceiling_on_condition": 55.0}
QUIET = image(0.01, margin=-2.0, margin_low=-3.0)
