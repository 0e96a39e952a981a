"""What captured updates give away that the final model does not, and which noise covers whom: three claims, checked on
Fashion-MNIST.

    python benchmarks/membership_findings.py --data-root DIR [--seeds 1 2 3 4 5] [-o build/membership-findings]

A federation: ten clients with 100 records each train an MLP 784-256-10 for 10 rounds of 20 epochs (SGD, .1, batches of
10); all uploads are captured (80 MB). Asked are all 1,000 records and 4,000 others. Five federations of each scheme, on
other records from other starts, are judged together: scores become ranks among their federation's candidates. Printed
as markdown; exit code 1 where a claim fails:

1. without DP, the lower limit of the average cosine's TPR at .1 % FPR exceeds 3 × max(the upper limit of the final
   model's loss attack, .001);
2. under local DP with enough noise both attacks are inside their shuffled-membership controls;
3. under central DP the loss attack on the model is, and the server's attack on the raw uploads is not.

Rounds, epochs and width were chosen on seed 0, which is therefore not among the seeds.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from math import inf, nan
from pathlib import Path
from statistics import mean
from typing import Any

import pandas
import quiet  # noqa: F401 - before torch
import torch
from dpfl_audit.attacks.base import MembershipScores
from dpfl_audit.audit.results.format import Results
from dpfl_audit.audit.results.membership import score_membership
from dpfl_audit.audit.run import RunOptions, run
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from scipy.stats import rankdata
from torch import Tensor

CLIENTS, RECORDS, CANDIDATES = 10, 100, 5000
HIDDEN, ROUNDS, EPOCHS = 256, 10, 20
ATTACKS = {"average cosine": "membership-cosine", "final model's loss": "membership-loss"}
SCHEMES: dict[str, dict[str, Any]] = {
    "no DP": {"name": "fedavg"},
    "local DP": {"name": "ldp", "clip": 0.01, "noise_std": 0.1},  # ten times the clip
    "central DP": {"name": "cdp", "clip": 0.01, "sigma": 10.0},  # ten times the clip too, on the sum of the updates
}


@dataclass(frozen=True)
class Found:
    """An attack's figures at .1 % FPR and over all thresholds; control: 95 % of AUCs with membership shuffled."""

    tpr: float
    low: float
    high: float
    auc: float
    auc_interval: tuple[float, float]
    control: tuple[float, float]

    @property
    def inside(self) -> bool:
        """No better than chance: the AUC lies within the control, and the TPR's interval holds the FPR."""
        return self.control[0] <= self.auc <= self.control[1] and self.low <= 0.001 <= self.high

    def __str__(self) -> str:
        place = "inside" if self.inside else "outside"
        return (
            f"{100 * self.tpr:.1f} ({100 * self.low:.2f}–{100 * self.high:.2f}) | {self.auc:.3f}"
            f" ({self.auc_interval[0]:.3f}–{self.auc_interval[1]:.3f}) | {self.control[0]:.3f}–{self.control[1]:.3f} |"
            f" {place}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, required=True, help="folder that holds FashionMNIST/")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("build/membership-findings"),
        help="setups and results; a killed run goes on",
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    results: dict[str, list[Results]] = {}
    found: dict[str, dict[str, Found]] = {}
    for name in SCHEMES:
        folders = [options.output / f"{name.replace(' ', '-')}-{seed}" for seed in options.seeds]
        results[name] = [
            _run(name, options.data_root.resolve(), folder, seed) for folder, seed in zip(folders, options.seeds)
        ]
        found[name] = {
            attack: _found([_scores(r, f, attack) for r, f in zip(results[name], folders)]) for attack in ATTACKS
        }
    print("| scheme | attack | TPR % at .1 % FPR | AUC | control AUC | |\n|---|---|---:|---:|---:|---|")
    for name, attacks in found.items():
        for attack, figures in attacks.items():
            print(f"| {name} | {attack} | {figures} |")
    print("\n| scheme | test accuracy % | observer | unit | claimed ε | proven ε |\n|---|---:|---|---|---:|---:|")
    for name, own in results.items():
        print("\n".join(_epsilon(name, own)))
    sys.exit(_judge(found))


def _run(name: str, root: Path, folder: Path, seed: int) -> Results:
    config = parse_config(
        {
            "name": name,
            "seed": seed,
            "data": {"name": "fashion_mnist", "root": str(root), "clients": CLIENTS, "samples_per_client": RECORDS},
            "model": {"name": "mlp", "options": {"widths": [HIDDEN]}},
            "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 10, "epochs": EPOCHS},
            "scheme": {**SCHEMES[name], "rounds": ROUNDS},
            "capture": {"clients": list(range(CLIENTS)), "candidates": CANDIDATES, "auxiliary": 0},
            "audit": {"delta": 1e-5, "unit": "client", "observer": "server"},
            "claim": "none" if SCHEMES[name]["name"] == "fedavg" else "paper",
        }
    )
    train(build(config, Path.cwd()), folder / "setup")
    return run(folder / "setup", folder / "results", RunOptions(attacks=tuple(ATTACKS.values()), device="cpu"))


def _scores(results: Results, folder: Path, attack: str) -> tuple[Tensor, Tensor]:
    """An attack's scores (n,) and who was a member (n,). Every record is judged once: a member by its own client's
    uploads, the others by those of clients drawn as often as members have them.
    """
    (key,) = (entry.key for entry in results.attacks if entry.attack == ATTACKS[attack])
    table = pandas.read_csv(folder / "results" / "scores" / f"{key}.csv").sort_values("id")
    return torch.from_numpy(table["score"].to_numpy().copy()), torch.from_numpy(table["member"].to_numpy().astype(bool))


def _found(federations: list[tuple[Tensor, Tensor]]) -> Found:
    """Figures over all federations, by the ranks of scores among their own federation's."""
    ranks = torch.cat([torch.from_numpy(rankdata(scores) / len(scores)) for scores, _ in federations])
    member = torch.cat([inside for _, inside in federations])
    pooled = score_membership(
        MembershipScores("pooled", "server", "", "", torch.arange(len(ranks)), ranks, ()), member, None, 0
    )
    point = next(p for p in pooled.tpr_points if p.fpr == 0.001)
    area, around, shuffled = pooled.value("auc"), pooled.intervals["auc"], pooled.controls["shuffled"]
    low, high = shuffled["auc_low"], shuffled["auc_high"]
    assert point.interval and around and area is not None and low is not None and high is not None
    return Found(point.tpr, *point.interval, area, around, (low, high))


def _epsilon(name: str, results: list[Results]) -> list[str]:
    accuracy = 100 * mean(nan if r.setup.test_accuracy is None else r.setup.test_accuracy for r in results)
    return [
        f"| {name} | {accuracy:.1f} | {row.observer} | {row.unit} | {_number(row.claimed)} | {_number(row.proven)} |"
        for row in results[0].epsilon  # the same for all seeds: nothing in it depends on data
        if row.adjacency == "zero_out" and row.observer in ("server", "downlink")
    ]


def _number(value: float | None) -> str:
    return "–" if value is None else "∞" if value == inf else f"{value:.3g}"


def _judge(found: dict[str, dict[str, Found]]) -> int:
    cosine, loss = (found["no DP"][attack] for attack in ATTACKS)
    needed = 3 * max(loss.high, 0.001)
    local, central = found["local DP"], list(found["central DP"].values())
    claims = {
        f"without DP the cosine's lower limit {100 * cosine.low:.2f} % exceeds 3 × max("
        f"the loss attack's upper limit {100 * loss.high:.2f} %, .1 %)": (cosine.low > needed),
        "under local DP both attacks are inside their controls": all(f.inside for f in local.values()),
        "under central DP the server's attack on uploads is outside its control, the model's loss inside": (
            not central[0].inside and central[1].inside
        ),
    }
    print()
    for claim, holds in claims.items():
        print(f"- {'shown' if holds else 'NOT SHOWN'}: {claim}.")
    return 0 if all(claims.values()) else 1


if __name__ == "__main__":
    main()
