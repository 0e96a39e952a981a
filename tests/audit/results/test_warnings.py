"""One place makes the sentences that follow from fields: written by a run or derived by a report, they are equal."""

from __future__ import annotations

import pytest
from dpfl_audit.audit.report.facts import notices
from dpfl_audit.audit.results.checks import COMPARABLE
from dpfl_audit.audit.results.format import Results
from dpfl_audit.audit.say.warnings import EVERYTHING, NO_TRUTH, implied, not_asked, not_run, not_tested, unscored
from dpfl_audit.audit.say.words import KINDS, observer
from dpfl_audit.audit.setup.promise import promise

WEAK = [{"family": "a", "accuracy": 0.43}, {"family": "b", "accuracy": 0.43}, {"family": "c", "accuracy": None}]

ONLY_INVERSION = "Not tried: membership inference and canaries (not named by --attack)."


@pytest.fixture
def results(make_results, tmp_path):
    def of(**changes) -> Results:
        return Results.read(make_results(tmp_path, n=2, **changes))

    return of


@pytest.mark.parametrize(
    ("changes", "sentences"),
    [
        ({}, []),
        ({"quick": True}, ["A --quick run: fewer iterations, so the attacks are weaker than they could be."]),
        (
            {"setup": {"share_clipped": 0.0, "clip_norm": 2.0, "norm_before_clip_median": 0.5}},
            ["Nothing was clipped in training: C = 2, the median norm before the clip was 0.5."],
        ),
        (
            {"setup": {"share_clipped": 0.0, "clip_norm": 2.0, "norm_before_clip_median": None}},
            ["Nothing was clipped in training: C = 2."],
        ),
        ({"setup": {"status": "partial"}}, ["Training was not finished when it was audited."]),
        ({"setup": {"status": "diverged", "rounds": 3}}, ["Training diverged; only its 3 finite rounds are attacked."]),
        (
            {"classifiers": WEAK},
            [
                "Weak reference classifiers: a and b (43\u00a0%) and c (unknown) of test images right, under 60\u00a0%;"
                " feature metrics and the leakage probability say little."
            ],
        ),
        ({"classifiers": [{"family": "a", "accuracy": 0.7}]}, []),
    ],
)
def test_fields_imply_sentences_and_a_report_says_each_once(changes, sentences, results):
    read = results(**changes)
    sentences = [*sentences, ONLY_INVERSION] if "classifiers" not in changes else [ONLY_INVERSION, *sentences]
    assert implied(read) == sentences
    written = read.model_copy(update={"warnings": ("A warning of its own.", *sentences)})
    assert [s for s in notices(written) if s not in unscored(read)] == list(written.warnings)


def test_a_delta_that_allows_to_publish_somebody_is_said_first_of_all(results) -> None:
    """δ = .01 over 200 clients stood in the fine print alone, below "no attack can be right more than 54 %"."""
    row = {"observer": "server", "unit": "client", "adjacency": "zero_out", "proven": 0.26, "asked": True}
    warned = promise(0.01, 200)
    assert len(warned) == 1 and promise(1e-5, 200) == []
    for delta, there in ((0.01, True), (1e-5, False)):
        sentences = implied(results(setup={"clients": 200}, epsilon=[{**row, "delta": delta}]))
        assert set(warned).issubset(sentences) is there


def test_an_epsilon_towards_others_is_not_taken_for_one_towards_the_server(results) -> None:
    """The server of central DP sees every update bare; the first screen spoke of those alone who see its models."""
    row = {"unit": "client", "adjacency": "zero_out", "delta": 1e-5}
    asked = {**row, "observer": "downlink", "proven": 8.0, "asked": True}
    server = {**row, "observer": "server", "proven": "inf"}
    (sentence,) = not_asked(results(epsilon=[server, asked]).epsilon)
    assert observer("server") in sentence and sentence in implied(results(epsilon=[server, asked]))
    for rows in (
        [{**server, "proven": 9.0}, asked],
        [{**server, "unit": "record"}, asked],
        [server, {**asked, "proven": "inf"}],
    ):
        assert not_asked(results(epsilon=rows).epsilon) == []


def test_results_of_older_versions_are_still_read_and_keep_their_own_words(results):
    read = results(quick=True, warnings=["This was a --quick run."])
    assert notices(read)[0] == read.warnings[0] and implied(read)[0] in notices(read)


def test_kinds_of_attack_that_nobody_named_are_not_tried(results, membership, row):
    """A canary audit that was asked for and measured nothing was tried, and says why by itself."""
    assert not_run(results()) == [ONLY_INVERSION]
    both = results(extra_attacks=[membership()])
    (only_canaries,) = not_run(both)
    assert [kind for kind in KINDS.values() if kind in only_canaries] == [KINDS["canary"]]
    asked = results(extra_attacks=[membership()], epsilon=[row(untested="nobody sends")])
    assert implied(asked) == not_tested(asked.epsilon) != []
    tested = results(extra_attacks=[membership()], epsilon=[row(demonstrated=0.0, confidence=0.95)])
    assert implied(tested) == [] and not_run(results(attacks=[])) == []


def test_a_reason_is_said_once_with_all_that_it_is_about(results):
    read = results()
    lacking = {"psnr": "no pixels.", "ssim": "no pixels", "lpips": "no weights"}
    attacks = tuple(attack.model_copy(update={"not_measured": lacking}) for attack in read.attacks)
    pixels, weights = unscored(read.model_copy(update={"attacks": attacks}))
    assert "PSNR" in pixels and "SSIM" in pixels and "no pixels." in pixels
    assert "LPIPS" in weights and "no weights." in weights


def test_without_a_control_it_says_of_which_attack_and_not_again_what_a_warning_has(results):
    read = results()
    attacks = tuple(attack.model_copy(update={"not_measured": {COMPARABLE: "of one kind"}}) for attack in read.attacks)
    alike = read.model_copy(update={"attacks": attacks})
    (said,) = unscored(alike)
    assert KINDS[attacks[0].kind] in said and said[0].isupper()
    warned = alike.model_copy(update={"warnings": ("Membership: of one kind.",)})
    assert unscored(warned) == []


def test_an_absent_truth_is_said_once(results):
    read = results()
    attacks = tuple(attack.model_copy(update={"not_measured": {EVERYTHING: NO_TRUTH}}) for attack in read.attacks)
    absent = read.model_copy(update={"attacks": attacks, "warnings": (f"{NO_TRUTH}.",)})
    assert notices(absent).count(f"{NO_TRUTH}.") == 1 == sum("truth/" in sentence for sentence in notices(absent)) == 1
