"""`audit epsilon`: what the table says holds as it is said."""

from __future__ import annotations

import pytest
from dpfl_audit.audit.proven.table import EpsilonTable, text
from dpfl_audit.audit.results.format import Epsilon


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"proven": 12.5511}, "12.56"),  # nearest, 12.55, is more than is proven
        ({"proven": 0.0034}, "0.0034"),  # to two decimals it would be 0
        ({"proven": 5.4}, "5.4"),
        ({"demonstrated": 4.999}, "4.99"),
        (
            {"demonstrated": 1.004, "condition": "the noise is Gaussian", "demonstrated_on_condition": 37.59},
            "1, 37.5 if",
        ),
        ({"claimed": 2.3511, "claimed_by": "accountant"}, "2.36 (accountant)"),
        ({"claimed": 5.3, "claimed_by": "paper"}, "5.3 (paper)"),
        ({"proven": 213187654.3}, "2.132·10⁸"),
    ],
)
def test_what_is_proven_is_rounded_up_and_what_is_demonstrated_down(numbers, said):
    row = Epsilon(observer="server", unit="client", adjacency="zero_out", delta=1e-5, **numbers)
    line = text(EpsilonTable("config.toml", delta=1e-5, rows=(row,))).splitlines()[2]
    assert said in line.split("zero_out")[1]
