"""The gradient-inversion attack: images, or rows of a table, out of captured gradients, updates or weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from ...defenses.layout import Layout
from ..base import Knowledge, Part, Progress, PublicFacts, Reconstruction, View
from .match.batches import batches, numbers_per_image
from .match.case import Auxiliary, Case
from .match.solution import side_by_side
from .match.wiener import RECORDS, WienerFilter, filter_of
from .plan import assumed_by_methods, cost
from .read.assumed import joining_assumed, reading_assumed
from .read.mode import as_run
from .read.rounds import aims_of, checked
from .read.table import OwnRows, all_as_images, as_images
from .read.target import Aim, Target
from .settings import Settings
from .solve import cases_of, solve_cases
from .strategies.learned_prior import STRONG
from .strategies.strategy import Found, methods_of


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
        checked(view)
        view, knowledge = as_images(view, knowledge)
        aims = aims_of(view, knowledge, self)
        if self.learned:
            aims = self._with_known_noise(aims, view.facts)
            _check_records(knowledge)
        cases = iter(self._planned([target for aim in aims for target in aim.targets], view, knowledge))
        work = [sum(cost(next(cases)) for _ in aim.targets) for aim in aims]
        records = [sum(target.count for target in aim.targets) for aim in aims]
        made = zip(aims, work, records)
        return [Part(f"{aim.manner}:{aim.key}", operations, aim, records=many) for aim, operations, many in made]

    def _planned(self, targets: Sequence[Target], view: View, knowledge: Knowledge) -> Iterator[Case]:
        network = as_run(view.module, self.mode)
        layout, none = Layout.of(network), torch.zeros(0, dtype=torch.long)
        given = Auxiliary(rows=_rows(view, knowledge))
        for target in targets:
            yield Case(network, layout, target, none, view.input_shape, self, 0, given)

    def _with_known_noise(self, aims: Sequence[Aim], facts: PublicFacts) -> list[Aim]:
        noisy = [aim for aim in aims if all(target.noise_known for target in aim.targets)]
        if not noisy:
            why = "is not known" if facts.noise_std is None else "is 0"
            raise ValueError(
                f"a learned prior needs to know how much noise lies on a message, and its standard deviation {why};"
                " leave out learned"
            )
        return noisy

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
            ValueError: labels = "inferred", and no classifier is found that tells them.
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
        given = [of for of, aim in zip(self._auxiliary(views, knowledge), aims) for _ in aim.targets]
        targets, first = [target for aim in aims for target in aim.targets], views[0]
        cases = cases_of(first.module, targets, first.input_shape, self, seed, given)
        ended = iter(zip(cases, solve_cases(cases, progress)))
        return [
            self._reconstruction(aim, view, known, [next(ended) for _ in aim.targets])
            for aim, view, known in zip(aims, views, knowledge)
        ]

    def _reconstruction(
        self, aim: Aim, view: View, knowledge: Knowledge, ended: Sequence[tuple[Case, Found]]
    ) -> Reconstruction:
        solution = side_by_side([found.best for _, found in ended])
        return Reconstruction(
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
            assumed=(
                *reading_assumed(aim, view, self, solution),
                *assumed_by_methods(ended[0][0], solution),
                *joining_assumed(aim, view, self, self._too_few(aim, knowledge)),
            ),
            methods=methods_of([found for _, found in ended]),
        )

    def _too_few(self, aim: Aim, knowledge: Knowledge) -> list[str]:
        """That a stronger prior was out of reach, in words."""
        many = len(knowledge.auxiliary_inputs)
        strong = any(target.noise_share >= STRONG for target in aim.targets)
        if not strong or self.tv != "noise-aware" or many >= RECORDS:
            return []
        return [
            f"{many} auxiliary records, too few for their spectrum as a prior, which is stronger under so much noise"
            f" and takes {RECORDS}"
        ]

    def _auxiliary(self, views: Sequence[View], knowledge: Sequence[Knowledge]) -> list[Auxiliary]:
        """What each one's auxiliary records give; a prior is made once of those that several share."""
        made: dict[int, WienerFilter] = {}
        given = []
        for view, known in zip(views, knowledge):
            records = id(known.auxiliary_inputs)  # they take long to hash
            if self.learned and records not in made:
                made[records] = filter_of(known.auxiliary_inputs)
            given.append(Auxiliary(made.get(records), _rows(view, known)))
        return given


def _check_records(knowledge: Knowledge) -> None:
    """That there are records enough for a prior. Raises ValueError."""
    if len(knowledge.auxiliary_inputs) < RECORDS:
        raise ValueError(
            f"a learned prior is made of at least {RECORDS} auxiliary records, and the setup's knowledge holds"
            f" {len(knowledge.auxiliary_inputs)}; set [capture] auxiliary"
        )


def _rows(view: View, knowledge: Knowledge) -> OwnRows | None:
    """The attacker's own rows of a table; None of images."""
    return OwnRows(knowledge.auxiliary_inputs, knowledge.auxiliary_targets) if view.columns else None
