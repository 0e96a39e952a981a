"""How much of a right Opacus client's ε is shown, how often it is accused, and whether planted bugs are found.

    python benchmarks/opacus_audit.py [--seeds 20] [--trainings 200] [--jobs 2]

Poisson DP-SGD on 100 digits, q = .2, 10 steps, δ = 1e-5, at the accountant's own ε. Prints a row a case: the share of ε
that is shown (mean, least), how many of the seeds are refuted, and the time an audit takes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples" / "opacus"))


def bug_in(name: str, optimiser: Any, engine: Any) -> None:
    """Plants a bug into a `DPOptimizer` that Opacus made."""
    if name == "noise forgotten in one layer":
        add_noise = optimiser.add_noise

        def all_but_last() -> None:
            add_noise()
            optimiser.params[-1].grad = optimiser.params[-1].summed_grad.view_as(optimiser.params[-1]).clone()

        optimiser.add_noise = all_but_last
    elif name == "clipped per batch":

        def clip_batch() -> None:
            totals = [grads.sum(0) for grads in optimiser.grad_samples]
            norm = sum(float(total.square().sum()) for total in totals) ** 0.5 / optimiser.expected_batch_size
            for parameter, total in zip(optimiser.params, totals):
                parameter.summed_grad = total * min(1.0, optimiser.max_grad_norm / (norm + 1e-6))

        optimiser.clip_and_accumulate = clip_batch
    elif name == "accountant told q / 10":
        optimiser.attach_step_hook(engine.accountant.get_optimizer_hook_fn(sample_rate=0.02))


BUGS = ("noise forgotten in one layer", "clipped per batch", "accountant told q / 10")


def training(noise_multiplier: float, bug: str = "") -> Callable[[Any, Any], Any]:
    """The example's training, with a bug or without."""
    import client

    def train(dataset: Any, engine: Any) -> Any:
        make_private = engine.make_private

        def with_bug(**options: Any) -> Any:
            made = make_private(**options)
            bug_in(bug, made[1], engine)
            return made

        engine.make_private = with_bug
        return client.train(dataset, engine, noise_multiplier)

    return train


def audited(noise_multiplier: float, bug: str, seed: int, trainings: int) -> tuple[float, float, str, float]:
    """Claimed ε, what is demonstrated on its condition, the finding's level, and seconds."""
    import client
    import dpfl_audit
    import torch
    from opacus import PrivacyEngine

    torch.set_num_threads(1)
    began, data = time.perf_counter(), client.records()
    audit = dpfl_audit.audit_opacus(
        training(noise_multiplier, bug), PrivacyEngine(), data, trainings=trainings, seed=seed
    )
    shown = 0.0 if audit.if_gaussian is None else audit.if_gaussian.epsilon
    return audit.about.claim or 0.0, shown, audit.finding().level, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trainings", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--case", type=int, help="Only this row, 0 to 4.")
    options = parser.parse_args()
    cases = [(1.0, ""), (2.0, ""), *((1.0, bug) for bug in BUGS)]
    cases = cases if options.case is None else [cases[options.case]]
    print("| case | claimed ε | shown: mean, least share | refuted (on its condition) | s an audit |")
    print("|---|---|---|---|---|")
    with ProcessPoolExecutor(options.jobs) as pool:
        for sigma, bug in cases:
            seeds = range(options.seeds)
            runs = [pool.submit(audited, sigma, bug, seed, options.trainings) for seed in seeds]
            found = [run.result() for run in runs]
            shares = [shown / claimed for claimed, shown, _, _ in found]
            refuted = sum(level.startswith("violated") for _, _, level, _ in found)
            seconds = sum(took for *_, took in found) / len(found)
            share = f"{sum(shares) / len(shares):.2f}, {min(shares):.2f}"
            name = f"σ = {sigma:g}{f', {bug}' if bug else ''}"
            print(f"| {name} | {found[0][0]:.3g} | {share} | {refuted} of {len(found)} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
