"""How much noise leaves the membership attack of the geometric mechanism's Table III where the paper has it:
"overfitted" of `audit reproduce geometric-table3`, at noise of a chosen size instead of eq. 8's.

    python benchmarks/geometric_noise.py --data-root DIR [--trials 6] [--shadows 10]

0 is "no DP", .00375 what the paper's Table II prints for ε = 10 and ϑ = 1; eq. 8 gives 1.02 there with this setting's
20 records a client. Printed as markdown: means over trials; 95 % is Student's t over them.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from statistics import mean

import quiet  # noqa: F401 - before torch
import torch
from dpfl_audit.audit.reproduce.geometric import SETTINGS, attack
from dpfl_audit.audit.reproduce.trends import student
from dpfl_audit.defenses.data import load
from dpfl_audit.defenses.randomness import stream

NOISE = (0.0, 0.00375, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, required=True, help="folder that holds FashionMNIST/")
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--shadows", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = load("fashion_mnist", root=str(options.data_root), seed=0)
    setting = replace(next(s for s in SETTINGS if s.name == "overfitted"), shadows=options.shadows)
    inputs, targets = torch.cat([data.inputs, data.test_inputs]), torch.cat([data.targets, data.test_targets])
    print(
        "| noise_std | success | 95 % | taken for members: members / others | accuracy members / others"
        " |\n|---:|---:|---:|---:|---:|"
    )
    for noise in NOISE:
        trials = [
            attack(data, inputs, targets, setting, None, None, stream(0, "noise", trial), noise_std=noise or None)
            for trial in range(options.trials)
        ]
        means = {
            name: mean(t[name] for t in trials)
            for name in ("recognised", "accused", "accuracy_members", "accuracy_others")
        }
        success, low, high = student([t["success"] for t in trials])
        print(
            f"| {noise:g} | {success:.3f} | {low:.3f}–{high:.3f} | {means['recognised']:.3f} /"
            f" {means['accused']:.3f} | {means['accuracy_members']:.3f} / {means['accuracy_others']:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
