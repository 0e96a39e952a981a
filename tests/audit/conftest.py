"""Synthetic RESULTS folders: real picture patches, reconstructions of chosen quality, and the numbers of both."""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_multiplier
from dpfl_audit.audit.results.format import AttackResult, AuditedSetup, Epsilon
from dpfl_audit.metrics.intervals import share_p_value
from dpfl_audit.metrics.membership import auc_p_value, exceedance
from safetensors.numpy import save_file
from scipy.stats import norm
from skimage.data import astronaut
from stated import marked, of_setup


def patches(n: int, start: int = 0) -> np.ndarray:
    """n colour patches of 32×32 pixels (n, 3, 32, 32) of a photograph, shrunk twice, in [0, 1]."""
    photo = astronaut()[::2, ::2].astype(np.float32) / 255
    corners = [(y, x) for y in range(0, 224, 32) for x in range(0, 224, 32)][start : start + n]
    return np.ascontiguousarray(np.stack([photo[y : y + 32, x : x + 32].transpose(2, 0, 1) for y, x in corners]))


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    return float(-10 * np.log10(np.mean((a - b) ** 2)))


def inversion(
    originals: np.ndarray,
    quality: float,
    seed: int,
    key: str,
    truth: bool,
    lpips: bool,
    manner: str = "one-round",
    round: int = 1,
) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """An attack entry, its images and its start. quality 1 is recovered, 0 is gone."""
    rng = np.random.default_rng(seed)
    n = len(originals)
    start = rng.random(originals.shape, dtype=np.float32)
    noise = rng.normal(0, 0.03 + 0.35 * (1 - quality), originals.shape)
    images = np.clip(quality * originals + (1 - quality) * 0.5 + noise, 0, 1).astype(np.float32)
    scores = [psnr(a, b) for a, b in zip(originals, images, strict=True)]
    gray, mean = (
        np.mean([psnr(a, np.full_like(a, 0.5)) for a in originals]),
        np.mean([psnr(a, originals.mean(0)) for a in originals]),
    )
    random = np.mean([psnr(a, b) for a, b in zip(originals, start, strict=True)])
    margin = float(np.mean(scores) - max(gray, mean, random))
    share = min(1.0, max(1 / n, 1.15 * quality))
    spread = math.sqrt(max(share * (1 - share), 0.02) / n)
    metrics: dict[str, Any] = {
        "psnr": float(np.mean(scores)),
        "psnr_margin": margin,
        "ssim": quality,
        "mse": float(np.mean((originals - images) ** 2)),
        "lpips": 0.7 * (1 - quality) if lpips else None,
        "pixel_cosine": 0.8 + 0.2 * quality,
        "pixel_euclidean": 20.0 * (1 - quality),
        "feature_cosine": quality,
        "feature_euclidean": 1 - quality,
        "leak_probability": 0.4,
        "reidentified": share,
        "reidentified_chance": 1 / n,
        "attack_loss": 0.013,
    }
    not_measured = (
        {}
        if lpips
        else {
            "lpips": (
                "The LPIPS weight is not in the cache; `python -c 'import lpips; lpips.LPIPS(net=\"squeeze\")'`"
                " fetches it."
            )
        }
    )
    entry = {
        "attack": "inversion",
        "observer": "server",
        "manner": manner,
        "round": round,
        "client": "3fa9c1d2e4b50617",
        "n": n,
        "key": key,
        "assumed": ["labels of every batch", "the scheme's public clip and noise"],
        "settings": {"objective": "cosine", "iterations": 300, "lr": 0.1, "tv": 0.01},
        "metrics": metrics,
        "controls": {
            name: {"psnr": float(value), "ssim": 0.1}
            for name, value in (("gray", gray), ("mean", mean), ("random", random))
        },
        "intervals": {
            "psnr": [metrics["psnr"] - 0.6, metrics["psnr"] + 0.6],
            "psnr_margin": [margin - 0.6, margin + 0.6],
            "ssim": [max(quality - 0.05, 0), min(quality + 0.05, 1)],
            "reidentified": [max(share - 2 * spread, 0), min(share + 2 * spread, 1)],
        },
        "p_values": {
            "psnr_margin": float(min(1.0, 2 * norm.sf(margin * 1.96 / 0.6))),
            "reidentified": share_p_value(int(share * n + 0.5), n, 1 / n),
        },
        "least_p_values": {"psnr_margin": 0.0, "reidentified": share_p_value(n, n, 1 / n)},
        "pairs": [
            {"original": i, "reconstruction": i, "psnr": score, "ssim": quality, "lpips": metrics["lpips"]}
            for i, score in enumerate(scores)
        ],
        "not_measured": not_measured,
    }
    if not truth:
        entry |= {
            "metrics": {name: None for name in metrics} | {"attack_loss": 0.013},
            "controls": {},
            "intervals": {},
            "p_values": {},
            "least_p_values": {},
            "pairs": [],
            "not_measured": {"psnr": "The setup has no truth/."},
        }
    return entry, images, start


def membership(auc: float = 0.71) -> dict[str, Any]:
    """Gaussian scores at the distance that gives this AUC, evaluated in closed form."""
    distance = math.sqrt(2) * norm.ppf(auc)
    fpr = np.concatenate([[0.0], np.logspace(-3, 0, 300)])
    tpr = np.where(fpr > 0, norm.sf(norm.isf(np.maximum(fpr, 1e-12)) - distance), 0.0)
    edges = np.linspace(-4, 5, 37)
    points: list[Any] = [
        (
            None
            if f < 1e-3
            else {
                "fpr": f,
                "tpr": float(np.interp(f, fpr, tpr)),
                "interval": [float(np.interp(f, fpr, tpr)) * 0.8, min(float(np.interp(f, fpr, tpr)) * 1.25, 1)],
                "realised_fpr": f,
            }
        )
        for f in (0.1, 0.01, 0.001, 0.0001)
    ]
    return {
        "attack": "membership-rmia",
        "observer": "server",
        "n": 2000,
        "assumed": ["40 shadow federations"],
        "settings": {"shadows": 40},
        "metrics": {
            "auc": auc,
            "balanced_accuracy": 0.5 + (auc - 0.5) * 0.7,
            "tpr_at_fpr": points,
            "n_members": 1000,
            "n_nonmembers": 1000,
        },
        "controls": {"shuffled": {"auc": 0.503}},
        "intervals": {"auc": [auc - 0.02, auc + 0.02]},
        "p_values": {
            "auc": auc_p_value(auc, 1000, 1000, 0.503),
            "tpr": 2 * exceedance(round(1000 * points[1]["tpr"]), 1000, 10, 1000),
        },
        "roc": {"fpr": fpr.tolist(), "tpr": tpr.tolist()},
        "histogram": {
            "edges": edges.tolist(),
            "members": np.histogram(np.random.default_rng(1).normal(distance, 1, 1000), edges)[0].tolist(),
            "nonmembers": np.histogram(np.random.default_rng(2).normal(0, 1, 1000), edges)[0].tolist(),
        },
    }


def canary() -> dict[str, Any]:
    return {
        "attack": "canary/one-run",
        "observer": "server",
        "n": 1000,
        "metrics": {"epsilon": 2.1, "mu": 0.61, "correct": 655},
        "intervals": {"epsilon": [2.1, 4.0]},
        "controls": {"shuffled": {"epsilon": 0.0}},
        "assumed": ["canaries inserted by the auditor"],
    }


def row(**changes: Any) -> dict[str, Any]:
    """A row of ε in JSON. What is composed by a closed form is Gaussian noise here, whose μ its ε tells."""
    proven, delta = changes.get("proven"), changes.get("delta", 1e-5)
    if changes.get("accountant") == "closed form" and delta and isinstance(proven, float) and proven > 0:
        changes = {"mu": 1 / gaussian_multiplier(proven, delta), **changes}
    known = {
        "observer": "server",
        "unit": "record",
        "adjacency": "zero_out",
        "delta": 1e-5,
        "claimed": None,
        "proven": None,
        "accountant": None,
        "demonstrated": None,
        "confidence": None,
        "ceiling": None,
        "notes": [],
        **changes,
    }
    return marked(known)


def make_results(
    folder: Path,
    name: str = "no noise",
    *,
    quality: float = 0.97,
    noise_std: float | None = 0.0,
    clip_norm: float | None = 1.0,
    n: int = 16,
    truth: bool = True,
    lpips: bool = True,
    epsilon: list[dict[str, Any]] | None = None,
    extra_attacks: list[dict[str, Any]] | None = None,
    rounds: int = 1,
    seed: int = 0,
    **changes: Any,
) -> Path:
    """Write a RESULTS folder; `changes` replace whole fields of results.json. The verdict is the real one."""
    from dpfl_audit.audit.results.format import SCORING
    from dpfl_audit.audit.say.verdict import judged

    for sub in ("evidence", "originals"):
        (folder / sub).mkdir(parents=True, exist_ok=True)
    attacks = []
    plan = (
        [("all-rounds", 1, quality), *(("one-round", r, max(quality - 0.04 * r, 0)) for r in range(1, rounds + 1))]
        if rounds > 1
        else [("one-round", 1, quality)]
    )
    for i, (manner, round_, good) in enumerate(plan):
        key = f"inversion-{manner}-{round_:02d}"
        originals = patches(n)
        entry, images, start = inversion(originals, good, seed + i, key, truth, lpips, manner, round_)
        labels = np.arange(n, dtype=np.int64) % 10
        save_file(
            {"images": np.ascontiguousarray(images), "start": start, "labels": labels},
            folder / "evidence" / f"{key}.safetensors",
        )
        if truth:
            save_file({"images": originals, "labels": labels}, folder / "originals" / f"{key}.safetensors")
        attacks.append(entry)
    attacks += extra_attacks or []
    proven = "inf" if not noise_std else 60 / (100 * noise_std)
    rows = (
        epsilon
        if epsilon is not None
        else [
            row(
                claimed=5.3 if noise_std else None,
                proven=proven,
                accountant="closed form",
                notes=(
                    ["The noise is zero, so nothing bounds what one record can change."]
                    if not noise_std
                    else ["The claim divides the clip by the number of records; a clipped update has no such bound."]
                ),
            )
        ]
    )
    content = {
        "format": 1,
        "scoring": SCORING,
        "setup": {
            "digest": hashlib.sha256(str(folder).encode()).hexdigest(),  # every folder a setup of its own
            "name": name,
            "scheme": "ldp",
            "parameters": {"C": clip_norm, "σ": noise_std},
            "share": "gradient",
            "clients": 10,
            "rounds": 15,
            "clip_norm": clip_norm,
            "noise_std": noise_std,
            "noise_multiplier": noise_std and noise_std / (clip_norm or 1),
            "sensitivity": f"C = {clip_norm} (whole vector, client, zero_out)",
            "share_clipped": 0.37 if clip_norm else None,
            "norm_before_clip_median": 0.84,
            "test_accuracy": 0.71 - (noise_std or 0),
            "status": "complete",
            "seed": 0,
            "config": {
                "seed": 0,
                "data": {"name": "photos", "classes": 10, "clients": 10},
                "scheme": {"name": "ldp", "rounds": 15, "clip": clip_norm, "noise_std": noise_std},
            },
            "versions": {"dpfl-audit": "0.1.0", "python": "3.11.9", "torch": "2.15.0"},
            "data": {"name": "photos", "classes": 10, "shape": [3, 32, 32]},
            "model": {"name": "mlp", "parameters": 5255268},
        },
        "warnings": [],
        "quick": False,
        "attacks": attacks,
        "classifiers": [{"family": "small resnet", "accuracy": 0.83}],
        "rounds": [{"round": 1, "test_loss": 1.9, "test_accuracy": 0.4}],
    }
    content["setup"] |= changes.pop("setup", {})
    content["epsilon"] = rows = [of_setup(each, content["setup"]) for each in rows]
    entries, table = tuple(map(AttackResult.model_validate, attacks)), tuple(map(Epsilon.model_validate, rows))
    audited = AuditedSetup.model_validate(content["setup"])
    made = judged(scoring=SCORING, setup=audited, epsilon=table, attacks=entries)
    content["verdict"] = made.verdict.model_dump()
    (folder / "results.json").write_text(json.dumps({**content, **changes}), encoding="utf-8")
    return folder


_make_results = pytest.fixture(lambda: make_results, name="make_results", scope="session")
_row = pytest.fixture(lambda: row, name="row", scope="session")
_membership = pytest.fixture(lambda: membership, name="membership", scope="session")
_canary = pytest.fixture(lambda: canary, name="canary", scope="session")


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """RESULTS with all a page can show: rounds, membership, canaries, a refuted claim, ∞, no clip or LPIPS, --quick."""
    rows = [
        row(
            claimed=5.3,
            proven=812.0,
            accountant="closed form",
            demonstrated=6.2,
            confidence=0.95,
            ceiling=7.4,
            notes=["The claim divides by the number of records."],
        ),
        row(observer="downlink", unit="client", proven=8.1, accountant="RDP"),
        row(observer="uplink(3)", adjacency="replace_one", proven="inf"),
    ]
    return make_results(
        tmp_path_factory.mktemp("everything"),
        "LDP, σ = 0.01",
        quality=0.6,
        noise_std=0.01,
        n=6,
        rounds=4,
        lpips=False,
        epsilon=rows,
        quick=True,
        extra_attacks=[membership(), membership(0.6) | {"attack": "membership-lira"}, canary()],
        classifiers=[{"family": "small resnet", "accuracy": 0.43}],
        warnings=["The auxiliary split has only 40 images."],
        setup={"share_clipped": 0.0},
    )


@pytest.fixture(scope="session")
def side_by_side(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Four settings of falling leakage on the same images: recovered, half recovered, a little, gone."""
    folder = tmp_path_factory.mktemp("side-by-side")
    settings = [
        ("no noise", 0.97, 0.0),
        ("some noise", 0.6, 0.01),
        ("more noise", 0.25, 0.05),
        ("strong noise", 0.0, 0.3),
    ]
    return [
        make_results(folder / str(i), name, quality=quality, noise_std=std, n=6, seed=10 * i)
        for i, (name, quality, std) in enumerate(settings)
    ]


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the command as a process of its own; nothing that it starts outlives the test."""
    running: list[subprocess.Popen[str]] = []

    def begin(*arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "dpfl_audit.cli", *map(str, arguments)]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return running[-1]

    yield begin
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()
