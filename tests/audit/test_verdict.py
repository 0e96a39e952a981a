"""The verdict follows its rule at every border, and its sentences say what was measured."""

from __future__ import annotations

import math
from typing import Any

import pytest
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.results import LEVELS, Attack, Epsilon
from dpfl_audit.audit.verdict import checks, headline, judged, refutations, verdict


def image(
    low: float | None = None,
    *,
    chance: float = 0.04,
    share: float | None = None,
    margin: float | None = None,
    margin_low: float | None = None,
    observer: str = "server",
) -> dict[str, Any]:
    intervals = {"reidentified": None if low is None else [low, 1.0], "psnr_margin": None if margin_low is None else [margin_low, margin_low + 2]}
    return {
        "attack": "inversion",
        "observer": observer,
        "metrics": {"reidentified": share if share is not None else low, "reidentified_chance": chance, "psnr_margin": margin},
        "intervals": intervals,
    }


def member(auc_low: float = 0.4, *, tpr_low: float | None = None, realised: float = 0.01, shuffled: float | None = None) -> dict[str, Any]:
    point = None if tpr_low is None else {"fpr": 0.01, "tpr": min(tpr_low + 0.05, 1), "interval": [tpr_low, 1.0], "realised_fpr": realised}
    controls = {} if shuffled is None else {"shuffled": {"auc": shuffled}}
    return {
        "attack": "membership/rmia",
        "observer": "server",
        "metrics": {"auc": auc_low + 0.05, "tpr_at_fpr": [point]},
        "intervals": {"auc": [auc_low, 0.9]},
        "controls": controls,
    }


QUIET = image(0.01, margin=-2.0, margin_low=-3.0)


@pytest.mark.parametrize(
    ("attacks", "changes", "expected"),
    [
        # severe: the lower limit of re-identification reaches one half, or a claim is refuted
        ([image(0.5)], {}, "severe"),
        ([image(0.49, chance=0.2)], {}, "moderate"),
        ([QUIET], {"claimed": 5.0, "demonstrated": 5.01, "proven": 800.0}, "severe"),
        ([QUIET], {"claimed": 5.0, "demonstrated": 5.0, "proven": 800.0}, "moderate"),
        ([QUIET], {"claimed": "inf", "demonstrated": 50.0}, "moderate"),
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
        ([member(0.501, shuffled=0.51)], {}, "low"),
        ([member(0.4, tpr_low=0.02)], {}, "moderate"),
        ([member(0.4, tpr_low=0.02, realised=0.03)], {}, "low"),  # the threshold let more outsiders through than it should
        ([QUIET], {"demonstrated": 0.3, "proven": 4.0}, "moderate"),
        # nothing excludes its control: the proof decides
        ([QUIET], {"proven": 10.0}, "none shown"),
        ([QUIET], {"proven": 10.01}, "low"),
        ([QUIET], {"proven": "inf"}, "low"),
        ([QUIET], {"proven": None}, "low"),
        ([QUIET], {"proven": 3.0, "demonstrated": 0.0}, "none shown"),
        ([QUIET, image(0.01, observer="peer")], {"proven": 3.0}, "low"),  # nobody priced what the peer sees
        ([image(0.04, margin=-5.0, margin_low=-9.0)], {"proven": 3.0}, "none shown"),  # worse than grey is no leak
        # nothing measured: by the same rule
        ([], {"proven": 3.0}, "none shown"),
        ([], {"proven": None}, "low"),
    ],
)
def test_level_at_its_borders(attacks: list[dict[str, Any]], changes: dict[str, Any], expected: str, row: Any) -> None:
    made = verdict(attacks, [row(**changes)])
    assert made["level"] == expected
    assert len(made["sentences"]) == 3
    assert all(sentence.endswith(".") for sentence in made["sentences"])
    assert "safe" not in " ".join(made["sentences"]).lower()


def test_a_worse_attack_never_lowers_the_level(row: Any) -> None:
    """Over a grid: raising one limit, keeping the rest, never moves the verdict down."""
    lows = [0.0, 0.04, 0.05, 0.2, 0.3, 0.5, 0.9]
    for margin in (-4.0, 0.5, 3.5):
        for proven in (2.0, 20.0):
            found = [LEVELS.index(verdict([image(low, margin=margin, margin_low=margin - 1)], [row(proven=proven)])["level"]) for low in lows]
            assert found == sorted(found)


def test_adding_evidence_never_lowers_the_level(row: Any) -> None:
    options = [QUIET, image(0.3, margin=4.0, margin_low=3.0), image(0.6), member(0.6), member(0.6, tpr_low=0.2)]
    for first in options:
        alone = LEVELS.index(verdict([first], [row(proven=3.0)])["level"])
        for second in options:
            both = LEVELS.index(verdict([first, second], [row(proven=3.0)])["level"])
            assert both >= alone


def epsilon(row: Any, **changes: Any) -> Epsilon:
    return Epsilon.model_validate(row(**changes))


@pytest.mark.parametrize(
    ("shown", "claim", "refutes"),
    [
        ({}, {}, True),
        ({"observer": "model"}, {}, False),
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
def test_claims_are_refuted_on_equal_terms_only(shown: dict[str, Any], claim: dict[str, Any], refutes: bool, row: Any) -> None:
    rows = [epsilon(row, demonstrated=6.0, **shown), epsilon(row, claimed=5.0, **claim)]
    assert bool(refutations(rows)) is refutes


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
    (found,) = judged([Attack.model_validate(QUIET)], [Epsilon.model_validate(r.model_dump(mode="json")) for r in rows]).values()
    assert found is not None and (found.unit, found.adjacency, found.proven) == ("record", "zero_out", 9.0)
    assert verdict([QUIET], [r.model_dump(mode="json") for r in rows])["level"] == "none shown"


def test_headline_prefers_the_refuted_claim_then_a_claim_then_the_weakest_proof(row: Any) -> None:
    attack = [Attack.model_validate(QUIET)]
    weak, claimed = epsilon(row, proven=900.0), epsilon(row, unit="client", claimed=2.0, proven=4.0)
    refuted = epsilon(row, adjacency="replace_one", claimed=1.0, demonstrated=1.5)
    assert headline(attack, [weak, claimed, refuted]) is refuted
    assert headline(attack, [weak, claimed]) is claimed
    assert headline(attack, [weak, epsilon(row, observer="model", claimed=1.0)]) is weak
    assert headline(attack, []) is None


def test_checks_pair_each_interval_with_its_control() -> None:
    found = {check.metric: (check.low, check.control) for check in checks(Attack.model_validate(image(0.3, margin=2.0, margin_low=1.0)))}
    assert found == {"reidentified": (0.3, 0.04), "psnr_margin": (1.0, 0.0)}
    found = {check.metric: (check.low, check.control) for check in checks(Attack.model_validate(member(0.6, tpr_low=0.2, shuffled=0.52)))}
    assert found == {"auc": (0.6, 0.52), "tpr": (0.2, 0.01)}
    assert checks(Attack.model_validate(member(0.6, shuffled=0.44)))[0].control == 0.5


@pytest.mark.parametrize(
    ("attacks", "changes", "said"),
    [
        ([image(0.8, share=0.92)], {}, ["92 %", "80 % to 100 %", "chance gives 4 %", "the server sees"]),
        ([member(0.6, tpr_low=0.12)], {}, ["17 %", "at least 12 %", "1 % of outsiders"]),
        ([image(0.1, share=0.2, margin=-1.0, margin_low=-2.0)], {}, ["20 % of the images re-identified where chance gives 4 %", "1 of 2 intervals"]),
        ([QUIET], {"proven": 3.2}, ["No attack got more than its control (1 attack scored", "The proven ε of 3.2 limits stronger attacks"]),
        ([QUIET], {"proven": "inf"}, ["no finite bound can be proven", "Take no comfort"]),
        ([], {}, ["not measured: no attack was run", "nothing was measured"]),
        ([{"attack": "inversion", "observer": "server", "metrics": {"psnr": None, "attack_loss": 0.1}}], {}, ["not measured", "could not be scored"]),
        (
            [QUIET],
            {"claimed": 5.3, "demonstrated": 6.2, "proven": 812.0, "ceiling": 7.4},
            ["ε = 5.3 is claimed", "at least 6.2", "812 can be proven", "could have shown up to 7.4"],
        ),
        ([QUIET], {"demonstrated": 4.0, "proven": 3.0}, ["more than is proven, so the proof does not describe what ran"]),
    ],
)
def test_sentences_carry_the_numbers(attacks: list[dict[str, Any]], changes: dict[str, Any], said: list[str], row: Any) -> None:
    text = " ".join(verdict(attacks, [row(**changes)])["sentences"]).replace("\N{NO-BREAK SPACE}", " ")
    for part in said:
        assert part in text


def test_without_rows_the_verdict_says_so() -> None:
    made = verdict([QUIET], [])
    assert made["level"] == "low"
    assert "No privacy loss ε was claimed or priced" in made["sentences"][1]


def test_a_row_outside_the_format_is_named() -> None:
    with pytest.raises(BadInput, match=r"^epsilon\[0\]: unit is 'person', expected 'record' or 'client'$"):
        verdict([], [{"observer": "server", "unit": "person", "adjacency": "zero_out"}])
