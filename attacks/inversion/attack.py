"""The gradient-inversion attack: images, or rows of a table, out of captured gradients, updates or weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Literal

from torch import nn

from ...defenses.chain import open_chain
from ...defenses.complaint import one_of
from ...defenses.data.unit_scale import words_of
from ...defenses.layout import Layout
from ..base import Knowledge, Part, Progress, PublicFacts, Reconstruction, Seen, View
from ..cost import CALL, forward_operations
from .exact.words import WORK
from .match.batches import batches, numbers_per_image
from .match.halving import iterations_in_all
from .match.objective import OBJECTIVES, Name
from .match.polish import EVALUATIONS, STAGES, is_smooth
from .match.softened import softens
from .match.solution import Solution, side_by_side
from .read.local_steps import besides_assumed
from .read.mode import MODES, Mode, as_run, mode_assumed
from .read.one_step import operations_at_once
from .read.rounds import MOST, all_rounds, every_round, least_noisy_rounds
from .read.step_factors import operations
from .read.table import all_as_images, as_images
from .read.target import Aim, Target, assumptions
from .solve import read_twice, solve
from .strategies.by_step import ROUNDS, one_step, readable
from .strategies.kept_denoiser import RECORDS, TRAINING, LearnedPrior, denoiser_of, filter_of, read_denoiser
from .strategies.learned_prior import PAIRS, STRONG
from .strategies.row_fit import OwnRows, fit_operations
from .strategies.row_search import search_operations
from .strategies.simulated import can_simulate
from .strategies.simulating import tried

Optimiser = Literal["signed-adam", "adam", "lbfgs"]

OPTIMISERS: tuple[Optimiser, ...] = ("signed-adam", "adam", "lbfgs")
MANNERS: dict[str, Callable[[View, Knowledge], list[Aim]]] = {"one-round": every_round, "all-rounds": all_rounds}
AT_MOST = 10**7  # iterations, restarts: more are a slip
PASSES = 8  # of the network for the gradient of a gradient's distance: 6 by `Ghost`, some 9 by `DoubleBackward`


@dataclass(frozen=True)
class Inversion:
    """Gradient inversion (Geiping et al. 2020, arXiv:2003.14053): find the images whose gradient is the observed one.

    objective: cosine | euclidean (models the clip) | euclidean-naive; see `objective.Matching`.
    optimiser: signed-adam | adam | lbfgs; the step size of the first two falls tenfold at 3/8, 5/8 and 7/8 of the
      `iterations`. lbfgs ignores `lr`, computes in float64, and wants tv = 0.
    lr: step size in pixels, of [0, 1]. tv: weight of the total variation, see `prior.total_variation`; or
      "noise-aware", which raises it with the share of the observed value's energy that is noise, as far as the attacker
      knows the noise (`prior.tv_for_noise`).
    restarts: independent starts; the one with the lowest objective is kept, never by looking at the truth.
    halving: half of a target's restarts, those with the highest objective, are dropped at fixed iterations
      (`halving.rungs`), so that 8 take two and a half times the time of one; not with lbfgs.
    consensus: weight of how far a restart is from the mean of all, see `consensus.with_consensus`.
    labels: known (from the setup's knowledge) | inferred (from what was sent of the classifier, `labels.infer`).
    exact: images that the first layer determines are solved for (`first_layer.FirstLayer`), all of them before anything
      is optimised, or the rest out of what optimising finds. Rows of a table are sought one by one, too, where the
      second layer tells them (`row_search.with_rows`).
    along: where the one gradient is read, between the weights before local training (0) and after it (1), as far as an
      update tells them.
    along_rate: Adam's first step size of that place, which is then learned together with the images from `along` on
      (`surrogate.Surrogate`), in shares of the way; 0 holds it. Of single messages,
      and not where kinks are softened.
    span: weight of what a linear layer behind others tells, see `span.InputSpan`.
    batch_statistics: weight of the batch's own statistics, which BatchNorm's running ones, sent beside the parameters
      before and after local training, tell. running_statistics: of the running ones, where nothing tells the batch's;
      see `statistics.py`.
    features: weight of what the classifier tells of every image's features, see `features.SolvedFeatures`; in a smooth
      network L-BFGS goes on from there, see `polish.carried_on`.
    softened: of a network with ReLUs that is not just layers one behind the other (residual sums, normalisations,
      maximum pooling) the kinks are softened, and ever less so, in so many times the `iterations`, see
      `softened.annealed`; all restarts go on to the end then. 0, and with lbfgs: as any other network.
    simulated: so many more iterations in which an update's local training is simulated, batches in an order of the
      attack's own, see `simulated.Simulated`; of what they give and what they began with the one is kept whose
      simulated update is nearer to the one sent. Nothing is simulated where a message is of one step or not of whole
      epochs.
    reorder: the simulation has one set of images in a new order at every iteration, instead of one for every epoch in
      an order drawn once; see `simulating.reordered`.
    learned: a denoiser trained on the auxiliary records is the prior, see `learned_prior`, of messages with noise of
      known size alone; it wants the objective euclidean. lr then counts in standard deviations of the prior.
    prior_network: whether that denoiser has a network beside its Wiener filter; False for the filter alone, of the
      auxiliary records' spectrum, for which nothing is trained.
    prior_weights: a file with another denoiser, of `kept_denoiser.write_denoiser`; "" for one trained here.
    records: of how many records a message is taken to be whose sender keeps the number to itself, where no labels tell
      it; 0 leaves such messages out.
    mode: how clients ran the network: "train", each BatchNorm by the statistics of its batch, which the candidate's
      images are taken to be; or "eval", by the running ones. Without a BatchNorm both are the same (`mode.as_run`).
    manners: one-round (each message alone) and all-rounds (all of one sender's together, see `rounds.py`).
    rounds: of how many rounds the messages are attacked each alone, those with the least noise; 0 for all. What is read
      together is of all rounds, whatever this is.
    device: where to compute, "cpu" or "cuda". Random starts are drawn on the CPU.
    """

    objective: Name = "cosine"
    optimiser: Optimiser = "signed-adam"
    iterations: int = 300
    lr: float = 0.1
    tv: float | Literal["noise-aware"] = 0.01
    restarts: int = 1
    halving: bool = False
    consensus: float = 0.0
    labels: Literal["known", "inferred"] = "known"
    exact: bool = False
    along: float = 0.0
    along_rate: float = 0.0
    span: float = 0.0
    batch_statistics: float = 0.0
    running_statistics: float = 0.0
    features: float = 0.0
    softened: int = 0
    simulated: int = 0
    reorder: bool = False
    learned: bool = False
    prior_network: bool = True
    prior_weights: str = ""
    records: int = 0
    mode: Mode = "train"
    manners: tuple[str, ...] = ("one-round", "all-rounds")
    rounds: int = 0
    device: str = "cpu"
    name: str = field(default="inversion", init=False)

    def __post_init__(self) -> None:
        for what, allowed in (
            ("objective", OBJECTIVES),
            ("optimiser", OPTIMISERS),
            ("labels", ("known", "inferred")),
            ("mode", MODES),
        ):
            if getattr(self, what) not in allowed:
                raise ValueError(one_of(what, getattr(self, what), allowed))
        for manner in self.manners:
            if manner not in MANNERS:
                raise ValueError(one_of("manners", manner, MANNERS))
        if len(set(self.manners)) != len(self.manners) or not self.manners:
            raise ValueError(f"manners is {list(self.manners)}: name at least one, and each once")
        for name in ("records", "rounds"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}, it must be at least 0")
        if not (1 <= self.iterations <= AT_MOST and 1 <= self.restarts <= AT_MOST):
            raise ValueError(
                f"iterations is {self.iterations} and restarts {self.restarts}, both must be from 1 to {AT_MOST:,}"
            )
        if not self.lr > 0:
            raise ValueError(f"lr is {self.lr}, it must be positive")
        for name in ("batch_statistics", "running_statistics"):
            if not 0 <= getattr(self, name) <= AT_MOST:
                raise ValueError(f"{name} is {getattr(self, name)}, it must be from 0 to {AT_MOST:,}")
        least = min(self.span, self.features, self.softened, self.simulated)
        if max(self.softened, self.simulated, self.span, self.features) > AT_MOST:
            raise ValueError(
                f"softened is {self.softened}, simulated {self.simulated}, span {self.span} and features"
                f" {self.features}: each must be at most {AT_MOST:,}"
            )
        if not (0 <= self.along <= 1 and least >= 0):
            raise ValueError(
                f"along is {self.along}, span {self.span}, features {self.features}, softened {self.softened} and"
                f" simulated {self.simulated}: along must be between 0 and 1, the others at least 0"
            )
        if not self.consensus >= 0 or (self.consensus and (self.restarts < 2 or self.optimiser == "lbfgs")):
            raise ValueError(
                f"consensus is {self.consensus}: it must be at least 0, and is between restarts = 2 or more of"
                " optimiser = 'signed-adam' or 'adam'"
            )
        if self.optimiser == "lbfgs" and self.simulated:
            raise ValueError("simulated: training is simulated with optimiser = 'signed-adam' or 'adam', not 'lbfgs'")
        if self.learned and (self.objective != "euclidean" or self.optimiser == "lbfgs"):
            raise ValueError(
                "learned: a learned prior stands beside the likelihood of what was sent, so it needs objective ="
                f" 'euclidean' and not optimiser = 'lbfgs'; they are {self.objective!r} and {self.optimiser!r}"
            )
        beside = [
            name
            for name in (
                "span",
                "batch_statistics",
                "running_statistics",
                "features",
                "softened",
                "halving",
                "consensus",
                "simulated",
            )
            if getattr(self, name)
        ]
        if self.learned and beside:
            raise ValueError(f"learned: {beside[0]} does nothing beside a learned prior; leave it out")
        self._check_surrogate()
        if self.reorder and not self.simulated:
            raise ValueError("reorder: it is of simulated iterations; set simulated too")
        if self.prior_weights and not self.learned:
            raise ValueError("prior_weights: they are those of a learned prior; set learned = true too")
        if self.prior_weights and not self.prior_network:
            raise ValueError(
                "prior_weights: they are those of a denoiser with a network, which prior_network = false leaves out, as"
                " preset = 'spectrum-prior' has it; preset = 'learned-prior' takes them"
            )
        if not self.prior_network and not self.learned:
            raise ValueError(
                "prior_network = false: it is of a learned prior, whose network it leaves out; set learned = true too"
            )
        if self.tv != "noise-aware" and not (isinstance(self.tv, int | float) and self.tv >= 0):
            raise ValueError(f"tv is {self.tv!r}, it must be a number from 0 on, or 'noise-aware'")

    def _check_surrogate(self) -> None:
        if not 0 <= self.along_rate <= 1:
            raise ValueError(f"along_rate is {self.along_rate}, it must be between 0 and 1, of the way")
        others = [what for what in ("halving", "learned") if getattr(self, what)]
        if self.along_rate and (others or self.optimiser == "lbfgs"):
            beside = others[0] if others else "optimiser = 'lbfgs'"
            raise ValueError(f"along_rate: a place that is learned does not go with {beside}; leave one of them out")

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
        aims = [aim for manner in self.manners for aim in MANNERS[manner](seen[manner], knowledge)]
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
