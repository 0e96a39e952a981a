"""How much noise hides which anonymous messages are of one sender: pairs linked, beside chance, by the noise's size.

    python benchmarks/linking.py [--scheme anonymous-leader|anonymous-gossip] [--observer uplink|peer] [--noise 0 1 10]
                                 [--seeds 0 1] [--clients 12] [--rounds 6] [--optimiser sgd|adam]

Clients of 20 photographs of 10 classes, an MLP of 64 neurons, one epoch of two steps of 10. Noise is given by its norm
over the median norm of an update, so that at 10 it has a hundred times the update's energy. Intervals are over senders,
95 %; p by trading senders' messages within rounds, 1/10,000 at least.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import dpfl_audit
import quiet  # noqa: F401 - before torch

LR = {"sgd": 0.05, "adam": 0.001}


def config(given: argparse.Namespace, seed: int, noise_std: float) -> dict[str, Any]:
    gossip = {"neighbours": 3} if given.scheme == "anonymous-gossip" else {}
    return {
        "seed": seed,
        "data": {"name": "photos", "classes": 10, "clients": given.clients, "samples_per_client": 20},
        "model": {"name": "mlp", "options": {"widths": [64]}},
        "local": {"optimiser": given.optimiser, "lr": LR[given.optimiser], "batch_size": 10, "epochs": 1},
        "scheme": {
            "name": given.scheme,
            "rounds": given.rounds,
            "clip": 100.0,
            "train_share": given.share,
            "noise_std": noise_std,
            **gossip,
        },
        "capture": {"clients": [*range(given.clients)]},
        "audit": {"observer": given.observer},
        "claim": "none",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scheme", choices=["anonymous-leader", "anonymous-gossip"], default="anonymous-leader")
    parser.add_argument("--observer", choices=["uplink", "peer"], default="uplink")
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 1.0, 3.0, 10.0, 30.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--share", type=float, default=1.0, help="of the clients that train in a round")
    parser.add_argument("--optimiser", choices=[*LR], default="sgd")
    given = parser.parse_args()
    print("| noise | seed | pairs linked | chance | p | joined and right |\n|---|---|---|---|---|---|")
    for seed in given.seeds:
        with tempfile.TemporaryDirectory() as folder:
            quietest = dpfl_audit.train(config(given, seed, 1e-7), Path(folder) / "first", quiet=True)
            dim, rows = quietest.layout.dim, dpfl_audit.audit.setup.auditor.Auditor(quietest).rounds
            norm = sorted(row["norm_before_clip"] for row in rows)[len(rows) // 2]
            for noise in given.noise:
                std = max(1e-7, noise * norm / dim**0.5)
                setup = dpfl_audit.train(config(given, seed, std), Path(folder) / f"s{noise:g}", quiet=True)
                results = dpfl_audit.run(setup, Path(folder) / f"r{noise:g}", attacks=["linking"], quiet=True)
                (entry,) = results.attacks
                low, high = entry.intervals["linked"] or (0.0, 1.0)
                tracked = entry.value("tracked")
                print(
                    f"| {noise:g} | {seed} | {entry.value('linked'):.0%} ({low:.0%} to {high:.0%}) |"
                    f" {entry.value('linked_chance'):.0%} | {entry.p_values['linked']:.4f} |"
                    f" {'–' if tracked is None else f'{tracked:.0%}'} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
