"""How much of the audited images a reconstruction shows: every image metric, beside the same metric of the controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from . import image
from .cells import CellKind, cells_right
from .classifiers import Reference
from .controls import control_images, other_rows, psnr_margin
from .exact import back_beyond_doubt
from .intervals import bootstrap_interval
from .leak_probability import leaking_images
from .perceptual import NotMeasured, Perceptual
from .pool_test import PERMUTATIONS
from .reidentification import Reidentified, line_up
from .significance import LineUpTests

UNTESTED = (1.0, 1.0)  # a p-value, and the least that it could be
_WITH_MORE = ("ssim", "lpips", "pixel_cosine", "pixel_euclidean", "feature_cosine", "feature_euclidean")
_OF_OUTPUTS = ("feature_cosine", "feature_euclidean", "leak_probability")
ROWS_OF_A_TABLE = "it compares pictures, and these are rows of a table"  # which lacks nothing
_OF_PICTURES = ("ssim", "lpips", *_OF_OUTPUTS)
CELLS = "cells_right"  # of rows of a table alone
_OF_LINE_UP = ("reidentified", "reidentified_chance")
_OF_ALL = (*_OF_LINE_UP, "exact", "psnr_margin", "attack_loss")


def metric_names() -> tuple[str, ...]:
    """What `score_images` measures of images."""
    return (*image.PER_IMAGE, *_WITH_MORE, "leak_probability", *_OF_ALL)


def score_images(
    originals: Tensor,
    reconstructions: Tensor,
    *,
    labels: Tensor | None = None,
    reconstruction_labels: Tensor | None = None,
    start: Tensor | None = None,
    of_nothing: bool = False,
    auxiliary: Tensor | None = None,
    auxiliary_labels: Tensor | None = None,
    distractors: Tensor | None = None,
    distractor_labels: Tensor | None = None,
    classifiers: Reference | NotMeasured | None = None,
    perceptual: Perceptual | NotMeasured | None = None,
    noise_scale: float = 0.0,
    normalise: tuple[Tensor, Tensor] | None = None,
    attack_loss: float | None = None,
    seed: int = 0,
    relabellings: int = PERMUTATIONS,
    slack: float = 0.0,
    cells: Sequence[CellKind] | None = None,
) -> dict[str, Any]:
    """Every metric of one reconstruction, its controls and intervals, as plain numbers for JSON (None: not measured).

    Averages are over the matched pairs, those of controls over the same originals. PSNR counts at most 100 dB an image.
    The interval of psnr_margin is that of the difference to the control that is best on average.

    Args:
        originals: (n, c, h, w), pixels in [0, 1], on the CPU.
        reconstructions: (m, c, h, w), likewise.
        labels: (n,), with `reconstruction_labels` where the attack knew the labels. Without both an image must stand
            out among images of all labels.
        reconstruction_labels: (m,).
        start: (m, c, h, w), where the attack began. of_nothing: it is what the same attack makes of a message of noise
            alone; what it picks must then be beaten original by original, as pictures that a prior invents may resemble
            originals more than the line-up's other images, all of them for one reason.
        auxiliary, auxiliary_labels: the attacker's images, for the mean controls.
        distractors, distractor_labels: the other images of the line-up (see `line_up`), by default the auxiliary
            ones. More of them (the test split, the client's other images) lower chance. They must not repeat an
            original.
        classifiers, perceptual: the networks of feature metrics and LPIPS, or why there are none.
        noise_scale: of `leaking_images`.
        normalise: mean and std (c,) of the pixel cosine and distance.
        attack_loss: the attack's own loss, passed on.
        seed: of the bootstrap. relabellings: at most so many, of the exact test of a line-up of few images;
            0 for no test at all.
        slack: dB that distractors of another lot may be further off (`closer_test.OF_OTHER_SPLITS`).
        cells: of rows of a table on the unit scale, (n, features, 1, 1), what `cells_right` asks for; then nothing is
            measured that is of pictures alone.

    Returns:
        `metric_names()`, of rows `CELLS` too, and
        controls: {gray, mean, label_mean, random, of a table other_rows: the metrics without exact, psnr_margin and
        attack_loss},
        intervals: {metric: [low, high]}, by bootstrap over images, Clopper-Pearson for reidentified; None for one
        image,
        p_values: {reidentified, psnr_margin}: the least 1 − confidence at which these lie above their controls, the
        share above what luck may explain (`share_by_luck`), the images closer than to others (`closer_p_value`); absent
        without others,
        least_p_values: the same for success as perfect as can be; both are 1 where no test was asked for,
        pairs: [{original, reconstruction, psnr, ssim, lpips}], indices as matched,
        not_measured: {metric: why}.

    Raises:
        ValueError: shapes differ, there are no images, or pixels are not finite or not in [0, 1].
    """
    if distractors is None and distractor_labels is None:
        distractors, distractor_labels = auxiliary, auxiliary_labels
    if labels is None or reconstruction_labels is None:
        labels = reconstruction_labels = distractor_labels = None
    _check_all(originals, reconstructions, start, {"auxiliary": auxiliary, "distractors": distractors})
    missing = _missing(originals, perceptual, classifiers, cells)
    missing |= _without_line_up(distractors, labels, distractor_labels)
    others = None
    if distractors is not None and "reidentified" not in missing:
        others = line_up(originals, distractors, labels, distractor_labels)
    pairs = image.match(originals, reconstructions, labels, reconstruction_labels)
    matched = torch.tensor([original for original, _ in pairs])
    targets, target_labels = originals[matched], None if labels is None else labels[matched]
    networks = classifiers, perceptual
    measure = _Measure(targets, *networks, noise_scale, normalise or (None, None), frozenset(missing), cells)
    rebuilt = reconstructions[torch.tensor([reconstruction for _, reconstruction in pairs])]
    picked = others.pick(reconstructions, reconstruction_labels) if others else None
    found = _Scored(measure(rebuilt), picked)
    images = control_images(tuple(targets.shape), auxiliary, start, target_labels, auxiliary_labels)
    if cells is not None and auxiliary is not None and len(auxiliary):
        images["other_rows"] = other_rows(len(targets), auxiliary, target_labels, auxiliary_labels, seed)
    controls = {}
    for name, stack in images.items():
        of = reconstruction_labels if name == "random" else target_labels
        order = torch.tensor([j for _, j in image.match(targets, stack, target_labels, of)])
        seen = others.pick(stack, of) if others else None
        controls[name] = _Scored(measure(stack[order]), seen)
    margin, gain, best_control = found.against(controls)
    exact = back_beyond_doubt(targets, rebuilt, best_control, distractors)
    scores = found.means | {"exact": float(exact.double().mean()), "psnr_margin": margin, "attack_loss": attack_loss}
    chances: dict[str, tuple[float | None, float]] = {}  # p-values, and the least that they can be
    if distractors is not None and len(distractors):
        stacks = originals, reconstructions, distractors
        tests = LineUpTests(*stacks, labels, reconstruction_labels, distractor_labels, seed)
        chances["psnr_margin"] = tests.closer(slack) if relabellings else UNTESTED
        if picked is not None:
            by_line_up = partial(_by_line_up, tests, picked, controls, of_nothing)
            chances["reidentified"] = by_line_up(relabellings) if relabellings else UNTESTED
    return {
        **{name: scores[name] for name in (*metric_names(), CELLS) if name in scores},
        "controls": {name: control.means for name, control in controls.items()},
        "intervals": _intervals({**found.values, "psnr_margin": gain}, picked, seed),
        "p_values": {name: p for name, (p, _) in chances.items() if p is not None},
        "least_p_values": {name: least for name, (_, least) in chances.items()},
        "pairs": [{"original": i, "reconstruction": j, **found.at(k)} for k, (i, j) in enumerate(pairs)],
        "not_measured": missing,
    }


@dataclass(frozen=True, eq=False)
class _Scored:
    """Images of the attack, or of a control: every metric an image (n,), and what a line-up picks."""

    values: Mapping[str, Tensor]
    picked: Reidentified | None

    @property
    def means(self) -> dict[str, float | None]:
        names = (*image.PER_IMAGE, *_WITH_MORE, "leak_probability")
        means = {name: float(self.values[name].mean()) if name in self.values else None for name in names}
        if CELLS in self.values:
            means[CELLS] = float(self.values[CELLS].mean())
        line_up = (None, None) if self.picked is None else (self.picked.share, self.picked.chance)
        return {**means, **dict(zip(_OF_LINE_UP, line_up))}

    def at(self, index: int) -> dict[str, float | None]:
        """What a pair of images shows."""
        names = ("psnr", "ssim", "lpips")
        return {name: float(self.values[name][index]) if name in self.values else None for name in names}

    def against(self, controls: Mapping[str, _Scored]) -> tuple[float, Tensor, Tensor]:
        """The margin of the mean PSNR, the gain on the control that is best on average (n,), and the best control's
        PSNR image by image (n,).
        """
        psnr = self.values["psnr"]
        gains = {name: psnr - control.values["psnr"] for name, control in controls.items()}
        means = {name: float(psnr.mean() - gain.mean()) for name, gain in gains.items()}
        best = max(means, key=lambda name: means[name])
        best_control = torch.stack([psnr - gain for gain in gains.values()]).amax(dim=0)
        return psnr_margin(float(psnr.mean()), means), gains[best], best_control


def _by_line_up(
    tests: LineUpTests, picked: Reidentified, controls: Mapping[str, _Scored], of_nothing: bool, relabellings: int
) -> tuple[float, float]:
    """The p-value of the share picked, and the least that it can be."""
    nothing = controls["random"].picked if of_nothing and "random" in controls else None
    best = [control.means["reidentified"] or 0.0 for control in controls.values()]
    return tests.reidentified(picked, best, nothing, relabellings)


def _intervals(values: Mapping[str, Tensor], picked: Reidentified | None, seed: int) -> dict[str, list[float] | None]:
    limits = {name: bootstrap_interval(value, seed=seed) for name, value in values.items()}
    if picked is not None:
        limits["reidentified"] = picked.interval
    return {name: None if pair is None else list(pair) for name, pair in limits.items()}


@dataclass(frozen=True, eq=False)
class _Measure:
    """Every metric that has a value an image (n,), of images already paired with the targets, but for those in
    `missing`.
    """

    targets: Tensor
    classifiers: Reference | NotMeasured | None
    perceptual: Perceptual | NotMeasured | None
    noise_scale: float
    normalise: tuple[Tensor | None, Tensor | None]
    missing: frozenset[str]
    cells: Sequence[CellKind] | None

    def __call__(self, b: Tensor) -> dict[str, Tensor]:
        a = self.targets
        values = {
            **{name: measure(a, b) for name, measure in image.PER_IMAGE.items()},
            "pixel_cosine": image.pixel_cosine(a, b, *self.normalise),
            "pixel_euclidean": image.pixel_euclidean(a, b, *self.normalise),
        }
        if self.cells is not None:
            values[CELLS] = cells_right(a, b, self.cells)
        if "ssim" not in self.missing:
            values["ssim"] = image.ssim(a, b)
        if isinstance(self.perceptual, Perceptual) and "lpips" not in self.missing:
            values["lpips"] = self.perceptual.distance(a, b)
        if isinstance(self.classifiers, Reference) and self._outputs is not None:
            seen = self._outputs, self.classifiers.averaged_outputs(b)
            cosine, euclidean = image.feature_cosine(*seen), image.feature_euclidean(*seen)
            leaking = leaking_images(cosine, euclidean, self.noise_scale).double()
            values |= {"feature_cosine": cosine, "feature_euclidean": euclidean, "leak_probability": leaking}
        return values

    @cached_property
    def _outputs(self) -> Tensor | None:
        """The classifiers' of the targets, None where they are not compared."""
        if not isinstance(self.classifiers, Reference) or self.missing & {*_OF_OUTPUTS}:
            return None
        return self.classifiers.averaged_outputs(self.targets)


def _missing(
    originals: Tensor,
    perceptual: Perceptual | NotMeasured | None,
    classifiers: Reference | NotMeasured | None,
    cells: Sequence[CellKind] | None,
) -> dict[str, str]:
    """What cannot be measured of these images without the networks, and why."""
    missing: dict[str, str] = {}
    height, width = originals.shape[-2:]
    if min(height, width) < image.SSIM_WINDOW:
        windows = f"{image.SSIM_WINDOW}×{image.SSIM_WINDOW}"
        missing["ssim"] = f"SSIM compares {windows} windows, these images are {height}×{width}"
    if isinstance(perceptual, Perceptual):
        reason = perceptual.unable(tuple(originals.shape))
    else:
        reason = perceptual.reason if perceptual else "no LPIPS network was given"
    if reason:
        missing["lpips"] = reason
    if not isinstance(classifiers, Reference):
        why = classifiers.reason if classifiers else "no reference classifiers were given"
        missing |= dict.fromkeys(_OF_OUTPUTS, why)
    if cells is not None:
        missing |= dict.fromkeys(_OF_PICTURES, ROWS_OF_A_TABLE)
    return missing


def _without_line_up(
    distractors: Tensor | None, labels: Tensor | None, of_distractors: Tensor | None
) -> dict[str, str]:
    if distractors is None or not len(distractors):
        return dict.fromkeys(_OF_LINE_UP, "a line-up needs other images of the same kind, and none were given")
    if labels is not None and of_distractors is None:
        return dict.fromkeys(_OF_LINE_UP, "the labels were known, so a line-up needs other images with labels")
    return {}


def _check_all(
    originals: Tensor, reconstructions: Tensor, start: Tensor | None, others: Mapping[str, Tensor | None]
) -> None:
    if not len(originals) or not len(reconstructions):
        raise ValueError(
            f"{len(originals)} originals and {len(reconstructions)} reconstructions; at least one each is needed"
        )
    if start is not None and start.shape != reconstructions.shape:
        raise ValueError(
            f"start is {tuple(start.shape)}; it must be like the reconstructions {tuple(reconstructions.shape)}"
        )
    stacks = {"originals": originals, "reconstructions": reconstructions, "start": start, **others}
    for name, images in stacks.items():
        if images is not None:
            _check(name, images, originals)


def _check(name: str, images: Tensor, originals: Tensor) -> None:
    if images.ndim != 4 or images.shape[1:] != originals.shape[1:]:
        shape = tuple(originals.shape[1:])
        raise ValueError(f"{name} are {tuple(images.shape)}; they must be (n, c, h, w) like the originals, {shape}")
    if len(images) and not bool(((images >= 0) & (images <= 1)).all()):
        low, high = float(images.min()), float(images.max())
        raise ValueError(f"the pixels of {name} run from {low:.4g} to {high:.4g}; they must be finite and in [0, 1]")
