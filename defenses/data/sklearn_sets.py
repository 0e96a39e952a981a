"""Small sets that come with scikit-learn: `digits` (8×8 images) and `breast_cancer` (30 features)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .dataset import DEALT_BY_LOT, Dataset, make


def digits(seed: int = 0) -> Dataset:
    """1,797 grey 8×8 images of handwritten digits, in [0, 1]: 1,200 to train, 300 to test, 297 auxiliary."""
    from sklearn.datasets import load_digits  # half a second, and most trainings are on other data

    x, y = load_digits(return_X_y=True)
    images = torch.tensor(x / 16, dtype=torch.float32).view(-1, 1, 8, 8)
    return _split(
        "digits",
        images,
        torch.tensor(y),
        10,
        seed,
        (1200, 300),
        {"source": "UCI optical recognition of handwritten digits, in scikit-learn"},
    )


def breast_cancer(seed: int = 0) -> Dataset:
    """569 rows of 30 features of cell nuclei, malignant (0) or benign (1): 400 to train, 100 to test, 69 auxiliary."""
    from sklearn.datasets import load_breast_cancer

    held = load_breast_cancer()
    x, y = torch.tensor(held.data, dtype=torch.float32), torch.tensor(held.target)
    source = "UCI breast cancer Wisconsin (diagnostic), in scikit-learn"
    named = {"columns": [{"name": str(name)} for name in held.feature_names]}
    return _split("breast_cancer", x, y, 2, seed, (400, 100), {"source": source, **named})


def _split(
    name: str,
    x: torch.Tensor,
    y: torch.Tensor,
    classes: int,
    seed: int,
    sizes: tuple[int, int],
    facts: Mapping[str, Any],
) -> Dataset:
    """facts: the source, and further ones."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    a, b = sizes[0], sum(sizes)
    train, test, auxiliary = order[:a], order[a:b], order[b:]
    splits = [(x[i], y[i]) for i in (train, test, auxiliary)]
    common = {"source": facts["source"], "licence": "CC BY 4.0", "seed": seed, "test": DEALT_BY_LOT}
    return make(name, splits[0], splits[1], splits[2], classes, common | dict(facts))
