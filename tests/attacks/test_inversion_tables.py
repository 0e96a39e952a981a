"""Rows of a table out of gradients: the search with words as shares, and exact rows by their words."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import torch
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.exact.first_layer import FirstLayer
from dpfl_audit.attacks.inversion.exact.words import RowCells, columns_by_words, of_all_messages
from dpfl_audit.attacks.inversion.match.case import Auxiliary, Case
from dpfl_audit.attacks.inversion.read.local_training import Recipe
from dpfl_audit.attacks.inversion.read.table import OwnRows
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.attacks.inversion.strategies import row_fit
from dpfl_audit.attacks.inversion.strategies.row_fit import (
    DAMPINGS,
    dampings_of,
    fit_operations,
    nearer,
    rows_like,
    with_fit,
)
from dpfl_audit.attacks.inversion.strategies.row_metric import RowMetric
from dpfl_audit.attacks.inversion.strategies.with_words import as_shares, with_words
from dpfl_audit.audit.report.cells import cell_table
from dpfl_audit.audit.results.format import Pair
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data.columns import TableColumn, facts_of, fitted_column, table_columns
from dpfl_audit.defenses.data.unit_scale import UnitScale
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.metrics.cells import cells_right
from dpfl_audit.metrics.image import match
from tiers import quick
from torch import nn
from torch.nn import functional as F

WIDTHS = (9, 16, 7, 15, 6, 5, 2, 40)  # of Adult's columns of words


def census(rows: int, seed: int) -> tuple[tuple[TableColumn, ...], torch.Tensor, list[float], list[float]]:
    """A table of Adult's shape, its words as uneven as there: columns, rows (n, features), mean and std."""
    rng = np.random.default_rng(seed)
    columns = [TableColumn(f"number {k}") for k in range(6)]
    columns += [TableColumn(f"word {k}", tuple(str(w) for w in range(width - 1))) for k, width in enumerate(WIDTHS)]
    parts = [rng.normal(size=(500 + rows, 1)) for _ in range(6)]
    for width in WIDTHS:
        share = 0.6 ** np.arange(width)
        parts.append(np.eye(width)[rng.choice(width, 500 + rows, p=share / share.sum())])
    every = torch.tensor(np.concatenate(parts, 1), dtype=torch.float32)
    held = every[:500]
    std = held.std(0)
    mean, std = held.mean(0).tolist(), torch.where(std > 1e-8, std, 1.0).tolist()
    return table_columns(facts_of(columns), every.shape[1], mean, std), every[500:], mean, std


def sent(rows: int, steps: int, seed: int, width: int = 100, noise: float = 0.0, classes: int = 2, twin: float = 0.0):
    """The network of images, the target of an update, the true images (n, features, 1, 1) and words."""
    columns, table, mean, std = census(rows, seed)
    if twin:
        table[1], table[1, 1] = table[0], table[0, 1] + twin
    labels = (table[:, 0] > 0).long() if classes == 2 else (table[:, 0].abs() * 2).long().clamp_max(classes - 1)
    module = models.build(
        "mlp", input_shape=(table.shape[1],), classes=classes, mean=mean, std=std, seed=seed, widths=[width, width]
    )
    layout, scale = Layout.of(module), UnitScale.of(columns)
    before = layout.join({name: p.detach().clone() for name, p in module.named_parameters()})
    optimiser = torch.optim.SGD(module.parameters(), lr=0.05)
    for own, of in zip(table.chunk(steps), labels.chunk(steps)):
        optimiser.zero_grad()
        F.cross_entropy(module(own), of).backward()
        optimiser.step()
    update = layout.join({name: p.detach().clone() for name, p in module.named_parameters()}) - before
    update += noise * torch.randn(len(update), generator=torch.Generator().manual_seed(seed))
    recipe = Recipe("sgd", 0.05, (rows // steps,) * steps, 1)
    target = Target("t", before, -update / recipe.scale, labels, rows, recipe=recipe, update=update)
    return scale.module(module).eval(), target, scale.images(table), scale.words


@pytest.mark.parametrize("steps", [1, 3])
def test_rows_by_their_words_are_exact_where_zeros_alone_find_none(steps):
    """21 rows of 70 neurons: fewer than four neurons a row."""
    network, target, images, words = sent(21, steps, seed=0, width=70)
    layer = FirstLayer.of(network, target)
    blind = layer.blind_columns(0)
    assert len(blind) == 0 and len(images) == layer.rank
    found = layer.without_guess(columns_by_words(layer, blind, words, target.labels, 0), target.labels, (100 + 6, 1, 1))
    assert found is not None
    error = (found[:, None] - images[None]).abs().flatten(2).amax(2)
    assert error.amin(1).max() < 2e-3 and error.argmin(1).unique().numel() == 21
    assert torch.equal(target.labels[error.argmin(1)], target.labels)


def test_a_span_of_no_rows_gives_none():
    """Of a first layer's update of the right rank, of noise alone, nothing is made up."""
    network, target, _, words = sent(12, 1, seed=1, width=40)
    rng = torch.Generator().manual_seed(3)
    noise = torch.randn(40, 12, generator=rng) @ torch.randn(12, 107, generator=rng)
    made = target.gradient.clone()
    made[: 40 * 106], made[40 * 106 : 40 * 107] = noise[:, :-1].flatten(), noise[:, -1]
    layer = FirstLayer.of(network, Target("t", target.weights, made, target.labels, 12))
    assert layer is not None and layer.rank == 12
    columns = columns_by_words(layer, layer.blind_columns(0), words, target.labels, 0)
    assert layer.without_guess(columns, target.labels, (106, 1, 1)) is None


def test_shares_add_up_to_one_and_have_the_slope_of_autograd():
    words = ((1, 3), (5, 2))
    images = torch.rand(2, 4, 8, 1, 1, dtype=torch.float64)
    weight = torch.randn(2, 4, 8, 1, 1, dtype=torch.float64)
    shares = as_shares(images, words)
    assert torch.allclose(shares[:, :, 1:4].sum(2), torch.ones(2, 4, 1, 1, dtype=torch.float64))
    assert torch.equal(shares[:, :, [0, 4, 7]], images[:, :, [0, 4, 7]])

    def objective(x):
        return (weight * x.square()).flatten(1).sum(1), 2 * weight * x

    value, slope = with_words(objective, words)(images)
    asked = images.clone().requires_grad_()
    by_hand = objective(as_shares(asked, words))[0]
    assert torch.allclose(value, by_hand)
    assert torch.allclose(slope, torch.autograd.grad(by_hand.sum(), asked)[0], atol=1e-5)
    assert with_words(objective, ()) is objective


def case_of(network, target, settings=None, own=None):
    given = Auxiliary(rows=own)
    return Case(network, Layout.of(network), target, target.labels, (106, 1, 1), settings or Inversion(), 0, given)


def own_rows(many=200):
    """The attacker's, of the same table."""
    columns, table, *_ = census(many, 77)
    return OwnRows(UnitScale.of(columns).images(table), (table[:, 0] > 0).long())


def test_inner_products_of_whitened_gradients_are_those_of_the_gradients():
    network, target, images, words = sent(10, 1, seed=6, width=12)
    own, rows, layout = own_rows(), images.flatten(1), Layout.of(network)
    network = network.float()
    metric = RowMetric.of(network, target, words, target.labels, own.images.flatten(1), own.labels, 0.1)
    made = metric.factors(rows, target.labels)
    for whole, goal in zip(made.sum(), metric.goal):  # the rows leave nothing
        assert (whole - goal).norm() < 1e-3 * goal.norm()
    every = [metric.factors(rows[k : k + 1], target.labels[k : k + 1]).sum() for k in range(10)]
    by_hand = torch.tensor([sum(float((a * b).sum()) for a, b in zip(one, metric.goal)) for one in every])
    assert torch.allclose(made.with_sum(metric.goal), by_hand, rtol=1e-3)
    squares = torch.tensor([sum(float(a.square().sum()) for a in one) for one in every])
    assert torch.allclose(made.squares, squares, rtol=1e-3)
    numbers = torch.arange(6)
    shifted = rows.clone()
    shifted[:, 2] += 1e-4  # small enough for no kink between
    now = metric.factors(shifted, target.labels)
    for moved, before, after in zip(metric.moved(rows, numbers), made.inputs, now.inputs):
        assert torch.allclose(moved[:, 2], (after - before) / 1e-4, atol=0.05 * moved.abs().max().item())
    assert layout.dim == len(target.gradient)


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(row_fit, "BEGUN", 8)
    monkeypatch.setattr(row_fit, "DAMPINGS", (3.0,))
    monkeypatch.setattr(row_fit, "SWEEPS", 2)


@pytest.mark.parametrize("clipped", quick([False, True], 1))
def test_rows_whose_span_noise_hides_are_fitted_together(clipped, few):
    """8 rows; the noise is 2 % as long as the gradient; of a clip nobody says how much it left."""
    network, target, images, _ = sent(8, 1, seed=7, width=28)
    std = 0.02 * target.gradient.norm().item() / len(target.gradient) ** 0.5
    noise = std * torch.randn(len(target.gradient), generator=torch.Generator().manual_seed(0))
    target = replace(target, gradient=target.gradient + noise, noise_std=std, recipe=None, update=None)
    if clipped:
        target = replace(target, gradient=0.2 * target.gradient, noise_std=0.2 * std)
        target = replace(target, clip_norm=target.gradient.norm().item())
    own, done = own_rows(100), []
    case = case_of(network, target, Inversion(objective="euclidean"), own)
    found = with_fit(case, lambda now, total, words="": done.append((now, total)))
    assert found is not None and "100" in found.rows_by and not found.determined
    assert done == sorted(done) and len(done) >= 16 and done[0] == (1000 // 24, 1000)

    def right(rows):
        return scored_cells(images, target.labels, rows, found.labels)

    alike = torch.cat([own.images[own.labels == kind][: int((target.labels == kind).sum())] for kind in (0, 1)])
    assert right(found.images) > 0.65 > 0.45 > right(alike[target.labels.argsort(stable=True).argsort()])
    gray = replace(found, images=torch.full_like(found.images, 0.5), rows_by="")
    assert nearer(case, gray, found) is found
    true = replace(gray, images=images)
    assert nearer(case, true, found) is true


@pytest.mark.full
def test_without_rows_of_its_own_an_attacker_draws_some(few):
    """By the columns' frequencies: more cells are right than of other rows of the table, matched as well."""
    network, target, images, _ = sent(12, 1, seed=7, width=40)
    target, own = replace(target, recipe=None, update=None), own_rows(99)
    assert rows_like(case_of(network, target, own=own_rows(100)), None)[0].images.shape[0] == 100
    cells = RowCells.of(network, Layout.of(network), target, case_of(network, target).words)
    rows, about = rows_like(case_of(network, target, own=own), cells)
    assert len(rows.images) == row_fit.LIKE and "auxiliary" not in about
    shares = rows.images[:, 6:].flatten(1).split(list(WIDTHS), 1)
    assert all((one.sum(1) == 1).all() for one in shares)  # a word of every column
    found = with_fit(case_of(network, target, Inversion(objective="euclidean"), own))
    assert found is not None and found.rows_by == about
    alike = torch.cat([own.images[own.labels == kind][: int((target.labels == kind).sum())] for kind in (0, 1)])
    other = scored_cells(images, target.labels, alike[target.labels.argsort(stable=True).argsort()], target.labels)
    assert scored_cells(images, target.labels, found.images, found.labels) > 0.65 > 0.45 > other


def scored_cells(images, labels, rows, of_rows):
    """The share of cells that are right, rows matched within labels."""
    pairs = match(images, rows, labels, of_rows)
    order = torch.tensor([j for _, j in sorted(pairs)])
    kinds = [(1, column.spread / (column.most - column.least)) for column in census(1, 0)[0][:6]]
    return cells_right(images, rows[order], [*kinds, *((width, 0.0) for width in WIDTHS)]).mean().item()


def test_of_more_rows_than_neurons_one_damping_is_tried_and_a_network_may_have_no_layer_but_the_last():
    """`audit run` of a logistic table ended in "max() arg is an empty sequence"."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))
    assert dampings_of(8, network) == DAMPINGS and dampings_of(9, network) == DAMPINGS[1:]
    assert dampings_of(9, nn.Sequential(nn.Flatten(), nn.Linear(5, 2))) == DAMPINGS[1:]


def test_nothing_is_fitted_where_most_is_noise_or_steps_are_several():
    network, target, _, _ = sent(12, 1, seed=1, width=16)
    dim = Layout.of(network).dim
    assert fit_operations(target, 106, dim) > 0
    loud = replace(target, noise_std=target.gradient.norm().item() / dim**0.5)
    clipped = replace(target, clip_norm=target.gradient.norm().item(), per_layer=True)
    several, _ = sent(12, 3, seed=1, width=16)[1:3]
    for none in (loud, clipped, several):
        assert fit_operations(none, 106, dim) == 0
        assert with_fit(case_of(network, none)) is None
    assert fit_operations(target, 106, 10**9) == 0


def config(folder, **scheme):
    rng = np.random.default_rng(4)
    n = 300
    table = pd.DataFrame(
        {
            "age": rng.integers(18, 80, n),
            "job": rng.choice(["clerk", "nurse", "cook", "smith"], n),
            "town": rng.choice(["York", "Hull", "Bath", "Deal", "Wells"], n),
            "pay": rng.normal(30, 5, n).round(1),
        }
    )
    table["sick"] = ((table["age"] > 50) ^ (rng.random(n) < 0.2)).astype(int)
    table.to_csv(folder / "t.csv", index=False)
    return {
        "data": {"name": "csv", "root": str(folder / "t.csv"), "target": "sick", "clients": 3, "samples_per_client": 6},
        "model": {"name": "mlp", "options": {"widths": [48, 48]}},
        "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 6},
        "scheme": {"name": "fedavg", "rounds": 1, **scheme},
        "capture": {"clients": [0], "auxiliary": 25},
        "attack": {"inversion": {"iterations": 15}},
    }


def test_a_table_of_ones_own_from_config_to_page(tmp_path):
    """Its rows come back cell by cell, and the page says so in the table's own words."""
    import dpfl_audit
    from dpfl_audit.audit.report.page import page
    from dpfl_audit.audit.report.pictures import read_pictures

    setup = dpfl_audit.train(config(tmp_path), tmp_path / "setup", noise_key="published", quiet=True)
    results = dpfl_audit.run(setup, tmp_path / "results", attacks=["inversion"], quiet=True)
    best = max(results.attacks, key=lambda attack: attack.value("cells_right"))
    assert best.value("cells_right") == 1.0 and best.thing == "row"
    assert best.value("exact") == 0  # beside so few others nothing is beyond doubt
    assert best.controls["other_rows"]["cells_right"] < 0.9
    assert "training rows" in results.verdict.sentences[0]
    cells = cell_table(read_pictures(tmp_path / "results", best), results.setup)
    assert [line["name"] for line in cells["lines"]] == ["age", "job", "town", "pay"]
    told = pd.read_csv(tmp_path / "t.csv").astype(str)
    row = {line["name"]: line["cells"][0] for line in cells["lines"]}
    assert all(right and original == rebuilt for original, rebuilt, right in row.values())
    alike = (told["age"] == row["age"][0]) & (told["job"] == row["job"][0]) & (told["town"] == row["town"][0])
    assert alike.any()
    shown = page([tmp_path / "results"])
    assert "<dt>town</dt>" in shown


def test_of_a_table_under_strong_noise_nothing_is_found(tmp_path):
    import dpfl_audit

    given = config(tmp_path)
    given["scheme"] = {"name": "local-gaussian", "rounds": 1, "noise_multiplier": 30.0, "clip": 1.0}
    setup = dpfl_audit.train(given, tmp_path / "setup", noise_key="published", quiet=True)
    results = dpfl_audit.run(setup, tmp_path / "results", attacks=["inversion"], quiet=True)
    assert results.verdict.level == "none found"


def test_an_error_in_the_first_of_several_messages_has_its_coordinates_in_the_span_of_all() -> None:
    """U c in the first 8 of 24 rows comes from c, by its definition; 96 rows and 32 errors ended a whole run."""
    left = torch.linalg.qr(torch.randn(24, 5))[0]
    coordinates = torch.randn(1, 7, 5)
    found = of_all_messages(coordinates @ left[:8].T, left[:8])
    torch.testing.assert_close(F.normalize(found, dim=2), F.normalize(coordinates, dim=2), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found.norm(dim=2), (coordinates @ left[:8].T).norm(dim=2))


def test_a_cell_is_shown_as_the_table_has_it_where_missing_cells_made_its_spread_small() -> None:
    """Missing doses stand at the mean, so the feature's standard deviation is below 1 (a stranger read 20.3 for 20)."""
    doses = pd.Series([5.0, 10.0, 20.0, 40.0, None, None, None, None], name="dose")
    fitted = fitted_column(doses, np.arange(8))
    assert fitted is not None
    features = fitted.features(doses)[0]
    (column,) = table_columns({"columns": [fitted.as_facts()]}, 1, [0.0], [float(features.std())])
    images = UnitScale.of([column]).images(torch.tensor(features)[:4, None]).numpy()
    pairs = tuple(Pair(original=i, reconstruction=i) for i in range(4))
    attack = SimpleNamespace(worst_first=pairs, originals=images, rebuilt=images)
    setup: Any = SimpleNamespace(data={"columns": [column.as_facts()]})
    shown = cell_table(cast(Any, attack), setup)
    assert shown is not None and [cells[0] for cells in shown["lines"][0]["cells"]] == ["5", "10", "20", "40"]
