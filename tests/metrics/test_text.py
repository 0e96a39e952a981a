"""Metrics of texts, by hand; and tests whose p-values hold where nothing was read."""

from __future__ import annotations

import numpy as np
import pytest
from dpfl_audit.metrics.text import TextsBeside, rouge_l, rouge_n, score_texts

WORDS = [f"w{k}" for k in range(60)]


def texts(count, seed, length=6):
    rng = np.random.default_rng(seed)
    return [tuple(rng.choice(WORDS, length, replace=False)) for _ in range(count)]


def beside(count=4, seed=0):
    every = texts(60, seed)
    return TextsBeside(every[:count], every[count:40], every[40:])


def test_rouge_by_hand():
    """Lin (2004): police killed the gunman; police kill the gunman; the gunman kill police."""
    original = ("police", "killed", "the", "gunman")
    near, far = ("police", "kill", "the", "gunman"), ("the", "gunman", "kill", "police")
    assert (rouge_n(original, near, 1), rouge_n(original, near, 2)) == (0.75, 1 / 3)
    assert (rouge_l(original, near), rouge_l(original, far)) == (0.75, 0.5)
    assert (rouge_n(("a",), ("a",), 2), rouge_n(("a",), ("b",), 2), rouge_l((), ("a",))) == (1.0, 0.0, 0.0)


def test_texts_that_came_back_in_another_order_of_the_batch():
    of = beside()
    scores = score_texts(of, [*reversed(of.originals)], [], relabellings=400)
    assert [scores[name] for name in ("whole", "rouge1", "rouge2", "rougeL", "in_place", "words_told")] == [1.0] * 6
    assert (scores["exact"], scores["words_wrong"], scores["reidentified"]) == (1.0, 0.0, 1.0)
    assert scores["p_values"] == {"words_told": 1 / 401, "reidentified": 1 / 401} == scores["least_p_values"]
    assert sorted((p["original"], p["reconstruction"]) for p in scores["pairs"]) == [(0, 3), (1, 2), (2, 1), (3, 0)]
    assert scores["controls"]["other_texts"]["whole"] == 0.0


def test_a_text_that_was_not_read_counts_nothing_and_none_counts_twice():
    of = beside()
    scores = score_texts(of, [of.originals[0]], [], relabellings=50)
    assert (scores["whole"], scores["rouge1"], scores["in_place"]) == (0.25, 0.25, 0.25)
    twice = score_texts(of, [of.originals[0]] * 2, [], relabellings=50)
    assert twice["whole"] == 0.25


def test_a_word_that_the_tokenizer_lacks_is_told_by_nobody():
    """Of two different words of each text one was unknown, and came back as that: half is told, and no text whole."""
    of = beside()
    lacking = [(text[0], "[unk]", "[unk]") for text in of.originals]
    scores = score_texts(TextsBeside(lacking, of.others, of.own), lacking, ["[unk]"], relabellings=50)
    assert (scores["whole"], scores["words_told"], scores["words_wrong"]) == (0.0, 0.5, 0.0)


def test_words_alone_are_counted_without_order():
    of = beside()
    told = sorted({word for text in of.originals for word in text})
    scores = score_texts(of, [], told, relabellings=400)
    assert (scores["words_told"], scores["words_wrong"], scores["whole"]) == (1.0, 0.0, 0.0)
    assert scores["p_values"]["words_told"] < 0.01
    half = score_texts(of, [], [*told[: len(told) // 2], "never", "ever"], relabellings=50)
    assert half["words_wrong"] == 2 / (len(told) // 2 + 2)


def test_a_whole_text_that_anybody_might_have_said_is_not_beyond_doubt():
    every = texts(60, 0)
    same = TextsBeside([every[0], ("hello",)], every[2:40], [*every[40:], every[0]])
    scores = score_texts(same, [every[0], ("hello",)], [], relabellings=50)
    assert (scores["whole"], scores["exact"]) == (1.0, 0.0)


def test_words_that_know_nothing_pass_in_one_run_of_twenty():
    """Readings drawn without the batch: p ≤ 0.05 in 5 % of 40 runs on average, in at most 7 with 99.9 %."""
    passed = 0
    for seed in range(40):
        of, made = beside(seed=seed), texts(4, 10_000 + seed)
        passed += score_texts(of, made, [], seed=seed, relabellings=59)["p_values"]["words_told"] <= 0.05
    assert passed <= 7


def test_of_many_texts_pairs_are_found_by_their_words_and_scored_by_their_order():
    """400 texts of five words each, read in another order of texts and with two words exchanged."""
    rng = np.random.default_rng(0)
    texts = [tuple(f"w{n}" for n in rng.integers(0, 300, 5)) for _ in range(400)]
    order = rng.permutation(400)
    made = [(texts[k][1], texts[k][0], *texts[k][2:]) for k in order]
    scores = score_texts(TextsBeside(texts, [], []), made, (), 0, 10)
    assert {pair["original"]: int(order[pair["reconstruction"]]) for pair in scores["pairs"]} == {
        k: k for k in range(400)
    }
    assert scores["rouge1"] == 1.0 and scores["rougeL"] == pytest.approx(0.8, abs=0.01)
