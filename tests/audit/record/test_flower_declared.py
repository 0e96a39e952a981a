"""What Flower declares is read once, into plain numbers, of Flower's own classes."""

from __future__ import annotations

from math import log, sqrt

import pytest
from dpfl_audit.audit.record.flower.declared import CentralNoise, LocalNoise, merges_by_mean, weight_key

pytest.importorskip("flwr")
from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    FedMedian,
)


def test_a_local_dp_mod_is_read_and_no_other_mod() -> None:
    noise = LocalNoise.of(LocalDpMod(2.0, 0.5, 4.0, 1e-5))
    assert noise is not None and noise.values == (2.0, 0.5, 4.0, 1e-5) and noise.noisy
    assert noise.noise_std == pytest.approx(0.5 * sqrt(2 * log(1.25e5)) / 4, rel=1e-12)
    assert LocalNoise.of(fixedclipping_mod) is None
    assert not LocalNoise(1.0, 1.0, 0.0, 1e-5).noisy and not LocalNoise(1.0, 0.0, 1.0, 1e-5).noisy


def test_a_fixed_wrapper_round_a_strategy() -> None:
    strategy = DifferentialPrivacyServerSideFixedClipping(FedAvg(weighted_by_key="rows"), 1.5, 0.8, 10)
    noise = CentralNoise.of(strategy)
    assert noise is not None and not noise.adaptive and noise.noisy
    assert (noise.clip, noise.multiplier, noise.clients) == (0.8, 1.5, 10)
    assert noise.noise_std == pytest.approx(0.12, rel=1e-12)
    assert merges_by_mean(strategy) and weight_key(strategy) == "rows"
    assert CentralNoise.of(FedAvg()) is None and not merges_by_mean(FedMedian())


def test_an_adaptive_wrapper_is_read_as_it_is_now() -> None:
    strategy = DifferentialPrivacyServerSideAdaptiveClipping(FedAvg(), 1.0, 20, initial_clipping_norm=0.5)
    before = CentralNoise.of(strategy)
    strategy.clipping_norm = 0.7
    now = CentralNoise.of(strategy)
    assert before is not None and now is not None and before.adaptive
    assert (before.clip, now.clip, now.quantile, now.clip_rate) == (0.5, 0.7, 0.5, 0.2)
    assert now.count_std == pytest.approx(1.0)  # n/20
