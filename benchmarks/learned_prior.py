"""What a learned prior gains over the total variation in the demo's cells, of a fresh federation for every seed.

    python benchmarks/learned_prior.py [--seeds 20 21 …] [--sigmas .1 1]

`photos`, 100 classes, mlp 3×1024, the gradient of 25 of a client's 100 images, clipped to 1, noise of standard
deviation σ/100 a component. The first message of each seed, by the learned prior and by the noise-aware total variation
at the demo's iterations and at the default's; and a message of noise alone by the learned prior. Gains are within
seeds, their 95 % intervals by Student's t over seeds. A row is printed as soon as it is there.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import dpfl_audit
import quiet  # noqa: F401 - before torch
import torch
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.match.case import Auxiliary
from dpfl_audit.attacks.inversion.match.solution import Solution
from dpfl_audit.attacks.inversion.presets.published import PRESETS
from dpfl_audit.attacks.inversion.read.target import one_round
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.attacks.inversion.strategies.kept_denoiser import denoiser_of
from dpfl_audit.attacks.inversion.strategies.learned_prior import noise_alone
from dpfl_audit.audit.scoring.line_ups import LineUps
from dpfl_audit.audit.setup.auditor import Auditor
from dpfl_audit.defenses.terms import Observer
from dpfl_audit.metrics.leakage import score_images
from scipy.stats import t as student

LEARNED, SHORT, LONG, NOTHING = "learned prior", "TV, 120 steps", "TV, 300 steps", "learned prior, noise alone"


def over_seeds(values: list[float]) -> str:
    """Mean and 95 % limits by Student's t."""
    half = student.ppf(0.975, len(values) - 1) * stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{fmean(values):.1f} ({fmean(values) - half:.1f} to {fmean(values) + half:.1f})"


def measured(seed: int, sigma: float, kept: Path) -> dict[str, tuple[float, float, float, float]]:
    """By attack: PSNR (dB), the best control's, the share re-identified, CPU seconds."""
    config = {
        "seed": seed,
        "data": {"name": "photos", "classes": 100, "clients": 1, "samples_per_client": 100},
        "model": {"name": "mlp"},
        "local": {"optimiser": "adam", "lr": 1e-3, "batch_size": 25},
        "scheme": {"name": "ldp", "clip": 1.0, "sigma": sigma, "rounds": 1, "share": "gradient"},
        "capture": {"clients": [0], "rounds": 1},
        "claim": "none",
    }
    with tempfile.TemporaryDirectory() as folder:
        setup = dpfl_audit.train(config, Path(folder) / "setup", noise_key="published", quiet=True)
        truth, known = Auditor(setup).truth, setup.knowledge()
        assert truth is not None
        view = setup.view(Observer.parse("server"))
        target = one_round(view, known.beside(view))[0].target
        rows = sorted({row for message in target.key.split("+") for row in truth.messages.get(message, ())})
        others = LineUps(setup, truth, known).others(rows)
        denoiser = denoiser_of(known.auxiliary_inputs, kept).denoiser
        settings = PRESETS["learned-prior"].settings
        variation = Inversion(objective="euclidean", tv="noise-aware", iterations=120)

        def scored(found: Solution, began: float) -> tuple[float, float, float, float]:
            spent = time.process_time() - began
            scores = score_images(
                truth.inputs[rows],
                found.images,
                labels=truth.targets[rows],
                reconstruction_labels=found.labels,
                start=found.start,
                auxiliary=known.auxiliary_inputs,
                auxiliary_labels=known.auxiliary_targets,
                distractors=others[0],
                distractor_labels=others[1],
                relabellings=10,
            )
            best = max(one["psnr"] for one in scores["controls"].values())
            return scores["psnr"], best, scores["reidentified"], spent

        made = {}
        for name, aim, how in (
            (LEARNED, target, settings),
            (SHORT, target, variation),
            (LONG, target, replace(variation, iterations=300)),
            (NOTHING, noise_alone(target, 1234 + seed), settings),
        ):
            began = time.process_time()
            (found,) = solve(view.module, [aim], view.input_shape, how, 0, auxiliary=[Auxiliary(denoiser)])
            made[name] = scored(found, began)
        return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(20, 32)))
    parser.add_argument("--sigmas", type=float, nargs="+", default=[0.1, 1.0])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[float, list[dict[str, tuple[float, float, float, float]]]] = {sigma: [] for sigma in asked.sigmas}
    with tempfile.TemporaryDirectory() as kept:
        for seed in asked.seeds:
            for sigma in asked.sigmas:
                own = measured(seed, sigma, Path(kept))
                found[sigma].append(own)
                print(
                    f"seed {seed}, σ = {sigma:g}: "
                    + "; ".join(
                        f"{name} {psnr:.1f} dB (control {control:.1f}), {picked:.0%}, {spent:.0f} s"
                        for name, (psnr, control, picked, spent) in own.items()
                    ),
                    flush=True,
                )
    print("\n| σ | attack | PSNR | best control | re-identified | learned prior gains |\n|---|---|---|---|---|---|")
    for sigma, seeds in found.items():
        for name in (LEARNED, SHORT, LONG, NOTHING):
            psnr, control, picked, _ = (list(column) for column in zip(*(own[name] for own in seeds)))
            gain = over_seeds([own[LEARNED][0] - own[name][0] for own in seeds]) if name in (SHORT, LONG) else ""
            print(f"| {sigma:g} | {name} | {over_seeds(psnr)} | {fmean(control):.1f} | {fmean(picked):.0%} | {gain} |")
        better = [own[LEARNED][0] - max(own[SHORT][0], own[LONG][0]) for own in seeds]
        print(f"| {sigma:g} | the better of both, by each seed | | | | {over_seeds(better)} |")


if __name__ == "__main__":
    main()
