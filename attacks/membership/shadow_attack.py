"""Membership from the final model, by comparison with shadow federations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from ...defenses.randomness import generator, stream
from ..base import Knowledge, MembershipScores, Part, Progress, View
from . import signals
from .common import CANDIDATES, among, check_candidates, check_classes, global_models, report_progress
from .lira import lira
from .rmia import rmia, tune_a
from .shadows import ShadowFactory, deal, keep_matrix, train_shadows
from .shokri import shokri

ShadowMethod = Literal["shokri", "lira", "lira-offline", "rmia"]


@dataclass(frozen=True)
class ShadowMembership:
    """Compares the final global model with shadow models; needs `Knowledge.shadow_factory`.

    Shadows are federations that train in the same way, defences included, on the attacker's own records: the
    candidates, each in exactly half of the shadows, and the auxiliary data.

    method: shokri | lira (online) | lira-offline | rmia (offline).
    shadows: an even number. From 64 on LiRA uses each record's own variance. A shadow has the target's number of
      records, so more than twice as many candidates come in blocks, each with shadows of its own.
    """

    method: ShadowMethod = "lira"
    shadows: int = 16

    def __post_init__(self) -> None:
        among("method", self.method, get_args(ShadowMethod))
        if isinstance(self.shadows, bool) or not isinstance(self.shadows, int):
            raise ValueError(f"shadows is {self.shadows!r}; a whole number is expected")
        fewest = 2 if self.method == "shokri" else 4
        if self.shadows % 2 or self.shadows < fewest:
            raise ValueError(
                f"shadows is {self.shadows}; {self.method} needs an even number, at least {fewest}, so that every"
                " record is in exactly half of them"
            )

    @property
    def name(self) -> str:
        return f"membership-{self.method}"

    def parts(self, view: View, knowledge: Knowledge) -> list[Part]:
        """One part.

        Raises:
            ValueError: there are no candidates, no class labels, no shadow factory or no model after training; or RMIA,
                or a schedule that reads test figures, has no auxiliary records.
        """
        check_candidates(view, knowledge)
        check_classes(view, self.name)
        if self.method in ("shokri", "rmia") and view.facts.loss == "hinge":
            raise ValueError(
                f"{self.name!r} compares probabilities, and a model trained with the hinge loss gives a score that is"
                " none; use membership-lira, membership-lira-offline or membership-loss"
            )
        factory = _factory(knowledge)
        if self.method == "rmia" and len(knowledge.auxiliary_targets) == 0:
            raise ValueError(
                f"{self.name!r} compares with records that are surely no members; the setup has no auxiliary data,"
                " capture some"
            )
        factory.check(len(knowledge.auxiliary_targets))
        blocks = len(_blocks(len(knowledge.candidate_ids), sum(factory.sizes)))
        last = global_models(view)[-1]
        if last.round == 0:
            raise ValueError(
                f"{self.name!r} needs a model that was trained, and the observer {view.observer!r} saw only the one the"
                " server began with"
            )
        work = self.shadows * blocks * factory.operations(view.input_shape, last.round)
        return [Part("final-model", work, last, shared=f"{self.shadows} shadows until round {last.round}")]

    def run_part(
        self, part: Part, view: View, knowledge: Knowledge, seed: int, progress: Progress | None = None
    ) -> MembershipScores:
        factory, weights = _factory(knowledge), part.content.load()
        records, n = sum(factory.sizes), len(knowledge.candidate_ids)
        inputs = torch.cat([knowledge.candidate_inputs, knowledge.auxiliary_inputs.reshape(-1, *view.input_shape)])
        targets = torch.cat(
            [knowledge.candidate_targets, knowledge.auxiliary_targets.to(knowledge.candidate_targets.dtype)]
        )
        own_records = AttackerRecords(view, inputs, targets, torch.arange(n, len(targets)))
        make = factory.on(inputs, targets, own_records.auxiliary, view.classes, part.content.round)
        blocks = _blocks(n, records)
        scores = torch.empty(n, dtype=torch.float64)
        smallest = records
        for number, block in enumerate(blocks):
            keep = _assign(block, len(targets), records, self.shadows, stream(seed, "shadow block", number))
            smallest = min(smallest, int(keep.sum(1).min()))
            clients = [
                deal(row.nonzero().squeeze(1), factory.sizes, generator(seed, "deal", number, s))
                for s, row in enumerate(keep)
            ]
            seeds = [stream(seed, "shadow", number, s) for s in range(self.shadows)]

            def tick(done: int, total: int, words: str = "", *, number: int = number) -> None:
                report_progress(progress, number * total + done, len(blocks) * total)

            shadows = train_shadows(
                make,
                clients,
                seeds,
                engine=factory.engine,
                workers=factory.workers,
                cache=factory.cache,
                name=factory.digest,
                progress=tick,
            )
            scores[block] = self._score(own_records, block, weights, shadows, keep)
        assumed = [
            CANDIDATES,
            "the scheme, its parameters, the number of clients and of their records",
            "the model's weights before training",
        ]
        assumed.append(f"{len(targets) - n} auxiliary records of the same kind")
        if smallest < records:
            assumed.append(
                f"shadow federations train on {smallest} records, half of what the attacker has, where the target had"
                f" {records}"
            )
        note = f"{self.shadows} shadow federations" + (
            f" for each of {len(blocks)} blocks of candidates" if len(blocks) > 1 else ""
        )
        return MembershipScores(
            self.name, view.observer, "final-model", "", knowledge.candidate_ids, scores, tuple(assumed), note
        )

    def _score(self, known: AttackerRecords, block: Tensor, target: Tensor, shadows: Tensor, keep: Tensor) -> Tensor:
        """Scores (b,) of the candidates `block`. keep: (S, N) over all the attacker's records."""
        inside, models = keep[:, block], (target[None], shadows)
        match self.method:
            case "shokri":
                y = known.targets[block]
                of_target, of_shadows = (known.signal(signals.probabilities, weights, block) for weights in models)
                return shokri(of_target[0], y, of_shadows, y, inside)
            case "rmia":
                others = known.auxiliary
                of_target, of_shadows = (known.signal(signals.confidence, weights, block) for weights in models)
                others_target, others_shadows = (
                    known.signal(signals.confidence, weights, others) for weights in models
                )
                a = tune_a(of_shadows, inside, others_shadows, keep[:, others])
                of_others = others_target[0], others_shadows, keep[:, others]
                return rmia(of_target[0], of_shadows, inside, *of_others, a=a)
            case _:
                of_target, of_shadows = (known.signal(signals.phi, weights, block) for weights in models)
                return lira(of_target[0], of_shadows, inside, online=self.method == "lira")


@dataclass(frozen=True, eq=False)
class AttackerRecords:
    """The attacker's records (N, …), candidates first; `auxiliary` are the rows after them."""

    view: View
    inputs: Tensor
    targets: Tensor
    auxiliary: Tensor

    def signal(self, signal: signals.Signal, weights: Tensor, rows: Tensor) -> Tensor:
        """A signal of models (S, d) on some rows: (S, m, …)."""
        return signals.of_models(signal, self.view.module, weights, self.inputs[rows], self.targets[rows])


def _blocks(candidates: int, records: int) -> list[Tensor]:
    """Candidates in as few equal blocks as possible, half a block being at most as many as the target's records."""
    return list(torch.arange(candidates).tensor_split(-(-candidates // (2 * records))))


def _assign(block: Tensor, available: int, records: int, shadows: int, seed: int) -> Tensor:
    """Which of the attacker's `available` records (N) each shadow (S) trains on: (S, N). Every candidate of the block
    is in exactly half of the shadows. The other records fill the shadows up to `records` as far as they suffice, each
    of them in at most half of the shadows too.
    """
    keep = torch.zeros(shadows, available, dtype=torch.bool)
    keep[:, block] = keep_matrix(shadows, len(block), seed)
    others = torch.ones(available, dtype=torch.bool).index_fill(0, block, False).nonzero().squeeze(1)
    halves = keep_matrix(shadows, len(others), stream(seed, "others"))
    for s, row in enumerate(keep):
        spare = others[halves[s]]
        order = torch.randperm(len(spare), generator=generator(seed, "fill", s))
        row[spare[order[: max(0, records - int(row.sum()))]]] = True
    return keep


def _factory(knowledge: Knowledge) -> ShadowFactory:
    if knowledge.shadow_factory is None:
        raise ValueError(
            "shadow models need a shadow factory, which says how the target was trained, and this attacker has none"
        )
    return knowledge.shadow_factory
