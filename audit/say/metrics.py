"""Metrics in words."""

from __future__ import annotations

from dataclasses import dataclass

from .words import at_least, at_most, number, percent, percent_at_least, percent_at_most


@dataclass(frozen=True)
class Metric:
    """A metric in words.

    direction: +1 if larger values mean more leakage, −1 if smaller ones do, 0 if it says nothing by itself.
    """

    label: str
    direction: int
    meaning: str
    share: bool = False  # said in percent
    bound: bool = False  # a lower bound, rounded down

    def say(self, value: float | None) -> str:
        if self.bound:
            return at_least(value)
        if self.share:
            return percent(value)
        return number(value)

    def at_least(self, value: float | None) -> str:
        if self.share:
            return percent_at_least(value)
        return at_least(value)

    def at_most(self, value: float | None) -> str:
        if self.share:
            return percent_at_most(value)
        return at_most(value)


METRICS = {
    "reidentified": Metric(
        "re-identified among outsiders",
        +1,
        "share of images that their reconstruction picks out of a line-up with others of the kind",
        True,
    ),
    "pool_share": Metric(
        "re-identified in its own pool",
        +1,
        "share of images picked out of a line-up with images that might as well have been in their place; no attack"
        " exceeds the ceiling on average, if the proof holds",
        True,
    ),
    "exact": Metric(
        "came back beyond doubt",
        +1,
        "share of images rebuilt with less than a thirtieth of the squared error of the best control, of a flat picture"
        " and of any other image",
        True,
    ),
    "cells_right": Metric(
        "cells right",
        +1,
        "share of a table's cells that are right once rows are paired: the word, or the number within .319 standard"
        " deviations (TabLeak, arXiv:2210.01785); a guess by what is frequent has many, so mind the controls",
        True,
    ),
    "words_told": Metric(
        "words told", +1, "share of a text's words that were told, wherever they stand; mind the controls", True
    ),
    "words_wrong": Metric(
        "words told that are wrong", 0, "share of the words told that no text of the batch has", True
    ),
    "rouge1": Metric("ROUGE-1", +1, "F of the words in common with the text; 1 is all, in any order"),
    "rouge2": Metric("ROUGE-2", +1, "F of the pairs of neighbouring words in common; 1 is all, in order"),
    "rougeL": Metric("ROUGE-L", +1, "F of the longest common subsequence of words"),
    "in_place": Metric("words at their place", +1, "share of a text's words that were told at their place", True),
    "whole": Metric("texts whole", +1, "share of the texts that came back word for word", True),
    "noise_over_gradient": Metric(
        "noise over gradient",
        0,
        "how many times as long as the gradient the noise is, at least, by the message's own length",
        bound=True,
    ),
    "psnr_margin": Metric(
        "PSNR margin (dB)", +1, "PSNR minus that of the best control; above 0 the attack learned something"
    ),
    "psnr": Metric(
        "PSNR (dB)", +1, "closeness of pixels to the original; from about 20 dB on one recognises the picture"
    ),
    "ssim": Metric("SSIM", +1, "similarity of structure, 1 is identical"),
    "mse": Metric("MSE", -1, "mean squared error of pixels in [0, 1], 0 is identical"),
    "lpips": Metric("LPIPS", -1, "perceptual distance by a trained network, 0 is identical"),
    "pixel_cosine": Metric("pixel cosine", +1, "cosine similarity of pixels"),
    "pixel_euclidean": Metric("pixel distance", -1, "Euclidean distance of pixels"),
    "feature_cosine": Metric("feature cosine", +1, "cosine similarity of reference classifiers' outputs"),
    "feature_euclidean": Metric("feature distance", -1, "Euclidean distance of reference classifiers' outputs"),
    "leak_probability": Metric(
        "leak probability",
        0,
        "for comparison with published tables only: relative to its own batch, it gates nothing",
        True,
    ),
    "label_accuracy": Metric(
        "labels inferred",
        0,
        "share of labels that are right, whatever image they are of; chance is the better of an even spread and always"
        " the attacker's most frequent class",
        True,
    ),
    "linked": Metric(
        "messages linked",
        +1,
        "share of the pairs of messages of one anonymous sender, in two rounds, that were paired; chance is the same"
        " where senders trade messages within rounds",
        True,
    ),
    "tracked": Metric(
        "joined messages that are right",
        0,
        "of the pairs of messages that were alike enough to be taken for one sender's, the share that is",
        True,
    ),
    "attack_loss": Metric("attack's own loss", 0, "what the attacker minimised; needs no truth"),
    "attribute": Metric(
        "value guessed",
        0,
        "share of members whose value in the hidden column was guessed right; mind the controls, the same for outsiders"
        " and guesses without any message",
        True,
    ),
    "attribute_advantage": Metric(
        "attribute advantage",
        +1,
        "share of members' values guessed right minus that of outsiders', what the messages tell beyond the population;"
        " 0 is no leak",
        True,
    ),
    "auc": Metric("AUC", +1, "chance that a member scores above a non-member; guessing gives 0.5"),
    "balanced_accuracy": Metric(
        "balanced accuracy", +1, "mean of the right answers on members and on non-members", True
    ),
    "exposure": Metric(
        "exposure (bits)",
        +1,
        "how far up a text's number stands among those that might be in its place, by the model's loss; guessing gives"
        " 1.44 on average, and outsiders tell what the model knows without any training on it",
    ),
    "epsilon": Metric("ε demonstrated", +1, "lower confidence bound on ε, whatever the mechanism", bound=True),
    "epsilon_ceiling": Metric("most ε a perfect attack shows", 0, "with this many trials, whatever leaks"),
    "epsilon_if_gaussian": Metric("ε if the noise is Gaussian", +1, "lower confidence bound on ε if it is", bound=True),
    "epsilon_if_gaussian_ceiling": Metric(
        "most ε a perfect attack shows if so", 0, "with this many trials, if the noise is Gaussian"
    ),
    "mu": Metric("Gaussian-DP parameter μ", +1, "lower confidence bound on it, if the noise is Gaussian", bound=True),
    "all": Metric("any metric", 0, ""),
}


def metric(name: str) -> Metric:
    """The words for `name`; a metric not in the list is shown under its own name."""
    return METRICS.get(name) or Metric(name.replace("_", " "), 0, "")
