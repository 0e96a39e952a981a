"""Checked is said only of what was looked at; found by fresh eyes, who had noise forgotten, shared and weighed away."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from pathlib import Path

import numpy as np
import pytest
import torch
from dpfl_audit.audit.proven.table import table
from dpfl_audit.audit.record import noise_tests
from dpfl_audit.audit.record.declared import ADDED, SECRECY
from dpfl_audit.audit.record.mechanism import Gaussian, Laplace
from dpfl_audit.audit.record.noise_tests import Projection, noise_along_values
from dpfl_audit.audit.record.recorder import Recorder
from dpfl_audit.audit.setup.auditor import check_setup
from torch import Tensor, nn

NET = nn.Sequential(nn.Flatten(), nn.Linear(36, 40), nn.ReLU(), nn.Linear(40, 10))
START = {name: value.clone() for name, value in NET.state_dict().items()}
SIZES = {name: value.numel() for name, value in START.items()}
DIM = sum(SIZES.values())
STD = 0.05
Noise = Callable[[int], Tensor]


def value_of(seed: int, norm: float = 3.0) -> Tensor:
    value = torch.randn(DIM, generator=torch.Generator().manual_seed(seed))
    return norm * value / value.norm()


def noise_of(seed: int, std: float = STD) -> Tensor:
    return std * torch.randn(DIM, generator=torch.Generator().manual_seed(10_000 + seed))


def by_tensor(seed: int) -> Tensor:
    """A generator that is seeded anew for every tensor."""
    parts = [torch.randn(n, generator=torch.Generator().manual_seed(10_000 + seed)) for n in SIZES.values()]
    return STD * torch.cat(parts)


def without(places: slice) -> Noise:
    def drawn(seed: int) -> Tensor:
        noise = noise_of(seed)
        noise[places] = 0
        return noise

    return drawn


def of_clients(folder: Path, noise: Noise, rounds: int = 3, clients: int = 4, told: int = 4, first: int = 0) -> dict:
    """Clipped to 1 and noised; raw values of so many clients are told."""
    with Recorder(folder, NET, mechanism=Gaussian(clip=1.0, noise_std=STD)) as rec:
        for t in range(rounds):
            rec.broadcast(t, START)
            for c in range(clients):
                seed = first + 100 * t + c
                rec.upload(t, c, value_of(seed, 1.0) + noise(seed), num_examples=5)
                if c < told:
                    rec.raw(t, c, value_of(seed))
    return {d.what: d for d in check_setup(folder)[1].declared}


def state(vector: Tensor) -> dict[str, Tensor]:
    parts = vector.split(list(SIZES.values()))
    return {name: part.view_as(START[name]) for name, part in zip(SIZES, parts)}


def of_server(
    folder: Path,
    weights: list[float],
    rounds: int,
    clip: float = 1.0,
    std: float = 0.02,
    seed: int = 0,
    mechanism: Gaussian | None = None,
    more: float = 0.0,
):
    """The server clips to `clip` and weighs as given, where a clip to 1 and equal weights are declared."""
    model = torch.cat([value.flatten() for value in START.values()])
    declared = mechanism or Gaussian(clip=1.0, noise_std=std, by="server")
    with Recorder(folder, NET, mechanism=declared, average="mean") as rec:
        for t in range(rounds + 1):
            rec.broadcast(t, state(model))
            if t == rounds:
                break
            sent = [value_of(1000 * seed + 100 * t + c) for c in range(len(weights))]
            for c, value in enumerate(sent):
                rec.upload(t, c, value, num_examples=5)
            mean = sum(w * v * min(1.0, clip / v.norm()) for w, v in zip(weights, sent)) / sum(weights)
            model = model + mean + noise_of(1000 * seed + t, std) + value_of(50_000 + t, more)
    return {d.what: d for d in check_setup(folder)[1].declared}


def test_what_is_as_declared_is_checked(tmp_path):
    found = of_clients(tmp_path / "s", noise_of)
    assert [found[what].status for what in ("norm bound", "noise", "independence")] == ["checked"] * 3
    found = of_server(tmp_path / "t", [1, 1, 1, 1], 4)
    assert [found[what].status for what in ("norm bound", "noise", "average")] == ["checked"] * 3


@pytest.mark.parametrize("server", [False, True], ids=["client", "server"])
def test_what_is_added_beside_the_clip_is_contradicted_or_declared(server, tmp_path):
    """An un-noised momentum of norm 5 across the raw values: "norm bound: checked" was all that was said of it."""

    def beside(length: float) -> Noise:
        return lambda seed: noise_of(seed) + value_of(50_000 + seed, length)

    def run(name: str, length: float):
        if not server:
            return of_clients(tmp_path / name, beside(length), 4, 4, 4)
        return of_server(tmp_path / name, [1, 1, 1, 1], 4, more=length)

    honest, short, long = run("honest", 0.0), run("short", 0.05), run("long", 0.32 if server else 0.65)
    assert {honest[ADDED].status, short[ADDED].status} <= {"declared", "checked"}
    assert long[ADDED].status == "contradicted"
    assert honest["noise"].status == short["noise"].status == "checked"
    rows = {name: table(tmp_path / name, observers=["downlink"]).rows for name in ("short", "long")}
    assert all(row.proven == inf for row in rows["long"])
    assert any(honest[ADDED].said in note for row in rows["short"] if row.proven < inf for note in row.notes)


def test_that_noises_do_not_correlate_shows_nobody_who_knows_them(tmp_path):
    """Its seeds are public here (10,000 + 100 t + c), and "checked: … is known to nobody else" was said of it."""
    found = of_clients(tmp_path / "s", noise_of)
    assert (found["independence"].status, found[SECRECY].status) == ("checked", "declared")


def test_honest_recordings_are_never_contradicted(tmp_path):
    """A false alarm is to come once in a hundred thousand."""
    for seed in range(2):
        runs = (
            of_clients(tmp_path / f"a{seed}", noise_of, 2, 2, 2, first=7000 * seed + 7),
            of_clients(tmp_path / f"b{seed}", noise_of, 6, 3, 2, first=7000 * seed + 9),
            of_server(tmp_path / f"c{seed}", [1] * 5, 3, std=10 ** -(seed + 1), seed=seed + 50),
        )
        assert not [d for found in runs for d in found.values() if d.status == "contradicted"]


@pytest.mark.parametrize(
    ("places", "tensor"),
    [(slice(DIM - 10, DIM), "3.bias"), (slice(5, 6), "1.weight")],
    ids=["a bias of ten", "one number"],
)
def test_noise_forgotten_in_a_small_part_is_seen(tmp_path, places, tensor):
    found = of_clients(tmp_path / "s", without(places))
    assert found["noise"].status == "contradicted" and repr(tensor) in found["noise"].why


def test_noise_forgotten_by_one_client_in_one_round_in_a_bias_is_seen(tmp_path):
    found = of_clients(tmp_path / "s", lambda seed: (without(slice(DIM - 10, DIM)) if seed == 101 else noise_of)(seed))
    assert found["noise"].status == "contradicted" and "client 1" in found["noise"].why


def test_two_thirds_of_the_noise_in_one_layer_is_seen(tmp_path):
    def weaker(seed: int) -> Tensor:
        noise = noise_of(seed)
        noise[-410:-10] *= 2 / 3
        return noise

    found = of_clients(tmp_path / "s", weaker, rounds=6)
    assert found["noise"].status == "contradicted" and "'3.weight'" in found["noise"].why


def test_one_noise_for_every_tensor_is_seen(tmp_path):
    found = of_clients(tmp_path / "s", by_tensor)
    assert found["independence"].status == "contradicted" and "two tensors" in found["independence"].why


def test_raw_values_of_one_client_say_nothing_of_the_others(tmp_path):
    found = of_clients(tmp_path / "s", noise_of, rounds=6, told=1)
    for what in ("norm bound", "noise", "independence"):
        assert found[what].status == "declared" and {"18", "24"} <= set(found[what].why.split())


def test_one_noise_of_two_messages_is_seen_without_raw_values(tmp_path):
    """A generator that starts anew every round: two uploads of a client differ by its two values alone."""
    for name, seed_of in (("by round", lambda seed: seed % 100), ("by client", lambda seed: seed // 100)):
        found = of_clients(tmp_path / name, lambda seed, of=seed_of: noise_of(of(seed)), told=0)
        assert found["independence"].status == "contradicted" and "correlates by" in found["independence"].why
    told = of_clients(tmp_path / "told", lambda seed: noise_of(seed % 100 % 2), rounds=1, told=1)
    assert told["independence"].status == "contradicted"  # one with a raw value, and one without


def test_a_tensor_without_noise_is_seen_without_raw_values(tmp_path):
    found = of_clients(tmp_path / "s", without(slice(DIM - 10, DIM)), told=0)
    assert found["noise"].status == "contradicted" and "'3.bias'" in found["noise"].why


def test_honest_recordings_without_raw_values_are_never_contradicted(tmp_path):
    for seed in range(2):
        for name, rounds, clients, told in (("none", 6, 4, 0), ("one", 2, 8, 1)):
            found = of_clients(tmp_path / f"{name}{seed}", noise_of, rounds, clients, told, first=9000 * seed + 11)
            assert {d.status for d in found.values()} == {"declared"}


def test_honest_laplace_noise_without_raw_values_is_never_contradicted(tmp_path):
    """Values as long as the clip of their L1 norm, all alike, on one number or on all."""
    for seed in range(2):
        rng = np.random.default_rng(seed)
        with Recorder(tmp_path / f"s{seed}", NET, mechanism=Laplace(clip=1, noise_scale=0.2)) as rec:
            for t in range(3):
                rec.broadcast(t, START)
                for c in range(4):
                    value = np.full(DIM, 1 / DIM) if c % 2 else np.eye(1, DIM)[0]
                    rec.upload(t, c, torch.tensor(value + rng.laplace(0, 0.2, DIM)).float(), num_examples=5)
        assert {d.status for d in check_setup(tmp_path / f"s{seed}")[1].declared} == {"declared"}


@pytest.mark.few(1)
@pytest.mark.parametrize("weights", [[2, 1, 1, 1], [1, 1, 1, 0]])
def test_uneven_weights_are_seen_where_the_noise_lets_them(tmp_path, weights):
    assert of_server(tmp_path / "loud", weights, 4)["average"].status == "contradicted"
    assert of_server(tmp_path / "hidden", weights, 4, std=3.0)["average"].status == "declared"


def test_a_server_that_does_not_clip_is_seen_where_the_noise_lets_it(tmp_path):
    found = of_server(tmp_path / "loud", [1, 1, 1, 1], 4, clip=100.0)
    assert found["norm bound"].status == "contradicted"
    found = of_server(tmp_path / "hidden", [1, 1, 1, 1], 4, clip=100.0, std=3.0)
    assert found["norm bound"].status == found["average"].status == "declared"


def across(noise: Tensor, value: Tensor, share: float = 1.0) -> Tensor:
    """Noise less (a share of) its component along the value."""
    return noise - share * (noise @ value) / value.square().sum() * value


def test_noise_that_leaves_out_the_value_s_own_direction_is_seen(tmp_path):
    """One number of 2,000 of each message is wrong, and tells the value's length as if there were no noise."""
    found = of_clients(tmp_path / "two", lambda s: across(noise_of(s), value_of(s)), 1, 2, 2)
    assert found["noise"].status == "contradicted" and "the direction" in found["noise"].why
    found = of_clients(tmp_path / "most", lambda s: across(noise_of(s), value_of(s), 0.9))
    assert found["noise"].status == "contradicted"
    with Recorder(tmp_path / "s", NET, mechanism=Gaussian(clip=1.0, noise_std=STD, by="server"), average="mean") as rec:
        for t in range(2):
            sent = [value_of(100 * t + c, 1.0) for c in range(3)]
            mean = sum(sent) / 3
            rec.broadcast(t, START)
            for c, value in enumerate(sent):
                rec.upload(t, c, value, num_examples=5)
            rec.noisy_mean(t, mean + across(noise_of(t), mean))
    assert {d.what: d for d in check_setup(tmp_path / "s")[1].declared}["noise"].status == "contradicted"


def test_honest_noise_along_values_is_seldom_contradicted_at_a_level_that_can_be_counted(monkeypatch):
    """A level of 2 % instead of one in a million, values as long as the clip, longer, and shorter: 2,000 recordings."""
    monkeypatch.setattr(noise_tests, "RARE", 0.02)
    rng = np.random.default_rng(0)
    for many, raw in ((1, 3.0), (5, 1.0), (40, 0.4)):
        along = min(raw, 1) + 0.5 * rng.standard_normal((2000, many))
        wrong = [
            noise_along_values([Projection(raw, float(a), 0.5, "m", "gaussian") for a in row], []) for row in along
        ]
        assert 20 <= sum(map(bool, wrong)) <= 62  # 40 expected; beyond 62 in one of 2,000
    assert not noise_along_values([Projection(3.0, 1.0, 0.5, "m", law) for law in ("laplace", "")], [])  # HEAVY spreads


@pytest.mark.parametrize("right", [True, False])
def test_a_servers_optimiser_makes_the_next_model_of_a_noisy_mean_that_is_told(tmp_path, right):
    """Momentum .9 and a learning rate of ½ on it; the last round is looked at too, and half of the noise is seen."""
    model, moment = torch.cat([value.flatten() for value in START.values()]), torch.zeros(DIM)
    said = Gaussian(clip=1.0, noise_std=0.02, by="server")
    with Recorder(tmp_path / "s", NET, mechanism=said, average="mean") as rec:
        for t in range(4):
            rec.broadcast(t, state(model))
            sent = [value_of(100 * t + c) for c in range(3)]
            for c, value in enumerate(sent):
                rec.upload(t, c, value, num_examples=5)
            noisy = sum(v / v.norm() for v in sent) / 3 + noise_of(t, 0.02 if right else 0.01)
            rec.noisy_mean(t, noisy)
            moment = 0.9 * moment + noisy
            model = model + 0.5 * moment
    found = {d.what: d for d in check_setup(tmp_path / "s")[1].declared}
    assert found["noise"].status == ("checked" if right else "contradicted")
    assert found["server's step"].status == "declared" and (not right or "4 messages" in found["noise"].why)


def test_noise_on_a_sum_is_looked_at_in_the_mean(tmp_path):
    """Of five clients a sum's noise is five times that of the mean: right is checked, a fifth of it contradicted."""
    said = Gaussian(clip=1.0, noise_std=0.1, by="server", on="sum")
    right = of_server(tmp_path / "right", [1] * 5, 4, std=0.02, mechanism=said)
    assert [right[what].status for what in ("norm bound", "noise", "average")] == ["checked"] * 3
    wrong = of_server(tmp_path / "wrong", [1] * 5, 4, std=0.004, mechanism=said)
    assert wrong["noise"].status == "contradicted"


@pytest.mark.parametrize("counts", [(10, 10, 10), (80, 10, 10)])
def test_noise_on_a_sum_costs_what_the_same_noise_on_the_mean_costs(tmp_path, counts):
    """A client of 80 in 100 records turns .8 of the mean of three, so 2.4 bounds of their sum."""
    ratios = []
    for on, std in (("mean", 0.1), ("sum", 0.3)):
        said = Gaussian(clip=1.0, noise_std=std, by="server", on=on)
        with Recorder(tmp_path / on, NET, mechanism=said, average="records") as rec:
            rec.broadcast(0, START)
            for c, count in enumerate(counts):
                rec.upload(0, c, value_of(c), num_examples=count)
            rec.broadcast(1, START)
        _, auditor = check_setup(tmp_path / on)
        ratios.append(max(r.ratio for r in auditor.ledger.releases.values() if r.mechanism == "gaussian"))
    assert ratios[0] == pytest.approx(ratios[1], rel=1e-12)


def test_laplace_noise_of_a_server_says_nothing_of_weights(tmp_path):
    model = torch.cat([value.flatten() for value in START.values()])
    with Recorder(tmp_path / "s", NET, mechanism=Laplace(clip=1, noise_scale=0.1, by="server"), average="mean") as rec:
        rec.broadcast(0, START)
        for c in range(3):
            rec.upload(0, c, value_of(c, 0.01), num_examples=5)
        rec.broadcast(1, state(model + sum(value_of(c, 0.01) for c in range(3)) / 3))
    found = {d.what: d for d in check_setup(tmp_path / "s")[1].declared}
    assert found["average"].status == "declared" and found["noise"].status == "contradicted"
