"""Labels out of a classifier's gradient or update: exact by hand, where a theorem holds, and about right elsewhere."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from dpfl_audit.attacks.inversion.labels.classifier import find_classifier
from dpfl_audit.attacks.inversion.labels.counts import dealt_counts, labels_from_bias, nearest_counts, predicted_counts
from dpfl_audit.attacks.inversion.labels.infer import METHODS, Inferred, infer, read
from dpfl_audit.attacks.inversion.read.local_training import Recipe
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.defenses import models
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.metrics.labels import label_accuracy, label_control
from messages import target_of
from torch import Tensor, nn
from torch.nn import functional as F

SHAPE = (3, 8, 8)


def bias_gradient(counts: list[int]) -> Tensor:
    """Of a network whose softmax is uniform: 1/C − n_c/n (derived by hand from mean softmax minus one-hot)."""
    n = torch.tensor(counts, dtype=torch.float64)
    return 1 / len(counts) - n / n.sum()


@pytest.mark.parametrize(
    "counts",
    (
        [1, 0, 0, 0],
        [2, 0, 0, 0, 1, 0],
        [0, 3, 0, 2, 0, 0, 0, 0],
        [1] * 5 + [0] * 5,
        [0, 0, 0, 0, 0, 0, 0, 8],
        [5, 1, 1, 1] + [0] * 16,
    ),
)
def test_counts_at_a_uniform_softmax(counts: list[int]) -> None:
    wanted = [c for c, k in enumerate(counts) for _ in range(k)]
    gradient = bias_gradient(counts)
    assert labels_from_bias(gradient, sum(counts)).tolist() == wanted
    # Only ratios matter: a clip or an unknown scale is harmless.
    assert labels_from_bias(1e-6 * gradient, sum(counts)).tolist() == wanted
    even = torch.full((len(counts),), 1 / len(counts))
    assert predicted_counts(gradient, even, even, sum(counts)).tolist() == counts


def test_noise_alone_still_gives_labels() -> None:
    """No entry negative: the lowest classes are filled up all the same, and the count is right."""
    found = labels_from_bias(torch.tensor([0.1, 0.2, 0.3]), 4)
    # By hand: a label adds m = .6/4 = .15, so the lowest is class 0, then 1 (.2 < .25), 0 (.25 < .3) and 2 (.3 < .35).
    assert found.tolist() == [0, 0, 1, 2]
    assert labels_from_bias(torch.zeros(3), 2).tolist() == [0, 0]


def test_nearest_counts_are_the_nearest_of_all() -> None:
    rng = torch.Generator().manual_seed(0)
    for _ in range(30):
        wanted = 3 * torch.randn(3, generator=rng) + 1.5
        every = [k for k in itertools.product(range(6), repeat=3) if sum(k) == 5]
        costs = [(torch.tensor(k) - wanted).square().sum().item() for k in every]
        found = nearest_counts(wanted, 5)
        assert found.sum() == 5 and (found >= 0).all()
        # what is below 0 is cut off first, so ties with it are by the cut estimate
        cut = [(torch.tensor(k) - wanted.clamp_min(0)).square().sum().item() for k in every]
        assert cut[every.index(tuple(found.tolist()))] == pytest.approx(min(cut))
        assert (wanted < 0).any() or costs[every.index(tuple(found.tolist()))] == pytest.approx(min(costs))


@pytest.mark.parametrize("optimiser", ["sgd", "adam", "rmsprop"])
def test_dealt_counts_of_whole_batches(optimiser: str) -> None:
    """Nothing is left to the deal; torch's own optimiser makes the update of a bias alone. SGD's tells the counts, of
    the others' the sign alone is told: which classes come more often than is predicted.
    """
    counts, lr = torch.tensor([5, 0, 1, 2]), 0.01
    bias = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    made = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop}[optimiser]([bias], lr)
    for _ in range(30):
        made.zero_grad()
        F.cross_entropy(bias.expand(8, 4), torch.repeat_interleave(torch.arange(4), counts)).backward()
        made.step()
    start, end = torch.full((4,), 0.25), bias.detach().softmax(0)
    found = dealt_counts(bias.detach(), start, end, Recipe(optimiser, lr, (8,) * 30, 30), 8)
    assert found.sum() == 8 and found[0] > 2 and found[1] <= 2 and found[2] <= 2
    assert optimiser != "sgd" or torch.equal(found, counts)


def network(seed: int, bias: bool = True, activation: str = "relu") -> nn.Module:
    module = models.build(
        "mlp",
        input_shape=SHAPE,
        classes=10,
        mean=(0.5,) * 3,
        std=(0.25,) * 3,
        seed=seed,
        widths=[64],
        activation=activation,
    )
    if not bias:
        head = next(m for m in reversed(list(module.modules())) if isinstance(m, nn.Linear))
        head.register_parameter("bias", None)
    return module.eval()


def make_target(module: nn.Module, images: Tensor, labels: Tensor, noise: float = 0.0, **settings) -> Target:
    return replace(target_of(module, images, labels, noise), labels=None, **settings)


def found_in(module: nn.Module, target: Target, shape: tuple[int, ...] = SHAPE) -> Inferred:
    return infer(module, Layout.of(module), target, shape)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("bias", [True, False])
def test_distinct_labels_are_exact_at_the_initial_weights(seed: int, bias: bool) -> None:
    rng = torch.Generator().manual_seed(seed)
    module, labels = network(seed, bias), torch.randperm(10, generator=rng)[:6].sort().values
    target = make_target(module, torch.rand(6, *SHAPE, generator=rng), labels)
    found = found_in(module, target)
    assert found.labels.tolist() == labels.tolist() and found.method == "predicted"
    sent = read(module, Layout.of(module), target, SHAPE)
    assert METHODS["bias-corrected"](sent).tolist() == labels.tolist()


@pytest.mark.parametrize("seed", range(5))
def test_repeated_labels_and_noise(seed: int) -> None:
    """Noise of 5 % of what is sent leaves them better than what one guesses without looking."""
    rng = torch.Generator().manual_seed(seed)
    module, labels = network(seed), torch.randint(0, 10, (8,), generator=rng).sort().values
    images = torch.rand(8, *SHAPE, generator=rng)
    clean = make_target(module, images, labels)
    assert label_accuracy(found_in(module, clean).labels, labels) == 1
    noisy = make_target(module, images, labels, 0.05 * clean.gradient.square().mean().sqrt().item())
    control = label_control(labels, torch.zeros(0), 10)
    for found in (found_in(module, noisy), found_in(module, make_target(module, images, labels, scale_known=False))):
        assert label_accuracy(found.labels, labels) >= max(control, 7 / 8)


def test_much_noise_is_averaged_out_over_the_rows_of_the_weight() -> None:
    rng = torch.Generator().manual_seed(0)
    module, labels = network(0, activation="sigmoid"), torch.tensor([1, 1, 1, 1, 4, 4, 7, 7])
    images, layout, head = torch.rand(8, *SHAPE, generator=rng), Layout.of(module), find_classifier(module, SHAPE)
    target = make_target(module, images, labels, 0.15)
    exact = layout.split(make_target(module, images, labels).gradient)[head.bias or ""]
    alone = (layout.split(target.gradient)[head.bias or ""] - exact).norm()
    assert (read(module, layout, target, SHAPE).gradient - exact).norm() < alone / 2


def test_one_image_is_read_by_its_sign() -> None:
    module = network(0)
    target = make_target(module, torch.rand(1, *SHAPE, generator=torch.Generator().manual_seed(0)), torch.tensor([3]))
    found = found_in(module, target)
    assert (found.labels.tolist(), found.method) == ([3], "idlg")


class Odd(nn.Module):
    """The classifier is called last, but is neither the last of the modules nor of the parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(12, 4)
        self.scale = nn.Parameter(torch.ones(12))
        self.first = nn.Linear(12, 12)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.first(x.flatten(1) * self.scale).relu())


def test_the_classifier_is_found_by_what_is_called_last() -> None:
    torch.manual_seed(0)
    module, labels = Odd(), torch.tensor([2])
    assert find_classifier(module, (3, 2, 2)).weight == "head.weight"
    found = found_in(module, make_target(module, torch.rand(1, 3, 2, 2), labels), (3, 2, 2))
    assert found.labels.tolist() == [2] and module.training


def test_what_cannot_be_read_is_said_in_one_sentence() -> None:
    def refused(module: nn.Module, why: str) -> None:
        target = make_target(module, torch.rand(2, 3, 2, 2), torch.tensor([0, 1]))
        with pytest.raises(ValueError, match=why) as error:
            found_in(module, target, (3, 2, 2))
        assert "labels='known'" in str(error.value)

    refused(nn.Sequential(nn.Conv2d(3, 4, 2), nn.Flatten()), "no linear layer")
    refused(nn.Sequential(nn.Flatten(), nn.Linear(12, 12), Cut()), "gives 12 numbers an image and the network 4")
    centred = (nn.Flatten(), nn.LayerNorm(12), nn.Linear(12, 400, bias=False), nn.Linear(400, 4, bias=False))
    refused(nn.Sequential(*centred), "average to next to nothing")
    adam = make_target(network(0, False), torch.rand(2, *SHAPE), torch.tensor([0, 1]), scale_known=False)
    recipe = Recipe("adam", 0.01, (1, 1), 1)
    with pytest.raises(ValueError, match="several steps of a rescaling optimiser"):
        found_in(network(0, False), replace(adam, recipe=recipe, update=-0.01 * adam.gradient.sign()))
    with pytest.raises(ValueError, match="count is 0"):
        labels_from_bias(torch.zeros(3), 0)
    with pytest.raises(ValueError, match="expected finite"):
        nearest_counts(torch.tensor([float("nan"), 1]), 2)
    sent = read(Odd(), Layout.of(Odd()), make_target(Odd(), torch.rand(2, 3, 2, 2), torch.tensor([0, 1])), (3, 2, 2))
    with pytest.raises(ValueError, match="Adam"):
        METHODS["dealt"](sent)


class Cut(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, :4]


def test_accuracy_of_labels_and_its_control() -> None:
    truth = torch.tensor([0, 0, 0, 1])
    assert label_accuracy(torch.tensor([1, 0, 2, 0]), truth) == 0.75
    assert label_control(truth, torch.zeros(0), 4) == 0.5  # 0, 1, 2, 3
    assert label_control(truth, torch.tensor([0, 0, 3]), 4) == 0.75
    with pytest.raises(ValueError, match="equally many"):
        label_accuracy(truth[:2], truth)
