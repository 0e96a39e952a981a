"""What an audit of the final model alone shows of DP-SGD at a proven ε of 10, from weights of its own and from crafted
ones.

    python benchmarks/final_model.py [--model logistic] [--canary mislabelled] [--replicas 400] [--steps 10] [--lr 2]

1,000 digits, logistic regression or (mlp) a hidden layer of 32, all records in every step, records' gradients clipped
to 1, δ = 10⁻⁵, whole trainings with and without one record, whose loss at the final model is all that is scored.
Annamalai and De Cristofaro (arXiv:2405.14106) show 7.21 of 10 on 1,000 records of MNIST, a record crafted against the
final model 4.914 (arXiv:2412.01756). Nothing is chosen by what is measured: seeds are fixed.
"""

from __future__ import annotations

import argparse
import time
from math import sqrt
from pathlib import Path
from typing import Literal, get_args

import quiet  # noqa: F401 - before torch
from dpfl_audit.attacks.canary import RECORD_CANARIES
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_multiplier
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import Experiment, build
from dpfl_audit.audit.worlds.federation.plan import CanarySettings
from dpfl_audit.audit.worlds.federation.rows import Question, demonstrate
from dpfl_audit.defenses.terms import Observer

EPSILON, DELTA, RECORDS = 10.0, 1e-5, 1000
MODELS = {"logistic": {"name": "logistic"}, "mlp": {"name": "mlp", "options": {"widths": [32]}}}
Weights = Literal["own", "crafted"]


def experiment(model: str, steps: int, lr: float) -> Experiment:
    """So many steps on all records, whose noise gives EPSILON exactly. model: a name in MODELS."""
    sigma = gaussian_multiplier(EPSILON, DELTA) * sqrt(steps)
    config = {
        "data": {"name": "digits", "clients": 1, "samples_per_client": RECORDS},
        "model": MODELS[model],
        "local": {"optimiser": "sgd", "lr": lr, "batch_size": RECORDS, "epochs": steps},
        "scheme": {"name": "dpsgd", "rounds": 1, "clip": 1.0, "sigma": sigma},
        "audit": {"observer": "model", "unit": "record", "adjacency": "zero_out", "delta": DELTA},
    }
    return build(parse_config(config), Path())


def line(made: Experiment, canary: str, weights: Weights, replicas: int, seed: int) -> str:
    """One audit, with its processor seconds."""
    began = time.process_time()
    settings = CanarySettings(
        protocols=("end-to-end",), canaries=(canary,), replicas=replicas, places=1, initial_weights=weights
    )
    question = Question(Observer("model"), "record", "zero_out", DELTA, proven=EPSILON)
    found = demonstrate(made, settings, question, seed)
    if found.row is None:
        return f"{weights:<8} nothing measured: {found.not_measured}"
    shown, most = found.row.demonstrated_on_condition, found.row.ceiling_on_condition
    return (
        f"{weights:<8} {shown:>11.2f} {most:>10.1f} {found.row.demonstrated:>9.2f} {found.row.ceiling:>10.2f}"
        f" {time.process_time() - began:>8.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="What an audit of the final model alone shows of DP-SGD at ε = 10.")
    parser.add_argument("--canary", choices=RECORD_CANARIES, default="mislabelled")
    parser.add_argument(
        "--replicas", type=int, default=400, help="tested trainings a world; a quarter more for a threshold"
    )
    parser.add_argument("--model", choices=list(MODELS), default="logistic")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--lr", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--weights", choices=get_args(Weights), nargs="+", default=["crafted", "own"])
    options = parser.parse_args()
    made = experiment(options.model, options.steps, options.lr)
    print(f"{options.model}, canary {options.canary}, {options.replicas} tested trainings a world", flush=True)
    print(
        f"{'weights':<8} {'if gaussian':>11} {'could show':>10} {'counted':>9} {'could show':>10} {'CPU s':>8}",
        flush=True,
    )
    for weights in options.weights:
        print(line(made, options.canary, weights, options.replicas, options.seed), flush=True)


if __name__ == "__main__":
    main()
