"""What reading messages takes for granted, whatever method then seeks the images; in plain words."""

from __future__ import annotations

from collections.abc import Sequence

from ....defenses.chain import open_chain
from ...base import NOISE_KNOWN, View
from ..match.solution import Solution
from ..settings import Settings
from .local_steps import besides_assumed
from .mode import mode_assumed
from .rounds import MOST
from .target import Aim, Target, assumptions


def reading_assumed(aim: Aim, view: View, settings: Settings, solution: Solution) -> list[str]:
    """Of a message as a gradient at weights, its labels and its scale."""
    target = aim.target
    recipe = target.recipe
    steps = 0 if recipe is None else len(recipe.sizes)
    assumed = ["the number of images"]
    if view.columns:
        assumed = ["the number of rows", "what the table's columns are: words by their features, and where numbers lie"]
    assumed += view.base_known
    assumed += assumptions(view.facts, steps, solution.by_step, target.stretched > 1)
    assumed += besides_assumed(view.facts, recipe)
    assumed += mode_assumed(view.module, settings.mode, view.facts.scheme == "recorded")
    if target.statistics is not None:
        assumed += target.statistics.assumed(settings)
    assumed.append(f"labels inferred: {solution.labels_by}" if solution.labels_by else "labels known")
    if settings.objective == "euclidean" and not target.scale_known:
        tensors = " tensor by tensor" if target.per_layer else ""
        assumed.append(f"scale of the gradient unknown, profiled out{tensors}")
    if settings.objective == "euclidean" and target.clip_norm is not None:
        assumed.append("clip norm known and modelled")
    return assumed


def joining_assumed(aim: Aim, view: View, settings: Settings, records: Sequence[str]) -> list[str]:
    """Of noise, of whose model and messages they are, and of how several go together. records: words on the attacker's
    own.
    """
    target, assumed = aim.target, list[str]()
    if target.noise_std > 0 and _reads_noise(view, settings):
        assumed.append(NOISE_KNOWN)
    assumed += records
    if aim.own_model:
        assumed.append("the sender's model equals the observer's own of that round")
    if target.sparse is not None:
        assumed.append(f"components that are exactly 0 were not sent: {_left_out(target, settings)}")
    if aim.summed:
        assumed.append(
            "the step from one broadcast model to the next read as the update of one client with all records of the"
            " round, each of which weighs the same"
        )
    if view.anonymous and len(aim.messages) > 1:
        assumed.append("messages joined by what they resemble, which no address confirms")
    if target.others:
        assumed.append(_several(target))
    elif aim.manner == "all-rounds":
        assumed.append("every message of the sender of records of its own, and read by itself")
    return assumed


def _reads_noise(view: View, settings: Settings) -> bool:
    """Whether anything goes by how much noise there is."""
    by_settings = settings.learned or settings.tv == "noise-aware" or settings.exact or settings.span > 0
    return by_settings or (settings.features > 0 and open_chain(view.module) is None)


def _left_out(target: Target, settings: Settings) -> str:
    used = target.sparse_by(settings.objective)
    if used is None:
        return "smaller than the others, and read as 0"
    return "no larger than the least that was" if used.largest else "of any size, and not compared"


def _several(target: Target) -> str:
    noise = ""
    if any(one.noise_std > 0 for one in target.messages):
        noise = f"; {target.noise_share:.0%} of the energy of their mean by that is noise"
    return (
        f"{len(target.messages)} messages of one sender, of the same records in one order, each at its own round's"
        f" weights, by how little noise and drift each has (of more than {MOST} the least noisy){noise}"
    )
