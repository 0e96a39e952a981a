"""The judgement follows its rule at every border, and where nothing leaks. Its sentences: `tests/say/`."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.judge.judgement import AuditEvidence, Judgement, judge
from dpfl_audit.audit.results.checks import cannot_hold, checks
from dpfl_audit.audit.results.format import LEVELS, AttackResult, Epsilon, parse
from dpfl_audit.audit.say.badge import badge
from dpfl_audit.audit.say.meaning import LARGE
from dpfl_audit.audit.say.verdict import sentences
from dpfl_audit.audit.two_worlds.estimators import LowerBound, violation
from dpfl_audit.audit.worlds.federation import rows as canary
from dpfl_audit.audit.worlds.federation.plan import CanarySettings
from dpfl_audit.metrics.intervals import bootstrap_interval, clopper_pearson_interval, share_p_value
from dpfl_audit.metrics.membership import auc, auc_p_value, tpr_at_fpr
from entries import IF_GAUSSIAN, QUIET, image, member
from scipy.stats import binomtest, ttest_1samp
from stated import marked, of_setup, proven_row
from tiers import quick


def verdict(attacks: list[Any], rows: list[Any]) -> Judgement:
    """On entries as results.json has them."""
    entries = tuple(map(AttackResult.model_validate, attacks))
    table = tuple(each if isinstance(each, Epsilon) else Epsilon.model_validate(marked(each)) for each in rows)
    return judge(AuditEvidence(entries, table))


@pytest.mark.parametrize(
    ("attacks", "changes", "expected"),
    [
        # severe: the lower limit of re-identification reaches one half, or a claim is refuted
        ([image(0.5)], {}, "severe"),
        ([image(0.49, chance=0.2)], {}, "moderate"),
        ([QUIET], {"claimed": 5.0, "demonstrated": 5.01, "proven": 800.0}, "severe"),
        ([QUIET], {"claimed": 5.0, "demonstrated": 5.0, "proven": 8.0}, "none found"),
        ([QUIET], {"claimed": "inf", "demonstrated": 50.0}, "moderate"),
        ([QUIET], {"demonstrated": 5.4, "proven": 0.93}, "severe"),  # the proof or the implementation is broken
        ([QUIET], {"claimed": 9.0, "demonstrated": 5.4, "proven": 0.93}, "severe"),
        ([QUIET], {"demonstrated": 0.93, "proven": 0.93}, "none found"),
        # what is demonstrated on a condition refutes nothing for certain: high at most
        ([QUIET], {"claimed": 26.0, "demonstrated": 8.6, "proven": 800.0, **IF_GAUSSIAN}, "high"),
        ([QUIET], {"demonstrated": 8.6, "proven": 26.0, **IF_GAUSSIAN}, "high"),
        ([QUIET], {"claimed": 8.5, "demonstrated": 8.6, "proven": 26.0, **IF_GAUSSIAN}, "severe"),
        ([QUIET], {"claimed": 55.0, "demonstrated": 8.6, "proven": 55.0, **IF_GAUSSIAN}, "moderate"),
        ([QUIET], {"claimed": 60.0, "demonstrated": None, "proven": 70.0, **IF_GAUSSIAN}, "moderate"),
        ([image(0.5)], {"claimed": 26.0, "demonstrated": 8.6, **IF_GAUSSIAN}, "severe"),
        ([image(0.6, chance=0.7)], {}, "none found"),  # a line-up that anybody passes
        # high: more than five times chance with 3 dB, or a tenth of the members at 1 % false alarms
        ([image(0.21, margin=3.0, margin_low=2.0)], {}, "high"),
        ([image(0.20, margin=3.0, margin_low=2.0)], {}, "moderate"),  # exactly five times chance
        ([image(0.21, margin=2.9, margin_low=2.0)], {}, "moderate"),
        ([image(0.21)], {}, "moderate"),  # no margin measured
        ([member(0.6, tpr_low=0.1)], {}, "high"),
        ([member(0.6, tpr_low=0.0999)], {}, "moderate"),
        # moderate: one interval beside its control, on the leaking side
        ([image(0.041, margin=-1.0, margin_low=-2.0)], {}, "moderate"),
        ([image(0.0, margin=0.5, margin_low=0.01)], {}, "moderate"),
        ([member(0.501)], {}, "moderate"),
        ([member(0.501, shuffled=0.51)], {}, "none found"),
        ([member(0.4, tpr_low=0.02)], {}, "moderate"),
        # the threshold let more outsiders through than it should
        ([member(0.4, tpr_low=0.02, realised=0.03)], {}, "none found"),
        ([QUIET], {"demonstrated": 0.3, "proven": 4.0}, "none found"),  # what the proof allows is no leak
        ([QUIET], {"demonstrated": 10.0, "proven": 10.0}, "none found"),
        ([QUIET], {"demonstrated": 0.3, "proven": 10.01}, "moderate"),  # such a proof allows nearly anything
        ([QUIET], {"demonstrated": 0.3, "proven": "inf"}, "moderate"),
        ([QUIET], {"demonstrated": 0.3, "proven": None}, "moderate"),
        ([QUIET], {"demonstrated": 0.3, "proven": 4.0, "delta": 0.5}, "moderate"),
        ([image(0.5)], {"demonstrated": 0.3, "proven": 4.0}, "severe"),  # a proof excuses no inversion that succeeds
        ([member(0.501)], {"demonstrated": 0.3, "proven": 4.0}, "moderate"),
        # worse than grey is no leak
        ([image(0.04, margin=-5.0, margin_low=-9.0)], {"proven": 3.0}, "none found"),
        ([], {"proven": 3.0}, "not measured"),
    ],
)
def test_level_at_its_borders(attacks: list[dict[str, Any]], changes: dict[str, Any], expected: str, row: Any) -> None:
    judgement = verdict(attacks, [row(**changes)])
    assert judgement.level == expected
    assert all(sentence.endswith(".") for sentence in sentences(judgement))
    assert "safe" not in " ".join(sentences(judgement)).lower()


@pytest.mark.parametrize(
    ("attacks", "changes", "expected", "epsilon"),
    [
        ([QUIET], {"proven": 10.0}, "proven", 10.0),
        ([QUIET], {"proven": 10.01}, "weak", 10.01),
        ([QUIET], {"proven": "inf"}, "none", None),
        ([QUIET], {"proven": None}, "not priced", None),
        ([QUIET], {"proven": 3.0, "demonstrated": 0.0}, "proven", 3.0),
        ([QUIET], {"proven": 0.0, "delta": 0.01}, "proven", 0.0),
        ([QUIET], {"proven": 0.0, "delta": 0.5}, "weak", None),  # every other record may be published
        (
            [QUIET, image(0.01, observer="peer")],
            {"proven": 3.0},
            "not priced",
            None,
        ),  # nobody priced what the peer sees
        ([image(0.9)], {"proven": 3.0}, "proven", 3.0),  # whatever was found: the two axes do not decide each other
        ([QUIET], {"proven": 0.93, "demonstrated": 5.4}, "none", None),  # contradicted
        ([], {"proven": 3.0}, "proven", 3.0),
    ],
)
def test_what_is_proven_at_its_borders(
    attacks: list[dict[str, Any]], changes: dict[str, Any], expected: str, epsilon: float | None, row: Any
) -> None:
    judgement = verdict(attacks, [row(**changes)])
    assert (judgement.proof, judgement.proven) == (expected, epsilon)


@pytest.mark.parametrize("proven", [None, "inf", 159.0, 10.01])
def test_nothing_found_without_a_useful_proof_is_never_called_safe_or_low(proven: Any, row: Any) -> None:
    """The failure of the attacks that were tried bounds no other attack."""
    judgement = verdict([QUIET], [row(proven=proven)])
    said = f"{badge(judgement)} {' '.join(sentences(judgement))}".lower()
    assert judgement.level == "none found" and judgement.proof != "proven"
    assert not re.search(r"\b(safe|low|harmless|no risk)\b", said)


def test_a_bound_below_the_proof_is_said_beside_it_and_is_no_leak(row: Any) -> None:
    """The issue's: a lower bound of .08 under a proven 7.3 is what a proof of 7.3 allows."""
    judgement = verdict([QUIET], [row(unit="client", proven=7.3, demonstrated=0.08, ceiling=5.77)])
    assert (judgement.level, judgement.proof, judgement.proven) == ("none found", "proven", 7.3)
    assert judgement.leaking == ()


def test_a_proof_towards_who_sees_more_allows_as_much(row: Any) -> None:
    """By post-processing: the server's ε bounds whoever sees its broadcasts alone, and not the other way round."""
    broadcast, server = row(observer="downlink", demonstrated=0.3), row(proven=4.0)
    assert verdict([], [broadcast, server]).level == "none found"
    broadcast, server = row(observer="downlink", proven=4.0), row(demonstrated=0.3)
    assert verdict([], [broadcast, server]).level == "moderate"


def test_a_canarys_entry_is_judged_by_the_proof_of_its_row(row: Any) -> None:
    """A second protocol's bound stands in its entry alone."""
    entry = {
        "attack": "canary/end-to-end",
        "observer": "server",
        "settings": {"unit": "record", "adjacency": "zero_out"},
        "metrics": {"epsilon": 2.0},
        "intervals": {"epsilon": [2.0, "inf"]},
    }
    assert verdict([entry], [row(proven=4.0)]).level == "not measured"
    assert verdict([entry], [row(proven=1.9)]).level == "moderate"
    assert verdict([entry], [row(proven="inf")]).level == "moderate"
    assert verdict([entry], [row(unit="client", proven=4.0)]).level == "moderate"


def test_a_worse_attack_never_lowers_the_level(row: Any) -> None:
    """Over a grid: raising one limit, keeping the rest, never moves the verdict down."""
    lows = [0.0, 0.04, 0.05, 0.2, 0.3, 0.5, 0.9]
    for margin in (-4.0, 0.5, 3.5):
        for proven in (2.0, 20.0):
            places = [
                LEVELS.index(verdict([image(low, margin=margin, margin_low=margin - 1)], [row(proven=proven)]).level)
                for low in lows
            ]
            assert places == sorted(places)


def test_adding_evidence_never_lowers_the_level(row: Any) -> None:
    """As long as it is clear: a check that barely beats its control need not among many."""
    options = [QUIET, image(0.3, margin=4.0, margin_low=3.0), image(0.6), member(0.6), member(0.6, tpr_low=0.2)]
    for first in options:
        alone = LEVELS.index(verdict([first], [row(proven=3.0)]).level)
        for second in options:
            both = LEVELS.index(verdict([first, second], [row(proven=3.0)]).level)
            assert both >= alone


def epsilon(row: Any, **changes: Any) -> Epsilon:
    return Epsilon.model_validate(row(**changes))


@pytest.mark.parametrize(
    ("shown", "claim", "refutes"),
    [
        ({}, {}, True),
        # whoever sees no more than another refutes what is said of him, by post-processing; not the other way round
        ({"observer": "model"}, {}, True),
        ({"observer": "downlink"}, {}, True),
        ({"observer": "uplink(3)"}, {"observer": "uplink"}, True),
        ({}, {"observer": "downlink"}, False),
        ({"observer": "uplink"}, {"observer": "downlink"}, False),
        ({"delta": 1e-6}, {}, False),
        ({"adjacency": "replace_one"}, {}, False),
        # changing one record is one way of changing a client, so a claim on replaced clients covers it …
        ({"unit": "record"}, {"unit": "client", "adjacency": "replace_one"}, True),
        ({"unit": "record", "adjacency": "replace_one"}, {"unit": "client", "adjacency": "replace_one"}, True),
        # … but one record can turn a clipped update around (2C) while leaving the client out moves it by C only
        ({"unit": "record"}, {"unit": "client"}, False),
        ({"unit": "client"}, {"unit": "record"}, False),
    ],
)
def test_claims_are_refuted_on_equal_terms_only(
    shown: dict[str, Any], claim: dict[str, Any], refutes: bool, row: Any
) -> None:
    rows = [epsilon(row, demonstrated=6.0, **shown), epsilon(row, claimed=5.0, **claim)]
    assert bool(verdict([], rows).refuted) is refutes


def test_a_bound_towards_who_sees_less_is_said_with_its_observer(row: Any) -> None:
    rows = [row(observer="downlink", demonstrated=6.0), row(claimed=5.0, proven=5.5)]
    judgement = verdict([], rows)
    assert judgement.level == "severe"
    pairs = [(pair.shown.observer, pair.row.observer, pair.limit) for pair in judgement.refuted]
    assert pairs == [("downlink", "server", "claimed"), ("downlink", "server", "proven")]


def test_the_record_in_or_out_of_the_data_is_what_a_proof_is_judged_by(row: Any) -> None:
    rows = [
        epsilon(row, unit=unit, adjacency=adjacency, proven=proven)
        for unit, adjacency, proven in [
            ("client", "zero_out", 1.0),
            ("client", "replace_one", math.inf),
            ("record", "replace_one", 20.0),
            ("record", "zero_out", 9.0),
        ]
    ]
    judgement = verdict([QUIET], rows)
    (bound,) = judgement.rows.bounding
    assert (bound.unit, bound.adjacency, bound.proven) == ("record", "zero_out", 9.0)
    assert judgement.proof == "proven"


def test_what_is_quoted_is_refuted_or_asked_or_claimed_or_the_weakest_proof(row: Any) -> None:
    weak, claimed = epsilon(row, proven=900.0), epsilon(row, unit="client", claimed=2.0, proven=4.0)
    refuted = epsilon(row, adjacency="replace_one", claimed=1.0, demonstrated=1.5)
    asked = epsilon(row, observer="downlink", proven=1.0, asked=True)

    def quoted(*rows: Epsilon) -> Epsilon | None:
        return verdict([QUIET], list(rows)).rows.quoted

    assert quoted(weak, claimed, asked, refuted) is refuted
    assert quoted(weak, claimed, asked) is asked
    assert quoted(weak, claimed) is claimed
    assert quoted(weak, epsilon(row, observer="model", claimed=1.0)) is weak
    assert quoted() is None
    assert verdict([QUIET], [weak, asked, refuted]).rows.answer is asked


def test_checks_pair_each_interval_with_its_control() -> None:
    attacks = [
        image(0.3, margin=2.0, margin_low=1.0),
        member(0.6, tpr_low=0.2, shuffled=0.52),
        member(0.6, shuffled=0.44),
    ]
    images, members, below = checks([AttackResult.model_validate(attack) for attack in attacks], [])
    assert {check.metric: (check.low, check.control) for check in images} == {
        "reidentified": (0.3, 0.04),
        "psnr_margin": (1.0, 0.0),
    }
    assert {check.metric: (check.low, check.control) for check in members} == {"auc": (0.6, 0.52), "tpr": (0.2, 0.01)}
    assert below[0].control == 0.5


@pytest.mark.parametrize(
    ("asked", "proof", "proven"),
    [
        ({"unit": "client", "proven": 15.9}, "weak", 15.9),  # records at 8 had been "proven", and a green page
        ({"unit": "client", "proven": 9.0}, "proven", 9.0),
        ({"observer": "peer", "proven": 20.7}, "weak", 20.7),
        ({"unit": "client", "proven": "inf"}, "none", None),
        ({"unit": "client", "proven": 0.5}, "proven", 8.0),
    ],
)
def test_a_proof_covers_what_the_config_asks_about(
    asked: dict[str, Any], proof: str, proven: float | None, row: Any
) -> None:
    rows = [row(proven=8.0), row(**asked, asked=True)]
    judgement = verdict([QUIET], rows)
    assert (judgement.proof, judgement.proven) == (proof, proven)


def test_a_test_of_somebody_whom_the_run_is_not_about_is_no_leak_towards_others(row: Any) -> None:
    """Asked about who gets the model; the claim's canary showed 4.9 towards the server, which set the leak, the
    sentences and the advice (a newcomer's mod.toml). It is said, and counts where it refutes.
    """
    quiet = {**QUIET, "observer": "model"}
    canary = {
        "attack": "canary/mechanism",
        "observer": "server",
        "metrics": {"epsilon": 4.9},
        "intervals": {"epsilon": [4.9, 5.5]},
        "settings": {"unit": "client", "adjacency": "zero_out"},
    }
    asked = row(observer="model", unit="client", proven=8.0, asked=True)
    server = {"unit": "client", "proven": 22.0, "demonstrated": 4.9, "claimed": 22.0, "claimed_by": "accountant"}
    for aside, level, proof in ((True, "none found", "proven"), (False, "moderate", "weak")):
        judged = verdict([quiet, canary], [asked, row(**server, aside=aside)])
        assert (judged.level, judged.proof) == (level, proof)
        assert [r.observer for r in (judged.leaking_aside if aside else judged.leaking)] == ["server"]
        assert judged.rows.quoted is not None and judged.rows.quoted.observer == "model"
    refuted = row(**{**server, "claimed": 3.0, "claimed_by": "owner"}, aside=True)
    judged = verdict([quiet, canary], [asked, refuted])
    assert (judged.level, judged.only_claim, judged.proof) == ("severe", True, "proven")
    assert judged.without_claims.level == "none found"
    assert judged.rows.quoted is not None and judged.rows.quoted.observer == "model"
    loud = verdict([{**image(0.5), "observer": "model"}, canary], [asked, refuted])
    assert (loud.level, loud.only_claim, loud.without_claims.level) == ("severe", False, "severe")
    contradicted = verdict([quiet, canary], [asked, row(**{**server, "proven": 4.0}, aside=True)])
    assert (contradicted.level, contradicted.proof, contradicted.only_claim) == ("severe", "none", False)


def test_a_published_key_proves_nothing(row: Any) -> None:
    """Whoever has the config draws the noise again: results.json, too, must not say "proven" (a review's pub.toml)."""
    judgement = verdict([QUIET], [of_setup(row(proven=2.0), {"noise_key": "published"})])
    assert (judgement.proof, judgement.proven) == ("none", None)
    assert judgement.proven_if_secret
    assert verdict([QUIET], [row(proven=2.0)]).proof == "proven"


def alone(share: float, chance: float, exact: float | None = None, p_value: float = 1.0) -> AttackResult:
    """An inversion of one image."""
    numbers = {"reidentified": share, "reidentified_chance": chance, "psnr_margin": 14.0, "exact": exact}
    return AttackResult.model_validate(
        {
            "attack": "inversion",
            "observer": "server",
            "n": 1,
            "metrics": {name: value for name, value in numbers.items() if value is not None},
            "intervals": {"reidentified": [0.025, 1.0] if share else [0.0, 0.975]},
            "p_values": {"reidentified": p_value},
            "least_p_values": {"reidentified": min(1.0, 2 * chance)},
        }
    )


@pytest.mark.parametrize(
    ("share", "chance", "measured", "level"),
    [
        (1.0, 0.2, False, "not measured"),  # even alone .4 at the best
        (0.0, 0.2, False, "not measured"),
        (1.0, 0.001, True, "high"),
        (0.0, 0.001, True, "none found"),
    ],
)
def test_what_success_could_not_have_shown_failure_does_not_either(
    share: float, chance: float, measured: bool, level: str
) -> None:
    """One image picked out of five is no leak, and no absence of one (a review's one.toml: "none found")."""
    judgement = verdict([alone(share, chance, p_value=min(1.0, 2 * chance) if share else 1.0)], [])
    assert (judgement.measured, judgement.level) == (measured, level)


@pytest.mark.parametrize(
    ("exact", "level"),
    [(1.0, "severe"), (0.5, "severe"), (0.49, "high"), (0.0, "not measured"), (None, "not measured")],
)
def test_an_image_that_came_back_beyond_doubt_needs_no_line_up(exact: float | None, level: str) -> None:
    judgement = verdict([alone(1.0, 0.2, exact, p_value=0.4)], [])
    assert (judgement.level, judgement.measured) == (level, bool(exact))


def with_p_values(*values: float) -> list[AttackResult]:
    return [AttackResult.model_validate(member(0.6) | {"p_values": {"auc": value}}) for value in values]


@pytest.mark.parametrize(
    ("values", "beat"),
    [
        # by hand: of m sorted p-values the i-th may be .05/(m − i + 1) at most, and the first that is not ends it
        ([0.05], [True]),
        ([0.051], [False]),
        ([0.04, 0.03], [False, False]),
        ([0.04, 0.025], [True, True]),
        ([0.03, 0.01, 0.04], [False, True, False]),
        ([0.2, 0.012, 0.016, 0.012], [False, True, True, True]),
        ([0.006] * 10, [False] * 10),
        ([0.005] + [1.0] * 9, [True] + [False] * 9),
    ],
)
def test_checks_are_judged_together_by_holm(values: list[float], beat: list[bool]) -> None:
    assert [own[0].beats for own in checks(with_p_values(*values), [])] == beat


def test_without_a_p_value_no_check_beats_its_control() -> None:
    for entry, metric in ((image(0.3), "reidentified"), (member(0.6, tpr_low=0.3), "auc")):
        (found,) = checks([AttackResult.model_validate(entry | {"p_values": {}})], [])[0]
        assert (found.metric, found.beats) == (metric, False)


def test_demonstrations_of_one_run_hold_together(monkeypatch: pytest.MonkeyPatch, row: Any) -> None:
    """Bonferroni: four bounds, each wrong in 1.25 % of runs, are all right in 95 %."""
    used: list[float] = []

    def note(source: Any, settings: CanarySettings, *_: Any) -> canary.Demonstration:
        used.append(settings.confidence)
        return canary.Demonstration(None)

    monkeypatch.setattr(canary, "demonstrate", note)
    rows = [Epsilon.model_validate(row(unit=unit)) for unit in ("record", "client")]
    source = SimpleNamespace(config=SimpleNamespace(audit=None))
    canary.demonstrate_rows(source, rows, CanarySettings(("mechanism", "end-to-end"), units=("record", "client")))  # type: ignore[arg-type]
    assert used == pytest.approx([0.9875] * 2)
    canary.demonstrate_rows(source, rows, CanarySettings(units=("client",)))  # type: ignore[arg-type]
    assert used[2:] == pytest.approx([0.95])


# --- where nothing leaks ---

RUNS = 400


def scored(rng: np.random.Generator, n: int = 100, shift: float = 0.0) -> dict[str, Any]:
    """A membership attack whose scores are N(shift, 1) for n members and N(0, 1) for n others."""
    members, others = rng.normal(shift, 1, n), rng.normal(0, 1, n)
    (area, interval), rate = auc(members, others), tpr_at_fpr(members, others, (0.01,))[0.01]
    assert rate is not None
    return {
        "attack": "membership-loss",
        "observer": "server",
        "metrics": {
            "auc": area,
            "tpr_at_fpr": [{"fpr": 0.01, "tpr": rate.tpr, "interval": rate.tpr_interval, "realised_fpr": rate.fpr}],
        },
        "intervals": {"auc": interval},
        "p_values": {"auc": auc_p_value(area, n, n), "tpr": rate.p_value},
    }


def guessed(rng: np.random.Generator, n: int = 40, chance: float = 0.1) -> dict[str, Any]:
    """An inversion without success: re-identified at chance, and on average no closer than the best control."""
    hits, gains = int(rng.binomial(n, chance)), rng.normal(0, 1, n)
    return {
        "attack": "inversion",
        "observer": "server",
        "metrics": {"reidentified": hits / n, "reidentified_chance": chance, "psnr_margin": float(gains.mean())},
        "intervals": {
            "reidentified": clopper_pearson_interval(hits, n),
            "psnr_margin": bootstrap_interval(gains, resamples=50),
        },
        "p_values": {
            "reidentified": share_p_value(hits, n, chance),
            "psnr_margin": float(ttest_1samp(gains, 0, alternative="greater").pvalue),
        },
    }


@pytest.mark.parametrize(("make", "attacks"), quick(product((scored, guessed), (1, 4, 10)), 4))
def test_without_a_leak_at_most_one_verdict_in_twenty_says_one(
    attacks: int, make: Callable[[np.random.Generator], dict[str, Any]], row: Any
) -> None:
    """Independent attacks, the most chances of a false alarm. Not refuted at 1 % by the exact binomial test."""
    rng = np.random.default_rng(attacks)
    levels = Counter(verdict([make(rng) for _ in range(attacks)], [row(proven=1.0)]).level for _ in range(RUNS))
    alarms = RUNS - levels["none found"]
    assert binomtest(alarms, RUNS, 0.05, alternative="greater").pvalue > 0.01, levels
    assert levels["high"] == levels["severe"] == 0


@pytest.mark.parametrize("attacks", [1, 4, 10])
def test_a_real_leak_is_found_among_attacks_that_fail(attacks: int, row: Any) -> None:
    rng = np.random.default_rng(attacks)
    for _ in range(10):
        failing = [scored(rng) for _ in range(attacks - 1)]
        assert verdict([*failing, scored(rng, 300, shift=0.5)], [row(proven=1.0)]).level in ("moderate", "high")
        assert verdict([*failing, scored(rng, 300, shift=2.5)], [row(proven=1.0)]).level == "high"


def test_what_is_called_at_least_or_at_most_holds_as_it_is_said() -> None:
    """Lower limits rounded down, upper ones up: 4.996 demonstrated are not "at least 5"."""
    shown = LowerBound(4.996, 1e-5, 0.95, "clopper-pearson", {}, 7.401)
    assert " 4.99 " in violation(shown, 4.0, 1e-5).sentence
    assert " 7.41," in violation(shown, 9.0, 1e-5).sentence


def test_a_proof_that_is_exceeded_is_a_fault(row: Any) -> None:
    judgement = verdict([], [row(unit="client", proven=0.93, demonstrated=5.4, ceiling=6.8)])
    assert (judgement.level, judgement.proof, judgement.contradicted) == ("severe", "none", True)


def test_the_condition_of_a_bound_makes_its_refutation_one_on_a_condition(row: Any) -> None:
    numbers = {"unit": "client", "claimed": 26.0, "proven": 800.0, "demonstrated": 8.6, "ceiling": 8.6, **IF_GAUSSIAN}
    judgement = verdict([], [row(**numbers)])
    (pair,) = judgement.refuted
    assert (pair.limit, pair.on_condition, pair.demonstrated) == ("claimed", True, 55.0)
    broken = verdict([], [row(**{**numbers, "claimed": None, "proven": 30.0})])
    assert (broken.level, broken.proof, broken.contradicted) == ("high", "none", False)
    quiet = verdict([], [row(**{**numbers, "claimed": None, "proven": "inf"})])
    assert (quiet.level, quiet.refuted) == ("moderate", ())


def test_the_pairs_that_a_condition_refutes_are_others_than_the_certain_ones(row: Any) -> None:
    certain = epsilon(row, claimed=5.0, demonstrated=6.0, **IF_GAUSSIAN)
    doubted = epsilon(row, delta=1e-6, claimed=7.0, demonstrated=6.0, **IF_GAUSSIAN)
    rows = [doubted, certain]
    judgement = verdict([], rows)
    assert [pair.row for pair in judgement.refuting(on_condition=False)] == [certain]
    assert [pair.row for pair in judgement.refuting(on_condition=True)] == [doubted]
    assert judgement.rows.quoted is certain and verdict([], [doubted]).rows.quoted is doubted


@pytest.mark.parametrize("demonstrated", [0.01, 5.4, 10.0, 10.01, 55.0])
@pytest.mark.parametrize("attacks", [[], [QUIET], [member(0.6)]])
def test_no_leak_is_called_small(demonstrated: float, attacks: list[dict[str, Any]], row: Any) -> None:
    """An ε above 10 changes odds by more than e¹⁰ = 22,026; and below, nothing bounds what a stronger attack gets."""
    judgement = verdict(attacks, [row(unit="client", proven="inf", demonstrated=demonstrated, ceiling=demonstrated)])
    assert judgement.level == "moderate"
    text = " ".join(sentences(judgement))
    assert not re.search(r"\bsmall\b", text) and (LARGE in text) is (demonstrated > 10)


def test_without_rows_the_verdict_says_so() -> None:
    judgement = verdict([QUIET], [])
    assert (judgement.level, judgement.proof) == ("none found", "not priced")


def test_a_row_outside_the_format_is_named() -> None:
    with pytest.raises(BadInput, match=r"^epsilon\[0\]: unit is 'person', expected 'record' or 'client'$"):
        parse(Epsilon, {"observer": "server", "unit": "person", "adjacency": "zero_out"}, "epsilon[0]")


def of_pool(p_value: float, round: int, objective: str = "cosine") -> AttackResult:
    return AttackResult.model_validate(
        {
            "attack": "inversion",
            "observer": "server",
            "manner": "one-round",
            "round": round,
            "n": 1,
            "settings": {"objective": objective},
            "metrics": {"pool_share": 1.0 if p_value < 1 else 0.0, "pool_chance": 0.03},
            "intervals": {"pool_share": [0.025, 1.0] if p_value < 1 else [0.0, 0.975]},
            "p_values": {"pool_share": p_value},
            "least_p_values": {"pool_share": 1e-4},
        }
    )


@pytest.mark.parametrize(
    ("entries", "beat"),
    [
        ([of_pool(0.02, i) for i in range(20)], [True] * 20),  # one question, .02 ≤ .05
        (
            [of_pool(0.03 if i < 12 else 1.0, i) for i in range(20)],
            [True] * 12 + [False] * 8,
        ),  # a miss asks nothing else
        ([of_pool(0.06 if i < 12 else 1.0, i) for i in range(20)], [False] * 20),
        ([of_pool(0.02, 0), of_pool(0.04, 0, "euclidean")], [True, True]),
        ([of_pool(0.03, 0), of_pool(0.04, 0, "euclidean")], [False, False]),  # two questions: .025, then .05
        ([of_pool(0.02, 0), of_pool(0.03, 1)], [True, True]),  # differing values count each
    ],
)
def test_what_messages_answer_together_counts_once(entries: list[AttackResult], beat: list[bool]) -> None:
    assert [own[0].beats for own in checks(entries, [])] == beat


def test_what_one_kind_of_attack_could_not_show_another_does_not_make_good(row: Any) -> None:
    """One image came back, and membership of eight candidates made that "measured" (a review's mix.toml)."""
    one = {**image(0.05, chance=0.17, share=1.0), "n": 1, "least_p_values": {"reidentified": 0.34}}
    one["p_values"] = {"reidentified": 0.34}
    members, few = ({**member(), "least_p_values": {"auc": least}} for least in (1e-6, 0.12))
    assert verdict([members], []).measured and not verdict([one], []).measured and not verdict([few], []).measured
    both = verdict([one, members], [])
    assert (both.level, both.measured) == ("not measured", False)
    assert both.kinds == {"inversion": False, "membership": True}
    # A test of ε within a proof adds nothing, and takes nothing away; alone it could not have shown a leak.
    within = row(unit="client", proven=7.3, demonstrated=0.08, ceiling=5.77)
    assert verdict([members], [within]).measured and not verdict([], [within]).measured
    assert verdict([], [row(proven=812.0, demonstrated=0.08, ceiling=5.77)]).measured


def test_an_attack_in_doubt_measures_nothing_by_its_failure():
    """Its assumption may be wrong; what it gets is a leak all the same."""
    doubt = {"doubt": "loss taken as cross-entropy, not checked"}
    failed, leaked = image(0.0, share=0.0, margin=-1.0, margin_low=-2.0), image(0.6)
    assert verdict([failed], []).measured
    seen = verdict([{**failed, **doubt}], [])
    assert not seen.measured and doubt["doubt"] in sentences(seen)[0]
    assert sentences(verdict([{**leaked, **doubt}], [])) == sentences(verdict([leaked], []))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),  # 8 claimed, and the exact curve of the noise has 27.15
        ({"claimed": 27.0}, False),  # typed with two digits
        ({"claimed": None}, False),
        ({"unit": "record"}, False),  # a record moves an update by less than the clip
        ({"mu": None, "accountant": "PLD"}, False),  # sampled: an upper bound
        ({"proven_without_sampling": 27.15}, False),  # coins of records: a client's group of them is only bounded
        ({"mu": None, "proven": math.inf}, False),
    ],
)
def test_a_claim_below_an_exact_curve_cannot_hold(changes: dict[str, Any], expected: bool) -> None:
    """μ = 2.5·√3 = 4.33: Φ(μ/2 - ε/μ) - e^ε·Φ(-μ/2 - ε/μ) = 10⁻⁵ at ε = 27.15 (case 18: three rounds of C = 2)."""
    exact = {"proven": 27.15, "mu": 2.5 * math.sqrt(3), "accountant": "closed form", "claimed": 8.0, "unit": "client"}
    assert cannot_hold(proven_row(**{**exact, **changes})) is expected
