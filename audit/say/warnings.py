"""The warnings that follow from the fields of results.

`audit run` writes them and a report derives them again, both by the functions here: a sentence that was written and the
same sentence derived are equal, and one of them is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from ...metrics.leakage import ROWS_OF_A_TABLE
from ..results.ablation import stronger_without
from ..results.checks import COMPARABLE
from ..results.format import AuditedSetup, Epsilon, Results
from ..setup.format import LAST_MODEL, MISSING, RESTART
from ..setup.promise import promise
from . import words
from .accuracy import only_ranks, useless
from .metrics import metric

WEAK_CLASSIFIER = 0.6  # accuracy; a reference classifier below it cannot judge likeness
NO_TRUTH = "truth/ is absent: what the attacks recovered could not be scored"
IN_FULL = {LAST_MODEL: "The last model", MISSING: "Missing uploads", RESTART: "A restart"}  # each a sentence of its own
NO_CLIP = "Nothing was clipped in training: this setup has no clip."
ANONYMOUS = ("anonymous-gossip", "anonymous-leader")
NOT_TESTED = "inversions were compared by what they got, as a search does, and not tested against luck"
OWN_RECORDS = ("csv", "images", "text")  # data sets whose people the reader knows
EVERYTHING = "all"  # in `not_measured`: the reason is about every metric, and says itself what is missing


def implied(results: Results) -> list[str]:
    """What a reader must know before believing the numbers, as far as typed fields say it."""
    setup = results.setup
    sentences = []
    if setup.clip_norm is not None and setup.share_clipped == 0:
        norm = setup.norm_before_clip_median
        if norm is None:
            median = ""
        else:
            median = f", the median norm before the clip was {norm:.3g}"
        sentences.append(f"Nothing was clipped in training: C = {setup.clip_norm:g}{median}.")
    if _without_clip(results) and not setup.recorded:
        sentences.append(NO_CLIP)
    sentences += declared_said(setup)
    sentences += doubted(results)
    if setup.status == "diverged":
        if setup.rounds is None:
            finite = "finite rounds"
        else:
            finite = f"{setup.rounds} finite rounds"
        sentences.append(f"Training diverged; only its {finite} are attacked.")
    if lost := sum("not_finite" in row for row in results.rounds):
        sentences.append(f"In {words.times(lost, 'round')} a client's value was not finite, and 0 went in its place.")
    sentences += filter(None, [useless(setup), only_ranks(setup)])
    sentences += filter(None, [not_all_attacked(setup)])
    if setup.status == "partial":
        sentences.append("Training was not finished when it was audited.")
    if setup.noise_key == "published" and (setup.noise_std != 0 or results.server_noise_std):
        sentences.append(words.NO_SECRET)
    asked = [row for row in results.epsilon if row.asked]
    sentences += [said for row in asked for said in promise(row.delta or 0.0, _counted(setup, row))]
    sentences += filter(None, [spent_before(setup)])
    sentences += not_asked(results.epsilon)
    if setup.data.get("name") in OWN_RECORDS and any(row.finite for row in results.epsilon):
        sentences += set_aside(setup)
    if results.quick:
        sentences.append("A --quick run: fewer iterations, so the attacks are weaker than they could be.")
    sentences += stronger_without(results)
    return sentences + not_run(results) + not_tested(results.epsilon) + _weak_classifiers(results)


def set_aside(setup: AuditedSetup) -> list[str]:
    """Whom no ε covers, as nobody trains on them; one sentence, or none where no record was set aside.

    >>> set_aside(AuditedSetup(digest="", scheme="", data={"sizes": {"test": 480, "auxiliary": 240}}))
    ['Not covered: the people of 480 test records and 240 auxiliary records, on which nobody trained.']
    """
    kinds = ((setup.test_records, "test record"), (setup.auxiliary_records, "auxiliary record"))
    held = [words.times(count, kind) for count, kind in kinds if count]
    if held:
        return [f"Not covered: the people of {words.listed(held)}, on which nobody trained."]
    return []


def not_all_attacked(setup: AuditedSetup) -> str:
    """That other clients' records are of other kinds, where messages of some were kept; "" where all are alike."""
    config = setup.config or {}
    kept = config.get("capture", {}).get("clients")
    if config.get("data", {}).get("partition") != "writer" or not isinstance(kept, list) or not setup.clients:
        return ""
    if len(kept) >= setup.clients:
        return ""
    listed = words.listed([str(client) for client in kept])
    return (
        f"Messages of {len(kept)} of {setup.clients} clients were kept and attacked (number {listed}; the first is 0)."
        " The others hold records of their own, and nothing was measured of them: [capture] clients names more."
    )


def not_asked(rows: Sequence[Epsilon]) -> list[str]:
    """Towards whom nothing is proven, where it is towards whom the config asks about: who reads a server's ε for
    everybody else may take it for one towards the server.
    """
    asked = {(row.unit, row.adjacency): row for row in rows if row.asked}
    if not asked or any(row.proven is None or row.proven == inf for row in asked.values()):
        return []
    bare = [row for row in rows if not row.asked and row.proven == inf and (row.unit, row.adjacency) in asked]
    if not bare:
        return []
    towards = words.listed(list(dict.fromkeys(words.observer(row.observer) for row in bare)))
    about = words.listed(list(dict.fromkeys(words.observer(row.observer) for row in asked.values())))
    return [f"This is about {about}: towards {towards} nothing is proven."]


def _counted(setup: AuditedSetup, row: Epsilon) -> int:
    """Of how many clients a row is, 0 where it is of records, or nobody knows."""
    if row.unit == "client":
        return setup.clients or 0
    return 0


def declared_said(setup: AuditedSetup) -> list[str]:
    """What of a recorded training rests on its owner's word, and which of it is contradicted."""
    if not setup.recorded:
        return []
    sentences = [contradicted_said(setup)] if setup.contradicted else []
    unchecked = [d for d in setup.unchecked if d.what not in IN_FULL]
    if unchecked and not sentences and not setup.violated:
        named = words.listed([d.what for d in unchecked])
        sentences.append(
            f"This training was recorded, not done by this tool: ε holds only if what its owner declares is so, and"
            f" {named} {'was' if len(unchecked) == 1 else 'were'} not checked."
        )
    sentences += [f"{IN_FULL[d.what]}: {d.said}: {d.why}." for d in setup.declared if d.what in IN_FULL]
    sentences += [f"Known defect: {d.what}: {d.why}." for d in setup.declared if d.status == "defect"]
    if all(d.what == LAST_MODEL for d in setup.declared):
        sentences.append("This training was recorded, and its owner declares nothing that protects anybody.")
    return sentences


def contradicted_said(setup: AuditedSetup) -> str:
    """What was recorded otherwise than it is declared, a sentence; "" for nothing."""
    wrong = "; ".join(f"{d.what} ({d.said}): {d.why}" for d in setup.contradicted)
    if wrong:
        return f"Contradicted by what was recorded, so nothing is proven: {wrong}."
    return ""


def contradicted_briefly(setup: AuditedSetup) -> str:
    """What of it, by name; "" for nothing."""
    names = words.listed([d.what for d in setup.contradicted])
    if names:
        return f"Contradicted by what was recorded: {names}."
    return ""


def doubted(results: Results) -> list[str]:
    """What the attacks take for granted that does not hold, or nobody could check, a sentence each."""
    doubts = dict.fromkeys(attack.doubt for attack in results.attacks if attack.doubt)
    return [
        f"{doubt[0].upper()}{doubt[1:]}; where these attacks get nothing, nothing was measured." for doubt in doubts
    ]


def picked_said(settings: Mapping[str, Any]) -> str:
    """Which preset `auto` picked and why, of an attack's settings; "" where somebody named one, or none."""
    why = settings.get("picked")
    if why:
        return f"Inversion by the preset {settings.get('preset')}, picked by auto: {why}."
    return ""


def not_tested(rows: Sequence[Epsilon]) -> list[str]:
    """Which rows a canary audit was asked for and measured nothing, and why."""
    untested = [row for row in rows if row.untested]
    return [f"No canary audit of {row.observer}, {row.unit}, {row.adjacency}: {row.untested}." for row in untested]


def not_run(results: Results) -> list[str]:
    """What was not tried, by reason: where nobody named the attacks, those that were not chosen; else every kind of
    which none was named. Somebody's own code has no messages that others could look at.
    """
    if results.setup.own_code:
        return []
    if results.choice is None:
        tried = {attack.kind for attack in results.attacks}
        tried |= {"canary"} if any(row.demonstrated is not None or row.untested for row in results.epsilon) else set()
        idle = set() if results.setup.scheme in ANONYMOUS else {"linking"}  # else there is nothing to link
        idle |= set() if results.setup.data.get("columns") else {"attribute"}
        absent = [name for kind, name in words.KINDS.items() if kind not in tried | idle]
        if tried and absent:
            return [f"Not tried: {words.listed(absent)} (not named by --attack)."]
        return []
    reasons: dict[tuple[str, str], list[str]] = {}
    for attack in results.choice.not_run:
        what = "Not tried"
        if attack.attack in results.choice.unfinished:
            what = "Not finished"
        reasons.setdefault((what, attack.reason), []).append(attack.attack)
    return [f"{what}: {words.listed(names)} ({reason})." for (what, reason), names in reasons.items()]


def spent_before(setup: AuditedSetup) -> str:
    """What was spent on the same people before, as the config says; "" where it says nothing."""
    return words.spent_said(setup.spent, setup.spent_delta)


def unscored(results: Results) -> list[str]:
    """Every reason why something was not measured, once, with the names of all that it is about; none that a warning of
    the run has.
    """
    names: dict[str, list[str]] = {}
    for attack in results.attacks:
        for name, reason in attack.not_measured.items():
            if reason != ROWS_OF_A_TABLE and not any(reason in warning for warning in results.warnings):
                if name == COMPARABLE:
                    label = f"control of {words.KINDS[attack.kind]}"
                else:
                    label = metric(name).label
                names.setdefault(reason.rstrip("."), []).append(EVERYTHING if name == EVERYTHING else label)
    return [_unmeasured(list(dict.fromkeys(labels)), reason) for reason, labels in names.items()]


def _unmeasured(labels: list[str], reason: str) -> str:
    if EVERYTHING in labels:
        return f"{reason}."
    return f"Not measured: {words.listed(labels)}, as {reason}."


def _without_clip(results: Results) -> bool:
    """Whether nothing was clipped anywhere: not by clients (to a public norm or one of their own), not by the server,
    and not inside local training. Without auditor/ there are no rows of ε and no figures, so nobody knows; nor of
    somebody's own code.
    """
    setup = results.setup
    norms = (setup.clip_norm, setup.share_clipped, results.mean_of("server_clip_norm"))
    known = bool(results.epsilon) and not setup.own_code
    return known and not setup.clipped_in_training and all(value is None for value in norms)


def _weak_classifiers(results: Results) -> list[str]:
    """Classifiers of one accuracy share their number; an unknown accuracy is named like a low one."""
    families: dict[str, list[str]] = {}
    for classifier in results.classifiers:
        if classifier.accuracy is None:
            families.setdefault("unknown", []).append(classifier.family)
        elif classifier.accuracy < WEAK_CLASSIFIER:
            families.setdefault(words.percent(classifier.accuracy), []).append(classifier.family)
    if not families:
        return []
    weak = words.listed([f"{words.listed(names)} ({accuracy})" for accuracy, names in families.items()])
    return [
        f"Weak reference classifiers: {weak} of test images right, under {words.percent(WEAK_CLASSIFIER)}; feature"
        " metrics and the leakage probability say little."
    ]
