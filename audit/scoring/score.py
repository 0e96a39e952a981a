"""Scores of evidence: from here on the truth may be looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from math import floor
from pathlib import Path

from ...attacks.base import Links, MembershipScores, ReadTexts, Reconstruction
from ...attacks.cells import CellEvidence
from ...defenses.data.partition import BY_LOT, UNALIKE
from ...defenses.progress import Progress, part_of
from ...defenses.terms import Observer
from ...metrics import classifiers, perceptual
from ...metrics.intervals import clopper_pearson_interval
from ...metrics.labels import label_accuracy, label_control
from ...metrics.leakage import ROWS_OF_A_TABLE, score_images
from ...metrics.reidentification import picked_from_pool
from ..files import write_tensors
from ..results.checks import COMPARABLE
from ..results.format import AttackResult, Method, Metrics, ReferenceClassifier
from ..say.warnings import EVERYTHING, NO_TRUTH, NOT_TESTED
from ..setup.auditor import Auditor
from ..setup.folder import Setup
from ..setup.planned import priced_ledger
from .answers import RUNS, Lots
from .attributes import attribute_entries
from .closest import variances, with_closest
from .judges import Judges, reference_judges
from .limits import Limits
from .line_ups import LineUps
from .links import link_entry
from .membership_entries import Scored, membership_entries
from .pictured import Pictured
from .questions import judged_together, rows_of
from .texts import text_entry

LEFT_OUT = perceptual.NotMeasured(
    "pixels alone were compared, to save time; `audit run` with more --minutes compares through networks too"
)
_Lpips = perceptual.Perceptual | perceptual.NotMeasured


@dataclass(frozen=True, eq=False)
class ScoredAttacks:
    """Every attack beside the truth, the reference classifiers that judged it, and what a reader must be warned of."""

    attacks: tuple[AttackResult, ...]
    classifiers: tuple[ReferenceClassifier, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Depth:
    """How thoroughly attacks are scored.

    lpips: the network, or why there is none. classifiers: whether reference classifiers judge pictures too. tests:
    whether shares are tested against luck; a search compares shares alone. seed: of intervals, line-ups and tests.
    """

    lpips: _Lpips
    classifiers: bool
    tests: bool
    seed: int


def score(
    setup: Setup,
    auditor: Auditor,
    collected: Sequence[CellEvidence],
    depth: Depth,
    output: Path,
    progress: Progress | None,
) -> ScoredAttacks:
    """Every attack's evidence beside the truth; without the truth, an entry says what was not measured.

    Args:
        setup, auditor: both halves.
        collected: the evidence.
        depth: how thoroughly.
        output: where originals and scores go.
        progress: called with reconstructions scored and in all.
    """
    knowledge, seed = setup.knowledge(), depth.seed
    seen = Pictured.of(setup, auditor, knowledge)
    rebuilt = [(item.cell, item.evidence) for item in collected if isinstance(item.evidence, Reconstruction)]
    reference: Judges | None = None
    if auditor.truth is not None and rebuilt:
        pictures = depth.classifiers and seen.cells is None
        reference = reference_judges(setup, knowledge, progress) if pictures else LEFT_OUT
    attacks: list[AttackResult] = []
    ledger = priced_ledger(auditor)
    limits = None if ledger is None else Limits(ledger, setup.config.audit.honest)
    scored = [
        Scored(item.cell.key, item.cell.settings, item.evidence)
        for item in collected
        if isinstance(item.evidence, MembershipScores)
    ]
    linked = [
        link_entry(auditor, item.cell, item.evidence, seed) for item in collected if isinstance(item.evidence, Links)
    ]
    read = [(item.cell, item.evidence) for item in collected if isinstance(item.evidence, ReadTexts)]
    # A study compares shares: no report has its results side by side, as it has those of whole runs.
    runs = RUNS if depth.classifiers else 1
    bounding = limits if _by_lot(setup, auditor) else None
    guessed = attribute_entries(auditor, knowledge, collected, bounding, seed)
    lots = Lots(2 * (len(scored) + len(read)) + len(linked) + len(guessed), seed, runs=runs, made=depth.tests)
    relabellings = replace(lots, checks=4 + lots.checks).enough(max(1, len(rebuilt)))
    told = [text_entry(auditor, knowledge, cell, texts, output, (seed, relabellings)) for cell, texts in read]
    spread = cache(partial(variances, knowledge.auxiliary_inputs, knowledge.auxiliary_targets))
    measures = _Measures(reference, depth.lpips, relabellings if depth.tests else 0, seed)
    for done, (cell, reconstruction) in enumerate(rebuilt, 1):
        entry = _images(setup, seen, CellEvidence(cell, reconstruction), measures, output)
        entry = _in_its_pool(entry, setup, seen.auditor, reconstruction, limits)
        if limits is not None and seen.cells is None:
            last = _last_round(setup, reconstruction)
            entry = with_closest(entry, reconstruction, limits, last, spread)
        attacks.append(entry)
        if progress is not None:
            progress(done, 2 * len(rebuilt), "scoring")  # the other half: all messages of a question together
    line_ups = None if seen.auditor.truth is None else LineUps(setup, seen.auditor.truth, seen.knowledge)
    attacks = judged_together(
        attacks, seen.auditor, [r for _, r in rebuilt], line_ups, lots, part_of(progress, 0.5, 1.0)
    )
    if not depth.tests:
        attacks = [entry.having(doubt=NOT_TESTED) for entry in attacks]
    entries, warnings = membership_entries(auditor, knowledge, scored, seed, output)
    if bounding is not None:
        classes = len(knowledge.candidate_targets.unique()) if setup.manifest.data.classes else 1
        judges = len(setup.config.capture.clients)
        entries = [_limited(entry, bounding, classes * (judges if len(entry.evidence) > 1 else 1)) for entry in entries]
    families: tuple[ReferenceClassifier, ...] = ()
    if isinstance(reference, classifiers.Reference):
        accuracy, source = reference.accuracy, reference.source
        families = tuple(
            ReferenceClassifier(family=name, accuracy=accuracy, source=source) for name, _ in reference.members
        )
    return ScoredAttacks((*attacks, *told, *linked, *guessed, *entries), families, tuple(warnings))


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
    if not dealt and (truth.by_holder is None or len(truth.by_holder[0][rows].unique()) > 1):
        why = (
            f"a client's records may resemble each other ({UNALIKE[partition]}), and then a guess at their kind scores"
        )
        entry = entry.having(not_measured={**entry.not_measured, COMPARABLE: why})
    if entry.thing == "row" or partition not in BY_LOT:
        if entry.thing == "row":
            why = ROWS_OF_A_TABLE
        else:
            why = f"there is no pool ({UNALIKE[partition]})"
        return entry.having(not_measured={**entry.not_measured, "pool_share": why})
    line_up = picked_from_pool(
        truth.inputs[rows], truth.targets[rows], reconstruction.images, truth.pool_inputs, truth.pool_targets
    )
    if line_up is None or line_up.chance > MOST_BY_CHANCE:
        if line_up is None:
            left = "no image"
        else:
            left = f"too few images (for some only {line_up.candidates})"
        why = f"{left} of the same labels left over when the records were dealt by lot"
        return entry.having(not_measured={**entry.not_measured, "pool_share": why})
    numbers = {"pool_share": line_up.share, "pool_chance": line_up.chance}
    low, high = clopper_pearson_interval(line_up.hits, line_up.n)
    entry = entry.having(intervals={**entry.intervals, "pool_share": (low, high)})
    if limits is not None:
        last = _last_round(setup, reconstruction)
        numbers["pool_ceiling"] = limits.rebuilt(Observer.parse(reconstruction.observer), last, line_up.chances)
    return entry.having(metrics=Metrics.of({**entry.numbers, **numbers}))


def _last_round(setup: Setup, reconstruction: Reconstruction) -> int:
    """Of the messages that were attacked."""
    sent = {m.id: m.round for m in setup.messages}
    return max(sent[i] for i in reconstruction.message_ids)


def _by_lot(setup: Setup, auditor: Auditor) -> bool:
    """Whether members and others among the candidates might as well have traded places, for whoever knows all else: the
    test split will not do, as everybody knows its loss.
    """
    return setup.config.data.partition == "iid" and auditor.truth is not None and auditor.truth.outsiders_left_over


def _limited(entry: AttackResult, limits: Limits, strata: int) -> AttackResult:
    """A membership entry with the largest AUC of any attack, and the largest TPR that one could reach at each of its
    points: at as many false alarms as the rate allows, however many there happened to be.
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
    area = limits.area(observer, others, strata)
    return entry.having(metrics=Metrics.of({**entry.numbers, "auc_ceiling": area}, points))


PARTS = ("controls", "intervals", "p_values", "least_p_values", "pairs", "not_measured")  # beside the metrics


@dataclass(frozen=True, eq=False)
class _Measures:
    """What images are compared by. relabellings: of each test, 0 for none. seed: of them."""

    reference: Judges | None
    lpips: _Lpips
    relabellings: int
    seed: int


def _images(setup: Setup, seen: Pictured, attacked: CellEvidence, measures: _Measures, output: Path) -> AttackResult:
    """One reconstruction beside its originals, which go to originals/KEY.safetensors."""
    cell, reconstruction = attacked.cell, attacked.evidence
    assert isinstance(reconstruction, Reconstruction)
    auditor, knowledge = seen.auditor, seen.knowledge
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
        methods=tuple(Method(name=name, why_not=why) for name, why in reconstruction.methods),
        settings=dict(cell.settings),
        metrics=Metrics.of({"attack_loss": reconstruction.loss}),
    )
    if truth is None:
        return entry.having(not_measured={EVERYTHING: NO_TRUTH})
    rows = rows_of(auditor, reconstruction)
    if not rows:
        why = "truth/ does not hold what this sender trained on; add the client to [capture] clients"
        if reconstruction.sender == "server":
            why = "truth/ does not hold what all who took part trained on; have all clients in [capture] clients"
        return entry.having(not_measured={EVERYTHING: why})
    originals, labels = truth.inputs[rows], truth.targets[rows]
    write_tensors(output / "originals" / f"{cell.key}.safetensors", {"images": originals, "labels": labels})
    informed, granted = cell.settings.get("labels") == "known", len(knowledge.auxiliary_inputs) > 0
    line_ups = LineUps(setup, truth, knowledge)
    others, of_others = line_ups.others(rows)
    scores = score_images(
        originals,
        reconstruction.images,
        labels=labels if informed else None,
        reconstruction_labels=reconstruction.labels if informed else None,
        start=reconstruction.start,
        of_nothing=bool(cell.settings.get("learned")),
        auxiliary=knowledge.auxiliary_inputs if granted else None,
        auxiliary_labels=knowledge.auxiliary_targets if granted else None,
        distractors=others,
        distractor_labels=of_others,
        classifiers=measures.reference,
        perceptual=measures.lpips,
        noise_scale=(setup.manifest.facts.noise_std or 0.0) * max(setup.manifest.clients),
        normalise=seen.normalise,
        cells=seen.cells,
        attack_loss=reconstruction.loss,
        seed=measures.seed,
        relabellings=measures.relabellings,
        slack=line_ups.slack,
    )
    parts = {name: scores.pop(name) for name in PARTS}
    inferred = cell.settings.get("labels") == "inferred" and not data.label_sets
    if inferred and len(reconstruction.labels) == len(labels):
        scores["label_accuracy"] = label_accuracy(reconstruction.labels, labels)
        scores["label_chance"] = label_control(labels, knowledge.auxiliary_targets, data.classes)
    return entry.having(**parts, metrics=Metrics.of(scores))
