"""Flower's LocalDpMod from its own code: which of its settings keep the ε = 8 that they claim, by 20 seeds.

    python benchmarks/local_dp_mod.py [--seeds 20] [--draws 1000]

A client's training is run once, and the mod, which clips to C = 1 and adds noise for a `sensitivity` that its user
types, is called anew for every draw. By counting alone ε = 8 is exceeded from some 11,000 draws on (`--draws 14122`);
by 1,000 if the noise is Gaussian.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

CLAIM, DELTA, CLIP = 8.0, 1e-5, 1.0


def local_dp(sensitivity: float, opposite: bool = False) -> Callable[[bool, int], Any]:
    """What a client sends by the mod, with a large update in world 1; in world 0 nearly none, or the opposite."""
    import numpy as np
    from flwr.app import ArrayRecord, RecordDict
    from flwr.clientapp.mod import LocalDpMod

    logging.getLogger("flwr").setLevel(logging.WARNING)
    mod, model = LocalDpMod(CLIP, sensitivity, CLAIM, DELTA), np.zeros(210)
    without = -3.0 if opposite else 1e-9  # the mod divides by an update's norm, so not 0
    sent, replies = ArrayRecord([model]), [ArrayRecord([np.full(210, size)]) for size in (without, 3.0)]

    def update(world: bool, seed: int) -> Any:
        np.random.seed(seed)  # the mod's noise is from NumPy's global randomness
        reply = SimpleNamespace(content=RecordDict({"arrays": replies[world]}), has_error=lambda: False)
        mod(SimpleNamespace(content=RecordDict({"arrays": sent})), None, lambda *_: reply)  # type: ignore[arg-type]
        return reply.content["arrays"].to_numpy_ndarrays()[0]

    return update


CASES = {
    "sensitivity C/100, zero_out": (CLIP / 100, False),
    "sensitivity C, zero_out (exact: 7.91)": (CLIP, False),
    "sensitivity C, replace_one (exact: 18.9)": (CLIP, True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--draws", type=int, default=1000)
    options = parser.parse_args()
    import dpfl_audit

    print("| LocalDpMod, ε = 8 claimed | refuted by counting | on the condition | least shown on it | s an audit |")
    print("|---|---|---|---|---|")
    for name, (sensitivity, opposite) in CASES.items():
        began, found = time.perf_counter(), []
        for seed in range(options.seeds):
            found.append(
                dpfl_audit.audit_mechanism(
                    local_dp(sensitivity, opposite),
                    delta=DELTA,
                    claim=CLAIM,
                    draws=options.draws,
                    gaussian=True,
                    adjacency="replace_one" if opposite else "zero_out",
                    seed=seed,
                )
            )
        levels = [audit.finding().level for audit in found]
        least = min(audit.if_gaussian.epsilon for audit in found if audit.if_gaussian is not None)
        took = (time.perf_counter() - began) / options.seeds
        counts = [sum(level == kind for level in levels) for kind in ("violated", "violated on a condition")]
        print(f"| {name} | {counts[0]} of {len(levels)} | {counts[1]} | {least:.3g} | {took:.0f} |", flush=True)


if __name__ == "__main__":
    main()
