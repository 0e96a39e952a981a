"""A client's local steps with all that is in them, forwards on given gradients and backwards.

In the order of `defenses.engine`: the loss's gradient times a factor, the penalties' gradients at the weights now, a
clip of their sum, the optimiser, a clip of the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ....defenses.local import Penalty, Proximal, ScaleByRoot, StepClip
from ....defenses.steps.clip import clip_to
from ...base import PublicFacts
from .local_training import CLIPS, PENALTIES, RECORDS, SCALE, TRUNCATED, Recipe, Walk


class LocalSteps:
    """Weights step by step, of one client or of several.

    weights: (…, d), now.

    Args:
        recipe: of the training. start: (…, d), what the steps begin with.
    """

    def __init__(self, recipe: Recipe, start: Tensor) -> None:
        self.recipe, self.start, self.weights = recipe, start, start
        self.walk = Walk(recipe)
        # of every step: what a clip of gradients and one of weights was given
        self.kept: list[tuple[Tensor | None, Tensor | None]] = []

    def forward(self, gradient: Tensor) -> Tensor:
        """The weights after a step on the loss's gradient (…, d) at the weights now."""
        before, clip = self.weights, self.recipe.step_clip
        whole = gradient if self.recipe.factor == 1 else self.recipe.factor * gradient
        for penalty in self.recipe.penalties:
            whole = whole + penalty.mu * (before - self.start)
        of_gradient, of_weights = (clip is not None and clip.what == what for what in ("gradient", "weights"))
        given = clip_to(whole, clip.norm, clip.order) if clip is not None and of_gradient else whole
        after = self.walk.moved(before, given)
        self.weights = clip_to(after, clip.norm, clip.order) if clip is not None and of_weights else after
        self.kept.append((whole if of_gradient else None, after if of_weights else None))
        return self.weights

    def backward(self) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """A function to call once a step, the last first: the derivative by the weights after the step -> that by the
        loss's gradient, and that by the weights before the step but for what the gradient depends on them.
        """
        back, clip, kept = self.walk.backward(), self.recipe.step_clip, list(self.kept)

        def step(cotangent: Tensor) -> tuple[Tensor, Tensor]:
            whole, after = kept.pop()
            if clip is not None and after is not None:
                cotangent = _through_clip(cotangent, after, clip)
            of_whole = back(cotangent)
            if clip is not None and whole is not None:
                of_whole = _through_clip(of_whole, whole, clip)
            for penalty in self.recipe.penalties:
                cotangent = cotangent + penalty.mu * of_whole
            return of_whole if self.recipe.factor == 1 else self.recipe.factor * of_whole, cotangent

        return step


def _through_clip(cotangent: Tensor, vector: Tensor, clip: StepClip) -> Tensor:
    """The derivative by `vector` (…, d) of ⟨cotangent, `clip_to` vector⟩."""
    size = torch.linalg.vector_norm(vector, clip.order, dim=-1, keepdim=True)
    slope = vector.sign() if clip.order == 1 else vector / size
    along = torch.linalg.vecdot(cotangent, vector)[..., None] / size
    return torch.where(size <= clip.norm, cotangent, (clip.norm / size) * (cotangent - along * slope))


def besides(facts: PublicFacts) -> tuple[str, ...]:
    """What local training does more than its optimiser's steps on the loss, in words."""
    clips = () if facts.step_clip is None else (CLIPS[facts.step_clip.what],)
    return (PENALTIES,) * bool(facts.penalties) + clips + (SCALE,) * (facts.gradient_scale != 1.0) + _never(facts)


def _never(facts: PublicFacts) -> tuple[str, ...]:
    """Those that are never modelled."""
    return (RECORDS,) * facts.record_clip + (TRUNCATED,) * facts.truncated


def modelled(recipe: Recipe, facts: PublicFacts, records: int, clients: int = 1) -> Recipe:
    """The recipe with what local training has besides, as far as it can be modelled: not where it depends on a number
    of records that is secret, and not what a sum of several clients leaves of the clip that each applied. Of one step
    penalties are left away, as they are 0 in it.

    Args:
        recipe: of the optimiser. facts: of a round. records: that each client holds, 0 where nobody knows or they
            differ. clients: whose mean it is.
    """
    left_out, clip, scale = [*_never(facts)], facts.step_clip, facts.gradient_scale
    known = _known_penalties(facts.penalties) if len(recipe.sizes) > 1 else ()
    if known is None:
        left_out.append(PENALTIES)
    if clip is not None and clients > 1:
        left_out.append(CLIPS[clip.what])
        clip = None
    if isinstance(scale, ScaleByRoot):
        factor = float(scale(torch.tensor(float(records)))) if records else 0.0
    else:
        factor = float(scale)
    if not factor > 0:
        left_out.append(SCALE)
        factor = 1.0
    return replace(recipe, factor=factor, penalties=known or (), step_clip=clip, left_out=tuple(left_out))


def _known_penalties(penalties: Sequence[Penalty]) -> tuple[Proximal, ...] | None:
    """Those of the kind that is modelled; None where one is of another."""
    known = tuple(penalty for penalty in penalties if isinstance(penalty, Proximal))
    return known if len(known) == len(penalties) else None


def without_idle_clip(recipe: Recipe, weights: Tensor, update: Tensor, noise_std: float) -> Recipe:
    """The recipe without a clip of the weights that cannot have acted: both before and after the steps they are shorter
    than its norm by more than the whole way between.

    Args:
        recipe: of the training. weights: (d,) before it. update: (d,), what it added, with noise of noise_std in each
            component, whose part of an L2 norm is taken off.
    """
    clip = recipe.step_clip
    if clip is None or clip.what != "weights":
        return recipe
    noise = len(update) * noise_std**2 if clip.order == 2 else 0.0

    def size(vector: Tensor, noise: float) -> float:
        whole = float(torch.linalg.vector_norm(vector, clip.order, dtype=torch.float64))
        return max(0.0, whole**2 - noise) ** 0.5

    longest = max(size(weights, 0.0), size(weights + update, noise)) + size(update, noise)
    return replace(recipe, step_clip=None) if longest < clip.norm else recipe


def besides_assumed(facts: PublicFacts, recipe: Recipe | None) -> tuple[str, ...]:
    """What is assumed of what local training does besides, in plain words; nothing where it does nothing."""
    every = besides(facts)
    if facts.share == "gradient":  # which nothing comes before
        return ()
    left_out = every if recipe is None else recipe.left_out
    said = []
    if left_out:
        said.append(f"local training without what else it has ({', '.join(left_out)}), so that scales are open")
    known = [words for words in every if words not in left_out]
    if known:
        open_scale = recipe is not None and recipe.linear and not recipe.scaled
        said.append(
            f"local training with what else it has modelled ({', '.join(known)})"
            + (", though as one gradient it is read with its scale open" if open_scale and not left_out else "")
        )
    return tuple(said)
