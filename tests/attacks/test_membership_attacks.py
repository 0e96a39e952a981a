"""The attacks end to end on small federations: what they must find, what they must not, what they refuse."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from dpfl_audit.attacks.base import Knowledge, MembershipScores, PublicFacts, Seen, View
from dpfl_audit.attacks.membership import CapturedMembership, LossThreshold, ShadowFactory, ShadowMembership
from dpfl_audit.attacks.membership.captured import fedmia
from dpfl_audit.attacks.membership.gradients import inner_products
from dpfl_audit.attacks.membership.make import maker
from dpfl_audit.defenses.data.dataset import Dataset
from dpfl_audit.defenses.engine import batched
from dpfl_audit.defenses.federation import Federation, run_many
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import LocalTraining
from dpfl_audit.defenses.presets.base import update_rule
from dpfl_audit.defenses.schedule import FixedRounds
from dpfl_audit.defenses.scheme import Scheme
from dpfl_audit.defenses.steps.clip import Clip
from dpfl_audit.defenses.steps.perturb import Perturb
from dpfl_audit.defenses.wire import SERVER, Message, Wire, client_address, client_of
from dpfl_audit.metrics.membership import auc
from messages import with_candidates
from torch import Tensor, nn

CLIENTS, EACH, AUXILIARY, CLASSES, FEATURES = 6, 20, 60, 4, 50
TOTAL = CLIENTS * EACH


@dataclass(frozen=True, eq=False)
class World:
    """A trained federation as the server sees it. holder (n,): the candidates' client, −1 for non-members."""

    view: View
    knowledge: Knowledge
    holder: Tensor

    @property
    def factory(self) -> ShadowFactory:
        assert self.knowledge.shadow_factory is not None
        return self.knowledge.shadow_factory

    @property
    def member(self) -> Tensor:
        return self.holder >= 0

    def seen_by(self, keep) -> View:
        return replace(self.view, messages=tuple(m for m in self.view.messages if keep(m)))


def scheme(
    share: str = "update", optimiser: str = "adam", lr: float = 0.01, rounds: int = 15, epochs: int = 5, client=()
) -> Scheme:
    local = LocalTraining(optimiser=optimiser, lr=lr, batch_size=EACH, epochs=epochs)
    return Scheme(
        name="test",
        source="",
        local=local,
        share=share,
        client=client,
        update=update_rule(share, local),
        schedule=FixedRounds(rounds),
    )


def train(scheme: Scheme, seed: int = 0) -> World:
    """Random inputs with random labels: nothing to learn, so a model that fits its records has memorised them."""
    rng = torch.Generator().manual_seed(seed)
    inputs, targets = (
        torch.randn(2 * TOTAL + AUXILIARY, FEATURES, generator=rng),
        torch.randint(CLASSES, (2 * TOTAL + AUXILIARY,), generator=rng),
    )
    rows = torch.randperm(2 * TOTAL, generator=rng)
    clients = list(rows[:TOTAL].split(EACH))
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    messages: list[Message] = []
    empty = (inputs[:0], targets[:0])
    data = Dataset("random", inputs, targets, *empty, *empty, CLASSES, (), (), {})
    run_many([Federation(scheme, module, data, clients, seed, Wire(messages.append), evaluate=False)])
    local = scheme.local
    facts = PublicFacts("test", scheme.share, local.optimiser, local.lr, local.batch_size, local.epochs, None)
    seen = tuple(
        Seen(
            m.id, m.round, m.sender, m.receivers, m.kind, m.num_examples, lambda m=m: m.vector, m.sender_party == SERVER
        )
        for m in messages
    )
    holder = torch.full((2 * TOTAL,), -1)
    for client, held in enumerate(clients):
        holder[held] = client
    factory = ShadowFactory(scheme, module, tuple(map(len, clients)))
    knowledge = Knowledge(
        {},
        inputs[2 * TOTAL :],
        targets[2 * TOTAL :],
        inputs[: 2 * TOTAL],
        targets[: 2 * TOTAL],
        torch.arange(2 * TOTAL) + 1000,
        factory,
    )
    view = View("server", seen, module, Layout.of(module), facts, (FEATURES,), CLASSES)
    return World(view, knowledge, holder)


@pytest.fixture(scope="module")
def overfitted() -> World:
    return train(scheme())


@pytest.fixture(scope="module")
def slow_sgd() -> World:
    return train(scheme(optimiser="sgd", lr=0.1, rounds=10, epochs=1))


def evidence(attack, world: World, view: View | None = None, seed: int = 0) -> list[MembershipScores]:
    view = view or world.view
    return [attack.run_part(part, view, world.knowledge, seed) for part in attack.parts(view, world.knowledge)]


def area(scores: Tensor, member: Tensor, confidence: float = 0.95) -> tuple[float, tuple[float, float]]:
    return auc(scores[member], scores[~member], confidence)


# --- the final model ---


def test_a_model_that_memorises_is_found_out(overfitted: World) -> None:
    (found,) = evidence(LossThreshold(), overfitted)
    assert area(found.scores, overfitted.member)[0] > 0.95
    assert (found.attack, found.observer, found.sender) == ("membership-loss", "server", "")
    assert torch.equal(found.ids, overfitted.knowledge.candidate_ids)


def test_a_model_that_never_saw_the_records_gives_one_half(overfitted: World) -> None:
    other = train(scheme(), seed=1)
    (found,) = evidence(LossThreshold(), replace(overfitted, view=other.view))
    low, high = area(found.scores, overfitted.member)[1]
    assert low < 0.5 < high


@pytest.mark.few(2)
@pytest.mark.parametrize("method", ["shokri", "lira", "lira-offline", "rmia"])
def test_shadow_attacks_find_members_of_a_memorising_model(overfitted: World, method) -> None:
    attack = ShadowMembership(method, shadows=4)
    (found,) = evidence(attack, overfitted)
    assert area(found.scores, overfitted.member)[0] > 0.9
    assert found.attack == f"membership-{method}" == attack.name
    assert torch.equal(evidence(attack, overfitted)[0].scores, found.scores)


def test_shadow_attacks_find_nothing_in_a_model_that_never_saw_the_records(overfitted: World) -> None:
    view = train(scheme(), seed=1).view
    for method in ("shokri", "lira", "rmia"):
        (found,) = evidence(ShadowMembership(method, shadows=4), replace(overfitted, view=view))
        low, high = area(found.scores, overfitted.member, 0.99)[1]
        assert low < 0.5 < high


def test_shadows_are_trained_on_the_targets_number_of_the_attackers_own_records(overfitted: World) -> None:
    trained: list[Tensor] = []

    def watched(jobs):
        trained.extend(job.batches.unique() for job in jobs)
        assert all(torch.equal(job.inputs[: 2 * TOTAL], overfitted.knowledge.candidate_inputs) for job in jobs)
        return batched(jobs)

    factory = replace(overfitted.factory, engine=watched)
    knowledge = replace(overfitted.knowledge, shadow_factory=factory)
    evidence(ShadowMembership("lira", shadows=4), replace(overfitted, knowledge=knowledge))
    first_round = trained[: 4 * CLIENTS]
    assert [len(rows) for rows in first_round] == [EACH] * 4 * CLIENTS
    counts = torch.bincount(torch.cat(first_round), minlength=2 * TOTAL)
    assert (counts[: 2 * TOTAL] == 2).all()  # each candidate in exactly half of the four


def test_more_candidates_than_twice_the_records_are_handled_in_blocks(overfitted: World) -> None:
    small = replace(overfitted.factory, sizes=(EACH,) * 2, scheme=scheme(rounds=1, epochs=1))
    knowledge = replace(overfitted.knowledge, shadow_factory=small)
    attack = ShadowMembership("lira", shadows=4)
    (part,) = attack.parts(overfitted.view, knowledge)
    (one,) = attack.parts(overfitted.view, with_candidates(knowledge, slice(80)))
    assert part.work == 3 * one.work  # 240 candidates, 80 a block
    told: list[tuple[int, int]] = []
    found = attack.run_part(part, overfitted.view, knowledge, 0, lambda done, total: told.append((done, total)))
    assert torch.isfinite(found.scores).all() and "3 blocks" in found.note
    assert told[-1] == (12, 12)


def test_shadows_stop_after_the_round_whose_model_was_seen(overfitted: World) -> None:
    """A capture of three rounds shows the model after three: shadows that went on to the end would be of another."""
    early, trained = overfitted.seen_by(lambda m: m.round <= 3), []

    def watched(jobs):
        trained.append(len(jobs))
        return batched(jobs)

    factory = replace(overfitted.factory, engine=watched)
    knowledge = replace(overfitted.knowledge, shadow_factory=factory)
    (found,) = evidence(ShadowMembership("lira", shadows=4), replace(overfitted, knowledge=knowledge), early)
    assert trained == [4 * CLIENTS] * 3
    assert area(found.scores, overfitted.member)[1][0] > 0.6
    untrained = overfitted.seen_by(lambda m: m.round == 0)
    with pytest.raises(ValueError, match="needs a model that was trained"):
        ShadowMembership("lira", shadows=4).parts(untrained, knowledge)


def test_an_attacker_with_too_few_records_says_so(overfitted: World) -> None:
    knowledge = with_candidates(overfitted.knowledge, slice(60))
    (found,) = evidence(ShadowMembership("lira", shadows=4), replace(overfitted, knowledge=knowledge))
    assert any("60 records" in sentence and "had 120" in sentence for sentence in found.assumed)


# --- captured uploads ---


@pytest.mark.parametrize(("statistic", "least"), [("cosine", 0.95), ("fedmia", 0.9), ("local-loss", 0.95)])
def test_captured_updates_tell_whose_records_they_were_made_of(overfitted: World, statistic, least: float) -> None:
    """Non-members here are also the other clients' records, which the global model has seen just as often."""
    found = evidence(CapturedMembership(statistic), overfitted)
    assert {s.sender for s in found} == {client_address(c) for c in range(CLIENTS)}
    assert min(area(s.scores, overfitted.holder == client_of(s.sender))[0] for s in found) > least


def test_gradient_difference_tells_whose_records_an_sgd_update_was_made_of(slow_sgd: World) -> None:
    found = evidence(CapturedMembership("gradient-difference"), slow_sgd)
    assert min(area(s.scores, slow_sgd.holder == client_of(s.sender))[0] for s in found) > 0.8


def test_averaging_over_rounds_averages_the_rounds(slow_sgd: World) -> None:
    view = slow_sgd.seen_by(lambda m: m.broadcast or m.sender == client_address(3))
    (whole,) = evidence(CapturedMembership("cosine"), slow_sgd, view)
    rounds = [replace(view, messages=tuple(m for m in view.messages if m.round == number)) for number in range(10)]
    single = [scores for one in rounds for scores in evidence(CapturedMembership("cosine"), slow_sgd, one)]
    assert len(single) == 10 and "10 rounds" in whole.note and single[4].note == "mean over 1 round"
    torch.testing.assert_close(whole.scores, torch.stack([s.scores for s in single]).mean(0))


def test_gradients_updates_and_weights_of_one_sgd_step_say_the_same() -> None:
    """With one full-batch step, share = gradient, update and weights are the same facts in other units."""
    found = {}
    for share in ("gradient", "update", "weights"):
        world = train(scheme(share, optimiser="sgd", lr=0.05, rounds=3, epochs=1))
        for statistic in ("cosine", "gradient-difference"):
            (scores,) = evidence(
                CapturedMembership(statistic),
                world,
                world.seen_by(lambda m: m.broadcast or m.sender == client_address(0)),
            )
            found[share, statistic] = scores.scores
    for statistic in ("cosine", "gradient-difference"):
        for share in ("update", "weights"):
            torch.testing.assert_close(found[share, statistic], found["gradient", statistic], atol=2e-4, rtol=2e-3)


def test_fedmia_takes_the_other_clients_cosines_as_references(slow_sgd: World) -> None:
    first = slow_sgd.seen_by(lambda m: m.round == 0)
    cosines = {s.sender: s.scores for s in evidence(CapturedMembership("cosine"), slow_sgd, first)}
    for scores in evidence(CapturedMembership("fedmia"), slow_sgd, first):
        others = torch.stack([value for sender, value in cosines.items() if sender != scores.sender])
        torch.testing.assert_close(scores.scores, fedmia(cosines[scores.sender], others))


def test_what_was_computed_for_one_sender_is_not_computed_again_for_the_next(
    slow_sgd: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = []

    def counted(*arguments):
        passes.append(1)
        return inner_products(*arguments)

    monkeypatch.setattr("dpfl_audit.attacks.membership.products.inner_products", counted)
    fresh, knowledge = replace(slow_sgd.view), replace(slow_sgd.knowledge)
    found = evidence(CapturedMembership("fedmia"), replace(slow_sgd, knowledge=knowledge), fresh)
    assert len(found) == CLIENTS and len(passes) == 10 * CLIENTS  # one pass a message, not one a message and sender
    alone = CapturedMembership("fedmia")
    part = alone.parts(fresh, knowledge)[3]
    assert torch.equal(alone.run_part(part, replace(fresh), replace(knowledge), 0).scores, found[3].scores)


def test_loss_trajectory_is_the_mean_loss_of_the_global_models(slow_sgd: World) -> None:
    downlink = replace(slow_sgd.seen_by(lambda m: m.broadcast), observer="downlink")
    (found,) = evidence(CapturedMembership("loss-trajectory"), slow_sgd, downlink)
    losses = [
        -evidence(LossThreshold(), slow_sgd, slow_sgd.seen_by(lambda m, r=r: m.broadcast and m.round == r))[0].scores
        for r in range(11)
    ]
    torch.testing.assert_close(found.scores, -torch.stack(losses).mean(0))
    assert found.sender == "" and "11" in found.note


def test_an_uplink_observer_of_weights_can_use_their_loss() -> None:
    world = train(scheme("weights", rounds=3))
    uplink = replace(world.seen_by(lambda m: not m.broadcast), observer="uplink")
    found = evidence(CapturedMembership("local-loss"), world, uplink)
    assert area(found[0].scores, world.holder == client_of(found[0].sender))[0] > 0.8
    with pytest.raises(ValueError, match="messages of rounds whose global model it saw"):
        CapturedMembership("cosine").parts(uplink, world.knowledge)


def test_enough_local_noise_hides_the_records() -> None:
    world = train(scheme(rounds=5, client=(Clip(0.1), Perturb(noise_std=1.0))))
    for attack in (LossThreshold(), CapturedMembership("cosine")):
        found = evidence(attack, world)[0]
        low, high = area(found.scores, world.member if found.sender == "" else world.holder == 0, 0.99)[1]
        assert low < 0.5 < high


def test_scores_do_not_depend_on_the_order_of_messages_or_candidates(slow_sgd: World) -> None:
    order = torch.randperm(2 * TOTAL, generator=torch.Generator().manual_seed(0))
    knowledge = with_candidates(slow_sgd.knowledge, order)
    view = replace(slow_sgd.view, messages=slow_sgd.view.messages[::-1])
    for attack in (LossThreshold(), CapturedMembership("cosine")):
        before = {s.sender: s.scores for s in evidence(attack, slow_sgd)}
        for after in evidence(attack, replace(slow_sgd, view=view, knowledge=knowledge)):
            torch.testing.assert_close(after.scores, before[after.sender][order], atol=1e-6, rtol=1e-5)


# --- what they refuse ---


def test_what_an_attack_costs_grows_with_its_candidates_and_networks(slow_sgd: World) -> None:
    """Twice the candidates cost nearly twice as much, and a statistic that needs gradients six times one of losses."""

    def work(statistic: str, count: int) -> float:
        knowledge = with_candidates(slow_sgd.knowledge, slice(count))
        return CapturedMembership(statistic).parts(slow_sgd.seen_by(lambda m: m.round == 0), knowledge)[0].work

    one, two = work("cosine", 40), work("cosine", 80)
    each = (two - one) / 40
    assert each > 0 and one < two < 2 * one
    for losses in ("local-loss", "loss-trajectory"):
        assert (work(losses, 80) - work(losses, 40)) / 40 == pytest.approx(each / 6)


def test_what_is_assumed_of_a_networks_mode_is_said_where_gradients_are_taken_alone(slow_sgd: World) -> None:
    for statistic, said in (("cosine", True), ("gradient-difference", True), ("loss-trajectory", False)):
        (found, *_) = evidence(CapturedMembership(statistic), slow_sgd)
        assert any("evaluation mode" in sentence for sentence in found.assumed) is said


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match="statistic = 'angle'"):
        CapturedMembership("angle")
    with pytest.raises(ValueError, match="method = 'magic'"):
        ShadowMembership("magic")
    with pytest.raises(ValueError, match="shadows is 2; lira needs an even number, at least 4"):
        ShadowMembership(shadows=2)
    with pytest.raises(
        ValueError,
        match="shadows is 7; shokri needs an even number, at least 2, so that every record is in exactly half of them",
    ):
        ShadowMembership("shokri", shadows=7)
    for shadows in ("16", 16.0, True):
        with pytest.raises(ValueError, match=r"shadows is .*; a whole number is expected"):
            ShadowMembership("rmia", shadows)


def test_quick_halves_the_shadows_and_never_adds_any() -> None:
    make = maker(ShadowMembership, method="shokri")
    assert [make({"shadows": shadows}, True, "cpu")[0].shadows for shadows in (2, 4, 8, 16, 18)] == [2, 4, 4, 8, 8]


def test_bad_views_and_knowledge(slow_sgd: World) -> None:
    k, view = slow_sgd.knowledge, slow_sgd.view
    down, up = slow_sgd.seen_by(lambda m: m.broadcast), slow_sgd.seen_by(lambda m: not m.broadcast)
    few = slow_sgd.seen_by(lambda m: m.broadcast or m.sender in (client_address(0), client_address(1)))
    start = slow_sgd.seen_by(lambda m: m.broadcast and m.round == 0)
    nobody = with_candidates(k, slice(0))
    adam = replace(view, facts=replace(view.facts, optimiser="adam"))
    cases = [
        (LossThreshold(), view, nobody, "no membership candidates"),
        (LossThreshold(), view, replace(k, candidate_targets=k.candidate_targets[1:]), "candidates have inputs"),
        (LossThreshold(), view, replace(k, candidate_targets=k.candidate_targets + 9), "class numbers from 0 to 3"),
        (LossThreshold(), up, k, "sees no global model"),
        (CapturedMembership(), down, k, "sees no uploads"),
        (CapturedMembership(), up, k, "has a gradient only at known weights"),
        (CapturedMembership("fedmia"), few, k, "at least 5 clients"),
        (CapturedMembership("gradient-difference"), adam, k, "'adam' does not keep"),
        (CapturedMembership("local-loss"), up, k, "a gradient does not give its sender's model"),
        (ShadowMembership(), view, replace(k, shadow_factory=None), "this attacker has none"),
        (ShadowMembership(), replace(view, classes=0), k, "needs class labels"),
        (ShadowMembership(), start, k, "saw only the one the server began with"),
        (
            ShadowMembership("rmia"),
            view,
            replace(k, auxiliary_inputs=k.auxiliary_inputs[:0], auxiliary_targets=k.auxiliary_targets[:0]),
            "no auxiliary data",
        ),
    ]
    for attack, seen, known, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            attack.parts(seen, known)
