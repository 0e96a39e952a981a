"""Images that saw nothing of the messages, to be scored like an attack's: what does not beat them shows no leak."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def control_images(
    shape: tuple[int, ...],
    auxiliary: Tensor | None = None,
    start: Tensor | None = None,
    labels: Tensor | None = None,
    auxiliary_labels: Tensor | None = None,
) -> dict[str, Tensor]:
    """Images (n, c, h, w) = `shape` that know nothing of the messages, by name.

    gray: .5 everywhere.
    mean: the mean of the auxiliary images (k, c, h, w).
    label_mean: the mean of the auxiliary images of each of `labels` (n,), the best guess from the labels alone; a label
      without auxiliary images takes the overall mean. Only where labels and auxiliary_labels are given.
    random: the attack's own `start`.
    Without auxiliary images, or a start, their controls are absent.

    Args:
        shape: (n, c, h, w). auxiliary: (k, c, h, w). start: (n, c, h, w), the attack's own. labels: (n,).
        auxiliary_labels: (k,).

    >>> sorted(control_images((2, 1, 8, 8), auxiliary=torch.rand(5, 1, 8, 8)))
    ['gray', 'mean']
    """
    images = {"gray": torch.full(shape, 0.5)}
    if auxiliary is not None and len(auxiliary):
        overall = auxiliary.double().mean(0).float()
        images["mean"] = overall.expand(shape)
        if labels is not None and auxiliary_labels is not None:
            of_label = {
                label: auxiliary[auxiliary_labels == label].double().mean(0).float()
                for label in auxiliary_labels.unique().tolist()
            }
            images["label_mean"] = torch.stack([of_label.get(label, overall) for label in labels.tolist()])
    if start is not None:
        images["random"] = start
    return images


def other_rows(
    count: int, auxiliary: Tensor, labels: Tensor | None, auxiliary_labels: Tensor | None, seed: int
) -> Tensor:
    """Rows (count, features, 1, 1) of a table drawn from the auxiliary ones (k, …), of each of `labels` (count,) where
    these are known and there are any: rows are so alike that pairing any others with the originals gets most cells
    right, more than a mean row does.

    Args:
        count: how many. auxiliary: the attacker's rows. labels: of the originals, None where they are not known.
        auxiliary_labels: (k,). seed: of the lot.
    """
    rng, drawn = torch.Generator().manual_seed(seed), torch.empty(count, dtype=torch.long)
    every = torch.arange(len(auxiliary))
    groups = [(torch.ones(count, dtype=torch.bool), every)]
    if labels is not None and auxiliary_labels is not None:
        groups = [(labels == label, every[auxiliary_labels == label]) for label in labels.unique()]
    for own, pool in groups:
        pool = pool if len(pool) else every
        times = -(-int(own.sum()) // len(pool))
        order = torch.cat([pool[torch.randperm(len(pool), generator=rng)] for _ in range(times)])
        drawn[own] = order[: int(own.sum())]
    return auxiliary[drawn]


def psnr_margin(psnr: float, of_controls: Mapping[str, float]) -> float:
    """Mean PSNR of the attack minus that of the best control, in dB.

    >>> psnr_margin(20.0, {"gray": 11.0, "mean": 13.5})
    6.5

    Raises:
        ValueError: there is no control.
    """
    if not of_controls:
        raise ValueError("a PSNR margin was asked for without controls; at least one is needed")
    return psnr - max(of_controls.values())
