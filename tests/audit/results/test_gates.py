"""Gates: what fails, by which row; and nothing passes because nobody looked."""

from __future__ import annotations

import pytest
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.results.format import Epsilon, Metrics, Results
from dpfl_audit.audit.results.gates import check_attacks, check_rows, outcome, parse_gate
from dpfl_audit.audit.say.verdict import judged
from dpfl_audit.defenses.terms import Observer
from entries import QUIET, image
from stated import proven_otherwise, published

ROWS = [  # observer, unit, adjacency, proven
    ("server", "client", "zero_out", 26.0),
    ("server", "record", "zero_out", 7.0),
    ("model", "client", "zero_out", 3.0),
]


@pytest.fixture
def results(make_results, tmp_path) -> Results:
    epsilon = [
        {"observer": o, "unit": u, "adjacency": a, "delta": 1e-5, "claimed": 5.0 if i == 0 else None, "proven": proven}
        for i, (o, u, a, proven) in enumerate(ROWS)
    ]
    return Results.read(make_results(tmp_path / "r", n=4, rounds=2, noise_std=0.1, epsilon=epsilon))


def with_rows(results: Results, *rows: Epsilon) -> Results:
    """The same, judged by other rows."""
    fields = {name: value for name, value in results if name not in ("verdict", "format")}
    return judged(**{**fields, "epsilon": rows})


@pytest.mark.parametrize(
    ("gate", "failed", "row"),
    [
        ("proven > 10", True, "26, client, server, zero_out"),
        ("proven[record] > 10", False, "7, record, server, zero_out"),
        ("proven[client,server] > 10", True, "26, client, server, zero_out"),
        ("proven[server, client] > 10", True, "26, client, server, zero_out"),
        ("proven[model] >= 3", True, "3, client, model, zero_out"),
        ("proven[model] > 3", False, "3, client, model, zero_out"),
        ("proven < 5", True, "3, client, model, zero_out"),  # the least is the worst
        ("claimed <= 5", True, "5, client, server, zero_out"),
        ("proven >= inf", False, "26, client, server, zero_out"),
    ],
)
def test_a_gate_on_an_epsilon_says_which_row_it_gated(results, gate, failed, row):
    told = outcome(parse_gate(gate), results)
    assert told.failed is failed and told.sentence.endswith(f"({row}, δ = 1e-05)")
    assert told.sentence.startswith("gate failed: " if failed else "gate passed: ")


@pytest.mark.parametrize("gate", ["reidentified > 20", "auc > 60", "ssim < -1", "pool_share >= 1.5"])
def test_a_share_in_per_cent_is_no_gate(gate):
    """The page says 75 %, so `> 20` is what people type, and it had never failed."""
    with pytest.raises(BadInput, match=r"lies between 0 and 1.*20 % is 0\.2"):
        parse_gate(gate)


@pytest.mark.parametrize("gate", ["proven > 10", "proven[record,server] > 10", "proof != proven"])
def test_what_a_published_key_undoes_passes_no_gate(results, gate):
    """`proven[record,server] > 10` had passed at 2, with noise that anybody can take off."""
    told = outcome(parse_gate(gate), published(results))
    assert told.failed and "published" in told.sentence


def test_a_gate_on_a_metric_says_which_attack_was_worst(results):
    worst = max(results.attacks, key=lambda a: a.value("psnr"))
    told = outcome(parse_gate("psnr > 0"), results)
    assert told.failed and f"{worst.manner}, round {worst.round}" in told.sentence and worst.attack in told.sentence
    assert not outcome(parse_gate("psnr > 1000"), results).failed


@pytest.mark.parametrize(("p_value", "failed"), [(1e-4, True), (0.6, False)])
def test_pictures_picked_out_of_their_own_pool_are_re_identified_too(results, p_value, failed):
    """The page calls them so; where luck explains them, chance there may be above any gate."""
    attack = results.attacks[0]
    numbers = {**attack.numbers, "reidentified": 0.05, "pool_share": 0.38, "pool_chance": 0.1}
    own = attack.having(
        metrics=Metrics.of(numbers),
        intervals={**attack.intervals, "pool_share": (0.23, 0.55)},
        p_values={"pool_share": p_value},
        least_p_values={"pool_share": 1e-4},
    )
    said = outcome(parse_gate("reidentified > 0.2"), results.having(attacks=(own,)))
    assert said.failed is failed and ("own pool" in said.sentence) is failed


def test_levels_are_ordered_from_best_to_worst(results):
    high, severe = image(0.3, margin=4.0, margin_low=3.0), image(0.6)
    for attack, fails in ((QUIET, (1, 0, 0, 0)), (high, (1, 1, 1, 0)), (severe, (1, 1, 1, 1))):
        judged = results.having(attacks=(attack,))
        gates = ("level >= none found", "level > none found", "level >= high", "level == severe")
        assert tuple(int(outcome(parse_gate(g), judged).failed) for g in gates) == fails
    spellings = {parse_gate(f"level >= {word}") for word in ("none-found", "'none found'", "none_found")}
    assert len(spellings) == 1


def test_a_proof_is_gated_by_its_word(results):
    """From best to worst: proven, weak, none, not priced."""
    asked = results.epsilon[1]
    for proven, fails in ((7.0, (0, 0, 1)), (26.0, (1, 0, 0)), (float("inf"), (1, 1, 0))):
        judged = with_rows(results, proven_otherwise(asked, proven=proven))
        gates = ("proof != proven", "proof >= none", "proof == proven")
        assert tuple(int(outcome(parse_gate(g), judged).failed) for g in gates) == fails
    unpriced = with_rows(results, proven_otherwise(asked, proven=None))
    assert outcome(parse_gate("proof != proven"), unpriced).failed
    with pytest.raises(BadInput, match="ε was not priced, so that it passes says nothing"):
        outcome(parse_gate("proof == none"), unpriced)


def test_a_claim_is_gated_by_what_becomes_of_it(results):
    """Proven; above a loose proof; below an exact curve; refuted by a test; with noise that anybody draws."""
    exact = {"mu": 1.0, "accountant": "closed form", "proven": 4.38}
    loose = {"mu": None, "accountant": "PLD", "proven": 4.38}
    asked = results.epsilon[1].having(demonstrated=None, demonstrated_on_condition=None)
    for claimed, numbers, shown, fails in (
        (5.0, exact, None, (0, 0)),
        (3.0, loose, None, (1, 0)),
        (3.0, exact, None, (1, 1)),
        (3.0, loose, 3.5, (1, 1)),
    ):
        row = proven_otherwise(asked.having(claimed=claimed, demonstrated=shown), unit="client", **numbers)
        judged = with_rows(results, row)
        gates = ("claim != holds", "claim == does-not-hold")
        assert tuple(int(outcome(parse_gate(g), judged).failed) for g in gates) == fails
    row = proven_otherwise(asked.having(claimed=5.0), unit="client", **exact)
    assert outcome(parse_gate("claim != holds"), published(with_rows(results, row))).failed
    with pytest.raises(BadInput, match="no ε is claimed"):
        outcome(parse_gate("claim != holds"), with_rows(results, row.having(claimed=None)))


def test_numbers_are_not_compared_for_being_equal():
    """An attack's number differs in its last digit from machine to machine."""
    with pytest.raises(
        BadInput, match="== compares words, of level and proof and claim; a number takes >, <, >= or <="
    ):
        parse_gate("psnr == 20")
    with pytest.raises(BadInput, match="'safe' is not a proof"):
        parse_gate("proof == safe")


@pytest.mark.parametrize(
    ("gate", "words"),
    [
        ("auc > 0.5", "no auc was measured"),
        ("demonstrated > 1", "no row has a demonstrated ε"),
        ("claimed[model] > 1", "no row has a claimed ε"),
        ("proven[uplink] > 1", "there is no such row; rows are [client,server,zero_out], [record,server,zero_out]"),
    ],
)
def test_what_was_not_measured_does_not_pass(results, gate, words):
    with pytest.raises(BadInput, match="--fail-if") as error:
        outcome(parse_gate(gate), results)
    assert words in str(error.value)


def test_a_gate_that_would_pass_where_something_was_not_measured_does_not(results):
    """One of three inversions was not scored, for lack of truth: that the others pass says nothing of it."""
    first, *others = results.attacks
    blind = first.having(metrics=type(first.metrics).of({"attack_loss": 1.0}), not_measured={"all": "no truth"})
    partly = results.having(attacks=(blind, *others))
    assert outcome(parse_gate("psnr > 0"), partly).failed  # it fails whatever the first would have shown
    with pytest.raises(BadInput, match="psnr was not measured for inversion"):
        outcome(parse_gate("psnr > 1000"), partly)
    unpriced = with_rows(results, results.epsilon[1], proven_otherwise(results.epsilon[2], proven=None))
    with pytest.raises(BadInput, match="proven was not measured for client, model"):
        outcome(parse_gate("proven > 10"), unpriced)


def test_an_attack_whose_loss_is_in_doubt_fails_a_gate_but_passes_none(results):
    doubted = results.having(attacks=tuple(a.having(doubt="loss taken as cross-entropy") for a in results.attacks))
    with pytest.raises(BadInput):
        outcome(parse_gate("psnr > 1000"), doubted)
    assert outcome(parse_gate("psnr > 0"), doubted).failed


def test_a_canary_audit_that_was_asked_for_and_measured_nothing_does_not_pass(results):
    """That of the server showed nothing above 1; that of the model did not run (g.toml)."""
    first, *others = results.epsilon
    *middle, last = others
    shown = first.having(demonstrated=0.5, ceiling=8.6)
    gate = parse_gate("demonstrated > 1")
    assert not outcome(gate, results.having(epsilon=(shown, *middle, last))).failed
    untested = results.having(epsilon=(shown, *middle, last.having(untested="it was secretly drawn")))
    with pytest.raises(BadInput, match=f"demonstrated was not measured for .*{last.observer}"):
        outcome(gate, untested)


def test_a_test_that_could_not_have_failed_its_gate_does_not_pass_it(results):
    """60 replicas show at most 2.57: that nothing above 5 was shown says nothing."""
    first, *others = results.epsilon

    def having(**numbers) -> Results:
        return results.having(epsilon=(first.having(**numbers), *others))

    blind = having(demonstrated=1.0, ceiling=2.57)
    with pytest.raises(BadInput, match=r"could have shown 2\.57 at most.*take more draws"):
        outcome(parse_gate("demonstrated > 5"), blind)
    assert outcome(parse_gate("demonstrated > 0.5"), blind).failed
    assert not outcome(parse_gate("demonstrated > 2.5"), blind).failed
    assert not outcome(parse_gate("demonstrated > 5"), having(demonstrated=1.0, ceiling=8.6)).failed


def test_a_level_of_attacks_that_nobody_could_score_does_not_pass(make_results, tmp_path):
    blind = Results.read(make_results(tmp_path / "b", n=2, truth=False))
    with pytest.raises(BadInput, match="no level was measured"):
        outcome(parse_gate("level >= high"), blind)


def test_a_gate_on_a_row_that_the_run_will_not_price_is_refused_beforehand():
    """A whole run had been done before the sentence (item 12 of a newcomer's list)."""
    priced = [Observer("server"), Observer("downlink")], ["zero_out"]
    check_rows([parse_gate("proven[client,server] > 10"), parse_gate("proven > 1")], *priced)
    for gate, word in (("proven[leader] > 1", "leader"), ("proven[server,replace_one] > 1", "replace_one")):
        with pytest.raises(BadInput, match=f"no row of {word}; its rows are of client, record, server, downlink"):
            check_rows([parse_gate(gate)], *priced)


def test_a_gate_that_no_attack_can_answer_is_refused_beforehand():
    gates = [parse_gate(text) for text in ("psnr > 1", "proven > 1", "level > none found")]
    check_attacks(gates, ["inversion"])
    with pytest.raises(BadInput, match="no attack of this run measures psnr; add --attack inversion"):
        check_attacks(gates, ["membership-loss"])
    check_attacks([parse_gate("auc > 1"), parse_gate("mu > 1")], ["membership-rmia", "canary"])
