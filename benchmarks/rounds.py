"""What all rounds of one client tell together, against one of them: PSNR and re-identification with 95 % intervals over
images.

    python benchmarks/rounds.py [--network mlp|lenet] [--rounds 5] [--steps 1] [--noise .01] [--seeds 0 1]
                                [--observer server|aggregate]

Two clients of 8 photographs of 10 classes train in every round (SGD .1, whole epochs), their updates clipped to .4 and
noised with so many times the clip. "one round" is the mean over rounds of the attack on each, and "least noisy" that on
the round of the least share of noise, which an attacker can see; nothing is picked by the truth. Where there is noise
the spectrum prior runs beside both total variations. The control is the best one's (grey, the labels' mean, …); chance
is its re-identification.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import dpfl_audit
import quiet  # noqa: F401 - before torch
import torch
from dpfl_audit.attacks.base import Part, Reconstruction
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.presets.published import PRESETS
from dpfl_audit.audit.scoring.questions import rows_of
from dpfl_audit.audit.setup.auditor import Auditor, Truth
from dpfl_audit.audit.setup.folder import Setup
from dpfl_audit.defenses.terms import Observer
from dpfl_audit.metrics.intervals import bootstrap_interval, clopper_pearson_interval
from dpfl_audit.metrics.leakage import score_images

CLIP, IMAGES = 0.4, 8
NETWORKS = {"mlp": {"name": "mlp", "options": {"widths": [256, 256]}}, "lenet": {"name": "lenet"}}


def limits_of(values: list[float]) -> tuple[float, float]:
    """Of the mean, 95 %."""
    found = bootstrap_interval(torch.tensor(values), 0.95, 0)
    assert found is not None
    return found


@dataclass
class Tally:
    """Of one way to attack: PSNR (dB) and re-identification of every image, and of the control's."""

    psnr: list[float] = field(default_factory=list)
    picked: float = 0.0
    control: list[float] = field(default_factory=list)
    chance: list[float] = field(default_factory=list)

    def add(self, psnrs: list[float], picked: float, control: float, chance: float) -> None:
        self.psnr += psnrs
        self.picked += picked * len(psnrs)
        self.control.append(control)
        self.chance.append(chance)

    def __str__(self) -> str:
        n, (low, high) = len(self.psnr), limits_of(self.psnr)
        hits = clopper_pearson_interval(round(self.picked), n)
        return (
            f"{sum(self.psnr) / n:.1f} dB ({low:.1f} to {high:.1f}), {100 * self.picked / n:.0f} %"
            f" ({100 * hits[0]:.0f} to {100 * hits[1]:.0f}); control {sum(self.control) / len(self.control):.1f} dB,"
            f" chance {100 * sum(self.chance) / len(self.chance):.0f} %"
        )


def scored(
    setup: Setup, auditor: Auditor, truth: Truth, made: Reconstruction
) -> tuple[list[float], float, float, float]:
    rows = rows_of(auditor, made)
    knowledge = setup.knowledge()
    scores = score_images(
        truth.inputs[rows],
        made.images,
        labels=truth.targets[rows],
        reconstruction_labels=made.labels,
        start=made.start,
        auxiliary=knowledge.auxiliary_inputs,
        auxiliary_labels=knowledge.auxiliary_targets,
        distractors=torch.cat([knowledge.auxiliary_inputs, truth.gallery_inputs]),
        distractor_labels=torch.cat([knowledge.auxiliary_targets, truth.gallery_targets]),
        relabellings=10,
    )
    controls = scores["controls"].values()
    chance = max(one.get("reidentified") or 0.0 for one in controls)
    return [pair["psnr"] for pair in scores["pairs"]], scores["reidentified"], max(o["psnr"] for o in controls), chance


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--network", choices=NETWORKS, default="mlp")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--noise", type=float, default=0.01, help="standard deviation over the clip")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--iterations", type=int, default=150)
    parser.add_argument("--observer", default="server", help="aggregate: of both clients' sums alone")
    parser.add_argument("--exact", action="store_true")
    asked = parser.parse_args()
    attacks = {
        objective: Inversion(objective=objective, tv="noise-aware", iterations=asked.iterations, exact=asked.exact)
        for objective in ("cosine", "euclidean")
    }
    if asked.noise > 0:
        attacks["spectrum"] = PRESETS["spectrum-prior"].settings
    tallies: dict[tuple[str, str], Tally] = defaultdict(Tally)
    gains: dict[str, list[float]] = defaultdict(list)
    spent: dict[tuple[str, str], float] = defaultdict(float)
    for seed in asked.seeds:
        scheme = {"name": "local-gaussian", "clip": CLIP, "noise_multiplier": max(asked.noise, 1e-9)}
        config = {
            "seed": seed,
            "data": {"name": "photos", "classes": 10, "clients": 2, "samples_per_client": IMAGES},
            "model": NETWORKS[asked.network],
            "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": IMAGES // asked.steps, "epochs": 1},
            "scheme": {**scheme, "rounds": asked.rounds},
            "capture": {"clients": [0, 1]},
            "claim": "none",
        }
        with tempfile.TemporaryDirectory() as folder:
            setup = dpfl_audit.train(config, Path(folder) / "setup", noise_key="published", quiet=True)
            auditor = Auditor(setup)
            truth = auditor.truth
            assert truth is not None
            view = setup.view(Observer.parse(asked.observer))
            known = setup.knowledge().beside(view)
            for name, attack in attacks.items():
                parts = attack.parts(view, known)
                by_client: dict[str, dict[str, list[tuple[Part, Reconstruction]]]] = defaultdict(dict)
                for group in attack.groups(parts, view):
                    began = time.process_time()
                    found = attack.run_group(group, [view] * len(group), [known] * len(group), seed)
                    spent[name, found[0].manner] += time.process_time() - began
                    for part, made in zip(group, found):
                        by_client[made.sender].setdefault(made.manner, []).append((part, made))
                for own in by_client.values():
                    single = [
                        (part.content.target.noise_share, scored(setup, auditor, truth, made))
                        for part, made in own["one-round"]
                    ]
                    for _, figures in single:
                        tallies[name, "one round"].add(*figures)
                    least = min(single, key=lambda pair: pair[0])[1]
                    tallies[name, "least noisy"].add(*least)
                    for _, made in own.get("all-rounds", []):
                        figures = scored(setup, auditor, truth, made)
                        tallies[name, "all rounds"].add(*figures)
                        gains[name] += [a - b for a, b in zip(figures[0], least[0])]
    print(
        f"{asked.observer}, {asked.network}, {asked.rounds} rounds of {asked.steps} steps, noise {asked.noise:g}·C,"
        f" seeds {asked.seeds}"
    )
    for (name, what), tally in tallies.items():
        print(f"  {name}, {what}: {tally}")
    for name, gain in gains.items():
        low, high = limits_of(gain)
        print(f"  {name}, all rounds less the least noisy: {sum(gain) / len(gain):.1f} dB ({low:.1f} to {high:.1f})")
    print("  CPU seconds:", ", ".join(f"{name} {manner} {t:.0f}" for (name, manner), t in spent.items()))


if __name__ == "__main__":
    main()
