"""Gradient inversion side by side: ours with one and four candidates, a plain autograd loop, and `breaching`.

    python benchmarks/inversion.py [--iterations 300] [--runs 5] [--threads N]

The workload of THESIS chapter 4: a 3×1024 ReLU network on 32×32 colour images, 100 classes, a batch of 25 with known
labels, cosine, signed Adam, total variation. Everything is timed that an iteration needs, and set-up with it; the
starting images are the same for all and denormal numbers are flushed for all. Runs are interleaved; each contestant's
number is the median over runs of seconds per iteration and candidate. `breaching` is optional: `pip install
'dpfl-audit[bench]'`.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
import warnings
from collections.abc import Callable, Iterable
from types import SimpleNamespace

import quiet  # noqa: F401 - before torch
import torch
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.optimise import milestones
from dpfl_audit.attacks.inversion.solution import start_images
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.attacks.inversion.target import Target
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data import photos
from dpfl_audit.defenses.layout import Layout
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn import functional as F

BATCH, LR, TV, SEED = 25, 0.1, 0.01, 0
SHAPE = (3, 32, 32)


def workload() -> tuple[nn.Module, Target, Tensor]:
    """The network, one clean mean gradient at its initial weights, and the images behind it."""
    data = photos.load(classes=100, samples=100, seed=SEED)
    module = models.build("mlp", input_shape=SHAPE, classes=100, mean=data.mean, std=data.std, seed=SEED)
    images, labels = data.inputs[:BATCH], data.targets[:BATCH]
    gradient = torch.autograd.grad(F.cross_entropy(module(images), labels), list(module.parameters()))
    weights = Layout.of(module).join({name: p.detach() for name, p in module.named_parameters()})
    return module, Target("benchmark", weights, torch.cat([g.flatten() for g in gradient]), labels, BATCH), images


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
    images = start_images(SEED, target.key, 0, BATCH, SHAPE).requires_grad_()
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
            "gradients": list(Layout.of(module).split(target.gradient).values()),
            "buffers": None,
            "metadata": {"num_data_points": BATCH, "labels": target.labels, "local_hyperparams": None},
        }
    ]
    start = start_images(SEED, target.key, 0, BATCH, SHAPE)
    return lambda: attacker.reconstruct(payload, shared, {}, initial_data=start)[0]["data"].detach()


def psnr(found: Tensor, images: Tensor) -> float:
    """Mean PSNR in dB (peak 1), found images matched to the true ones by the least total squared error."""
    errors = (found[:, None] - images[None]).square().flatten(2).mean(2)
    rows, columns = linear_sum_assignment(errors.numpy())
    return float((-10 * errors[rows, columns].log10()).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None, help="default: torch's own choice")
    options = parser.parse_args()
    torch.set_flush_denormal(True)
    if options.threads:
        torch.set_num_threads(options.threads)
    module, target, images = workload()
    n = options.iterations
    contestants: dict[str, tuple[int, Callable[[], Tensor]]] = {
        "dpfl-audit, 1 candidate": (1, lambda: ours(module, target, n, 1)),
        "dpfl-audit, 4 candidates": (4, lambda: ours(module, target, n, 4)),
        "plain autograd loop": (1, lambda: autograd_loop(module, target, n)),
    }
    if (run := breaching_attack(module, target, n)) is not None:
        contestants["breaching"] = (1, run)
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    quality: dict[str, float] = {}
    for _ in range(options.runs):
        for name, (candidates, attack) in contestants.items():
            begin = time.perf_counter()
            found = attack()
            seconds[name].append((time.perf_counter() - begin) / n / candidates)
            quality[name] = psnr(found, images)
    slowest = statistics.median(seconds.get("breaching", seconds["plain autograd loop"]))
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, {n} iterations, median of {options.runs}"
        " interleaved runs"
    )
    print(f"{'':26s} {'ms / iteration / candidate':>27s} {'speed':>7s} {'PSNR':>9s}")
    for name, times in seconds.items():
        middle = statistics.median(times)
        print(f"{name:26s} {middle * 1e3:27.2f} {slowest / middle:6.2f}× {quality[name]:6.2f} dB")


if __name__ == "__main__":
    main()
