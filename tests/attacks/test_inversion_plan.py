"""Every method of inversion keeps to `Strategy`: one row a method, a case to which it applies and one to which not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.match.case import Auxiliary, Case
from dpfl_audit.attacks.inversion.match.evaluate import loss_at
from dpfl_audit.attacks.inversion.match.features import FEATURES
from dpfl_audit.attacks.inversion.match.solution import Solution, start_images
from dpfl_audit.attacks.inversion.match.wiener import WienerFilter
from dpfl_audit.attacks.inversion.plan import PLAN, cost, cost_of
from dpfl_audit.attacks.inversion.read.local_training import Recipe, undone
from dpfl_audit.attacks.inversion.read.table import OwnRows
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.attacks.inversion.settings import Settings
from dpfl_audit.attacks.inversion.solve import cases_of, solve_cases
from dpfl_audit.attacks.inversion.strategies import row_fit
from dpfl_audit.attacks.inversion.strategies.by_step import readable
from dpfl_audit.attacks.inversion.strategies.simulated import can_simulate, orders, update_distance
from dpfl_audit.attacks.inversion.strategies.simulating import nearest_update
from dpfl_audit.attacks.inversion.strategies.strategy import PHASES, Found, StrategyWork
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data.columns import TableColumn, facts_of, table_columns
from dpfl_audit.defenses.data.unit_scale import UnitScale
from messages import flat, target_of
from tiers import but
from torch import Tensor, nn
from torch.nn import functional as F

SHAPE, CLASSES, N = (3, 6, 6), 4, 4
LABELS = torch.tensor([0, 1, 2, 2])
FEW = Inversion(iterations=4, tv=0.001)
ALL = replace(FEW, exact=True, features=FEATURES, softened=2, along=0.5, simulated=3)
COLUMNS = (
    *(TableColumn(f"number {k}") for k in range(3)),
    TableColumn("word", tuple("abcdefg")),
    TableColumn("sex", ("f",)),
)


def built(name: str, **options: object) -> nn.Module:
    side = 12 if name in ("lenet", "residual") else 6
    if name != "residual":
        shape = {"input_shape": (3, side, side), "classes": CLASSES, "mean": [0.5] * 3, "std": [0.25] * 3, "seed": 0}
        return models.build(name, **shape, **options).eval()
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(800, CLASSES)
    ).eval()


def pictures(side: int) -> Tensor:
    rough = torch.rand(N, 3, 3, 3, generator=torch.Generator().manual_seed(1))
    return F.interpolate(rough, (side, side), mode="bilinear")


def noisy(target: Target, share: float) -> Target:
    std = share * float(target.gradient.norm()) / len(target.gradient) ** 0.5
    noise = torch.randn(len(target.gradient), generator=torch.Generator().manual_seed(2))
    return replace(target, gradient=target.gradient + std * noise, noise_std=std)


def trained(module: nn.Module, images: Tensor, optimiser: str, lr: float, size: int) -> Target:
    """One epoch of a client by torch's own optimiser."""
    client, recipe = copy.deepcopy(module), Recipe(optimiser, lr, (size,) * (N // size), 1)
    steps = (torch.optim.Adam if optimiser == "adam" else torch.optim.SGD)(client.parameters(), lr=lr)
    for rows in torch.arange(N).split(size):
        steps.zero_grad()
        F.cross_entropy(client(images[rows]), LABELS[rows]).backward()
        steps.step()
    update = flat(client) - flat(module)
    read = -update / recipe.scale if recipe.linear else -update
    if optimiser == "adam" and size == N:
        read = undone(recipe, update, flat(module), 0.0, scale_known=True)
    linear = recipe.linear
    return Target("t", flat(module), read, LABELS, N, scale_known=linear, recipe=recipe, update=update)


def case(module: nn.Module, target: Target, settings: Settings, auxiliary: Auxiliary | None = None) -> Case:
    side = 12 if any(isinstance(part, nn.Conv2d) for part in module.modules()) else 6
    return cases_of(module, [target], (3, side, side), settings, 0, [auxiliary or Auxiliary()])[0]


def of_lenet(settings: Settings = ALL, noise: float = 0.0, auxiliary: Auxiliary | None = None) -> Case:
    module = built("lenet")
    return case(module, noisy(target_of(module, pictures(12), LABELS), noise), settings, auxiliary)


def of_mlp(width: int) -> Case:
    module = built("mlp", widths=[width, 16])
    return case(module, target_of(module, pictures(6), LABELS), ALL)


def by_adam(size: int) -> Case:
    module = built("mlp", widths=[48, 16])
    return case(module, trained(module, pictures(6), "adam", 1e-3, size), replace(ALL, along=0.0, simulated=0))


def of_lenet_by_sgd() -> Case:
    module = built("lenet")
    return case(module, trained(module, pictures(12), "sgd", 0.1, 2), ALL)


def softened() -> Case:
    module = built("residual")
    return case(module, target_of(module, pictures(12), LABELS), ALL)


def of_table(noise: float, width: int = 24) -> Case:
    rng = np.random.default_rng(0)
    words = [np.eye(w)[rng.integers(0, w, 300)] for w in (8, 2)]
    rows = torch.tensor(np.concatenate([rng.normal(size=(300, 3)), *words], 1), dtype=torch.float32)
    mean, std = rows.mean(0).tolist(), rows.std(0).tolist()
    columns = table_columns(facts_of(COLUMNS), rows.shape[1], mean, std)
    module = models.build("mlp", input_shape=(13,), classes=2, mean=mean, std=std, seed=0, widths=[width, width]).eval()
    labels = (rows[:, 0] > 0).long()
    target = target_of(module, rows[:6], labels[:6])
    scale = UnitScale.of(columns)
    known = Auxiliary(rows=OwnRows(scale.images(rows[6:206]), labels[6:206]))
    network = scale.module(module).eval()
    return cases_of(network, [noisy(target, noise)], (len(scale.least), 1, 1), ALL, 0, [known])[0]


def in_any_order(of: Case, solution: Solution) -> float:
    """How far the update of images is from the one sent, in the order that a guess is simulated in."""
    order = orders(of.seed, of.target.key, 1, of.target.count)[0]
    return update_distance(of, solution.images[order], solution.labels[order])


def by_objective(of: Case, solution: Solution) -> float:
    return loss_at(replace(of, labels=solution.labels), solution.images)


@dataclass(frozen=True)
class Row:
    """made: a case to which a method applies. other: one to which it does not. far: what the method goes by."""

    made: Callable[[], Case]
    other: Callable[[], Case]
    far: Callable[[Case, Solution], float] = by_objective


PRIOR = replace(FEW, objective="euclidean", tv=0.0, learned=True)
ROWS: dict[str, Row] = {
    "first layer": Row(lambda: of_mlp(64), of_lenet),
    "one adaptive step": Row(lambda: by_adam(N), lambda: by_adam(2)),
    "features": Row(of_lenet, lambda: of_mlp(64)),
    "learned prior": Row(lambda: of_lenet(PRIOR, 0.3, Auxiliary(WienerFilter.learned(pictures(12)))), of_lenet),
    "softened search": Row(softened, of_lenet),
    "search": Row(of_lenet, softened),
    "first layer of the guess": Row(lambda: of_mlp(12), of_lenet),
    "polish": Row(of_lenet, softened),
    "adaptive steps": Row(lambda: by_adam(2), of_lenet_by_sgd, in_any_order),
    "row fit": Row(lambda: of_table(0.02), lambda: of_table(2.0)),
    "simulated training": Row(of_lenet_by_sgd, of_lenet, lambda of, solution: nearest_update(of, [solution]).loss),
}


@pytest.fixture(autouse=True)
def few_rows_fitted(monkeypatch) -> None:
    """From fewer starts, with one damping and fewer sweeps: how it is begun, and not how far it comes."""
    for name, value in {"BEGUN": 8, "DAMPINGS": (3.0,), "SWEEPS": 2}.items():
        monkeypatch.setattr(row_fit, name, value)


def again(cases, progress) -> list[Found]:
    return solve_cases(cases, progress)


def test_every_method_has_a_row_and_its_place() -> None:
    assert [strategy.name for strategy in PLAN] == list(ROWS)
    phases = [PHASES.index(strategy.phase) for strategy in PLAN]
    assert phases == sorted(phases) and set(phases) == {0, 1, 2, 3}


@pytest.mark.parametrize("strategy", PLAN, ids=lambda strategy: strategy.name)
def test_a_method_says_where_it_applies_and_costs_something(strategy) -> None:
    row = ROWS[strategy.name]
    made, other = row.made(), row.other()
    assert strategy.applies(made) == "" and strategy.cost(made) > 0
    why = strategy.applies(other)
    assert isinstance(why, str) and why and "\n" not in why and not why.endswith(".")
    assert cost_of(strategy, other) == 0 < cost_of(strategy, made) <= cost(made)
    planned = replace(made, labels=torch.zeros(0, dtype=torch.long), seed=1)  # nobody inferred them, nothing is drawn
    assert (strategy.applies(planned), strategy.cost(planned)) == ("", strategy.cost(made))


@pytest.mark.parametrize("name", but(ROWS, "adaptive steps"))
def test_a_method_makes_nothing_worse_and_says_what_it_assumed(name) -> None:
    """From the attack's own start, with what the methods that read made of it."""
    row, strategy = ROWS[name], next(s for s in PLAN if s.name == name)
    made = row.made()
    start = start_images(0, made.target.key, 0, made.target.count, made.shape)
    before = Solution(start, start, made.labels, 0.0)
    before = replace(before, loss=row.far(made, before))
    given = Found(solution=before)
    for reader in PLAN:
        if reader.phase == "read" and strategy.phase != "read" and not reader.applies(made):
            (read,) = reader.solve([made], [given], StrategyWork(None, again))
            given = replace(read, solution=before, sure=False)
    ticks: list[tuple[int, int]] = []
    (found,) = strategy.solve(
        [made], [given], StrategyWork(lambda done, total, /, words="": ticks.append((done, total)), again)
    )
    after = found.best
    assert row.far(made, after) <= before.loss * (1 + 1e-4) and after.images.shape == start.shape
    assert after.images.min() >= 0 and after.images.max() <= 1
    assert all(0 <= done <= total for done, total in ticks)
    assert all(isinstance(words, str) and words for words in strategy.assumed(made, after))


@pytest.mark.parametrize("name", but(ROWS, "adaptive steps"))
def test_the_list_says_of_every_method_whether_it_ran(name: str) -> None:
    """And a case comes to the same beside another one that is solved otherwise."""
    made = ROWS[name].made()
    (alone,) = solve_cases([made])
    assert list(alone.methods) == list(ROWS)
    assert alone.methods[name] == "" or alone.sure
    for strategy in PLAN:
        if why := strategy.applies(made):
            assert alone.methods[strategy.name] == why
    searches = [strategy.name for strategy in PLAN if strategy.phase == "search" and not alone.methods[strategy.name]]
    assert len(searches) == int(not alone.sure)


@pytest.mark.full
def test_cases_of_other_settings_or_networks_go_apart() -> None:
    """Searched and simulated: in one call each comes to what it does alone."""
    read_twice, again = of_lenet_by_sgd(), of_lenet_by_sgd()  # of a network of its own
    every = [of_lenet(), read_twice, again, read_twice.asked(simulated=2), read_twice.asked(along=0.0, reorder=True)]
    for made, found in zip(every, solve_cases(every)):
        (alone,) = solve_cases([made])
        assert torch.equal(alone.best.images, found.best.images) and alone.best.loss == found.best.loss


def test_what_the_plan_counts_is_what_a_part_costs() -> None:
    """A case that is read twice counts its search twice, and its simulation."""
    twice = of_lenet_by_sgd()
    once = twice.asked(along=0.0)
    assert can_simulate(twice.target) and not readable(twice.network, twice.target)
    names = {strategy.name: strategy for strategy in PLAN}
    simulated, searched = names["simulated training"], names["search"]
    assert cost_of(searched, twice) == cost_of(searched, once) == 4 * twice.step_operations
    assert cost_of(simulated, twice) > cost_of(simulated, once) + cost_of(searched, twice)
