"""Made results, each with all that is said of it: what `snapshot.txt` holds.

python tests/say/cases.py        writes the snapshot again; read the difference before it is committed
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.report.decision import decision_on
from dpfl_audit.audit.report.facts import ReportedSetting, epsilon_table, notices
from dpfl_audit.audit.report.owner import Owner
from dpfl_audit.audit.report.points import POINTS, ClaimCard
from dpfl_audit.audit.results.format import OWN_CODE, AttackResult, AuditedSetup, Choice, Epsilon, NotRun
from dpfl_audit.audit.results.gates import outcome, parse_gate
from dpfl_audit.audit.say import accuracy, study, words
from dpfl_audit.audit.say.badge import badge
from dpfl_audit.audit.say.statement import statement
from dpfl_audit.audit.say.verdict import judged
from dpfl_audit.audit.setup.format import REPLAYED, Declaration
from entries import IF_GAUSSIAN, QUIET, image, member
from stated import bounded_point, of_setup
from stated import proven_row as row

SNAPSHOT = Path(__file__).with_name("snapshot.txt")
LEAKING = image(0.8, share=0.92, margin=4.0, margin_low=3.0)
LINKED = {
    "attack": "linking",
    "observer": "server",
    "metrics": {"linked": 0.4, "linked_chance": 0.1},
    "intervals": {"linked": [0.3, 0.6]},
    "p_values": {"linked": 1e-6},
}
GUESSED = {
    "attack": "attribute",
    "observer": "server",
    "metrics": {"attribute": 0.81, "attribute_advantage": 0.71},
    "controls": {"outsiders": {"attribute": 0.1}},
    "intervals": {"attribute_advantage": [0.6, 0.8]},
    "p_values": {"attribute_advantage": 1e-6},
    "settings": {"column": "ward"},
}
UNSCORED = {"attack": "inversion", "observer": "server", "metrics": {"psnr": None, "attack_loss": 0.1}}
FEW = {**member(), "least_p_values": {"auc": 0.12}}
CRAFTED = {"demonstrated_from": "crafted initial weights"}


def setting(attacks: list[Any], rows: list[Epsilon], label: str = "a", **setup: Any) -> ReportedSetting:
    """One audited setup. setup: further fields of `AuditedSetup`; `choice` and `warnings` are the results' own."""
    further = {name: setup.pop(name) for name in ("choice", "warnings", "quick") if name in setup}
    known: dict[str, Any] = {
        "digest": label,
        "name": label,
        "scheme": "ldp",
        "noise_std": 0.1,
        "clip_norm": 1.0,
        "share_clipped": 0.4,
        "test_accuracy": 0.71,
        "data": {"name": "photos", "classes": 10, "sizes": {"test": 300}},
    }
    results = judged(
        scoring=4,
        setup=AuditedSetup(**{**known, **setup}),
        epsilon=tuple(Epsilon.model_validate(of_setup(row.model_dump(), setup)) for row in rows),
        attacks=tuple(map(AttackResult.model_validate, attacks)),
        **further,
    )
    return ReportedSetting(Path(), results, label)


def settings() -> dict[str, ReportedSetting]:
    """By what they show."""
    proven, weak, none = row(proven=3.2, mu=0.75), row(proven=812.0, mu=20.0), row(proven="inf")
    gaussian = {"claimed": 26.0, "claimed_by": "owner", "demonstrated": 8.6, "ceiling": 8.6, **IF_GAUSSIAN}
    claim = {"claimed": 5.3, "claimed_by": "paper", "confidence": 0.95, "ceiling": 7.4}
    canary = {
        "attack": "canary/mechanism",
        "observer": "server",
        "metrics": {"epsilon": 4.9},
        "intervals": {"epsilon": [4.9, 5.5]},
        "settings": {"unit": "client", "adjacency": "zero_out"},
    }
    asked = row(observer="model", proven=8.0, mu=1.5, asked=True)
    server = {"proven": 22.0, "demonstrated": 4.9, "claimed": 22.0, "claimed_by": "accountant"}
    lucky = {**image(0.1, margin=-1.0, margin_low=-2.0), "p_values": {"reidentified": 0.03, "psnr_margin": 1.0}}
    luck = {**lucky, "p_values": {"reidentified": 0.03, "psnr_margin": 0.04}}
    alone = {**image(0.05, chance=0.2, share=1.0), "n": 1, "least_p_values": {"reidentified": 0.34}}
    alone["p_values"] = {"reidentified": 0.34}
    declared = Declaration(what="clip", said="1.0", status="declared", why="nobody saw it")
    violated = Declaration(what=REPLAYED, said="bounds", status="contradicted", why="Violated: sensitivity, step 1: it")
    contradicted = declared.model_copy(update={"status": "contradicted", "why": "an update is 2.5 long"})
    beyond = {**member(), "metrics": {"auc": 0.9, **bounded_point(0.01, 0.9, ceiling=0.02)}}
    made = {
        "images re-identified": setting([LEAKING], [proven]),
        "images re-identified, a control above chance": setting(
            [{**LEAKING, "controls": {"mean": {"reidentified": 0.2}}}], [weak]
        ),
        "one image back beyond doubt": setting([{**alone, "metrics": {**alone["metrics"], "exact": 1.0}}], [none]),
        "members recognised": setting([member(0.6, tpr_low=0.3183)], [none]),
        "messages linked": setting([LINKED], [weak]),
        "a column told": setting([GUESSED], [none]),
        "a column told of some": setting([{**GUESSED, "intervals": {"attribute_advantage": [0.4, 0.9]}}], [none]),
        "above chance": setting([image(0.1, share=0.2, margin=-1.0, margin_low=-2.0)], [weak]),
        "nothing found, proven": setting([QUIET], [proven]),
        "nothing found, weakly proven": setting([QUIET], [weak]),
        "nothing found, not priced": setting([QUIET], []),
        "one check above its control alone": setting([lucky], [proven]),
        "more checks above their controls than luck explains": setting([luck], [none]),
        "nothing tried": setting([], []),
        "nothing scored": setting([UNSCORED], [proven]),
        "too few to tell": setting([alone, FEW], [none]),
        "in doubt": setting([{**QUIET, "doubt": "loss taken as cross-entropy, not checked"}], [none]),
        "claim refuted": setting([QUIET], [row(proven=812.2, demonstrated=6.2, **claim)]),
        "claim refuted, and nothing else leaks": setting([QUIET], [row(proven=8.0, demonstrated=6.2, **claim)]),
        "claim refuted, towards who sees less": setting(
            [], [row(observer="downlink", demonstrated=6.0), row(claimed=5.0, claimed_by="owner", proven=7.0)]
        ),
        "claim refuted on a condition": setting([], [row(proven=800.0, **gaussian)]),
        "claim that cannot hold": setting(
            [QUIET], [row(proven=27.15, mu=4.33, accountant="closed form", claimed=8.0, claimed_by="owner")]
        ),
        "claim refuted from crafted weights": setting([], [row(proven=800.0, demonstrated=6.2, **claim, **CRAFTED)]),
        "proof contradicted": setting([], [row(proven=0.93, demonstrated=5.4, ceiling=6.8)]),
        "proof contradicted, images re-identified": setting([LEAKING], [row(proven=0.93, demonstrated=5.4)]),
        "proof contradicted on a condition": setting([], [row(proven=30.0, demonstrated=8.6, **IF_GAUSSIAN)]),
        "proof contradicted by an attack": setting([beyond], [proven]),
        "demonstrated within the proof": setting([QUIET], [row(proven=7.3, demonstrated=0.08, ceiling=5.77)]),
        "demonstrated without a proof": setting([], [row(proven="inf", demonstrated=4.996, ceiling=7.401)]),
        "demonstrated, a large leak": setting([], [row(proven="inf", demonstrated=15.0)]),
        "demonstrated, a large leak on a condition": setting([], [row(proven="inf", **IF_GAUSSIAN)]),
        "tested per client, not per record": setting(
            [], [row(proven=8.0, demonstrated=0.5, asked=True), row(unit="record", proven=20.0)]
        ),
        "others leak": setting([{**QUIET, "observer": "model"}, canary], [asked, row(**server, aside=True)]),
        "a claim about others is refuted": setting(
            [{**QUIET, "observer": "model"}, canary],
            [asked, row(**{**server, "claimed": 3.0, "claimed_by": "owner"}, aside=True)],
        ),
        "claimed elsewhere": setting(
            [QUIET], [row(proven=8.0, asked=True), row(unit="record", claimed=2.0, claimed_by="paper")]
        ),
        "published key": setting([QUIET], [proven], noise_key="published"),
        "declared": setting([QUIET], [proven], recorded="Flower", declared=(declared,)),
        "recorded otherwise than declared": setting([QUIET], [none], recorded="Flower", declared=(contradicted,)),
        "violated by a replay": setting([QUIET], [none], recorded="Flower", declared=(declared, violated)),
        "own code, violated by a replay": setting(
            [],
            [row(claimed=2.0, claimed_by="owner", demonstrated=0.2, ceiling=4.0)],
            scheme=OWN_CODE,
            declared=(violated,),
        ),
        "useless model": setting([QUIET], [proven], test_accuracy=0.12),
        "useless clip": setting([QUIET], [weak], share_clipped=0.0, norm_before_clip_median=0.5),
        "no clip, no noise": setting([LEAKING], [none], clip_norm=None, noise_std=0.0),
        "strong guarantee": setting([QUIET], [row(proven=0.9, mu=0.25)]),
        "spent before": setting([QUIET], [row(proven=0.9, mu=0.25, asked=True)], config={"audit": {"spent": 15.3}}),
        "own code, no claim": setting([], [row(demonstrated=0.2, ceiling=4.0, asked=True)], scheme=OWN_CODE),
        "own code, not refuted": setting(
            [], [row(claimed=2.0, claimed_by="owner", demonstrated=0.2, ceiling=4.0)], scheme=OWN_CODE
        ),
        "own code, not tested": setting(
            [], [row(claimed=5.0, claimed_by="owner", demonstrated=0.2, ceiling=4.0)], scheme=OWN_CODE
        ),
        "own code, refuted": setting(
            [], [row(claimed=0.1, claimed_by="owner", demonstrated=0.2, ceiling=4.0)], scheme=OWN_CODE
        ),
        "chosen attacks": setting(
            [QUIET],
            [row(proven=3.2, untested="no canary fits")],
            quick=True,
            choice=Choice(minutes=10, ran=(), not_run=(NotRun(attack="linking", reason="no address is anonymous"),)),
        ),
    }
    return made


def lines(made: ReportedSetting) -> Iterator[str]:
    """All that is said of one setting."""
    results, judgement = made.results, made.judgement
    decided = decision_on([made])
    yield f"badge: {badge(judgement)}"
    yield from (f"verdict: {sentence}" for sentence in made.sentences)
    yield f"share: {decided.share.question} {decided.share.sentence}. {decided.share.because}"
    if (leak := decided.leak) is not None:
        yield f"leak: {' | '.join(filter(None, (leak.said, leak.value, leak.beside)))}"
    change = decided.change
    yield f"change: {' | '.join(filter(None, (change.sentence, change.where, change.why, change.accuracy_now)))}"
    yield from filter(None, (change.note, decided.untrained))
    if (losses := decided.losses) is not None:
        yield from (f"losses: {text}" for text in (*losses.refuted, losses.elsewhere, losses.on_condition) if text)
    yield from (f"further: {text}" for text in change.further)
    yield from (f"notice: {text}" for text in notices(results))
    yield from (f"reason: {where}: {' '.join(texts)}" for where, texts in epsilon_table(judgement)["reasons"])
    yield from (f"card: {text}" for text in (*ClaimCard(results, Owner()).places,))


def several() -> Iterator[str]:
    """Settings side by side."""
    quiet = setting([QUIET], [row(proven=3.2, mu=0.75)], "much", noise_std=1.0)
    little = setting([QUIET], [row(proven=30.0, mu=4.0)], "little", noise_std=0.2)
    none = setting([LEAKING], [row(proven="inf")], "none", noise_std=0.0)
    for group in ([none, little, quiet], [none, little], [none], [little, little]):
        decided = decision_on(group)
        yield f"settings: {', '.join(each.label for each in group)}"
        yield f"share: {decided.share.question} {decided.share.sentence}. {decided.share.because}"
        yield f"change: {decided.change.sentence} {decided.change.why}".rstrip()


def gates() -> Iterator[str]:
    made = settings()
    for name, gate in (
        ("images re-identified", "reidentified > 0.2"),
        ("images re-identified", "level >= high"),
        ("published key", "proven > 10"),
        ("claim refuted from crafted weights", "demonstrated > 6"),
        ("nothing tried", "level >= high"),
        ("nothing tried", "proof > weak"),
        ("own code, not tested", "demonstrated > 5"),
        ("in doubt", "reidentified > 0.2"),
    ):
        try:
            yield outcome(parse_gate(gate), made[name].results).sentence
        except BadInput as error:
            yield str(error)


def of_a_study() -> Iterator[str]:
    """Each sentence of `audit choose` once."""
    terms = "per client, zero_out, δ = 10⁻⁵"
    yield words.takes_long(7.8, "fewer --minutes make it less") + words.takes_long(4.0, "nothing")
    yield study.question_of_study("server", "client", "zero_out", 1e-5)
    yield study.setting_taken("sigma = 0.1", 634.0)
    yield study.setting_taken("sigma = 0.1", 8.0, learned=False)
    yield study.take_setting(study.setting_taken("sigma = 2", 8.0), 3, ["accuracy at least 60 %: 63 %"])
    yield study.too_weak("The model only guesses.") + " | " + study.too_weak("It guesses.", (0.9, 8.0))
    yield study.not_told_apart("AUC", 12, 0.2, 7.9) + " | " + study.above_with_search(27.9, 8.0, terms, 15.3)
    yield accuracy.only_ranks_said(0.84, (0.82, 0.85), 0.837, (0.61, 0.68)) + " | " + study.attacks_shortened(1.0, 5)
    yield study.none_keeps("accuracy at least 90 %")
    yield study.nearest_setting("accuracy at least 90 %", "sigma = 1", ["accuracy: 63 %"], False)
    yield study.goals_unsure(["accuracy", "leakage"]).lstrip()
    yield study.selected_misses("accuracy", "sigma = 1", ["63 %"])
    yield study.protected_by(["ε at most 8"], ["leakage at most 20 %"], 12.0, False)
    yield study.settings_counted(12, 12, 0) + " | " + study.settings_counted(12, 9, 2)
    yield study.auxiliary_alone(14)
    yield study.search_seen("whoever is the server", 14, 5, 2, True, 31.0, terms) + study.OF_NUMBERS
    yield study.why_no_selection("--search random does not").lstrip()
    yield f"{study.SCORES}{study.ON_AUXILIARY}."
    yield study.selection_seen(3, study.SOME_BARE, 31.0, terms, 20)
    yield from study.plot_words("accuracy", "leakage", True)


def document() -> str:
    blocks = {name: list(lines(made)) for name, made in settings().items()}
    blocks |= {"several settings": list(several()), "gates": list(gates()), "study": list(of_a_study())}
    rows = [row(proven=7.06, proven_without_sampling=9.0, releases=9, multiplier=5.0), row(unit="record")]
    open_noise = Epsilon(**of_setup(row(proven=2.0).model_dump(), {"noise_key": "published", "recorded": "Flower"}))
    blocks["statement"] = [*statement(rows), *statement([open_noise]), *statement([])]
    card = ClaimCard(settings()["declared"].results, Owner(utility="enough"))
    blocks["card"] = [f"{point.title}: {text}" for point in POINTS for text in point.answered(card)]
    text = "\n\n".join("\n".join([f"== {name}", *said]) for name, said in blocks.items())
    return text.replace("\N{NO-BREAK SPACE}", " ").replace("\N{NARROW NO-BREAK SPACE}", " ") + "\n"


if __name__ == "__main__":
    SNAPSHOT.write_text(document(), encoding="utf-8")
