"""What an attacker learns of one column of a record: the value with which the record looks most like a member.

Attribute inference by membership: Yeom, Giacomelli, Fredrikson and Jha 2018, arXiv:1709.01604, where the test
is the loss of a published model; here it is what captured uploads tell.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from ..base import Attack, GuessedValues, Knowledge, MembershipScores, Part, Progress, View
from .captured_attack import CapturedMembership
from .common import CANDIDATES, among, own_value, report_progress
from .hidden_column import BINS, HiddenColumn, check_column, hidden_column
from .products import once
from .projection import linear_layers
from .sequence import SequenceMembership

MembershipTest = Literal[
    "", "cosine", "gradient-difference", "local-loss", "loss-trajectory", "fedmia", "projection", "sequence"
]


@dataclass(frozen=True)
class AttributeInference:
    """The value of one column of each candidate, of whom all other columns and the label are known.

    Every candidate is asked about once with each value that auxiliary records have in the column (`HiddenColumn`), and
    the guess is the value with the highest score of membership. What the record has there is overwritten first.

    column: its name; "" for the one that is hardest to guess (`hidden_column`).
    by: the test of membership, whose scores count as they are. "": by the cosine of gradients with uploads, of uploads
      without noise together with the projection into their span; by the loss of global models where no upload is seen.
      Of these scores each value's mean over all candidates is taken off, as it tells of the population, and each test
      counts in its own spread.
    """

    column: str = ""
    by: MembershipTest = ""
    name: str = field(default="attribute", init=False)

    def __post_init__(self) -> None:
        among("by", self.by, get_args(MembershipTest))

    def parts(self, view: View, knowledge: Knowledge) -> list[Part]:
        """One a sender, or one in all by the loss of global models.

        Raises:
            ValueError: the records are no rows of a table, it has no such column, there are no auxiliary records, or
                the tests of membership do not apply.
        """
        if not view.columns:
            raise ValueError("attribute inference asks for a column of a table, and the records here are none")
        check_column(view.columns, self.column)
        if not len(knowledge.auxiliary_inputs):
            raise ValueError(
                "attribute inference takes a column's values from auxiliary records, and there are none in knowledge/;"
                " set auxiliary in [capture] of the config, or give it to the Recorder"
            )
        asked = [column for column in view.columns if self.column in ("", column.name)]
        most = max(column.width if column.words else BINS for column in asked)
        inputs = knowledge.candidate_inputs.repeat_interleave(most, 0)
        by_key: dict[str, list[tuple[Attack, Part]]] = {}
        for test in self._tests(view):
            for part in test.parts(view, _about(knowledge, inputs, most)):
                by_key.setdefault(part.key, []).append((test, part))
        return [Part(key, sum(p.work for _, p in pairs), tuple(pairs)) for key, pairs in by_key.items()]

    def run_part(
        self, part: Part, view: View, knowledge: Knowledge, seed: int, progress: Progress | None = None
    ) -> GuessedValues:
        """The guesses by one sender's messages."""

        def compute() -> tuple[HiddenColumn, Knowledge]:
            hidden = hidden_column(view.columns, knowledge.auxiliary_inputs, self.column)
            return hidden, _about(knowledge, hidden.variants(knowledge.candidate_inputs), len(hidden.codes))

        hidden, variants = once(view, knowledge, ("attribute", self.column), compute)
        n, k = len(knowledge.candidate_ids), len(hidden.codes)
        total = torch.zeros(n, k, dtype=torch.float64)
        assumed = [f"all columns but {hidden.column.name!r} and the labels of the candidates, not which were members"]
        for done, (test, piece) in enumerate(part.content, 1):
            found = test.run_part(piece, view, variants, seed)
            assert isinstance(found, MembershipScores)
            scores = found.scores.view(n, k)
            total += scores if self.by else _beyond_the_population(scores)
            assumed += [item for item in found.assumed if item not in (CANDIDATES, *assumed)]
            report_progress(progress, done, len(part.content))
        assumed.append(f"the column's {k} values, those of the auxiliary records")
        return GuessedValues(
            attack=self.name,
            observer=view.observer,
            manner=found.manner,
            sender=found.sender,
            ids=knowledge.candidate_ids,
            guesses=total.argmax(1),
            column=hidden.column.name,
            values=hidden.names,
            assumed=tuple(assumed),
            note=found.note,
        )

    def _tests(self, view: View) -> list[Attack]:
        if self.by == "sequence":
            return [SequenceMembership()]
        if self.by:
            return [CapturedMembership(self.by)]
        if not any(own_value(message, view) for message in view.messages):
            return [CapturedMembership("loss-trajectory")]
        tests: list[Attack] = [CapturedMembership("cosine")]
        if view.facts.noise_std == 0:  # through noise a span says less than the cosine
            with suppress(ValueError):
                linear_layers(view)
                tests.append(CapturedMembership("projection"))
        return tests


def _about(knowledge: Knowledge, inputs: Tensor, times: int) -> Knowledge:
    """The knowledge with every candidate `times` over, as `inputs`."""
    targets = knowledge.candidate_targets.repeat_interleave(times, 0)
    return replace(
        knowledge, candidate_inputs=inputs, candidate_targets=targets, candidate_ids=torch.arange(len(inputs))
    )


def _beyond_the_population(scores: Tensor) -> Tensor:
    """Scores (n, k) of n records with k values, less what a value scores on average, in spreads; 0 where all are equal.

    >>> _beyond_the_population(torch.tensor([[1.0, 9.0], [3.0, 7.0]])).tolist()
    [[-1.0, 1.0], [1.0, -1.0]]
    """
    rest = scores - scores.mean(0)
    return rest / rest.square().mean().sqrt().clamp_min(1e-30)
