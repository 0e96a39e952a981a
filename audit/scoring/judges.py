"""The reference classifiers of a setup's pictures: which there are, and why there are none."""

from __future__ import annotations

from ...attacks.base import Knowledge
from ...defenses.progress import Progress
from ...metrics import classifiers
from ...metrics.perceptual import NotMeasured
from ..files import cache_folder
from ..setup.folder import Setup
from .kept_classifiers import kept_reference

Judges = classifiers.Reference | NotMeasured


def reference_judges(setup: Setup, knowledge: Knowledge, progress: Progress | None) -> Judges:
    """The five shipped ones for the data set, else small ones trained on the attacker's auxiliary data."""
    data = setup.manifest.data
    if data.name in classifiers.shipped():
        return classifiers.load_reference(data.name)
    if why := why_untrained(setup, knowledge):
        return NotMeasured(why)

    def tick(done: int, total: int) -> None:
        if progress is not None:
            progress(done, total, "training reference classifiers")

    inputs, targets, colour = knowledge.auxiliary_inputs, knowledge.auxiliary_targets, data.input_shape[0] == 3
    kept = cache_folder("classifiers")
    reference = kept_reference(kept, inputs, targets, data.classes, seed=0, flip=colour, progress=tick)
    tick(1, 1)  # of what an earlier run left nothing was heard
    return reference


def why_untrained(setup: Setup, knowledge: Knowledge) -> str:
    """Why no reference classifier is trained on the attacker's auxiliary data, "" where some are."""
    data = setup.manifest.data
    if setup.columns or len(data.input_shape) != 3:
        return "reference classifiers look at pictures"
    if data.label_sets or not data.classes:
        return "reference classifiers tell classes apart, and these records have none or sets of them"
    if min(data.input_shape[1:]) < classifiers.LEAST:
        return f"reference classifiers need images of at least {classifiers.LEAST}×{classifiers.LEAST}"
    if len(knowledge.auxiliary_inputs) < max(10, 2 * data.classes):
        return (
            f"{len(knowledge.auxiliary_inputs)} auxiliary images are too few to train reference classifiers of"
            f" {data.classes} classes on"
        )
    return ""
