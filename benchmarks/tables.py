"""How many cells of a table a gradient gives back, in the setting of TabLeak (Vero et al. 2023, arXiv:2210.01785).

    python benchmarks/tables.py --data-root DIR [--rows 8 16 32 64 128] [--seeds 0 1 2] [--steps 1 3] [--noise 0 .1]
        [--objectives cosine]

UCI Adult, a fresh network of two hidden layers of 100 ReLU neurons, known labels; the default attack by each objective.
One gradient of all rows, or an update of so many steps of SGD. noise: standard deviations in shares of the gradient's
norm over the root of its size. Beside it the best of the controls: the mean row, or that of a class, and other rows
drawn by lot. One thread.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import quiet  # noqa: F401 - before torch
import torch
from by_pixels import scored
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.make import make_inversions
from dpfl_audit.attacks.inversion.match.case import Auxiliary
from dpfl_audit.attacks.inversion.read.local_training import Recipe
from dpfl_audit.attacks.inversion.read.table import OwnRows
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data.columns import table_columns
from dpfl_audit.defenses.data.tabular import adult
from dpfl_audit.defenses.data.unit_scale import UnitScale
from dpfl_audit.defenses.layout import Layout
from torch.nn import functional as F

WIDTHS, LR = [100, 100], 0.05  # theirs; and of local steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", required=True)
    parser.add_argument("--rows", type=int, nargs="+", default=[8, 16, 32, 64, 128])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, nargs="+", default=[1])
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0])
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--objectives", nargs="+", default=["cosine", "euclidean"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = adult(options.data_root, 0)
    columns = table_columns(data.description, data.input_shape[0], data.mean, data.std)
    scale = UnitScale.of(columns)
    cells = [(column.width, column.spread / (column.most - column.least)) for column in columns]
    pictured = replace(
        data, inputs=scale.images(data.inputs), auxiliary_inputs=scale.images(data.auxiliary_inputs[:1000])
    )
    pictured = replace(pictured, auxiliary_targets=data.auxiliary_targets[:1000])
    for steps in options.steps:
        for noise in options.noise:
            for rows in options.rows:
                for seed in options.seeds:
                    told = attacked(data, pictured, scale, cells, rows, steps, noise, seed, options)
                    print(f"{rows:4d} rows, {steps} steps, noise {noise:g}, seed {seed}: {told}", flush=True)


def attacked(data, pictured, scale, cells, rows, steps, noise, seed, options) -> str:
    """One batch of rows under the default attack, in words."""
    module = models.build(
        "mlp", input_shape=data.input_shape, classes=2, mean=data.mean, std=data.std, seed=seed, widths=WIDTHS
    )
    picked = torch.randperm(len(data.inputs), generator=torch.Generator().manual_seed(seed))[:rows]
    target = sent(module, data.inputs[picked], data.targets[picked], steps, noise, seed)
    network = scale.module(module).eval()
    said = []
    for objective in options.objectives:
        (attack,) = make_inversions({"iterations": options.iterations, "objective": objective, "tv": 0.0}, False, "cpu")
        assert isinstance(attack, Inversion)
        begin = time.process_time()
        own = Auxiliary(rows=OwnRows(pictured.auxiliary_inputs, pictured.auxiliary_targets))
        (found,) = solve(network, [target], (len(scale.least), 1, 1), attack, seed, auxiliary=[own])
        seconds = time.process_time() - begin
        others = {"distractors": scale.images(data.test_inputs), "distractor_labels": data.test_targets}
        scores = scored(pictured.inputs[picked], data.targets[picked], found, pictured, cells=cells, **others)
        control = max(one["cells_right"] for one in scores["controls"].values())
        said.append(
            f"{attack.objective} {100 * scores['cells_right']:.1f} % (control {100 * control:.1f}),"
            f" {100 * scores['exact']:.0f} % of rows beyond doubt, {seconds:.0f} s"
        )
    return "; ".join(said)


def sent(module, inputs, labels, steps: int, noise: float, seed: int) -> Target:
    """What a client sends of its rows: their gradient, or an update of one epoch in so many steps of SGD."""
    layout = Layout.of(module)
    before = layout.join({name: p.detach().clone() for name, p in module.named_parameters()})
    size = len(inputs) // steps
    optimiser = torch.optim.SGD(module.parameters(), lr=LR)
    for own, targets in zip(inputs.split(size), labels.split(size)):
        optimiser.zero_grad()
        F.cross_entropy(module(own), targets).backward()
        optimiser.step()
    update = layout.join({name: p.detach().clone() for name, p in module.named_parameters()}) - before
    recipe = Recipe("sgd", LR, (size,) * steps, 1)
    std = noise * update.norm().item() / len(update) ** 0.5
    update += std * torch.randn(len(update), generator=torch.Generator().manual_seed(seed))
    told = {"recipe": recipe, "update": update, "noise_std": std / recipe.scale}
    return Target(f"rows {seed}", before, -update / recipe.scale, labels.sort().values, len(inputs), **told)


if __name__ == "__main__":
    main()
