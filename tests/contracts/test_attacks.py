"""One contract for all attacks; an attack is in by its line in `ATTACKS`.

One name, a plan from the view, evidence that replays bit by bit and never needs the truth, scores that do not know the
order of the candidates, refusals in one sentence.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import dpfl_audit
import pytest
import torch
from dpfl_audit.attacks import ATTACKS, AUTO
from dpfl_audit.attacks.base import (
    Attack,
    Evidence,
    GuessedValues,
    Knowledge,
    Links,
    MembershipScores,
    ReadTexts,
    Reconstruction,
    Together,
    View,
)
from dpfl_audit.attacks.inversion.make import SpectrumPrior
from dpfl_audit.attacks.membership import ShadowFactory
from dpfl_audit.audit.reproduce.tables import TABLES
from dpfl_audit.audit.results.format import AttackResult as Entry
from dpfl_audit.audit.setup.auditor import Auditor
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import CANARY, parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.folder import Setup, open_setup
from dpfl_audit.defenses import randomness
from dpfl_audit.defenses.terms import Observer
from dpfl_audit.metrics.membership import auc
from messages import with_candidates
from tiers import but
from torch import Tensor

CONFIG: dict[str, Any] = {  # one view that allows every attack: plain SGD, six captured clients, labels, candidates
    "seed": 3,
    "data": {"name": "digits", "clients": 6, "samples_per_client": 20},
    "model": {"name": "mlp", "options": {"widths": [8]}},
    "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 10, "epochs": 1},
    "scheme": {"name": "ldp", "rounds": 2, "clip": 10.0, "sigma": 1e-4},
    "capture": {"clients": [0, 1, 2, 3, 4, 5], "auxiliary": 60, "candidates": 240},
}
# And one whose senders are anonymous, for what is about these.
ANONYMOUS = {**CONFIG, "scheme": {"name": "anonymous-leader", "rounds": 2, "noise_std": 1e-4, "train_share": 1.0}}
# And one of text, and of text that tells the next word.
TEXT = {
    **CONFIG,
    "data": {"name": "notes", "clients": 2, "samples_per_client": 2},
    "model": {"name": "transformer", "options": {"width": 64, "causal": True}},
    "scheme": {"name": "fedavg", "rounds": 1, "share": "gradient"},
    "capture": {"clients": [0, 1], "auxiliary": 60},
}
NEXT = {**TEXT, "local": {**CONFIG["local"], "loss": "next_token"}}
NEXT |= {"data": {"name": "notes", "clients": 2, "samples_per_client": 10}, "scheme": {"name": "fedavg", "rounds": 1}}
NEXT |= {"capture": {"clients": [0, 1], "candidates": 20}}
NEXT["model"] = {"name": "transformer", "options": {"width": 16, "causal": True}}
# And one of a table.
TABLE = {**CONFIG, "data": {**CONFIG["data"], "name": "breast_cancer"}}
FEW = {**CONFIG, "capture": {**CONFIG["capture"], "clients": [0, 1]}}
WORLDS = {
    "inversion": FEW,
    "linking": ANONYMOUS,
    "inversion-text": TEXT,
    "attribute": TABLE,
    "membership-exposure": NEXT,
}
OF_ANONYMOUS = ("linking",)
# Beyond what `--quick` spares, where that is long.
QUICK: dict[str, dict[str, Any]] = {"inversion": {"iterations": 6}}
QUICK |= {f"membership-{name}": {"shadows": 8} for name in ("shokri", "lira", "lira-offline", "rmia")}
NEEDS_NOTHING = ("linking", "inversion-text")  # of knowledge
KINDS = {
    MembershipScores: "membership",
    Reconstruction: "inversion",
    ReadTexts: "inversion",
    Links: "linking",
    GuessedValues: "attribute",
}
EVERY = pytest.mark.parametrize("name", ATTACKS)
EACH = pytest.mark.parametrize("name", but(ATTACKS, "membership-stacked"))  # it runs all the others
ROOT = Path(dpfl_audit.__file__).parent


def attacks_of(name: str) -> list[Attack]:
    made = ATTACKS[name].make(QUICK.get(name, {}), True, "cpu")
    # what runs beside the others on messages that are mostly noise has nothing to do here
    return [attack for attack in made if not isinstance(attack, SpectrumPrior)]


@dataclass(frozen=True, eq=False)
class World:
    """A view and the knowledge that `audit run` grants; member (n,): whether somebody trained on the candidate."""

    view: View
    knowledge: Knowledge
    member: Tensor | None

    @classmethod
    def of(cls, setup: Setup, observer: str = "") -> World:
        default = "uplink" if setup.scheme.topology.anonymous else "server"
        factory = ShadowFactory(setup.scheme, setup.module(), tuple(setup.manifest.clients))
        truth = Auditor(setup).truth
        owners = None if truth is None else truth.candidate_owners
        knowledge = replace(setup.knowledge(), shadow_factory=factory)
        return cls(setup.view(Observer.parse(observer or default)), knowledge, None if owners is None else owners >= 0)

    def reordered(self, rows: Tensor) -> World:
        """The same question about the candidates `rows`, in their order."""
        return replace(self, knowledge=with_candidates(self.knowledge, rows))


def evidence_of(name: str, world: World, seed: int) -> list[Evidence]:
    view, knowledge = world.view, world.knowledge
    return [a.run_part(p, view, knowledge, seed) for a in attacks_of(name) for p in a.parts(view, knowledge)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The setup for an attack, by a key of `WORLDS`, "" for the one of all others."""

    def once(which: str) -> Path:
        home = tmp_path_factory.mktemp("attacks")
        return train(build(parse_config(WORLDS.get(which, CONFIG)), home), home / "setup")

    return cache(once)


@pytest.fixture(scope="module")
def seen(trained: Callable[[str], Path]) -> Callable[[str], World]:
    return cache(lambda which: World.of(open_setup(trained(which))))


def which(name: str | None) -> str:
    return name if name in WORLDS else ""


@pytest.fixture
def folder(request: pytest.FixtureRequest, trained: Callable[[str], Path]) -> Path:
    """Of the attack that the test is about."""
    return trained(which(request.node.callspec.params.get("name")))


@pytest.fixture
def world(request: pytest.FixtureRequest, seen: Callable[[str], World]) -> World:
    return seen(which(request.node.callspec.params.get("name")))


@pytest.fixture(scope="module")
def evidence(seen: Callable[[str], World]) -> Callable[[str], list[Evidence]]:
    """Every attack's evidence at seed 0."""
    return cache(lambda name: evidence_of(name, seen(which(name)), 0))


def facts(evidence: Evidence) -> dict[str, Any]:
    return {f.name: getattr(evidence, f.name) for f in fields(evidence)}


def same(one: Evidence, other: Evidence) -> bool:
    """Equal to the last bit."""
    return all(
        torch.equal(a, b) if isinstance(a, Tensor) else a == b
        for a, b in zip(facts(one).values(), facts(other).values(), strict=True)
    )


def one_sentence(error: pytest.ExceptionInfo[ValueError]) -> str:
    text = str(error.value)
    assert 0 < len(text) <= 320 and "\n" not in text and not re.search(r"\.\s+[A-Z]|\.$", text), text
    return text


# --- names and settings ---


@pytest.mark.few(5)
@EACH
def test_it_has_one_name_on_the_command_line_in_evidence_and_in_results(name, evidence) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name) and name != CANARY
    assert {attack.name for attack in attacks_of(name)} == {name}
    assert {e.attack for e in evidence(name)} == {name}
    assert {Entry(attack=e.attack, observer=e.observer).attack for e in evidence(name)} == {name}
    kind = KINDS[type(evidence(name)[0])]
    assert Entry(attack=name, observer="server").kind == kind


def test_every_attack_that_a_text_of_ours_names_can_be_typed() -> None:
    folders = ("attacks", "audit", "defenses", "metrics", "docs", "examples", "benchmarks")
    paths = [p for f in folders for p in (ROOT / f).rglob("*") if p.suffix in (".py", ".md", ".toml", ".j2")]
    paths += [ROOT / "cli.py", ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "Makefile"]
    typed = {*ATTACKS, AUTO, CANARY}
    places = r"--attack[ =]([a-z-]+)", r"(?<!\w)\[attack\.([a-z-]+)\]", r"(?<![/\w])(membership-[a-z-]+)"
    for path in paths:
        text = path.read_text()
        named = {match for pattern in places for match in re.findall(pattern, text)}
        assert named <= typed | {re.sub(r"\d+$", "", table) for table in TABLES}, path
        slashed = set(re.findall(r"\b(?:membership|inversion)/[a-z-]+(?!\.|[a-z-]|/)", text)) - {"inversion/attack"}
        assert not slashed, path


@EVERY
def test_it_is_a_frozen_dataclass_without_a_state(name) -> None:
    for attack in attacks_of(name):
        assert is_dataclass(attack)
        for field in fields(attack):
            with pytest.raises(FrozenInstanceError):
                setattr(attack, field.name, None)
        assert attack in attacks_of(name) and hash(attack) == hash(attacks_of(name)[attacks_of(name).index(attack)])


@EVERY
def test_unknown_settings_and_wrong_types_are_refused_in_one_sentence(name) -> None:
    with pytest.raises(ValueError, match="unknown key 'colour'") as error:
        ATTACKS[name].make({"colour": "red"}, False, "cpu")
    one_sentence(error)
    for field in (f for attack in attacks_of(name) for f in fields(attack) if f.init):
        with pytest.raises(ValueError, match=field.name) as error:
            ATTACKS[name].make({field.name: {"no": "setting"}}, False, "cpu")
        one_sentence(error)


# --- the plan ---


@EVERY
def test_it_plans_from_the_view_and_not_from_what_the_records_are(name, world) -> None:
    k = world.knowledge
    noise = {f: torch.rand(getattr(k, f).shape) for f in ("candidate_inputs", "auxiliary_inputs")}
    upside_down = replace(world.view, messages=world.view.messages[::-1])
    for attack in attacks_of(name):
        plan = [(p.key, p.work) for p in attack.parts(world.view, k)]
        assert plan == [(p.key, p.work) for p in attack.parts(replace(world.view), replace(k, **noise))]
        assert set(plan) == {(p.key, p.work) for p in attack.parts(upside_down, k)}
        assert len({key for key, _ in plan}) == len(plan) > 0 and all(key and work > 0 for key, work in plan)


@EVERY
def test_a_view_or_knowledge_that_does_not_allow_it_is_refused_in_one_sentence(name, world, folder) -> None:
    setup = open_setup(folder)
    k = Knowledge({}, *(t[:0] for t in (world.knowledge.auxiliary_inputs, world.knowledge.auxiliary_targets)))
    blind, ignorant = (replace(world.view, messages=()), world.knowledge), (world.view, k)
    for attack in attacks_of(name):
        for view, knowledge in (blind,) if name in NEEDS_NOTHING else (blind, ignorant):
            with pytest.raises(ValueError) as error:
                attack.parts(view, knowledge)
            one_sentence(error)
        for observer in ("peer",) if name in OF_ANONYMOUS else ("downlink", "uplink", "model"):
            try:
                assert attack.parts(setup.view(Observer.parse(observer)), world.knowledge)
            except ValueError as refusal:
                text = str(refusal)
                assert "\n" not in text and observer in text
                assert set(re.findall(r"membership[-/][a-z-]+", text)) <= set(ATTACKS)


# --- the evidence ---


@EVERY
def test_the_evidence_is_finite_and_shaped_as_documented(name, world, evidence) -> None:
    addresses = {message.sender for message in world.view.messages}
    for e in evidence(name):
        assert e.observer == world.view.observer and e.sender in addresses | {""} and e.manner
        assert e.assumed and all(isinstance(words, str) and words for words in e.assumed)
        if isinstance(e, Reconstruction):
            n = len(e.labels)
            assert e.images.shape == e.start.shape == (n, *world.view.input_shape) and n > 0
            assert e.images.dtype == torch.float32 and e.labels.dtype == torch.int64
            for pixels in (e.images, e.start):
                assert 0 <= float(pixels.min()) <= float(pixels.max()) <= 1
            assert torch.isfinite(torch.tensor(e.loss)) and set(e.message_ids) <= {m.id for m in world.view.messages}
        elif isinstance(e, Links):
            rounds = {m.id: m.round for m in world.view.messages}
            assert [rounds[i] for i in e.message_ids] == e.rounds.tolist() == sorted(e.rounds.tolist())
            for pairs in (e.links, torch.tensor(e.joined, dtype=torch.int64).view(-1, 2)):
                assert len(pairs) and (e.rounds[pairs[:, 0]] < e.rounds[pairs[:, 1]]).all()
        elif isinstance(e, ReadTexts):
            assert e.texts.shape == (len(e.certain), *world.view.input_shape) and e.texts.dtype == torch.int64
            assert e.words.dtype == torch.int64 and len(e.words.unique()) == len(e.words) > 0
            assert -1 <= int(e.texts.min()) <= int(e.texts.max()) < len(world.view.vocabulary)
        elif isinstance(e, GuessedValues):
            assert torch.equal(e.ids, world.knowledge.candidate_ids)
            assert e.guesses.shape == e.ids.shape and e.guesses.dtype == torch.int64 and len(e.guesses.unique()) > 1
            assert 0 <= int(e.guesses.min()) <= int(e.guesses.max()) < len(e.values) == len(set(e.values))
            assert e.column in {column.name for column in world.view.columns}
        else:
            assert torch.equal(e.ids, world.knowledge.candidate_ids)
            assert e.scores.shape == e.ids.shape and e.scores.dtype == torch.float64
            assert torch.isfinite(e.scores).all() and len(e.scores.unique()) > 1


@EACH
def test_it_replays_bit_by_bit_without_truth_and_auditor(name, folder, evidence, tmp_path) -> None:
    """The second run reads a copy of the setup that holds the attacker's half alone."""
    copy = shutil.copytree(folder, tmp_path / "setup")
    for half in ("truth", "auditor"):
        shutil.rmtree(copy / half)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    again = evidence_of(name, World.of(open_setup(copy)), 0)
    assert all(same(one, other) for one, other in zip(evidence(name), again, strict=True))
    assert torch.equal(torch.get_rng_state(), state)  # nothing is drawn from a stream that everybody shares


@EACH
def test_another_seed_changes_the_evidence_where_anything_is_drawn_and_nothing_else_does(
    name, world, evidence, monkeypatch
) -> None:
    draws = draws_of(monkeypatch)
    other = evidence_of(name, world, 1)
    for first, second in zip(evidence(name), other, strict=True):
        drawn = {
            Reconstruction: "start",
            MembershipScores: "scores",
            Links: "links",
            ReadTexts: "texts",
            GuessedValues: "guesses",
        }[type(first)]
        assert torch.equal(getattr(first, drawn), getattr(second, drawn)) == (not draws)
        assert same(first, second) == (not draws)


def draws_of(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """The random streams that the code under test opens from now on."""
    draws: list[tuple[object, ...]] = []
    stream = randomness.stream
    monkeypatch.setattr(randomness, "stream", lambda *purpose: draws.append(purpose) or stream(*purpose))
    return draws


@EVERY
def test_progress_grows_to_the_whole(name, world) -> None:
    for attack in attacks_of(name):
        dones: list[int] = []
        totals: list[int] = []

        def note(done: int, total: int, dones: list[int] = dones, totals: list[int] = totals) -> None:
            dones.append(done)
            totals.append(total)

        attack.run_part(attack.parts(world.view, world.knowledge)[-1], world.view, world.knowledge, 0, note)
        assert dones == sorted(dones) and {dones[-1]} == set(totals)


@pytest.mark.parametrize("name", [n for n in ATTACKS if any(isinstance(a, Together) for a in attacks_of(n))])
def test_a_group_gives_what_its_parts_give_alone(name, world) -> None:
    """Groups hold every part once, replay bit by bit, and differ from parts run alone by rounding (see `Together`)."""
    view, knowledge = world.view, world.knowledge
    for attack in attacks_of(name):
        assert isinstance(attack, Together)
        parts = attack.parts(view, knowledge)
        groups = attack.groups(parts, view)
        assert sorted(p.key for group in groups for p in group) == sorted(p.key for p in parts)
        assert max(len(group) for group in groups) > 1
        for group in groups:
            whole, again = (attack.run_group(group, [view] * len(group), [knowledge] * len(group), 0) for _ in range(2))
            assert all(same(one, other) for one, other in zip(whole, again, strict=True))
            for part, together in zip(group, whole, strict=True):
                for field, alone in facts(attack.run_part(part, view, knowledge, 0)).items():
                    value = getattr(together, field)
                    if isinstance(value, Tensor) and value.is_floating_point():
                        assert (value - alone).abs().mean() < 1e-3, field
                    elif isinstance(value, Tensor):
                        assert torch.equal(value, alone), field
                    else:
                        assert value == (pytest.approx(alone, rel=1e-3) if isinstance(value, float) else alone), field


# --- membership ---


@pytest.mark.parametrize("name", but([n for n in ATTACKS if n.startswith("membership")], "membership-stacked"))
def test_scores_do_not_know_the_order_of_the_candidates(name, world, evidence, monkeypatch) -> None:
    """Another order gives the same scores in that order. Where shadows are drawn it gives other draws; then, of
    candidates who are all outsiders, the first half must look like the second, whichever these are.
    """
    draws = draws_of(monkeypatch)
    order = torch.randperm(len(world.member), generator=torch.Generator().manual_seed(0))
    shuffled = evidence_of(name, world.reordered(order), 0)
    if not draws:
        for before, after in zip(evidence(name), shuffled, strict=True):
            assert torch.equal(after.ids, before.ids[order])
            torch.testing.assert_close(after.scores, before.scores[order], atol=1e-6, rtol=1e-5)
        return
    outsiders = (~world.member).nonzero().squeeze(1)
    for rows in (outsiders, outsiders.flip(0)):
        for e in evidence_of(name, world.reordered(rows), 0):
            half = len(rows) // 2
            low, high = auc(e.scores[:half], e.scores[half:], 0.99)[1]
            assert low < 0.5 < high
