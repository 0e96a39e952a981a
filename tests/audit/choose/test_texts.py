"""A study of text: what limits can be asked of it, and what it measures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dpfl_audit.audit.choose.carry_out import carry_out_study as choose
from dpfl_audit.audit.choose.goals import Goals
from dpfl_audit.audit.choose.opening import StudyOptions, opened_case
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.setup.key import PUBLISHED

RAW: dict[str, Any] = {
    "data": {"name": "notes", "clients": 2, "samples_per_client": 2},
    "model": {"name": "transformer", "options": {"width": 64, "layers": 2, "causal": True}},
    "local": {"optimiser": "sgd", "lr": 0.5, "batch_size": 2, "loss": "next_token"},
    "scheme": {"name": "local-gaussian", "clip": 1.0, "noise_multiplier": 1.0, "rounds": 1, "share": "gradient"},
}
OPTIONS = StudyOptions(
    vary=("scheme.noise_multiplier=1e-4,1",),
    goals=Goals(reidentified_at_most=0.9, words_told_at_most=0.8),
    trials=2,
    rows="auxiliary",
    seeds=2,
    minutes=0.01,
    key=PUBLISHED,
)


@pytest.mark.full
def test_a_study_of_next_words_measures_who_is_picked_out_and_takes_the_noise_that_hides_them(tmp_path) -> None:
    study = choose(RAW, tmp_path / "study", OPTIONS)
    picked = {one.point["scheme.noise_multiplier"]: one.outcome.reidentified for one in study.trials}
    assert {leak.attack for leak in picked.values()} == {"inversion-text"}
    assert picked[1.0].share < picked[1e-4].share
    told = [one.outcome.words_told for one in study.trials]
    assert told[0].share > 0.8 > told[1].high and study.chosen.point["scheme.noise_multiplier"] == 1.0


@pytest.mark.full
def test_next_words_have_no_accuracy_and_classes_of_texts_have() -> None:
    options = replace(OPTIONS, goals=Goals(accuracy_at_least=0.7))
    with pytest.raises(BadInput, match="no classes of records"):
        opened_case(RAW, options, PUBLISHED, Path())
    told = {**RAW, "local": {**RAW["local"], "loss": "cross_entropy"}}
    assert opened_case(told, options, PUBLISHED, Path()).classifies
