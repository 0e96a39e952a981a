"""`audit epsilon`: what the table says holds as it is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dpfl_audit.audit.proven.numbers_table import EpsilonTable, text
from dpfl_audit.audit.proven.table import table
from dpfl_audit.audit.results.format import Epsilon
from dpfl_audit.audit.say.statement import statement
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import read_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.key import PUBLISHED
from stated import proven_row


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
    row = proven_row(**numbers)
    line = text(EpsilonTable("config.toml", delta=1e-5, rows=(row,))).splitlines()[2]
    assert said in line.split("zero_out")[1]


CLAIMED = """
data = { name = "digits", clients = 2, samples_per_client = 4 }
model = { name = "logistic" }
scheme = { name = "local-gaussian", clip = 1.0, noise_multiplier = 1.0, rounds = 2 }
claim = { epsilon = 3.0, delta = 1e-5, unit = "record", observer = "server", adjacency = "zero_out" }
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "config.toml").write_text(CLAIMED)
    return tmp_path / "config.toml"


def test_a_row_carries_a_gaussians_curve_only_where_that_is_the_law(config: Path) -> None:
    """Responses are composed by a closed form too, and by that name 67.9 % stood for 88.1 %."""
    place = {"unit": "client", "adjacency": "zero_out", "observers": ["server"]}
    (row,) = table(config, **place).rows
    assert row.accountant == "closed form" and row.mu == pytest.approx(2**0.5, rel=1e-3)
    config.write_text(
        CLAIMED.replace('"local-gaussian", clip = 1.0, noise_multiplier = 1.0', '"ldp-fl", epsilon = 2.0')
    )
    (row,) = table(config, **place).rows
    assert row.accountant == "closed form" and row.mu is None


@pytest.mark.parametrize(
    ("options", "seen"),
    [({}, True), ({"unit": "client"}, False), ({"observers": ["downlink"]}, False), ({"unit": "record"}, True)],
)
def test_a_claim_does_not_vanish_with_its_row(config: Path, options: dict[str, Any], seen: bool) -> None:
    found = table(config, **options)
    assert any(row.claimed == 3.0 for row in found.rows) is seen
    said = "An ε is claimed by the owner per record towards server (zero_out), which is none of these rows."
    assert (said in text(found)) is not seen and (found.document().get("unseen") == said) is not seen


@pytest.mark.parametrize(("delta", "said"), [(1e-5, False), (0.01, False), (0.02, True)])
def test_a_delta_that_promises_nothing_is_said_to(config: Path, delta: float, said: bool) -> None:
    lines = text(table(config, delta=delta)).splitlines()
    assert any(line.startswith("all rows") and "promises nothing" in line for line in lines) is said


def test_a_reason_stands_once_with_the_rows_that_it_is_about() -> None:
    def row(observer: str, adjacency: str, *notes: str) -> Epsilon:
        return proven_row(observer=observer, adjacency=adjacency, proven=1.0, notes=notes)

    rows = (
        row("server", "zero_out", "all", "one"),
        row("server", "replace_one", "all", "two"),
        row("model", "zero_out", "all", "three"),
        row("model", "replace_one", "all", "three", "two"),
    )
    said = dict(line.split(": ") for line in text(EpsilonTable("config.toml", 1e-5, rows)).splitlines()[6:])
    rows_of = {reason: where.split(" (")[0] for where, reason in said.items()}
    assert [rows_of[name] for name in ("all", "one", "three")] == ["all rows", "server", "model"]
    assert {"server", "model"} <= set(rows_of["two"].split())


def test_what_a_budget_allows_grows_with_the_noise_so_no_factor_is_named(config: Path) -> None:
    """Four releases now, forty with the noise that a factor had named: 3.62 where 1 was promised."""
    changes = ["scheme.name=ldp", "scheme.sigma=20", "scheme.budget=0.5", "claim=none"]
    changes.insert(0, "scheme.noise_multiplier=")
    found = table(config, overrides=changes, target_epsilon=1.0, unit="client", adjacency="zero_out")
    assert found.targets and all(target.noise_factor is None for target in found.targets)
    assert "[scheme] target_epsilon" in text(found)


@pytest.mark.parametrize("kind", ["published", "secret"])
def test_a_published_key_is_said_beside_what_it_undoes(kind: str, config: Path, tmp_path: Path) -> None:
    """Its noise was taken off from the attacker's half, beside "proven 2" without a word."""
    made = build(read_config(config), tmp_path)
    train(made, tmp_path / "s", key=PUBLISHED if kind == "published" else "0" * 63 + "1")
    found = table(tmp_path / "s")
    assert found.secret is (kind == "secret")
    assert ("can draw" in text(found)) is not found.secret
    assert found.document().get("noise_key") == (None if found.secret else "published")
    of_config = table(config, key=PUBLISHED if kind == "published" else "0" * 63 + "1")
    assert of_config.secret is found.secret and table(config).secret
    assert ("nothing of" in " ".join(statement(found.rows))) is not found.secret
