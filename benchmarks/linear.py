"""What more rounds cost: bytes of a setup, processor seconds to open and to price it, at 250, 500 and 1,000 rounds.

    python benchmarks/linear.py [--clients 100] [--participants 10] [--scheme ldp] [--rounds 250 500 1000]

Logistic regression on digits, the uploads of one client captured. Everything should double from row to row; the last
line says by how much it did.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from dpfl_audit.audit.proven import rows as epsilon
from dpfl_audit.audit.setup import capture
from dpfl_audit.audit.setup.auditor import check_setup
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build

SCHEMES: dict[str, dict[str, Any]] = {
    "ldp": {"clip": 1.0, "sigma": 1.0},
    "anonymous-gossip": {"neighbours": 4, "train_share": 1.0},
    "anonymous-leader": {"train_share": 1.0},
}


def config(options: argparse.Namespace, rounds: int) -> dict[str, Any]:
    scheme = {"name": options.scheme, **SCHEMES[options.scheme], "rounds": rounds}
    if options.participants and options.scheme == "ldp":
        scheme["participants"] = options.participants
    return {
        "data": {"name": "digits", "clients": options.clients, "samples_per_client": 10},
        "model": {"name": "logistic"},
        "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 10},
        "scheme": scheme,
        "capture": {"clients": [0], "auxiliary": 10},
    }


def measure(options: argparse.Namespace, rounds: int, home: Path) -> tuple[float, ...]:
    """Bytes of the setup, bytes without its tensors, processor seconds to train, to open and to price."""
    start = time.process_time()
    folder = capture.train(build(parse_config(config(options, rounds)), home), home / str(rounds))
    trained = time.process_time()
    setup, auditor = check_setup(folder)
    opened = time.process_time()
    assert auditor.ledger is not None
    epsilon.rows(auditor.ledger, setup.claim, setup.config.audit.delta)
    priced = time.process_time()
    sizes = {p: p.stat().st_size for p in folder.rglob("*") if p.is_file()}
    text = sum(size for path, size in sizes.items() if path.suffix != ".safetensors")
    return sum(sizes.values()), text, trained - start, opened - trained, priced - opened


def main() -> None:
    parser = argparse.ArgumentParser(description="What more rounds cost.")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--participants", type=int, default=10, help="of a star's round; 0 for everybody")
    parser.add_argument("--scheme", choices=SCHEMES, default="ldp")
    parser.add_argument("--rounds", type=int, nargs="+", default=[250, 500, 1000])
    options = parser.parse_args()
    print(f"{'rounds':>6} {'MB':>8} {'MB text':>8} {'s train':>8} {'s open':>8} {'s price':>8}", flush=True)
    found: list[tuple[float, ...]] = []
    with tempfile.TemporaryDirectory() as home:
        for rounds in options.rounds:
            found.append(measure(options, rounds, Path(home)))
            size, text, *seconds = found[-1]
            print(f"{rounds:>6} {size / 1e6:>8.2f} {text / 1e6:>8.2f} " + " ".join(f"{s:>8.2f}" for s in seconds))
    if len(found) > 1:
        print("last/previous " + " ".join(f"{b / a:>8.2f}" for a, b in zip(found[-2], found[-1])))


if __name__ == "__main__":
    main()
