"""The first screen's answers are those that the results allow: no comfort from failed attacks, no proof ignored."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.report.decision import Decision, decision_on, share
from dpfl_audit.audit.report.decision.change import _parameter
from dpfl_audit.audit.report.decision.sharing import Sharing, at_most_right, least_wrong
from dpfl_audit.audit.report.facts import read_settings
from dpfl_audit.audit.report.page import _most_telling
from dpfl_audit.audit.report.pictures import read_pictures
from dpfl_audit.audit.report.render import render
from dpfl_audit.audit.results.format import AuditedSetup, Results
from dpfl_audit.audit.say.accuracy import untrained
from dpfl_audit.audit.say.change import (
    CLAIMED,
    FEWER_ROUNDS,
    FIND_FAULT,
    NOISE_OF_CLIENTS,
    PUBLIC_BOUNDS,
    SECRET_KEY,
    STRONG,
    first_steps_note,
    half_of,
    more_noise,
    smaller_clip,
)
from dpfl_audit.audit.say.sharing import (
    NO_REASON,
    SEEN,
    UPDATES,
    Sharable,
    most_right,
    others,
    proven_answer,
    rests_on,
    right_of,
    right_of_both,
    right_of_worst,
    several_leak,
    some_guess,
    too_little,
    unproven,
)
from dpfl_audit.audit.say.words import observer
from dpfl_audit.defenses.local import LocalTraining
from dpfl_audit.defenses.presets import PRESETS
from dpfl_audit.defenses.presets.base import Population
from entries import QUIET, image
from stated import bounded_point

Maker = Callable[..., Path]
STOP = ("no", "leak", UPDATES.stop)
PER_CLIENT = "per client towards the server (zero_out, δ = 10⁻⁵)"
CLOSED = {"accountant": "closed form", "unit": "client"}


def answer(found: Decision) -> tuple[str, str, str]:
    return found.share.answer, found.share.reason, found.share.sentence


@pytest.fixture
def decide(make_results: Maker, tmp_path: Path) -> Callable[..., Decision]:
    """The decision on settings given as keywords of `make_results`, told apart by their digests."""

    def of(*settings: dict[str, Any]) -> Decision:
        folders = []
        for i, changes in enumerate(settings):
            own = {"digest": f"sha256:{i}", "test_accuracy": 0.41, **changes.pop("setup", {})}
            folders.append(make_results(tmp_path / str(i), changes.pop("name", f"setting {i}"), setup=own, **changes))
        return decision_on(read_settings(folders))

    return of


def multiplier_one(row: Any, **changes: Any) -> list[dict[str, Any]]:
    """Fifteen releases of multiplier 1 and δ = 1e-5: ε = 23.35 per client."""
    return [row(**CLOSED, proven=gaussian_epsilon(1 / math.sqrt(15), 1e-5), **changes)]


# --- may these updates be shared? ---


def test_a_severe_leak_is_a_no(decide: Any) -> None:
    found = decide({"quality": 0.97, "n": 8})
    assert answer(found) == STOP and found.worst.sentences[0] == found.share.because


@pytest.mark.parametrize("proven", ["inf", None, 159.0])
def test_attacks_that_failed_are_no_yes(proven: Any, decide: Any, row: Any) -> None:
    found = decide({"quality": 0.0, "n": 8, "noise_std": 0.3, "epsilon": [row(proven=proven)]})
    assert (found.share.answer, found.share.reason) == ("unproven", "unproven")
    bounding = found.worst.judgement.rows.bounding
    assert ("useful" in too_little(bounding)) is (proven == 159.0)  # a bound of 159 is one
    assert too_little(bounding) in found.share.sentence and unproven(bounding[0]) in found.share.because


@pytest.mark.parametrize("attacked", [True, False])
def test_a_proof_holds_whether_or_not_anybody_attacked(attacked: bool, decide: Any, row: Any) -> None:
    changes = {"noise_std": 0.3, "epsilon": [row(proven=1.0)]}
    found = decide({**changes, "quality": 0.0, "n": 8} if attacked else {**changes, "n": 2, "truth": False})
    # (e + 1e-5)/(1 + e) = .73106 at ε = 1, rounded up.
    sentence = proven_answer("73.2\N{NO-BREAK SPACE}%", limited=False)
    assert answer(found) == ("proven", "proven", sentence) and not found.share.limited
    assert right_of(found.worst.judgement.rows.bounding[0], ["server"]) in found.share.because


def test_a_proof_that_lets_an_attacker_be_nearly_sure_does_not_read_like_a_yes(decide: Any, row: Any) -> None:
    share = decide({"quality": 0.0, "n": 8, "noise_std": 0.3, "epsilon": [row(proven=7.3)]}).share
    assert share.limited and share.sentence == proven_answer("99.94\N{NO-BREAK SPACE}%", limited=True)
    assert share.because.endswith(" 73.2\N{NO-BREAK SPACE}%.")


@pytest.mark.parametrize(
    ("observer", "what"),
    [(name, SEEN.get(name, UPDATES)) for name in ("server", "uplink(2)", "model", "aggregate", "downlink")],
)
def test_the_question_is_about_what_was_looked_at(observer: str, what: Sharable, decide: Any, row: Any) -> None:
    rows = [row(observer=observer, proven=2.0, demonstrated=6.0, confidence=0.95)]
    share = decide({"attacks": [], "noise_std": 0.3, "epsilon": rows}).share
    assert (share.question, share.sentence) == (what.question, what.stop)
    both = decide({"attacks": [], "noise_std": 0.3, "epsilon": [*rows, row(observer="server", unit="client")]}).share
    assert both.question == UPDATES.question  # the server's row counts as well


def test_nothing_measured_is_said(decide: Any, row: Any) -> None:
    found = decide({"n": 2, "truth": False, "epsilon": [row()]})
    assert answer(found)[:2] == ("unproven", "unproven") and not found.worst.judgement.measured


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 7.3, 10.0])
def test_the_bound_on_right_answers_is_kairouz_and_is_never_said_smaller(epsilon: float) -> None:
    """At even odds (ε, δ) allows (e^ε + δ)/(1 + e^ε) right answers (arXiv:1311.0776); 100 % would be no bound."""
    said = at_most_right(least_wrong(epsilon, 1e-5)).replace("\N{NO-BREAK SPACE}%", "")
    exact = 100 * (math.exp(epsilon) + 1e-5) / (1 + math.exp(epsilon))
    assert exact <= float(said) < min(100, exact + 0.1)


def test_one_proven_setting_is_the_one_to_share(decide: Any, row: Any) -> None:
    found = decide(
        {"name": "loud", "quality": 0.97, "n": 8},
        {"name": "quiet", "quality": 0.0, "n": 8, "noise_std": 0.2, "epsilon": [row(proven=159.0)]},
        {"name": "proven", "quality": 0.0, "n": 8, "noise_std": 0.3, "epsilon": [row(proven=2.0)]},
    )
    assert answer(found) == ("proven", "proven", UPDATES.only_as(["proven"]))
    because = [most_right(at_most_right(least_wrong(2.0, 1e-5)), ["proven"]), *others("“loud”", "“quiet”")]
    assert found.share.because.startswith(" ".join(because)) and found.worst.label == "loud"
    assert (found.change.basis, found.change.noise_std, found.change.proven) == ("measured", 0.3, 2.0)
    assert "“proven”" in found.change.sentence


RECORDED = {"recorded": "Flower", "declared": [{"what": "clip", "said": "1.0", "status": "declared", "why": "unseen"}]}


@pytest.mark.parametrize("beside", ["nobody", "unproven", "proven"])
def test_what_any_setting_declares_is_declared_of_all(beside: str, decide: Any, row: Any) -> None:
    """With a second setting, and with the worse of two, a page dropped "as declared" and what it rests on."""
    rests = {"name": "R7", "quality": 0.0, "n": 8, "epsilon": [row(proven=1.0)], "setup": RECORDED}
    other = {"unproven": "inf", "proven": 2.0}.get(beside)
    second = [] if other is None else [{"name": "SR", "quality": 0.0, "n": 8, "epsilon": [row(proven=other)]}]
    share = decide(rests, *second).share
    assert share.answer == "proven" and share.limited
    assert share.sentence.startswith("As declared, not checked: ")
    assert rests_on(["clip"], ["R7"] if beside == "proven" else []) in share.because


def test_the_setup_part_of_a_file_decides_no_proof(make_results: Maker, row: Any, tmp_path: Path) -> None:
    """A published key that was edited to "secret", and declarations that were taken out, made a proof of each."""
    setups = {"published": {"noise_key": "published"}, "declared": RECORDED}
    answers = {}
    for name, setup in setups.items():
        folder = make_results(tmp_path / name, quality=0.0, n=8, epsilon=[row(proven=1.0)], setup=setup)
        content = json.loads((folder / "results.json").read_text())
        content["setup"] |= {"noise_key": "secret", "declared": [], "recorded": ""}
        (folder / "results.json").write_text(json.dumps(content))
        (setting,) = read_settings([folder])
        answers[name] = share([setting])
    assert answers["published"].reason == "published key"
    assert answers["declared"].sentence.startswith("As declared, not checked: ")


def test_proofs_of_a_secret_key_are_none_of_a_published_one(make_results: Maker, row: Any, tmp_path: Path) -> None:
    """As results had them that were written before proofs said so."""
    folder = make_results(tmp_path, quality=0.0, n=8, epsilon=[row(proven=1.0)])
    content = json.loads((folder / "results.json").read_text())
    content["setup"]["noise_key"] = "published"
    (folder / "results.json").write_text(json.dumps(content))
    with pytest.raises(BadInput, match="published key"):
        Results.read(folder)


def test_noise_is_rounded_up():
    """A noise rounded down would not prove what is said of it."""
    setup = AuditedSetup(digest="", scheme="ldp", noise_std=0.5)
    assert "1.42 times" in more_noise(setup, 1.411, "", "", False)


def test_trainings_of_the_same_people_add_up(decide: Any, row: Any) -> None:
    """Multiplier 1 four times: Φ(½) = 69.2 % each, and Φ(1) = 84.14 % of all together, at ε = 9.97."""

    def because(*data: str) -> str:
        one = row(**CLOSED, proven=gaussian_epsilon(1.0, 1e-5), mu=1.0)
        quiet = [{"quality": 0.0, "n": 8, "epsilon": [one], "setup": {"data": {"name": name}}} for name in data]
        return decide(*quiet).share.because.replace("\N{NO-BREAK SPACE}", " ")

    assert "84.2 %" in because(*["people"] * 4) and "≤ 10," in because(*["people"] * 4)
    assert "sees all" not in because("some", "others")


def test_a_setting_without_a_leak_does_not_redeem_the_others(decide: Any, row: Any) -> None:
    found = decide(
        {"name": "loud", "quality": 0.97, "n": 8},
        {"name": "quiet", "quality": 0.0, "n": 8, "noise_std": 0.3, "epsilon": [row(proven=159.0)]},
    )
    assert answer(found) == STOP
    assert found.share.because == several_leak(f"“loud”: {found.worst.sentences[0]}", 1, 2, "“quiet”")


# --- the strongest leak ---


def test_the_gravest_leak_of_all_settings_is_shown(decide: Any, membership: Any, canary: Any, row: Any) -> None:
    images = decide(
        {"name": "a", "quality": 0.0, "n": 8, "extra_attacks": [membership()]}, {"name": "b", "quality": 0.97, "n": 8}
    ).leak
    assert images is not None and (images.kind, images.setting.label, images.found) == ("images", "b", True)


def test_a_membership_leak_is_shown_by_its_roc(decide: Any, membership: Any) -> None:
    leak = decide({"quality": 0.0, "n": 8, "extra_attacks": [membership()]}).leak
    assert leak is not None and (leak.kind, leak.found) == ("roc", True)
    assert re.search(r"^6\.1.%.*AUC 0[.0-9]+ \(0[.0-9]+ to [01][.0-9]*\) \(guessing 0.5\)", leak.said)


def test_a_refuted_claim_is_a_number(decide: Any, row: Any) -> None:
    rows = [row(claimed=5.3, claimed_by="paper", proven=812.0, demonstrated=6.2, confidence=0.95)]
    leak = decide({"quality": 0.0, "n": 8, "noise_std": 0.01, "epsilon": rows}).leak
    assert leak is not None and (leak.kind, leak.value.split()[-1], leak.found) == ("number", "6.2", True)
    assert [word for word in leak.beside.split() if word[0].isdigit()] == ["5.3", "812"]


def test_the_best_failure_is_called_one(decide: Any) -> None:
    leak = decide({"quality": 0.0, "n": 8, "noise_std": 0.3}).leak
    assert leak is not None and not leak.found and leak.attack is not None and leak.attack.value("psnr_margin") <= 0


def test_nothing_tried_shows_nothing(decide: Any) -> None:
    assert decide({"n": 2, "truth": False}).leak is None


def test_the_picture_is_of_something_to_see(make_results: Maker, tmp_path: Path) -> None:
    """A flat patch is rebuilt best and shows least: the pair is the best of the half with the most contrast."""
    (setting,) = read_settings([make_results(tmp_path, n=9)])
    pictures = read_pictures(setting.folder, setting.results.attacks[0])
    assert pictures.originals is not None
    shown = _most_telling(pictures)
    contrast = pictures.originals.std(axis=(1, 2, 3))
    assert shown is not None and contrast[shown["number"] - 1] >= sorted(contrast)[len(contrast) // 2]


# --- ε ---


def test_epsilon_is_of_the_claims_own_place_in_every_setting(decide: Any, row: Any) -> None:
    """The ε of one unit says nothing of the other's, so they never stand in one range."""

    def rows(proven: float, claimed: float) -> list[dict[str, Any]]:
        return [row(unit="client", proven=proven, claimed=claimed, claimed_by="owner"), row(proven=1e6)]

    found = decide(
        {"name": "a", "n": 2, "noise_std": 0.01, "epsilon": rows(800.0, 5.0)},
        {"name": "b", "n": 2, "noise_std": 0.1, "epsilon": rows(80.0, 4.0)},
    ).losses
    assert found is not None and (found.unit, found.observer, found.delta) == ("client", "the server", 1e-5)
    assert found.proven is not None and (found.proven.low, found.proven.high, found.proven.least) == (80.0, 800.0, "b")
    assert found.claimed is not None and (found.claimed.low, found.claimed.high) == (4.0, 5.0)
    assert found.claimed_by == "owner" and found.demonstrated is None


def test_what_was_spent_before_is_in_the_first_answer(decide: Any, row: Any) -> None:
    """ε = 0.5 stood in green above the 15.3 of a search; 1/(1 + e^15.8) = 1.4e-7 of both is wrong at least, by hand."""
    quiet = {"quality": 0.0, "n": 8, "epsilon": [row(proven=0.5, delta=1e-5, asked=True)]}

    def found(spent: Any) -> Sharing:
        return decide({**quiet, "setup": {"config": {"audit": {"spent": spent}}}}).share

    alone, both, bare = found(None), found(15.3), found("unlimited")
    assert alone.answer == both.answer == "proven" and both.limited and not alone.limited
    right = at_most_right(least_wrong(0.5, 1e-5))
    assert (alone.sentence, both.sentence) == (proven_answer(right, False), proven_answer(right, False, alone=True))
    assert right_of_both(at_most_right(least_wrong(15.8, 2e-5)), 15.8, 2e-5) in both.because
    assert right_of_both("", math.inf, 0.0) in bare.because
    quiet["epsilon"] = [row(proven=0.5)]
    assert "15.8" not in found(15.3).because  # of other terms than what was spent: no sum


def test_epsilon_is_of_what_the_config_asks_about(decide: Any, row: Any) -> None:
    """Asked about who gets the model, a page began with the ε of a claim towards the server."""
    rows = [row(claimed=5.0, claimed_by="owner", proven=22.0), row(observer="model", proven=8.0, asked=True)]
    losses = decide({"n": 2, "noise_std": 0.1, "epsilon": rows}).losses
    assert losses is not None and losses.observer == observer("model") and losses.proven.high == 8.0


def test_the_first_screen_is_about_whom_the_config_asks_about(make_results: Maker, row: Any, tmp_path: Path) -> None:
    """A canary of the claim's row leaked towards the server: "Do not share", and noise for the server's proof."""
    canary = row(unit="client", proven=22.0, demonstrated=4.9, claimed=22.0, claimed_by="accountant", aside=True)
    asked = row(observer="model", unit="client", adjacency="zero_out", proven=8.0, asked=True, accountant="closed form")
    content = make_results(tmp_path / "model", noise_std=0.1, epsilon=[canary, asked])
    found = json.loads((content / "results.json").read_text())
    found["attacks"] = []
    (content / "results.json").write_text(json.dumps(found))
    decision = decision_on(read_settings([content]))
    assert decision.share.question == SEEN["model"].question and decision.share.answer == "proven"
    assert decision.losses is not None and decision.losses.proven is not None and decision.losses.proven.high == 8.0
    assert decision.change.basis == "measured" and observer("model") in decision.change.where
    assert decision.leak is None


def test_a_refuted_claim_about_somebody_else_is_no_leak_towards_whom_is_asked_about(
    make_results: Maker, row: Any, tmp_path: Path
) -> None:
    """ "Do not publish this model" rested on a canary of what the server sees (a newcomer's b.toml)."""
    claim = row(unit="client", proven=520.0, demonstrated=5.6, claimed=3.0, claimed_by="owner", aside=True)
    asked = row(observer="model", proven=364.0, asked=True)
    folder = make_results(tmp_path / "model", noise_std=0.1, epsilon=[claim, asked])
    found = json.loads((folder / "results.json").read_text())
    found["attacks"] = []
    (folder / "results.json").write_text(json.dumps(found))
    decision = decision_on(read_settings([folder]))
    assert (decision.share.answer, decision.share.reason) == ("unproven", "unproven")
    assert decision.losses is not None and decision.losses.proven is not None and decision.losses.proven.high == 364.0
    assert decision.losses.refuted and decision.leak is None


def test_advice_for_a_formula_that_promises_too_much_leaves_it_out(decide: Any, row: Any) -> None:
    """More noise makes the formula claim less still, which is refuted again (a newcomer who followed the advice)."""
    for claim, said in ((("paper", 4.0), True), (("owner", 4.0), False), (("paper", 30.0), False)):
        epsilon = multiplier_one(row, claimed_by=claim[0], claimed=claim[1])
        setting = {"quality": 0.97, "n": 8, "noise_std": 1.0, "epsilon": epsilon, "setup": {"digest": str(claim)}}
        assert ('"none"' in decide(setting).change.sentence) is said


def test_a_false_claim_beside_a_useful_proof_is_no_reason_not_to_share(decide: Any, row: Any) -> None:
    """ "Do not share" came of a formula's .24 that a test of .83 refutes, where 10 is proven (a newcomer's a3.toml)."""
    claim = {"claimed": 0.24, "claimed_by": "paper", "demonstrated": 0.83, "confidence": 0.95, "ceiling": 5.0}
    held = row(unit="client", proven=4.38, asked=True, accountant="closed form", **claim)
    found = decide({"quality": 0.0, "n": 8, "noise_std": 0.1, "epsilon": [held, row(proven=10.0)]})
    assert found.share.answer == "proven" and found.worst.judgement.only_claim
    right = at_most_right(least_wrong(4.38, 1e-5, held["mu"]))
    assert found.share.sentence.endswith(proven_answer(right, limited=True))
    asked, record = found.worst.judgement.epsilon
    assert right_of_worst(asked, record, at_most_right(least_wrong(10.0, 1e-5))) in found.share.because
    assert found.losses is not None and found.losses.refuted and found.change.basis == "measured"
    leaked = decide(
        {"quality": 0.0, "n": 8, "noise_std": 0.1, "epsilon": [{**held, "proven": 12.0}], "setup": {"digest": "other"}}
    )
    assert leaked.share.answer == "no"  # .83 of which no useful proof allows anything


@pytest.mark.parametrize("multiplier", [0.5, 1.0, 4.0])
def test_of_gaussian_noise_no_test_is_right_more_often_than_is_said(multiplier: float) -> None:
    """The best test of N(0, σ) against N(1, σ) is at one half; what is said is its share, less than of any (ε, δ)."""
    rng = np.random.default_rng(0)
    right = np.mean(np.concatenate([rng.normal(0, multiplier, 40_000) < 0.5, rng.normal(1, multiplier, 40_000) > 0.5]))
    epsilon = gaussian_epsilon(multiplier, 1e-5)
    said, of_any = (
        float(at_most_right(least_wrong(epsilon, 1e-5, mu)).replace("\N{NO-BREAK SPACE}%", ""))
        for mu in (1 / multiplier, None)
    )
    assert said / 100 == pytest.approx(float(right), abs=0.006) and said < of_any


def test_the_headline_is_of_the_unit_that_is_asked_about(decide: Any, row: Any) -> None:
    """Asked about clients, 2.35 stood on the ε card and "right up to 99.5 %", of a record's 5.18, above it."""
    rows = [row(unit="client", proven=2.35, asked=True), row(proven=5.18)]
    found = decide({"quality": 0.0, "n": 8, "noise_std": 0.1, "epsilon": rows})
    client, record = found.worst.judgement.epsilon
    assert found.share.sentence == proven_answer(at_most_right(least_wrong(2.35, 1e-5)), limited=True)
    assert right_of(client, ["server"]) in found.share.because
    assert right_of_worst(client, record, at_most_right(least_wrong(5.18, 1e-5))) in found.share.because


@pytest.mark.parametrize(
    ("asked", "record", "word"), [(8.0, 19.0, "record"), (11.0, 19.0, "useful"), (8.0, None, "nothing")]
)
def test_a_proof_of_clients_beside_none_of_records_is_not_nothing(
    asked: float, record: float | None, word: str, decide: Any, row: Any
) -> None:
    rows = [row(unit="client", proven=asked, asked=True), row(proven=record)]
    found = decide({"quality": 0.0, "n": 8, "noise_std": 0.1, "epsilon": rows})
    lacking = too_little(found.worst.judgement.rows.bounding)
    assert word in lacking and found.share.sentence.endswith(lacking)


def test_the_noise_is_also_named_as_the_config_has_it(decide: Any, row: Any) -> None:
    """A setting that is called "σ = 1" has noise_std .01; which of the two to multiply was left to the reader."""
    for parameters, said in (({"sigma": 1.0, "noise_std": None}, True), ({"sigma": None, "noise_std": 0.01}, False)):
        setup = {"scheme": "ldp", "parameters": parameters}
        epsilon = multiplier_one(row)
        change = decide({"quality": 0.97, "n": 8, "noise_std": 0.01, "epsilon": epsilon, "setup": setup}).change
        assert change.noise_std is not None
        found = re.search(r", sigma = ([0-9.]+)$", change.sentence)
        assert (found is not None) is said
        assert found is None or float(found[1]) == pytest.approx(change.noise_std / 0.01, rel=0.02)


OWN_NOISE = {
    name: next((key for key in ("sigma", "noise_multiplier") if key in preset.parameters.model_fields), "")
    for name, preset in PRESETS.items()
}


@pytest.mark.parametrize("name", [name for name, key in OWN_NOISE.items() if key])
def test_that_parameter_is_in_proportion_to_the_noise(name: str) -> None:
    preset, key = PRESETS[name], OWN_NOISE[name]
    given = {k: v for k, v in preset.example.items() if k != key}
    if "schedule" in preset.parameters.model_fields:
        assert _parameter(name, {key: 2.0, "schedule": "linear"}, 1.5) == ""
        given["schedule"] = "constant"
    assert _parameter(name, {key: 2.0}, 1.5) == f"{key} = 3"

    def noise(value: float) -> list[float]:
        parameters = preset.parameters(**{**given, key: value})
        scheme = preset.scheme(parameters, LocalTraining(batch_size=60), Population((600,) * 20))
        return [float(found) for found in re.findall(r"(?:noise_std|multiplier|sigma)=([0-9.e-]+)", repr(scheme))]

    once, twice = noise(2.0), noise(4.0)
    assert once and twice == pytest.approx([2 * value for value in once])


def test_a_claim_about_somebody_else_is_said_beside_what_is_asked(decide: Any, row: Any) -> None:
    """Claimed is 8 towards the server, where nothing is proven; asked about is the downlink: "nothing is claimed" (a
    review's asd8.toml).
    """
    claim = row(unit="client", proven="inf", claimed=8.0, claimed_by="owner", aside=True)
    asked = row(observer="downlink", unit="client", proven=4.0, asked=True)
    losses = decide({"quality": 0.0, "n": 8, "epsilon": [claim, asked]}).losses
    assert losses is not None and losses.claimed is None
    assert re.match(r"8 .* per client towards the server \(zero_out.*; nothing is proven", losses.elsewhere)
    own = decide({"quality": 0.0, "n": 8, "epsilon": [claim, {**asked, "claimed": 5.0, "claimed_by": "owner"}]}).losses
    assert own is not None and own.elsewhere == ""


def test_what_is_demonstrated_keeps_its_setting_and_its_confidence(decide: Any, row: Any) -> None:
    found = decide(
        {"name": "a", "n": 2, "noise_std": 0.01, "epsilon": [row(proven=12.0)]},
        {"name": "b", "n": 2, "noise_std": 0.1, "epsilon": [row(proven=12.0, demonstrated=2.1, confidence=0.95)]},
    ).losses
    assert found is not None and (found.demonstrated, found.demonstrated_in, found.confidence) == (2.1, "b", 0.95)


def test_no_row_is_no_loss(decide: Any) -> None:
    assert decide({"n": 2, "epsilon": []}).losses is None


# --- which noise? ---


def test_the_noise_that_is_named_proves_what_is_said(decide: Any, row: Any) -> None:
    """The theorem: at that noise the accountant's own curve for fifteen releases is at ε = 10."""
    change = decide({"quality": 0.97, "n": 8, "noise_std": 1.0, "epsilon": multiplier_one(row)}).change
    assert (change.basis, change.proven, change.where) == ("computed", 10.0, PER_CLIENT)
    assert gaussian_epsilon(change.noise_std / math.sqrt(15), 1e-5) == pytest.approx(10.0, rel=1e-6)
    assert change.accuracy is None and "noise_std 1" in change.accuracy_now


def test_the_noise_cures_every_row_that_the_verdict_counts(decide: Any, row: Any) -> None:
    """Per record 12 is proven, per client, which the config asks about, 23.35: noise for records alone leaves 20."""
    record = row(accountant="closed form", proven=gaussian_epsilon(0.5, 1e-5))
    client = multiplier_one(row, asked=True)[0]
    change = decide({"quality": 0.0, "n": 8, "noise_std": 1.0, "epsilon": [record, client]}).change
    assert (change.proven, change.where) == (10.0, PER_CLIENT)
    assert gaussian_epsilon(change.noise_std / math.sqrt(15), 1e-5) == pytest.approx(10.0, rel=1e-6)
    met = {**record, "claimed": 30.0, "claimed_by": "owner", "proven": 9.0}
    change = decide({"quality": 0.0, "n": 8, "noise_std": 1.0, "epsilon": [met, client]}).change
    assert (change.proven, change.where) == (10.0, PER_CLIENT)
    unknown = {**client, "proven": "inf", "accountant": "none"}
    change = decide({"quality": 0.0, "n": 8, "noise_std": 1.0, "epsilon": [met, unknown]}).change
    assert (
        change.basis == "unknown" and change.noise_std is None
    )  # no noise that a formula gives cures the client's row


def test_a_claim_below_ten_is_what_the_noise_should_make_true(decide: Any, row: Any) -> None:
    epsilon = multiplier_one(row, claimed=4.0, claimed_by="owner")
    change = decide({"quality": 0.97, "n": 8, "noise_std": 1.0, "epsilon": epsilon}).change
    assert change.proven == 4.0 and gaussian_epsilon(change.noise_std / math.sqrt(15), 1e-5) == pytest.approx(4.0)
    assert change.why == CLAIMED


@pytest.mark.parametrize(
    ("multiplier", "target", "why"),
    [
        (1.0, 10.0, ""),  # that more promises little is said on the same screen
        (4.0, 1.0, STRONG),
        (20.0, None, half_of(gaussian_epsilon(20.0 / math.sqrt(15), 1e-5))),
    ],
)
def test_why_this_epsilon_is_said(decide: Any, row: Any, multiplier: float, target: float | None, why: str) -> None:
    proven = gaussian_epsilon(multiplier / math.sqrt(15), 1e-5)
    change = decide(
        {"quality": 0.97, "n": 8, "noise_std": multiplier, "epsilon": [row(**CLOSED, proven=proven)]}
    ).change
    assert (change.proven, change.why) == (proven / 2 if target is None else target, why)


def test_the_command_for_more_noise_asks_for_less_than_is_proven(decide: Any, row: Any) -> None:
    """Beside a proven ε of 4.77 it asked for 10, which takes less noise."""
    change = decide({"quality": 0.97, "n": 8, "noise_std": 0.3, "epsilon": [row(proven=4.77)]}).change
    assert change.basis == "unknown" and change.note == first_steps_note(noisy=True, unit="client", target=1.0)


def test_no_noise_is_recommended_because_attacks_failed(decide: Any, row: Any) -> None:
    """The quiet setting has noise_std .3 and a proof of 23: the answer is the noise of a proof, not .3."""
    quiet = {"name": "quiet", "quality": 0.0, "n": 8, "noise_std": 0.3, "epsilon": multiplier_one(row)}
    change = decide({"name": "loud", "quality": 0.97, "n": 8}, quiet).change
    assert change.basis == "computed" and re.search(r"Take 1\.94 .*“quiet” \(noise_std 0\.3\)$", change.sentence)
    assert gaussian_epsilon(change.noise_std / 0.3 / math.sqrt(15), 1e-5) == pytest.approx(10.0, rel=1e-6)


def test_the_noise_of_another_training_says_nothing(decide: Any, row: Any) -> None:
    other = {"name": "other", "quality": 0.0, "n": 8, "noise_std": 0.3, "epsilon": multiplier_one(row)}
    other["setup"] = {"model": {"name": "mlp", "parameters": 7}}
    change = decide({"name": "loud", "quality": 0.97, "n": 8}, other).change
    assert change.basis == "unknown" and change.noise_std is None


def test_without_clip_or_noise_the_steps_are_named_and_no_number(decide: Any) -> None:
    change = decide({"quality": 0.97, "n": 8, "clip_norm": None}).change
    assert change.basis == "unknown" and change.noise_std is None and change.accuracy is None
    assert change.sentence.count(" and ") == 1 and change.sentence.startswith("Clip ")
    assert change.note == first_steps_note(noisy=False, unit="record", target=8.0)


def test_what_helps_beside_noise_is_said_with_it(decide: Any, row: Any, make_results: Maker, tmp_path: Path) -> None:
    def further(proven: float | str = 159.0, **changes: Any) -> tuple[str, ...]:
        epsilon = [row(**CLOSED, proven=proven)]
        return decide({"quality": 0.0, "n": 8, "noise_std": 0.1, "epsilon": epsilon, **changes}).change.further

    assert further() == further("inf", clip_norm=None) == ()
    never_clipped = {"share_clipped": 0.0, "norm_before_clip_median": 0.25}
    assert further(setup=never_clipped) == (smaller_clip(1.0, 0.25),)
    assert "25\N{NO-BREAK SPACE}%" in smaller_clip(1.0, 0.25)
    assert further(setup={**never_clipped, "norm_before_clip_median": None}) == ()
    assert further("inf") == (PUBLIC_BOUNDS,)
    folder = make_results(tmp_path / "central", quality=0.0, n=8)
    content = Results.read(folder).model_copy(update={"rounds": ({"server_noise_std": 0.2},)})
    (folder / "results.json").write_text(content.text())
    assert decision_on(read_settings([folder])).change.further == (NOISE_OF_CLIENTS,)
    assert str(render([folder])).count(NOISE_OF_CLIENTS.replace("'", "&#39;")) == 1


def test_fewer_rounds_are_named_where_one_round_alone_does_not_leak(decide: Any, row: Any) -> None:
    loud = image(0.8, share=0.92, margin=4.0, margin_low=3.0)

    def further(*attacks: dict[str, Any]) -> tuple[str, ...]:
        return decide({"noise_std": 0.1, "epsilon": [row(proven=159.0)], "attacks": list(attacks)}).change.further

    together, alone = {**loud, "manner": "all-rounds"}, {**QUIET, "manner": "one-round", "round": 0}
    assert further(together, alone) == (FEWER_ROUNDS,)
    assert further(together) == further({**QUIET, "manner": "all-rounds"}, alone) == ()
    assert further(together, {**alone, "attack": "linking"}) == ()  # this attack was not tried on one round
    assert further(together, alone, {**loud, "manner": "one-round", "round": 1}) == ()


def test_noise_is_not_kept_where_more_checks_are_above_their_control_than_luck_explains(decide: Any, row: Any) -> None:
    """Corrected for many checks it is no leak: 1 of 2 at 5 % comes by luck in 10 of 100, 2 of 2 in one of 400."""
    for p_value, basis in ((1.0, "measured"), (0.04, "computed")):
        lucky = {**image(0.1, margin=0.5, margin_low=0.1), "p_values": {"psnr_margin": 0.04, "reidentified": p_value}}
        found = decide({"noise_std": 0.3, "epsilon": [row(**CLOSED, proven=6.0)], "attacks": [lucky]})
        assert found.worst.judgement.level == "none found" and found.change.basis == basis


def test_a_broken_proof_comes_before_any_noise(decide: Any, row: Any) -> None:
    epsilon = [row(**CLOSED, proven=3.0, demonstrated=6.0, confidence=0.95)]
    change = decide({"quality": 0.0, "n": 8, "noise_std": 1.0, "epsilon": epsilon}).change
    assert (change.basis, change.sentence) == ("unknown", FIND_FAULT)


def test_a_proof_that_an_attack_contradicts_comes_before_any_noise(decide: Any, row: Any, membership: Any) -> None:
    """Nine of ten members were recognised where the proof allows two in a hundred: "take 2.8 times the noise"."""
    entry = membership()
    entry["metrics"] = {**entry["metrics"], **bounded_point(0.01, 0.9, ceiling=0.02)}
    proven = [row(**CLOSED, proven=3.2)]
    found = decide({"quality": 0.0, "n": 8, "noise_std": 1.0, "epsilon": proven, "extra_attacks": [entry]})
    assert found.worst.judgement.contradicted and found.change.sentence == FIND_FAULT


def test_a_row_that_was_never_tested_is_no_demonstrated_zero(decide: Any, row: Any) -> None:
    """ "ε ≥ –" stood beside a test of another row that had shown 0."""
    tested = row(unit="client", proven=3.0, demonstrated=0.0, ceiling=5.0)
    leak = decide({"attacks": [], "noise_std": 1.0, "epsilon": [row(proven=2.0), tested]}).leak
    assert leak is not None and leak.value.endswith(" 0") and leak.beside.startswith("3 ")


def test_of_several_answers_the_share_is_the_same_alone_and_in_the_decision(decide: Any) -> None:
    found = decide({"quality": 0.97, "n": 8})
    assert share([found.worst]) == found.share


# --- what no proof may be said to cover ---


def test_more_than_a_useful_proof_allows_of_another_unit_is_a_no(decide: Any, row: Any) -> None:
    """ε = 2 a record is proven; of a client 60 was demonstrated, under a proof of 900."""
    rows = [
        row(unit="record", proven=2.0),
        row(unit="client", proven=900.0, demonstrated=60.0, ceiling=70.0, confidence=0.95),
    ]
    assert answer(decide({"quality": 0.0, "n": 8, "epsilon": rows})) == STOP


def test_a_perfect_test_under_a_useless_proof_is_a_leak(decide: Any, row: Any) -> None:
    rows = [row(unit="client", proven=5000.0, demonstrated=9.4, ceiling=9.4, confidence=0.95)]
    assert decide({"attacks": [], "epsilon": rows}).share.answer == "no"


def test_a_published_key_proves_nothing_to_whoever_has_the_config(decide: Any, row: Any) -> None:
    rows = [row(unit="record", proven=1.0, accountant="closed form")]
    found = decide({"quality": 0.0, "n": 8, "epsilon": rows, "setup": {"noise_key": "published"}})
    assert (found.share.answer, found.share.reason) == ("unproven", "published key")
    assert (found.change.sentence, found.change.noise_std) == (SECRET_KEY, None)
    within = [row(unit="record", proven=1.0, demonstrated=0.9, ceiling=5.0, confidence=0.95)]
    beyond = [{**within[0], "proven": None}, *rows]  # of which nothing is proven: a leak of moderate size
    beyond[0] |= {"unit": "client"}
    for epsilon, answer in ((within, "unproven"), (beyond, "no")):
        leak = decide(
            {"quality": 0.0, "n": 8, "epsilon": epsilon, "setup": {"noise_key": "published", "digest": answer}}
        )
        assert leak.share.answer == answer
    much = {"quality": 0.0, "n": 8, "noise_std": 1.0, "epsilon": multiplier_one(row)}
    said = decide({**much, "setup": {"noise_key": "published", "digest": "a third"}}).change.sentence
    assert re.match(r"Train with a secret .*take 1\.94 ", said)  # no factor proves anything without
    secret = decide({"quality": 0.0, "n": 8, "epsilon": rows, "setup": {"noise_key": "secret", "digest": "another"}})
    assert secret.share.answer == "proven"


def test_the_accountants_claim_is_rounded_as_its_proof(decide: Any, row: Any) -> None:
    """It is one number: 101 906.4 rounded to nearest beside itself rounded up would read as two."""
    found = decide(
        {"quality": 0.0, "n": 8, "epsilon": [row(claimed=101906.4, claimed_by="accountant", proven=101906.4)]}
    )
    page = render([found.worst.folder])
    assert "101\N{NARROW NO-BREAK SPACE}907" in page and "101\N{NARROW NO-BREAK SPACE}906<" not in page


# --- accuracy beside guessing ---


PHOTOS = {"name": "photos", "classes": 100, "sizes": {"test": 900}}


def test_the_accuracy_that_was_measured_stands_on_the_first_screen_with_guessing(decide: Any) -> None:
    found = decide({"quality": 0.97, "n": 8, "clip_norm": None, "setup": {"data": PHOTOS}})
    assert re.search(r"41.%.*noise_std 0;.*1.% by guessing", found.change.accuracy_now)
    assert found.change.accuracy_now in render([found.worst.folder]) and found.untrained == ""


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("clean", "said"), [(0.011, untrained(without_noise=True)), (None, untrained(without_noise=False)), (0.2, "")]
)
def test_accuracy_that_is_guessing_everywhere_says_nothing_of_noise(
    clean: float | None, said: str, decide: Any
) -> None:
    """11 of 900 where guessing gets 9. A model that guesses under noise alone may be kept from learning by it; one that
    learned without noise shows what the noise costs.
    """
    guess = {"data": PHOTOS, "test_accuracy": 0.012}
    settings = [{"name": "noisy", "quality": 0.0, "n": 8, "noise_std": 1.0, "setup": guess}]
    if clean is not None:
        settings.append({"name": "clean", "quality": 0.97, "n": 8, "setup": {"data": PHOTOS, "test_accuracy": clean}})
    found = decide(*settings)
    assert found.untrained == said
    assert found.untrained in render([found.worst.folder.parent / str(i) for i in range(len(settings))])


@pytest.mark.parametrize("others", [0, 1])
def test_a_proof_of_a_model_that_only_guesses_is_no_plain_yes(others: int, decide: Any, row: Any) -> None:
    proof = {"quality": 0.0, "n": 8, "noise_std": 0.3, "epsilon": [row(proven=1.0)]}
    learns = [{**proof, "name": "learns", "setup": {"data": PHOTOS}} for _ in range(others)]
    share = decide({**proof, "name": "guesses", "setup": {"data": PHOTOS, "test_accuracy": 0.012}}, *learns).share
    plain = proven_answer("73.2\N{NO-BREAK SPACE}%", limited=False)
    assert share.sentence == (plain if others else NO_REASON) and plain in f"{share.sentence} {share.because}"
    assert (some_guess(["guesses"]) in share.because) == bool(others)


# --- a claim that does not hold ---


def test_a_refuted_claim_is_named_with_its_setting(decide: Any, row: Any) -> None:
    """Ranges over the settings put a claim of 5.3 beside 5.61 demonstrated of another; the sentence puts them together,
    whichever setting is the worst.
    """
    refuted = [row(claimed=5.3, claimed_by="paper", proven=812.0, demonstrated=5.61, confidence=0.95)]
    kept = [row(claimed=10679.0, claimed_by="paper", proven=11000.0)]
    found = decide(
        {"name": "bare", "quality": 0.97, "n": 8, "noise_std": 0.01, "epsilon": kept},
        {"name": "canary", "attacks": [], "noise_std": 0.1, "epsilon": refuted},
    )
    assert found.losses is not None
    (sentence,) = found.losses.refuted
    assert re.search("“canary”.* 5\\.3 .* 5\\.61", sentence)
    assert sentence in unescape(render([found.worst.folder.parent / name for name in ("0", "1")]))


def test_a_contradicted_proof_and_a_condition_are_named(decide: Any, row: Any) -> None:
    def refuted(changes: dict[str, Any]) -> list[tuple[str, bool, float]]:
        found = decide({"name": "a", "quality": 0.0, "n": 8, "epsilon": [row(**changes)]})
        pairs = found.worst.judgement.refuted
        assert found.losses is not None and len(found.losses.refuted) == bool(pairs)
        return [(pair.limit, pair.on_condition, pair.demonstrated) for pair in pairs]

    assert refuted({"proven": 2.0, "demonstrated": 3.0}) == [("proven", False, 3.0)]
    gaussian = {"condition": "the noise is Gaussian", "demonstrated_on_condition": 9.0, "ceiling_on_condition": 30.0}
    doubted = {"claimed": 5.3, "claimed_by": "paper", "proven": 812.0, "demonstrated": 2.0, **gaussian}
    assert refuted(doubted) == [("claimed", True, 9.0)]
    assert refuted({"proven": 2.0, "demonstrated": 1.0}) == []


def test_more_noise_with_a_published_key_is_no_advice(decide: Any, row: Any) -> None:
    """Of a proof without a closed form no factor is computed: "Add more noise", and no word of the key."""
    sampled = {"quality": 0.0, "n": 8, "noise_std": 0.1, "epsilon": [row(proven=31.4, accountant="PLD")]}
    for key in ("published", "secret"):
        found = decide({**sampled, "setup": {"noise_key": key, "digest": key}})
        assert found.change.basis == "unknown"
        assert ("secret" in found.change.sentence) is (key == "published")
