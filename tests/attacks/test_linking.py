"""Anonymous messages linked by what they resemble, and by nothing that only their auditor knows."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import dpfl_audit
import numpy as np
import pytest
import torch
from command import call
from configs import small_config
from dpfl_audit.attacks.base import Knowledge, PublicFacts, Seen, View
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.read.rounds import all_rounds
from dpfl_audit.attacks.linking import Linking, likeness, paired, put_on_tracks, tracks_of
from dpfl_audit.audit.results.format import Results
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.terms import Observer
from torch import nn

NOTHING = Knowledge({}, torch.zeros(0), torch.zeros(0, dtype=torch.long))


def view_of(values: list[list[torch.Tensor]], noise_std: float, anonymous: bool = True) -> View:
    """Of updates by round and sender, under addresses that say nothing; a message's id has round and sender."""
    module = nn.Sequential(nn.Linear(19, 20), nn.Linear(20, 5))
    messages = [
        Seen(f"{t}-{i}", t, f"{(7 * t + 3 * i) % 97}", ("hub",), "update", 0, lambda value=value: value, False)
        for t, own in enumerate(values)
        for i, value in enumerate(own)
    ]
    facts = PublicFacts("anonymous-leader", "update", "sgd", 0.1, 10, 1, None, noise_std=noise_std)
    shape = (1, 1, 19)
    return View("uplink", tuple(messages), module, Layout.of(module), facts, shape, 5, anonymous=anonymous)


def updates(senders: int, rounds: int, noise_std: float, own: float, seed: int = 0) -> list[list[torch.Tensor]]:
    """A round's common part, each sender's own, that stays, and fresh noise; in an order of their own every round."""
    rng = torch.Generator().manual_seed(seed)
    dim = Layout.of(nn.Sequential(nn.Linear(19, 20), nn.Linear(20, 5))).dim
    parts = own * torch.randn(senders, dim, generator=rng) / dim**0.5
    return [
        [c + parts[i] + noise_std * torch.randn(dim, generator=rng) for i in range(senders)]
        for c in torch.randn(rounds, dim, generator=rng)
    ]


def right(view: View) -> float:
    (part,) = Linking().parts(view, NOTHING)
    found = Linking().run_part(part, view, NOTHING, 0)
    of = [i.partition("-")[2] for i in found.message_ids]
    return float(np.mean([of[a] == of[b] for a, b in found.links.tolist()]))


def test_a_senders_own_part_links_its_messages_through_noise_of_many_times_its_size() -> None:
    """505 components: noise of twelve times the own part's energy is two of its product's spreads."""
    assert right(view_of(updates(5, 4, 0.0, 1.0), 0.0)) == 1
    assert right(view_of(updates(5, 4, (3 / 505) ** 0.5, 1.0), (3 / 505) ** 0.5)) >= 0.9
    loud = view_of(updates(5, 8, (12 / 505) ** 0.5, 1.0), (12 / 505) ** 0.5)
    assert 0.25 < right(loud) < 0.9  # chance .2 ± .06 of 140 pairs that hang together


def test_of_noise_alone_nothing_is_linked() -> None:
    shares = [right(view_of(updates(5, 4, 1.0, 0.0, seed), 1.0)) for seed in range(20)]
    assert abs(float(np.mean(shares)) - 0.2) < 0.05


def test_names_and_order_say_nothing() -> None:
    view = view_of(updates(4, 3, 0.05, 1.0), 0.05)
    new = {m.id: f"{hash((m.id, 1)) % 10**9}" for m in view.messages}
    other = replace(view, messages=tuple(replace(m, id=new[m.id], sender=new[m.id]) for m in view.messages[::-1]))
    pairs = []
    for one in (view, other):
        (part,) = Linking().parts(one, NOTHING)
        found = Linking().run_part(part, one, NOTHING, 0)
        names = found.message_ids if one is other else [new[i] for i in found.message_ids]
        pairs.append({frozenset((names[a], names[b])) for a, b in found.links.tolist()})
    assert pairs[0] == pairs[1]


def test_only_anonymous_senders_have_to_be_linked() -> None:
    with pytest.raises(ValueError, match="nothing to link"):
        Linking().parts(view_of(updates(3, 2, 0.0, 1.0), 0.0, anonymous=False), NOTHING)
    with pytest.raises(ValueError, match="in 1 rounds; linking takes two"):
        Linking().parts(view_of([*updates(3, 1, 0.0, 1.0), [torch.zeros(505)]], 0.0), NOTHING)


def test_pairs_and_tracks_hold_one_message_a_round() -> None:
    rng, rounds = np.random.default_rng(1), np.repeat(np.arange(4), 3)
    alike = rng.normal(size=(12, 12))
    alike += alike.T
    for a, b in paired(alike, rounds):
        assert rounds[a] < rounds[b]
    tracks = put_on_tracks(alike, rounds, 0.1)
    assert all(
        len({int(rounds[i]) for i in on}) == len(on)
        for k in set(tracks)
        if (on := [i for i, t in enumerate(tracks) if t == k])
    )
    assert len(set(put_on_tracks(alike, rounds, 99.0))) == 12


def test_likeness_is_counted_in_spreads_and_does_not_hang_on_the_scale() -> None:
    """The same with all in other units, noise and all."""
    one, ten = (view_of([[k * v for v in own] for own in updates(4, 3, 0.02, 1.0)], k * 0.02) for k in (1.0, 10.0))
    first, second = (likeness(view.messages, view) for view in (one, ten))
    assert np.allclose(first, second, rtol=1e-3, atol=1e-3)


# --- the whole way ---

CONFIG = small_config(
    seed=5,
    claim="none",
    data={"clients": 5, "samples_per_client": 12},
    model={"options": {"widths": [24]}},
    local={"lr": 0.3, "batch_size": 12},
    scheme={"name": "anonymous-leader", "rounds": 5, "clip": 10.0, "noise_std": 0.0005, "train_share": 1.0},
    capture={"clients": [0, 1, 2, 3, 4]},
    audit={"observer": "uplink"},
)


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("linking")
    (home / "config.toml").write_text(CONFIG)
    assert call("train", home / "config.toml", "-o", home / "setup", "--quiet", "--noise-key", "published") == 0
    return home / "setup"


def results_of(setup: Path, output: Path, *options: str) -> Results:
    assert call("run", setup, "-o", output, "--quiet", "--attack", "linking", *options) == 0
    return Results.read(output)


def test_a_fresh_address_hides_no_sender_and_the_page_says_so(setup: Path, tmp_path: Path) -> None:
    results = results_of(setup, tmp_path / "results")
    (entry,) = results.attacks
    assert entry.attack == "linking" and entry.value("linked") > 0.9 > 0.5 > entry.value("linked_chance")
    assert entry.p_values["linked"] == 1e-4 and entry.least_p_values["linked"] == 1e-4
    assert results.verdict.level == "moderate" and "anonymous sender" in results.verdict.sentences[0]
    assert call("report", tmp_path / "results", "-o", tmp_path / "page.html", "--quiet") == 0
    page = (tmp_path / "page.html").read_text()
    assert "messages linked" in page
    gate = ("--fail-if", "linked > .5")
    assert call("run", setup, "-o", tmp_path / "results", "--quiet", "--attack", "linking", *gate) == 1


def test_without_the_auditors_half_nothing_is_measured_and_nothing_is_said_to_be_safe(
    setup: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(setup, tmp_path / "setup")
    shutil.rmtree(copy / "auditor")
    results = results_of(copy, tmp_path / "results")
    assert results.attacks[0].value("linked") is None and "auditor/" in results.attacks[0].not_measured["linked"]
    assert not results.verdict.measured


def test_an_inversion_joins_what_is_linked_and_never_by_the_address(setup: Path) -> None:
    opened = dpfl_audit.audit.setup.folder.open_setup(setup)
    view, senders = opened.view(Observer("uplink")), {}
    for row in json.loads((setup / "auditor" / "parties.json").read_text())["messages"].items():
        senders[row[0]] = row[1]["sender"]
    knowledge = opened.knowledge().beside(view)
    aims = all_rounds(view, knowledge)
    assert aims and all(len({senders[m.id] for m in aim.messages}) == 1 for aim in aims)  # so little noise tells
    assert max(len(aim.messages) for aim in aims) >= 3 and all(aim.target.others for aim in aims)
    tracks = tracks_of(view)
    assert all(len({tracks[m.id] for m in aim.messages}) == 1 for aim in aims)


def test_a_number_of_records_may_be_assumed_where_labels_do_not_tell_it(setup: Path) -> None:
    opened = dpfl_audit.audit.setup.folder.open_setup(setup)
    view, unlabelled = opened.view(Observer("uplink")), replace(opened.knowledge(), labels={})
    with pytest.raises(ValueError, match="assume a number: records"):
        Inversion(labels="inferred").parts(view, unlabelled)
    parts = Inversion(labels="inferred", records=12, iterations=1).parts(view, unlabelled)
    assert parts and {part.content.count for part in parts} == {12}
