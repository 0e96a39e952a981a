"""How many members' hidden column is told by uploads, beside outsiders' and guesses without any message, on Adult.

    python benchmarks/attribute.py --data-root DIR [--seeds 1 2 3]

Five clients train an MLP of 32 for 3 rounds of SGD (.1): one full step a round, or 5 epochs of batches of 5. Noise is
added to every upload, clipped to 1. The column is the attack's own choice, the guesses those of `audit run`: all
members, and 300 others. Federations of several seeds are judged together. by: the attack's setting; the sequence only
where there is noise. Printed as markdown.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dpfl_audit
import quiet  # noqa: F401 - before torch
from dpfl_audit.audit.results.format import AttackResult
from dpfl_audit.metrics.attribute import advantage

CLIENTS, OTHERS = 5, 300
CASES = (  # records of a client, epochs, noise_std
    (4, 1, 0.0),
    (20, 1, 0.0),
    (20, 5, 0.0),
    (50, 5, 0.0),
    (150, 5, 0.0),
    (20, 1, 0.003),
    (20, 1, 0.03),
    (20, 1, 0.3),
)
COLUMN = "occupation"
CONTROLS = ("most_frequent", "imputed")


def config(root: Path, case: tuple[int, int, float], seed: int) -> dict[str, Any]:
    records, epochs, noise = case
    scheme = {"name": "ldp", "clip": 1.0, "noise_std": noise} if noise else {"name": "fedavg"}
    batch = records if epochs == 1 else 5
    return {
        "seed": seed,
        "data": {"name": "adult", "root": str(root), "clients": CLIENTS, "samples_per_client": records},
        "model": {"name": "mlp", "options": {"widths": [32]}},
        "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": batch, "epochs": epochs},
        "scheme": {**scheme, "rounds": 3},
        "capture": {
            "clients": [*range(CLIENTS)],
            "candidates": max(CLIENTS * records + OTHERS, 2 * CLIENTS * records),
            "auxiliary": 500,
        },
        "audit": {"observer": "server", "unit": "record"},
        "claim": "none",
    }


def entries(root: Path, case: tuple[int, int, float], seeds: Sequence[int], by: str) -> list[AttackResult]:
    """One a federation."""
    found: list[AttackResult] = []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            setup = dpfl_audit.train(config(root, case, seed), Path(folder) / "setup", quiet=True)
            place, asked = Path(folder) / "results", settings_of(by)
            found += dpfl_audit.run(setup, place, attacks=["attribute"], overrides=asked, quiet=True).attacks
    return found


def settings_of(by: str) -> list[str]:
    """The column by name for a test that compares all variants with each other, and counts them beforehand."""
    return [f'attribute.by="{by}"', f'attribute.column="{COLUMN}"'] if by else []


def row(found: Sequence[AttackResult]) -> str:
    """Of all federations together."""
    of_members = [(entry.value("attribute") or 0.0, int(entry.value("n_members") or 0)) for entry in found]
    others = [(entry.controls["outsiders"]["attribute"], int(entry.value("n_nonmembers") or 0)) for entry in found]
    scored = advantage(right(of_members), right(others))
    low, high = scored.interval
    cells = [f"{100 * scored.members:.1f}", f"{100 * scored.others:.1f}"]
    cells += [f"{100 * scored.difference:.1f} ({100 * low:.1f} to {100 * high:.1f})", f"{scored.p_value:.1g}"]
    for control in CONTROLS:
        known = [(entry.controls[control]["attribute"], n) for entry, (_, n) in zip(found, of_members)]
        cells.append(f"{100 * sum(right(known)) / len(right(known)):.1f}")
    ceiling = max(entry.value("attribute_ceiling") or 1.0 for entry in found)
    cells.append("–" if ceiling >= 1 else f"{100 * ceiling:.1f}")
    cells.append(f"{len(right(of_members)):,} / {len(right(others)):,}")
    return " | ".join(cells)


def right(shares: Sequence[tuple[float | None, int]]) -> list[bool]:
    """Of shares of so many guesses each, every guess."""
    return [k < round((share or 0.0) * n) for share, n in shares for k in range(n)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, required=True, help="folder with adult/")
    parser.add_argument("--cases", type=int, nargs="+", default=[*range(len(CASES))], help="by their place")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args()
    print("| records a client | training | noise_std | column | by | members % | others % | difference | p |", end="")
    print(" most frequent % | imputed % | ceiling of the difference | members / others |")
    print("|---:|---|---:|---|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for case in (CASES[place] for place in options.cases):
        records, epochs, noise = case
        training = "one step" if epochs == 1 else f"{epochs} epochs"
        for by in ("", "sequence") if noise else ("",):
            found = entries(options.data_root.resolve(), case, options.seeds, by)
            columns = ", ".join(dict.fromkeys(entry.variant for entry in found))
            start = f"| {records} | {training} | {noise:g} | {columns} | {by or 'default'} |"
            print(f"{start} {row(found)} |", flush=True)


if __name__ == "__main__":
    main()
