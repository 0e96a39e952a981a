"""The gradient-inversion attack: images, or rows of a table, out of captured gradients, updates or weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path

from torch import nn

from ...defenses.chain import open_chain
from ...defenses.data.unit_scale import words_of
from ...defenses.layout import Layout
from ..base import Knowledge, Part, Progress, PublicFacts, Reconstruction, Seen, View
from ..cost import CALL, forward_operations
from .exact.words import WORK
from .match.batches import batches, numbers_per_image
from .match.halving import iterations_in_all
from .match.polish import EVALUATIONS, STAGES, is_smooth
from .match.softened import softens
from .match.solution import Solution, side_by_side
from .read.local_steps import besides_assumed
from .read.mode import as_run, mode_assumed
from .read.one_step import operations_at_once
from .read.rounds import MOST, all_rounds, every_round, least_noisy_rounds
from .read.step_factors import operations
from .read.table import all_as_images, as_images
from .read.target import Aim, Target, assumptions
from .settings import Settings
from .solve import read_twice, solve
from .strategies.by_step import ROUNDS, one_step, readable
from .strategies.kept_denoiser import RECORDS, TRAINING, LearnedPrior, denoiser_of, filter_of, read_denoiser
from .strategies.learned_prior import PAIRS, STRONG
from .strategies.row_fit import OwnRows, fit_operations
from .strategies.row_search import search_operations
from .strategies.simulated import can_simulate
from .strategies.simulating import tried

READERS: dict[str, Callable[[View, Knowledge], list[Aim]]] = {"one-round": every_round, "all-rounds": all_rounds}
PASSES = 8  # of the network for the gradient of a gradient's distance: 6 by `Ghost`, some 9 by `DoubleBackward`


@dataclass(frozen=True)
class Inversion(Settings):
    """Find the images whose gradient is the observed one (Geiping et al. 2020, arXiv:2003.14053)."""

    name: str = field(default="inversion", init=False)

    def parts(self, view: View, knowledge: Knowledge) -> list[Part]:
        """Every message (one-round) and every sender of several messages (all-rounds) the view allows.

        It skips messages of rounds whose global model the observer did not see and, with known labels, messages whose
        labels the knowledge does not hold although it holds others' (averages that a hub passes on).

        Raises:
            ValueError: inputs are neither images nor rows of a table, there is no such message, or labels = "known" and
                the knowledge holds those of no message.
        """
        if view.classes < 2:
            raise ValueError(
                f"gradient inversion matches cross-entropy gradients; the setup has classes = {view.classes}, at least"
                " 2 are needed"
            )
        if view.facts.loss != "cross_entropy":
            raise ValueError(
                "gradient inversion matches cross-entropy gradients; the setup's model was trained with the loss"
                f" {view.facts.loss!r}"
            )
        view, knowledge = as_images(view, knowledge)
        if view.anonymous and self.records:
            view = replace(view, messages=tuple(self._counted(m, view, knowledge) for m in view.messages))
        alone = view
        if self.rounds:
            single = every_round(view, knowledge)
            told = [aim for aim in single if aim.labelled or self.labels == "inferred"]
            alone = least_noisy_rounds(view, told or single, self.rounds)
        seen = {"one-round": alone, "all-rounds": view}
        aims = [aim for manner in self.manners for aim in READERS[manner](seen[manner], knowledge)]
        if not aims:
            secret = view.anonymous and not self.records
            why = "senders keep to themselves how many records they have, so assume a number: records" if secret else ""
            raise ValueError(
                f"the observer {view.observer!r} saw no message for gradient inversion: an upload, of a round whose"
                " global model it saw too" + (f"; {view.why_no_sums or why}" if view.why_no_sums or why else "")
            )
        if self.labels == "known":
            labelled = [aim for aim in aims if aim.labelled]
            if not labelled:
                raise ValueError(
                    "labels = 'known', but the setup's knowledge holds the labels of none of the messages"
                    f" {view.observer!r} saw; use labels = 'inferred'"
                )
            aims = labelled
        if self.learned:
            aims = self._with_known_noise(aims, view.facts)
            if self.prior_weights:
                self._prior(view, knowledge)
            elif len(knowledge.auxiliary_inputs) < RECORDS:
                raise ValueError(
                    f"a learned prior is trained on at least {RECORDS} auxiliary records, and the setup's knowledge"
                    f" holds {len(knowledge.auxiliary_inputs)}; set [capture] auxiliary, or prior_weights"
                )
        image, tries = PASSES * forward_operations(view.module, view.input_shape), self._tries()
        network = as_run(view.module, self.mode)
        if self.softened and self.optimiser != "lbfgs" and softens(network, view.input_shape):
            tries = self.softened * self.iterations * self.restarts
        if self.features and open_chain(view.module) is None and is_smooth(view.module):
            tries += EVALUATIONS * len(STAGES) * self.iterations  # of a line search, in float64
        if self.learned:  # once more for the control, and copies of every image, which the denoiser costs as much as
            tries, image = self.iterations * (self.restarts + 1), 2 * (PAIRS + self.prior_network) * image
        trains = self.learned and self.prior_network and not self.prior_weights
        once = TRAINING * prod(view.input_shape) if trains else 0
        worded = bool(words_of(view.module)) and self.exact and open_chain(view.module) is not None
        own, parameters = OwnRows(knowledge.auxiliary_inputs, knowledge.auxiliary_targets), Layout.of(view.module).dim
        searched = WORK + search_operations(parameters, prod(view.input_shape))
        return [
            Part(
                f"{aim.manner}:{aim.key}",
                once * (place == 0)
                + sum(
                    tries * self._readings(target) * (CALL + target.count * image)
                    + self._training(network, target, image)
                    + (searched + fit_operations(target, own, parameters)) * worded
                    for target in aim.targets
                ),
                aim,
            )
            for place, aim in enumerate(aims)
        ]

    def _counted(self, message: Seen, view: View, knowledge: Knowledge) -> Seen:
        """With the number of records that is assumed, of a client's own value that does not say."""
        told = message.broadcast or message.kind != view.facts.share or message.num_records
        return message if told or message.id in knowledge.labels else replace(message, num_records=self.records)

    def _tries(self) -> int:
        if self.halving and self.optimiser != "lbfgs":
            return iterations_in_all(self.restarts, self.iterations)
        return self.iterations * self.restarts

    def _with_known_noise(self, aims: Sequence[Aim], facts: PublicFacts) -> list[Aim]:
        noisy = [aim for aim in aims if all(target.noise_known for target in aim.targets)]
        if not noisy:
            why = "is not known" if facts.noise_std is None else "is 0"
            raise ValueError(
                f"a learned prior needs to know how much noise lies on a message, and its standard deviation {why};"
                " leave out learned"
            )
        return noisy

    def _readings(self, target: Target) -> int:
        """How many gradients an iteration takes."""
        return len(target.messages) * (2 if read_twice(target, self) else 1)

    def _training(self, network: nn.Module, target: Target, image: int) -> int:
        """Operations, for the steps taken apart and for their simulation."""
        if self.exact and target.recipe is not None and readable(network, target):
            neurons, inputs = Layout.of(network).shapes[0]
            if one_step(target):
                return operations_at_once(neurons, inputs + 1, target.count)
            return operations(neurons, inputs + 1, target.recipe.sizes, ROUNDS) + self._simulation(target, image)
        return self._simulation(target, image)

    def _simulation(self, target: Target, image: int) -> int:
        if not (self.simulated and target.recipe is not None and can_simulate(target)):
            return 0
        many = self.simulated + (2 * tried(self.simulated) if read_twice(target, self) else 0)
        return many * self._one_training(target, image)

    def _one_training(self, target: Target, image: int) -> int:
        assert target.recipe is not None
        sizes = target.recipe.sizes
        return len(sizes) * (CALL + PASSES * len(target.gradient)) + sum(sizes) * image

    def groups(self, parts: Sequence[Part], view: View) -> list[list[Part]]:
        """Parts at equal weights and of equal count go together; see `batches`."""
        size = numbers_per_image(view.module, view.input_shape)
        groups: set[tuple[int, ...]] = set()
        for many in {len(part.content.targets) for part in parts}:
            alike = [i for i, part in enumerate(parts) if len(part.content.targets) == many]
            for members, _ in batches([parts[i].content.target for i in alike], self.restarts, size):
                groups.add(tuple(alike[k] for k in members))
        return [[parts[i] for i in members] for members in sorted(groups)]

    def run_part(
        self, part: Part, view: View, knowledge: Knowledge, seed: int, progress: Progress | None = None
    ) -> Reconstruction:
        """The reconstruction of one part.

        Args:
            part: of `parts`. view, knowledge, seed, progress: as for `Attack.run_part`; of the knowledge only a learned
                prior reads anything, the auxiliary inputs.

        Raises:
            ValueError: labels = "inferred", and no classifier is found that tells them; `prior_weights` is no denoiser
                of such images.
        """
        return self.run_group([part], [view], [knowledge], seed, progress)[0]

    def run_group(
        self,
        parts: Sequence[Part],
        views: Sequence[View],
        knowledge: Sequence[Knowledge],
        seed: int,
        progress: Progress | None = None,
    ) -> list[Reconstruction]:
        """The reconstructions of one group, in order.

        Args:
            parts: one list of `groups`. views, knowledge: of each. seed, progress: as for `run_part`.

        Raises:
            ValueError: as `run_part` does.
        """
        aims: list[Aim] = [part.content for part in parts]
        views, knowledge = all_as_images(views, knowledge)
        first = views[0]
        targets = [target for aim in aims for target in aim.targets]
        made: dict[int, LearnedPrior] = {}  # parts of one view share what is known, which takes long to hash
        for view, own in zip(views, knowledge):
            if self.learned and id(own.auxiliary_inputs) not in made:
                made[id(own.auxiliary_inputs)] = self._prior(view, own)
        priors = [made.get(id(own.auxiliary_inputs)) for own in knowledge]
        denoisers = [prior.denoiser for prior, aim in zip(priors, aims) if prior is not None for _ in aim.targets]
        rows = [
            OwnRows(own.auxiliary_inputs, own.auxiliary_targets) if view.columns else None
            for view, own, aim in zip(views, knowledge, aims)
            for _ in aim.targets
        ]
        found = iter(solve(first.module, targets, first.input_shape, self, seed, progress, denoisers or None, rows))
        solutions = [side_by_side([next(found) for _ in aim.targets]) for aim in aims]
        return [
            Reconstruction(
                attack=self.name,
                observer=view.observer,
                manner=aim.manner,
                round=aim.messages[0].round,
                sender=aim.messages[0].sender,
                message_ids=tuple(m.id for m in aim.messages),
                images=solution.images,
                start=solution.start,
                labels=solution.labels,
                loss=solution.loss,
                assumed=self._assumed(aim, view, own, solution, prior),
            )
            for aim, view, own, solution, prior in zip(aims, views, knowledge, solutions, priors)
        ]

    def _prior(self, view: View, knowledge: Knowledge) -> LearnedPrior:
        if self.prior_weights:
            return read_denoiser(Path(self.prior_weights).expanduser(), view.input_shape)
        if not self.prior_network:
            return filter_of(knowledge.auxiliary_inputs)
        return denoiser_of(knowledge.auxiliary_inputs, knowledge.kept)

    def _left_out(self, target: Target) -> str:
        used = target.sparse_by(self.objective)
        if used is None:
            return "smaller than the others, and read as 0"
        return "no larger than the least that was" if used.largest else "of any size, and not compared"

    def _assumed(
        self, aim: Aim, view: View, knowledge: Knowledge, solution: Solution, prior: LearnedPrior | None = None
    ) -> tuple[str, ...]:
        recipe, labels_by = aim.target.recipe, solution.labels_by
        steps = 0 if recipe is None else len(recipe.sizes)
        assumed = [f"the number of {'rows' if view.columns else 'images'}"]
        if view.columns:
            assumed.append("what the table's columns are: words by their features, and where numbers lie")
        assumed += [*assumptions(view.facts, steps, solution.by_step, aim.target.stretched > 1)]
        assumed += besides_assumed(view.facts, recipe)
        assumed += mode_assumed(view.module, self.mode, view.facts.scheme == "recorded")
        if aim.target.statistics is not None:
            assumed += aim.target.statistics.assumed(self)
        assumed.append(f"labels inferred: {labels_by}" if labels_by else "labels known")
        if self.objective == "euclidean" and not aim.target.scale_known:
            assumed.append(
                "scale of the gradient unknown, profiled out" + (" tensor by tensor" if aim.target.per_layer else "")
            )
        if self.objective == "euclidean" and aim.target.clip_norm is not None:
            assumed.append("clip norm known and modelled")
        if (self.along or solution.place is not None) and aim.target.on_the_way:
            at = f"{self.along:g}" if solution.place is None else f"{solution.place:.2g}"
            assumed.append(
                f"the gradient read at {at} of the way that training moved the weights"
                + (
                    ""
                    if solution.place is None
                    else f", which the attack learned together with the images, from {self.along:g} on"
                )
                + (
                    ", and before it; of both readings the one whose simulated training comes nearer to what was sent"
                    if read_twice(aim.target, self)
                    else ""
                )
            )
        if solution.longer is not None:
            assumed.append(
                f"the update taken to have been {solution.longer:.2g} times as long before its clip, as training on a"
                " first guess of its images makes it"
            )
        if self.simulated:
            assumed.append(
                "local training simulated, batches in "
                + ("a new order at every iteration" if self.reorder else "an order of the attack's own")
                if can_simulate(aim.target)
                else "local training not simulated: not several steps of whole epochs"
            )
        if solution.features_by:
            assumed.append(solution.features_by)
        if solution.copies:
            assumed.append(
                f"{solution.copies} of the images taken for copies of others, as the first layer's update tells so many"
                " fewer apart"
            )
        if solution.rows_by:
            assumed.append(solution.rows_by)
        if prior is not None:
            assumed.append(f"images are like those of a denoiser {prior.said}")
            nothing = "messages" if aim.target.others else "a message"
            assumed.append(f"the random control is what this prior makes of {nothing} of noise alone")
        if aim.target.noise_std > 0 and (
            self.learned
            or self.tv == "noise-aware"
            or self.exact
            or self.span
            or (self.features and open_chain(view.module) is None)
        ):
            assumed.append("standard deviation of the noise known")
        strong = any(target.noise_share >= STRONG for target in aim.targets)
        if strong and self.tv == "noise-aware" and len(knowledge.auxiliary_inputs) < RECORDS:
            assumed.append(
                f"{len(knowledge.auxiliary_inputs)} auxiliary records, too few for their spectrum as a prior, which is"
                f" stronger under so much noise and takes {RECORDS}"
            )
        if aim.own_model:
            assumed.append("the sender's model equals the observer's own of that round")
        if aim.target.sparse is not None:
            assumed.append(f"components that are exactly 0 were not sent: {self._left_out(aim.target)}")
        if aim.summed:
            assumed.append(
                "the step from one broadcast model to the next read as the update of one client with all records of the"
                " round, each of which weighs the same"
            )
        if view.anonymous and len(aim.messages) > 1:
            assumed.append("messages joined by what they resemble, which no address confirms")
        if aim.target.others:
            noisy = any(one.noise_std > 0 for one in aim.target.messages)
            assumed.append(
                f"{len(aim.target.messages)} messages of one sender, of the same records in one order, each at its own"
                f" round's weights, by how little noise and drift each has (of more than {MOST} the least noisy)"
                + (f"; {aim.target.noise_share:.0%} of the energy of their mean by that is noise" if noisy else "")
            )
        elif aim.manner == "all-rounds":
            assumed.append("every message of the sender of records of its own, and read by itself")
        return tuple(assumed)
