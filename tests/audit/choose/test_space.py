"""What a study varies."""

from __future__ import annotations

import tomllib

import pytest
from dpfl_audit.audit.choose.space import Span, parse_space, said
from dpfl_audit.audit.choose.space import overrides as as_overrides
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.setup.config import with_overrides


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["scheme.clip"], "expected TABLE.KEY=VALUE"),
        (["clip=1,2"], "expected TABLE.KEY=VALUE"),
        (["scheme.clip=1"], "single setting"),
        (["scheme.clip=1,1"], "every value once"),
        (["scheme.clip=nan,1"], "every number must be finite"),
        (["scheme.clip=1,inf"], "every number must be finite"),
        (["scheme.clip=1,,2"], "a value is missing"),
        (["scheme.clip=2..1"], "the lower one first"),
        (["scheme.clip=a..b"], "expected two numbers"),
        (["scheme.clip=1..inf"], "expected two numbers"),
        ([f"scheme.rounds=1..{10**400}"], "expected two numbers"),
        (["scheme.clip=1,2", "scheme.clip=3,4"], "given twice"),
        (["audit.delta=1e-5,1e-6"], "what is asked is the same"),
        (["capture.rounds=1,2"], "what is asked is the same"),
        (["data.split_seed=1,2"], "decides whose records are whose"),
        (["data.train_on=auxiliary,training"], "decides whose records are whose"),
    ],
)
def test_what_is_no_space_is_said_in_one_sentence(given: list[str], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence) as error:
        parse_space(given)
    assert "\n" not in str(error.value)


def test_values_are_read_as_people_type_them() -> None:
    space = parse_space(["scheme.name=ldp,dpsgd", "scheme.clip=.1,1,10", "local.lr=[0.1, 0.2]", "scheme.rounds=1..4"])
    first = next(space.grid(2))
    assert first == {"scheme.name": "ldp", "scheme.clip": 0.1, "local.lr": 0.1, "scheme.rounds": 1}
    assert space.size == 2 * 3 * 2 * 4 == len(list(space.grid(4)))


def test_a_point_says_the_same_as_set() -> None:
    point = {"scheme.name": "ldp", "scheme.clip": 0.5, "scheme.rounds": 3, "local.lr": 1e-4}
    tables = with_overrides({}, as_overrides(point))
    assert tables == {"scheme": {"name": "ldp", "clip": 0.5, "rounds": 3}, "local": {"lr": 1e-4}}
    assert tomllib.loads("\n".join(as_overrides(point)))["scheme"]["rounds"] == 3
    assert said(point).split(", ") == ["scheme ldp", "clip 0.5", "rounds 3", "lr 0.0001"]


@pytest.mark.parametrize("trials", [2, 6, 24, 100])
def test_a_design_begins_with_a_grid_within_the_space_and_leaves_half_for_the_search(trials: int) -> None:
    space = parse_space(["scheme.noise_std=1e-4..1e-1", "scheme.clip=0.1,1,10"])
    points = space.design(trials)
    assert len(points) <= trials / 2 or {p["scheme.noise_std"] for p in points} == {1e-4, 1e-1}
    assert len({tuple(p.values()) for p in points}) == len(points)
    for point in points:
        assert 1e-4 <= point["scheme.noise_std"] <= 1e-1 and point["scheme.clip"] in (0.1, 1, 10)
    if trials >= 6:
        assert {p["scheme.noise_std"] for p in points} >= {1e-4, 1e-1}


def test_a_small_space_is_looked_at_whole() -> None:
    space = parse_space(["scheme.clip=1,2,3", "scheme.rounds=1..4"])
    assert len(space.design(12)) == 12 and len(space.design(11)) < 12


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(("low", "high"), [(1, 7), (1, 1000)])
def test_levels_of_a_range_keep_its_limits_and_their_order(low: int, high: int, whole: bool) -> None:
    levels = Span("scheme.rounds", low, high, whole).levels(5)
    assert levels[0] == low and levels[-1] == high and list(levels) == sorted(set(levels))
    ratios = [b / a for a, b in zip(levels, levels[1:])]
    if high >= 10 * low and not whole:
        assert max(ratios) / min(ratios) < 1.02  # equal factors, to three digits
