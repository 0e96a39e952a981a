"""Gradient inversion side by side: ours with one and several candidates, a plain autograd loop, and `breaching`.

    python benchmarks/inversion.py [--iterations 300] [--runs 5] [--threads N] [--only mlp lenet cnn6 steps grid]

Networks on 32×32 colour photographs with known labels, cosine, signed Adam, total variation: the workload of THESIS
chapter 4 (a 3×1024 ReLU network, 100 classes, a batch of 25), LeNet and CNN6 with batches of 8; an update of three SGD
steps of 8, simulated with its order known, one alone and several together (each candidate stands for a message of a
round); and a grid of 24 noise levels by 2 objectives, together and cell by cell.
Everything is timed that an iteration needs, and set-up with it; the starting images are the same for all and denormal
numbers are flushed for all. Runs are interleaved; each contestant's number is the median over runs of CPU seconds per
iteration and candidate, so a machine that does other things may be used. The floor is what the method has to multiply
(`ghost.py`, `convolved.py`, `grouped_steps.py`) at the speed measured for a 1024×1024 product. `breaching` is optional:
`pip install 'dpfl-audit[bench]'`.
"""

from __future__ import annotations

import argparse
import copy
import logging
import statistics
import time
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any

import quiet  # noqa: F401 - before torch
import torch
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.engines.candidate_products import numbers
from dpfl_audit.attacks.inversion.engines.grouped_steps import grouped_steps
from dpfl_audit.attacks.inversion.match.objective import Matching
from dpfl_audit.attacks.inversion.match.optimise import Objective, adam, milestones, with_prior
from dpfl_audit.attacks.inversion.match.solution import start_images
from dpfl_audit.attacks.inversion.read.local_training import Recipe
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.attacks.inversion.strategies.simulated import Simulated
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data import photos
from dpfl_audit.defenses.layout import Layout
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn import functional as F

LR, TV, SEED = 0.1, 0.01, 0
SHAPE = (3, 32, 32)
STEPS, LOCAL_LR = 3, 0.05
BATCHES = {"mlp": 25, "lenet": 8, "cnn6": 8}
CANDIDATES = {"mlp": (1, 4, 8), "lenet": (1, 8), "cnn6": (1, 8)}
SIMULATED = {"mlp": (1,), "lenet": (1, 4, 8, 16), "cnn6": (1, 4, 8)}
CELLS = 24


def workload(name: str, batch: int, noise: float = 0.0) -> tuple[nn.Module, Target, Tensor]:
    """The network, one mean gradient at its initial weights with noise of so many times its typical component, and the
    images behind it.
    """
    data = photos.load(classes=100, samples=100, seed=SEED)
    module = models.build(name, input_shape=SHAPE, classes=100, mean=data.mean, std=data.std, seed=SEED)
    images, labels = data.inputs[:batch], data.targets[:batch]
    gradients = torch.autograd.grad(F.cross_entropy(module(images), labels), list(module.parameters()))
    gradient = torch.cat([g.flatten() for g in gradients])
    drawn = torch.randn(len(gradient), generator=torch.Generator().manual_seed(SEED))
    gradient = gradient + noise * gradient.norm() / len(gradient) ** 0.5 * drawn
    return module, Target(f"benchmark {noise}", weights_of(module), gradient, labels, batch), images


def weights_of(module: nn.Module) -> Tensor:
    """Flat, (d,)."""
    return Layout.of(module).join({name: p.detach() for name, p in module.named_parameters()})


def trained(name: str, batch: int) -> tuple[nn.Module, Target, Tensor]:
    """As `workload`, of an update of `STEPS` SGD steps of `batch` images each."""
    module, _, _ = workload(name, 1)
    data = photos.load(classes=100, samples=100, seed=SEED)
    images, labels = data.inputs[: STEPS * batch], data.targets[: STEPS * batch]
    after = copy.deepcopy(module)
    sgd = torch.optim.SGD(after.parameters(), lr=LOCAL_LR)
    for x, y in zip(images.split(batch), labels.split(batch)):
        sgd.zero_grad()
        F.cross_entropy(after(x), y).backward()
        sgd.step()
    update = weights_of(after) - weights_of(module)
    recipe = Recipe("sgd", LOCAL_LR, (batch,) * STEPS, 1)
    gradient = -update / recipe.scale
    target = Target("benchmark", weights_of(module), gradient, labels, STEPS * batch, recipe=recipe, update=update)
    return module, target, images


def simulated(module: nn.Module, target: Target, iterations: int, candidates: int) -> Tensor:
    """Our simulation of local training, the first candidate begun at the same images as breaching's."""
    assert target.labels is not None
    layout, targets = Layout.of(module), [target] * candidates
    groups = grouped_steps(module, layout, targets, "cosine", SHAPE)
    objective: Objective
    if groups:
        (group,) = groups  # a few candidates fit
        objective = partial(group, labels=target.labels.expand(candidates, -1))
    else:
        assert candidates == 1
        objective = Simulated(module, layout, target, target.labels[None], Matching.of("cosine", [target]))
    starts = torch.stack([start_images(SEED, target.key, k, target.count, SHAPE) for k in range(candidates)])
    return adam(with_prior(objective, torch.tensor([TV])), starts, iterations, LR)[0][0]


def ours(module: nn.Module, target: Target, iterations: int, candidates: int) -> Tensor:
    settings = Inversion(iterations=iterations, lr=LR, tv=TV, restarts=candidates)
    return solve(module, [target], SHAPE, settings, SEED)[0].images


def autograd_loop(module: nn.Module, target: Target, iterations: int) -> Tensor:
    """Geiping et al.'s loop with torch alone: the objective differentiated twice through, torch.optim.Adam,
    MultiStepLR.
    """
    assert target.labels is not None
    parameters = list(module.parameters())
    observed = list(Layout.of(module).split(target.gradient).values())
    images = start_images(SEED, target.key, 0, target.count, SHAPE).requires_grad_()
    adam = torch.optim.Adam([images], lr=LR)
    schedule = torch.optim.lr_scheduler.MultiStepLR(adam, milestones=list(milestones(iterations)), gamma=0.1)
    for _ in range(iterations):
        gradient = torch.autograd.grad(F.cross_entropy(module(images), target.labels), parameters, create_graph=True)
        dot = sum((g * o).sum() for g, o in zip(gradient, observed))
        norms = norm(gradient) * norm(observed)
        variation = images.diff(dim=-1).abs().mean() + images.diff(dim=-2).abs().mean()
        (images.grad,) = torch.autograd.grad(1 - dot / norms + TV * variation, images)
        images.grad.sign_()
        adam.step()
        schedule.step()
        with torch.no_grad():
            images.clamp_(0, 1)
    return images.detach()


def norm(tensors: Iterable[Tensor]) -> Tensor:
    """The L2 norm over all tensors together."""
    return sum((t.square().sum() for t in tensors), start=torch.zeros(())).sqrt()


def breaching_attack(module: nn.Module, target: Target, iterations: int) -> Callable[[], Tensor] | None:
    """A run of breaching's invertinggradients.yaml on the same problem, or None where it is not installed."""
    warnings.simplefilter("ignore")
    logging.disable(logging.INFO)
    try:
        import breaching
    except ImportError as error:
        print(f"breaching left out ({error}): pip install 'dpfl-audit[bench]'")
        return None
    config = breaching.get_attack_config("invertinggradients")
    config.optim.max_iterations = iterations
    config.optim.step_size = LR
    config.regularization.total_variation.scale = TV
    attacker = breaching.attacks.prepare_attack(
        module, nn.CrossEntropyLoss(), config, {"dtype": torch.float, "device": torch.device("cpu")}
    )
    # no mean and std: its pixels are in [0, 1], the network normalises
    metadata = SimpleNamespace(shape=SHAPE, modality="vision")
    payload = [
        {
            "parameters": [p.detach() for p in module.parameters()],
            "buffers": list(module.buffers()),
            "metadata": metadata,
        }
    ]
    shared = [
        {
            "gradients": list(
                Layout.of(module).split(target.gradient if target.update is None else target.update).values()
            ),
            "buffers": None,
            "metadata": {
                "num_data_points": target.count,
                "labels": target.labels,
                "local_hyperparams": local_hyperparams(target),
            },
        }
    ]
    start = start_images(SEED, target.key, 0, target.count, SHAPE)
    return lambda: attacker.reconstruct(payload, shared, {}, initial_data=start)[0]["data"].detach()


def local_hyperparams(target: Target) -> dict[str, Any] | None:
    """What breaching is told of local training."""
    if target.recipe is None or target.labels is None:
        return None
    size = target.recipe.sizes[0]
    return {
        "steps": len(target.recipe.sizes),
        "data_per_step": size,
        "lr": target.recipe.lr,
        "labels": list(target.labels.split(size)),
    }


def psnr(found: Tensor, images: Tensor) -> float:
    """Mean PSNR in dB (peak 1), found images matched to the true ones by the least total squared error."""
    errors = (found[:, None] - images[None]).square().flatten(2).mean(2)
    rows, columns = linear_sum_assignment(errors.numpy())
    return float((-10 * errors[rows, columns].clamp_min(1e-10).log10()).mean())


def operations(module: nn.Module, count: int) -> int:
    """The floor of one iteration of one candidate of `count` images, by the counts of `ghost.py` and `convolved.py`;
    two of a linear layer's products are with the message, which nobody noised here (`candidate_products.py`).
    """
    sizes = products(module)
    linear = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    own = [(layer.weight.numel(), numbers(layer.out_features, layer.in_features, rank=count)) for layer in linear]
    saved = sum(4 * max(0, whole - thin) for whole, thin in own)
    return count * ((7 if convolutional(module) else 6) * sum(sizes) - 2 * sizes[0] - saved)


def operations_of_steps(module: nn.Module, count: int) -> int | None:
    """The same of `STEPS` simulated steps of so many, by the count of `grouped_steps.py`; None without convolutions."""
    sizes, each, first = products(module), 9 * STEPS - 2, 6 * STEPS - 1
    return count * (each * sum(sizes[1:]) + first * sizes[0]) if convolutional(module) else None


def convolutional(module: nn.Module) -> bool:
    """Whether some layer is a convolution."""
    return any(isinstance(layer, nn.Conv2d) for layer in module.modules())


def products(module: nn.Module) -> list[int]:
    """Operations of every layer's one product for an image."""
    sizes: list[int] = []

    def measure(layer: nn.Module, _: Any, output: Tensor) -> None:
        weight = layer.weight
        assert isinstance(weight, Tensor)
        sizes.append(2 * output[0].numel() * weight[0].numel())

    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    hooks = [layer.register_forward_hook(measure) for layer in layers]
    with torch.no_grad():
        module(torch.zeros(1, *SHAPE))
    for hook in hooks:
        hook.remove()
    return sizes


def peak() -> float:
    """Operations per CPU second of a 1024×1024 product, the best of 20."""
    a, best = torch.rand(1024, 1024), float("inf")
    for _ in range(20):
        begin = time.process_time()
        torch.mm(a, a)
        best = min(best, time.process_time() - begin)
    return 2 * 1024**3 / best


def compare(
    title: str,
    contestants: dict[str, tuple[int, Callable[[], Tensor]]],
    images: Tensor,
    iterations: int,
    runs: int,
    floor: float | None,
) -> None:
    """Times and prints one table. contestants: name -> candidates, and a run. floor: seconds, None where not known."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    quality: dict[str, float] = {}
    for _ in range(runs):
        for name, (candidates, attack) in contestants.items():
            begin = time.process_time()
            found = attack()
            seconds[name].append((time.process_time() - begin) / iterations / candidates)
            quality[name] = psnr(found, images)
    slowest = statistics.median(seconds.get("breaching", list(seconds.values())[-1]))
    print(f"\n{title}, {iterations} iterations")
    print(f"{'':26s} {'ms / iteration / candidate':>27s} {'speed':>7s} {'PSNR':>9s} {'of the floor':>13s}")
    for name, times in seconds.items():
        middle = statistics.median(times)
        share = "" if floor is None else f"{floor / middle:12.0%}"
        print(f"{name:26s} {middle * 1e3:27.2f} {slowest / middle:6.2f}× {quality[name]:6.2f} dB {share}")


def grid(name: str, batch: int, iterations: int) -> None:
    """24 noise levels and two objectives, solved together and cell by cell."""
    cells = [workload(name, batch, noise=0.05 * k) for k in range(CELLS)]
    module, targets = cells[0][0], [target for _, target, _ in cells]
    taken = {}
    for how in ("together", "cell by cell"):
        begin = time.process_time()
        for objective in ("cosine", "euclidean"):
            settings = Inversion(objective=objective, iterations=iterations, lr=LR, tv=TV)
            for part in [targets] if how == "together" else [[target] for target in targets]:
                solve(module, part, SHAPE, settings, SEED)
        taken[how] = time.process_time() - begin
    print(
        f"grid of {CELLS} cells × 2 objectives, {name}, batch of {batch}, {iterations} iterations: together"
        f" {taken['together']:.1f} s, cell by cell {taken['cell by cell']:.1f} s,"
        f" {taken['cell by cell'] / taken['together']:.1f}×"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None, help="default: torch's own choice")
    parser.add_argument("--only", nargs="*", choices=(*BATCHES, "steps", "grid"), default=[*BATCHES, "steps", "grid"])
    options = parser.parse_args()
    torch.set_flush_denormal(True)
    if options.threads:
        torch.set_num_threads(options.threads)
    n, speed = options.iterations, peak()
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, median of {options.runs} interleaved runs, CPU"
        f" time; {speed / 1e9:.0f} GFLOP/s measured"
    )
    for name, batch in BATCHES.items():
        if name in options.only:
            module, target, images = workload(name, batch)
            contestants: dict[str, tuple[int, Callable[[], Tensor]]] = {
                f"dpfl-audit, {k} candidate{'s' if k > 1 else ''}": (k, partial(ours, module, target, n, k))
                for k in CANDIDATES[name]
            }
            contestants["plain autograd loop"] = (1, partial(autograd_loop, module, target, n))
            if (run := breaching_attack(module, target, n)) is not None:
                contestants["breaching"] = (1, run)
            floor = operations(module, batch) / speed
            compare(f"{name}, a batch of {batch}", contestants, images, n, options.runs, floor)
    for name, several in SIMULATED.items():
        if "steps" in options.only:
            module, target, images = trained(name, 8)
            n = max(1, options.iterations // 5)
            contestants = {f"dpfl-audit, {k} simulated": (k, partial(simulated, module, target, n, k)) for k in several}
            if (run := breaching_attack(module, target, n)) is not None:
                contestants["breaching"] = (1, run)
            counted = operations_of_steps(module, 8)
            least = None if counted is None else counted / speed
            compare(f"{name}, {STEPS} SGD steps of 8, order known", contestants, images, n, options.runs, least)
    if "grid" in options.only:
        print()
        for name, batch in (("mlp", 25), ("mlp", 1), ("lenet", 8), ("lenet", 1)):
            grid(name, batch, max(1, options.iterations // 10))


if __name__ == "__main__":
    main()
