"""Scores of evidence: from here on the truth may be looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor
from pathlib import Path

import torch
from torch import Tensor

from ..attacks.base import Knowledge, MembershipScores, Reconstruction
from ..defenses.data.dataset import DEALT_BY_LOT
from ..defenses.data.partition import BY_LOT
from ..defenses.progress import Progress
from ..defenses.terms import Observer
from ..metrics import classifiers, perceptual
from ..metrics.intervals import clopper_pearson_interval, share_p_value
from ..metrics.leakage import score_images
from ..metrics.pool_test import PERMUTATIONS, Rebuilt, least_p_value, pool_p_value
from ..metrics.reidentification import picked_from_pool
from .evidence import Cell, CellEvidence
from .files import write_tensors
from .limits import Limits
from .results.checks import COMPARABLE, SIGNIFICANCE, best_control, picked, question_of
from .results.format import AttackResult, Metrics, ReferenceClassifier
from .results.membership_entries import Scored, membership_entries
from .results.warnings import EVERYTHING, NO_TRUTH
from .setup.auditor import Auditor, Truth
from .setup.folder import Setup
from .setup.planned import priced_ledger

_Lpips = perceptual.Perceptual | perceptual.NotMeasured
_Classifiers = classifiers.Reference | perceptual.NotMeasured


@dataclass(frozen=True, eq=False)
class ScoredAttacks:
    """Every attack beside the truth, the reference classifiers that judged it, and what a reader must be warned of."""

    attacks: tuple[AttackResult, ...]
    classifiers: tuple[ReferenceClassifier, ...]
    warnings: tuple[str, ...]


def score(
    setup: Setup,
    auditor: Auditor,
    collected: Sequence[CellEvidence],
    lpips: _Lpips,
    seed: int,
    output: Path,
    progress: Progress | None,
) -> ScoredAttacks:
    """Every attack's evidence beside the truth; without the truth, an entry says what was not measured.

    Args:
        setup, auditor: both halves.
        collected: the evidence.
        lpips: the network, or why there is none.
        seed: of intervals and line-ups.
        output: where originals and scores go.
        progress: called with reconstructions scored and in all.
    """
    knowledge = setup.knowledge()
    rebuilt = [(item.cell, item.evidence) for item in collected if isinstance(item.evidence, Reconstruction)]
    reference: _Classifiers | None = None
    if auditor.truth is not None and rebuilt:
        reference = _reference(setup, knowledge, progress)
    attacks: list[AttackResult] = []
    ledger = priced_ledger(auditor)
    limits = None if ledger is None else Limits(ledger, setup.config.audit.honest)
    for done, (cell, reconstruction) in enumerate(rebuilt, 1):
        entry = _images(setup, auditor, knowledge, cell, reconstruction, reference, lpips, seed, output)
        attacks.append(_in_its_pool(entry, setup, auditor, reconstruction, limits))
        if progress is not None:
            progress(done, len(rebuilt), "scoring")
    scored = [
        Scored(item.cell.key, item.cell.settings, item.evidence)
        for item in collected
        if isinstance(item.evidence, MembershipScores)
    ]
    attacks = _judged_together(attacks, auditor, [r for _, r in rebuilt], seed, others=2 * len(scored))
    entries, warnings = membership_entries(auditor, knowledge, scored, seed, output)
    if limits is not None and _by_lot(setup, auditor):
        classes = len(knowledge.candidate_targets.unique()) if setup.manifest.data.classes else 1
        judges = len(setup.config.capture.clients)
        entries = [_limited(entry, limits, classes * (judges if len(entry.evidence) > 1 else 1)) for entry in entries]
    families: tuple[ReferenceClassifier, ...] = ()
    if isinstance(reference, classifiers.Reference):
        accuracy, source = reference.accuracy, reference.source
        families = tuple(
            ReferenceClassifier(family=name, accuracy=accuracy, source=source) for name, _ in reference.members
        )
    return ScoredAttacks((*attacks, *entries), families, tuple(warnings))


OWN = ("npz", "csv")  # data sets whose splits are what a user gives
MOST_BY_CHANCE = 0.5  # a line-up in which guessing picks more originals than that tells no leak from none


def _in_its_pool(
    entry: AttackResult, setup: Setup, auditor: Auditor, reconstruction: Reconstruction, limits: Limits | None
) -> AttackResult:
    """The entry with how often an original was picked out of its own pool, and how often any attack could at most."""
    truth = auditor.truth
    if truth is None or entry.value("psnr") is None:
        return entry
    rows = rows_of(auditor, reconstruction)
    partition = setup.config.data.partition
    dealt = partition == "iid" or (partition in BY_LOT and entry.settings.get("labels") == "known")
    # Else records of one client are of a kind, and so may be what a prior alone makes of nothing.
    if not dealt:
        why = f"records of one client are of a kind (partition {partition}), so pictures made of nothing may be too"
        entry = entry.having(not_measured={**entry.not_measured, COMPARABLE: why})
    line_up = picked_from_pool(
        truth.inputs[rows], truth.targets[rows], reconstruction.images, truth.pool_inputs, truth.pool_targets
    )
    if line_up is None or line_up.chance > MOST_BY_CHANCE:
        left = "no image" if line_up is None else f"too few images (for some only {line_up.candidates})"
        why = f"{left} of the same labels left over when the records were dealt by lot"
        return entry.having(not_measured={**entry.not_measured, "pool_share": why})
    numbers = {"pool_share": line_up.share, "pool_chance": line_up.chance}
    low, high = clopper_pearson_interval(line_up.hits, line_up.n)
    entry = entry.having(
        intervals={**entry.intervals, "pool_share": (low, high)},
    )
    if limits is not None:
        sent = {m.id: m.round for m in setup.messages}
        last = max(sent[i] for i in reconstruction.message_ids)
        numbers["pool_ceiling"] = limits.rebuilt(Observer.parse(reconstruction.observer), last, line_up.chances)
    return entry.having(metrics=Metrics.of({**entry.numbers, **numbers}))


def rows_of(auditor: Auditor, reconstruction: Reconstruction) -> list[int]:
    """Which records of the truth the attacked messages are of."""
    messages = {} if auditor.truth is None else auditor.truth.messages
    return sorted({row for i in reconstruction.message_ids for row in messages.get(i, ())})


def _judged_together(
    entries: Sequence[AttackResult], auditor: Auditor, rebuilt: Sequence[Reconstruction], seed: int, others: int
) -> list[AttackResult]:
    """The entries with the p-values of their line-ups, in the pool where there is one with power.

    One attack on several messages, alike but for these, is one question with one p-value, which counts once: a message
    of one record can hardly be told from luck by a line-up, twenty can. It is that of all hits together, or of the best
    of the k messages (Bonferroni), twice the lesser. Messages with no more hits than their control have 1.

    Args:
        entries: the scored inversions. rebuilt: what each was scored by. others: how many other checks there are.
    """
    checks = len({question_of(entry) for entry in entries}) + others
    checks += sum("psnr_margin" in entry.p_values for entry in entries)
    judged = list(entries)
    for places in _alike(entries, "pool_share"):
        sent = [(rows_of(auditor, rebuilt[place]), rebuilt[place].images) for place in places]
        draws = max(2 * PERMUTATIONS, 400 * checks)  # so that the least is below .05/checks, of ten runs together too
        p_value, least = _pool_p_value(auditor.truth, sent, seed, draws)
        alone: list[float] = []
        if len(sent) > 1:
            alone = [_pool_p_value(auditor.truth, [message], seed, PERMUTATIONS)[0] for message in sent]
            least *= 2
        for place in places:
            if least > SIGNIFICANCE / checks:
                judged[place] = _without_pool(entries[place], checks)
            else:
                judged[place] = _answered(entries[place], _of_all_or_the_best(p_value, alone))
    for places in _alike(judged, "reidentified"):
        if len(places) > 1 and all(judged[place].value("pool_share") is None for place in places):
            alone = [judged[place].p_values.get("reidentified", 1.0) for place in places]
            together = _share_p_value([(judged[place], rows_of(auditor, rebuilt[place])) for place in places])
            for place in places:
                judged[place] = _answered(judged[place], _of_all_or_the_best(together, alone))
    return judged


def _alike(entries: Sequence[AttackResult], metric: str) -> list[list[int]]:
    """The places of entries that have the metric, together where they answer one question."""
    groups: dict[str, list[int]] = {}
    for place, entry in enumerate(entries):
        if entry.value(metric) is not None:
            groups.setdefault(question_of(entry), []).append(place)
    return list(groups.values())


def _of_all_or_the_best(together: float, alone: Sequence[float]) -> float:
    return together if len(alone) < 2 else min(1.0, 2 * min(together, len(alone) * min(alone)))


def _answered(entry: AttackResult, p_value: float) -> AttackResult:
    name = picked(entry).share
    more = (entry.value(name) or 0.0) > best_control(entry)
    return entry.having(p_values={**entry.p_values, name: p_value if more else 1.0})


def _share_p_value(entries: Sequence[tuple[AttackResult, Sequence[int]]]) -> float:
    """Of all hits of line-ups in images of other splits. These may be a bit easier than chance says, which many
    messages would add up, so they must beat twice their controls. Of messages that share records the first counts.
    """
    seen, hits, n, control = set[int](), 0, 0, 0.0
    for entry, rows in entries:
        if rows and seen.isdisjoint(rows):
            seen.update(rows)
            hits, n = hits + round((entry.value("reidentified") or 0.0) * len(rows)), n + len(rows)
            control += best_control(entry) * len(rows)
    return share_p_value(hits, n, min(1.0, 2 * control / n)) if n else 1.0


def _pool_p_value(
    truth: Truth | None, sent: Sequence[tuple[Sequence[int], Tensor]], seed: int, draws: int
) -> tuple[float, float]:
    """The p-value of messages, each the rows of its records and what was made of it, and the least that it could be."""
    assert truth is not None
    every = {row: i for i, row in enumerate(sorted({row for rows, _ in sent for row in rows}))}
    originals, labels = truth.inputs[list(every)], truth.targets[list(every)]
    messages = [Rebuilt([every[row] for row in rows], images) for rows, images in sent]
    found = pool_p_value(originals, labels, messages, truth.pool_inputs, truth.pool_targets, seed, draws)
    return 1.0 if found is None else found, least_p_value(labels, truth.pool_targets, draws)


def _without_pool(entry: AttackResult, checks: int) -> AttackResult:
    why = f"too few images of its label were left over to tell anything from luck among {checks} checks"
    numbers = {name: value for name, value in entry.numbers.items() if not name.startswith("pool_")}
    intervals = {name: limits for name, limits in entry.intervals.items() if name != "pool_share"}
    missing = {**entry.not_measured, "pool_share": why}
    return entry.having(metrics=Metrics.of(numbers), intervals=intervals, not_measured=missing)


def _splits_of_ones_own(setup: Setup) -> bool:
    """Whether test and auxiliary records are what somebody gave, not dealt out of one set with those of training."""
    data = setup.manifest.data
    return data.name in OWN and data.description.get("test") != DEALT_BY_LOT


def _by_lot(setup: Setup, auditor: Auditor) -> bool:
    """Whether members and others among the candidates might as well have traded places, for whoever knows all else: the
    test split will not do, as everybody knows its loss.
    """
    return setup.config.data.partition == "iid" and auditor.truth is not None and auditor.truth.outsiders_left_over


def _limited(entry: AttackResult, limits: Limits, strata: int) -> AttackResult:
    """A membership entry with the largest TPR that any attack could reach at each of its points: at as many false
    alarms as the rate allows, however many there happened to be.
    """
    outsiders = entry.value("n_nonmembers")
    if not entry.tpr_points or not outsiders or not entry.observer:
        return entry
    observer, others = Observer.parse(entry.observer), int(outsiders)
    points = tuple(
        point
        if point is None or point.realised_fpr is None
        else point.model_copy(
            update={"ceiling": limits.member(observer, floor(point.fpr * others * (1 + 1e-12)), others, strata)}
        )
        for point in entry.metrics.tpr_at_fpr or ()
    )
    return entry.having(metrics=Metrics.of(entry.numbers, points))


def _reference(setup: Setup, knowledge: Knowledge, progress: Progress | None) -> _Classifiers:
    """The five reference classifiers: shipped ones for the data set, or small ones trained on the attacker's auxiliary
    data.
    """
    data = setup.manifest.data
    if data.name in classifiers.shipped():
        return classifiers.load_reference(data.name)
    if len(knowledge.auxiliary_inputs) < max(10, 2 * data.classes):
        return perceptual.NotMeasured(
            f"{len(knowledge.auxiliary_inputs)} auxiliary images are too few to train reference classifiers of"
            f" {data.classes} classes on"
        )

    def tick(done: int, total: int) -> None:
        if progress is not None:
            progress(done, total, "training reference classifiers")

    if min(knowledge.auxiliary_inputs.shape[2:]) < classifiers.LEAST:
        return perceptual.NotMeasured(
            f"reference classifiers need images of at least {classifiers.LEAST}×{classifiers.LEAST}"
        )
    inputs, targets, colour = knowledge.auxiliary_inputs, knowledge.auxiliary_targets, data.input_shape[0] == 3
    return classifiers.train_reference(inputs, targets, data.classes, seed=0, flip=colour, progress=tick)


def _images(
    setup: Setup,
    auditor: Auditor,
    knowledge: Knowledge,
    cell: Cell,
    reconstruction: Reconstruction,
    reference: _Classifiers | None,
    lpips: _Lpips,
    seed: int,
    output: Path,
) -> AttackResult:
    """One reconstruction beside its originals, which go to originals/KEY.safetensors."""
    truth, data = auditor.truth, setup.manifest.data
    entry = AttackResult(
        attack=reconstruction.attack,
        observer=reconstruction.observer,
        manner=reconstruction.manner,
        round=reconstruction.round,
        client=reconstruction.sender,
        n=len(reconstruction.images),
        key=cell.key,
        assumed=reconstruction.assumed,
        settings=dict(cell.settings),
        metrics=Metrics.of({"attack_loss": reconstruction.loss}),
    )
    if truth is None:
        return entry.having(not_measured={EVERYTHING: NO_TRUTH})
    rows = sorted({row for i in reconstruction.message_ids for row in truth.messages.get(i, ())})
    if not rows:
        why = "truth/ does not hold what this sender trained on; add the client to [capture] clients"
        return entry.having(not_measured={EVERYTHING: why})
    originals, labels = truth.inputs[rows], truth.targets[rows]
    write_tensors(output / "originals" / f"{cell.key}.safetensors", {"images": originals, "labels": labels})
    informed, granted = cell.settings.get("labels") == "known", len(knowledge.auxiliary_inputs) > 0
    others = [i for i in range(len(truth.inputs)) if i not in set(rows)]
    alike = [(truth.inputs[others], truth.targets[others])]
    if _splits_of_ones_own(setup):  # they may be of another kind, which a picture made of nothing shows too
        alike.append((truth.pool_inputs, truth.pool_targets))
    else:
        alike.append((knowledge.auxiliary_inputs, knowledge.auxiliary_targets))
        alike.append((truth.gallery_inputs, truth.gallery_targets))
    scores = score_images(
        originals,
        reconstruction.images,
        labels=labels if informed else None,
        reconstruction_labels=reconstruction.labels if informed else None,
        start=reconstruction.start,
        auxiliary=knowledge.auxiliary_inputs if granted else None,
        auxiliary_labels=knowledge.auxiliary_targets if granted else None,
        distractors=torch.cat([images for images, _ in alike]),
        distractor_labels=torch.cat([of_these for _, of_these in alike]),
        classifiers=reference,
        perceptual=lpips,
        noise_scale=(setup.manifest.facts.noise_std or 0.0) * max(setup.manifest.clients),
        normalise=(torch.tensor(data.mean), torch.tensor(data.std)),
        attack_loss=reconstruction.loss,
        seed=seed,
    )
    parts = {name: scores.pop(name) for name in ("controls", "intervals", "p_values", "pairs", "not_measured")}
    return entry.having(**parts, metrics=Metrics.of(scores))
