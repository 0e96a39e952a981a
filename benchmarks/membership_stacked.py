"""All tests of captured uploads as one (`membership-stacked`), beside the best of them by the truth.

    python benchmarks/membership_stacked.py --data-root DIR

The federations of `membership_projection.py`, with 150 auxiliary records. The best single test is picked by its AUC on
the very records that it is judged by, as no attacker could. Exit code 1 where the upper limit of the stacked AUC is
below the best single one. Printed as markdown.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import quiet  # noqa: F401 - before torch
import torch
from dpfl_audit.attacks.membership import StackedMembership
from dpfl_audit.attacks.membership.stacked import COMBINED
from dpfl_audit.metrics.membership import auc, tpr_at_fpr
from membership_projection import DATA, SEEDS, settings
from membership_sequence import Federation

CASES = (("one step", 0.0), ("5 epochs", 0.0), ("one step", 0.03), ("one step", 0.1))
AUXILIARY = 150


def measured(federations: list[Federation], attack) -> tuple[float, tuple[float, float], str]:
    """AUC, its interval, and TPR in percent at 1 % FPR with its own."""
    scores = torch.cat([federation.judged(federation.scores(attack)) for federation in federations])
    member = torch.cat([federation.owner >= 0 for federation in federations])
    inside, outside = scores[member].numpy(), scores[~member].numpy()
    area, interval = auc(inside, outside)
    rate = tpr_at_fpr(inside, outside)[0.01]
    assert rate is not None and rate.tpr_interval is not None
    low, high = rate.tpr_interval
    return area, interval, f"{100 * rate.tpr:.1f} ({100 * low:.1f}–{100 * high:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, required=True, help="folder with FashionMNIST/ and adult/")
    parser.add_argument("--data", nargs="+", choices=[*DATA], default=[*DATA])
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(
        "| data | training | noise_std | stacked: AUC | TPR % at 1 % FPR | best single test | AUC | TPR % at 1 % FPR |"
    )
    print("|---|---|---:|---:|---:|---|---:|---:|")
    worse = False
    for name in options.data:
        for local, noise in CASES:
            made = [settings(name, options.data_root.resolve(), local, noise, seed) for seed in SEEDS]
            for each in made:
                each["capture"] |= {"auxiliary": AUXILIARY, "candidates": 1200}
            federations = [Federation.trained(each) for each in made]
            single = {attack.name: measured(federations, attack) for attack in COMBINED}
            best = max(single, key=lambda test: single[test][0])
            area, (low, high), rate = measured(federations, StackedMembership())
            worse = worse or high < single[best][0]
            cells = f"{area:.3f} ({low:.3f}–{high:.3f}) | {rate} | {best} | {single[best][0]:.3f} | {single[best][2]}"
            print(f"| {name} | {local} | {noise:g} | {cells} |", flush=True)
    sys.exit(int(worse))


if __name__ == "__main__":
    main()
