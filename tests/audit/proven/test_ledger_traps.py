"""What must not be proven: compositions and observers for which a careless ledger gives an ε that is too small."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf, log, sqrt

import pytest
import torch
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.proven import rows as epsilon
from dpfl_audit.audit.proven.accounting import Exposure, proven
from dpfl_audit.audit.proven.table import _target
from dpfl_audit.audit.proven.views import Views
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.description import public_facts
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.planned import _Plan, _planned, planned_ledger
from dpfl_audit.defenses.aggregate import Mean
from dpfl_audit.defenses.data import load
from dpfl_audit.defenses.federation import Federation, run_many
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import LocalResult, LocalTraining, StepClip
from dpfl_audit.defenses.models import build as network
from dpfl_audit.defenses.participation import Everyone, RoundRobin, Uniform
from dpfl_audit.defenses.releases import LaplaceLaw, Release
from dpfl_audit.defenses.schedule import FixedRounds
from dpfl_audit.defenses.scheme import Context, Scheme
from dpfl_audit.defenses.steps.clip import Clip, ClipReceived
from dpfl_audit.defenses.steps.components import ClipComponents
from dpfl_audit.defenses.steps.momentum import Momentum
from dpfl_audit.defenses.steps.perturb import Perturb, raw_release
from dpfl_audit.defenses.steps.side import WithNorm
from dpfl_audit.defenses.steps.sparsify import TopK
from dpfl_audit.defenses.terms import Observer
from dpfl_audit.defenses.topology import Gossip
from dpfl_audit.defenses.update import Replace
from dpfl_audit.defenses.wire import Parcel, Wire
from stated import in_round, stated

DELTA = 1e-5
SGD = LocalTraining(optimiser="sgd", lr=0.1, batch_size=20)


context = partial(in_round, layout=Layout(("w",), ((50,),)), num_examples=10)


def sent(*steps, vector: torch.Tensor | None = None) -> Parcel:
    here = context()
    parcel = Parcel(torch.ones(50) if vector is None else vector, releases=frozenset({raw_release(here)}))
    for step in steps:
        parcel = step(parcel, here)
    return parcel


def price(parcel: Parcel) -> float:
    return proven(parcel.releases, subject=0, unit="client", adjacency="zero_out", delta=DELTA).epsilon


@pytest.mark.parametrize("bend", [Clip(0.02), lambda p, c: ClipReceived(0.02)([p], c)[0]])
def test_noise_that_a_later_clip_shrank_does_not_count(bend):
    """Noise of std 1 on a vector then clipped to .02 leaves noise of norm .02 at most: the last draw has to prove, and
    a clipped noisy vector can be turned around.
    """
    parcel = sent(Clip(1.0), Perturb(noise_std=1.0), bend, Perturb(noise_std=0.01))
    assert price(parcel) == pytest.approx(gaussian_epsilon(0.01 / 0.04, DELTA), rel=1e-6)
    linear = sent(Clip(1.0), Perturb(noise_std=3.0), Perturb(noise_std=4.0))
    assert price(linear) == pytest.approx(gaussian_epsilon(5 / 1, DELTA), rel=1e-6)
    assert sent(Clip(1.0), Perturb(noise_std=1.0), TopK(0.5)).noise_std == 0.0


def test_noise_of_components_left_out_does_not_count():
    """TopK sets half of the components to 0, noise and all; which ones, the subject may decide: nothing is proven."""
    parcel = sent(Clip(1.0), Perturb(noise_std=1.0), TopK(0.5), Perturb(noise_std=0.1))
    assert price(parcel) == inf


def test_what_is_not_a_number_does_not_pass_a_componentwise_clip():
    clip = ClipComponents(2.0, SGD, around_start=False, threshold=0.5)
    parcel = sent(clip, vector=torch.tensor([float("nan"), 3.0, -3.0, float("inf"), 0.1]).repeat(10))
    assert parcel.vector[:5].tolist() == pytest.approx([0, 0.5, -0.5, 0.5, 0.1])


def test_private_thresholds_after_the_noise_are_a_release_of_their_own():
    def trained(p: Parcel, c: Context) -> Parcel:
        told = context(result=LocalResult(p.vector, torch.ones(50), torch.full((50,), 0.3)))
        return ClipComponents(2.0, SGD, around_start=False)(p, told)

    assert price(sent(Clip(1.0), Perturb(noise_std=5.0))) < inf
    assert price(sent(Clip(1.0), Perturb(noise_std=5.0), trained)) == inf


def test_every_draw_of_a_party_has_its_own_noise_and_its_own_release():
    twice = sent(Perturb(noise_std=1.0), Perturb(noise_std=1.0), vector=torch.zeros(50))
    once = sent(Perturb(noise_std=1.0), vector=torch.zeros(50))
    second = twice.vector - once.vector
    assert not torch.equal(second, once.vector) and abs(torch.corrcoef(torch.stack([second, once.vector]))[0, 1]) < 0.5


def federation(clients: list[int], **changes) -> tuple[Federation, list]:
    data = load("digits")
    module = network("linear", input_shape=data.input_shape, classes=data.classes, mean=data.mean, std=data.std, seed=0)
    rows = list(torch.arange(sum(clients)).split(clients))
    given = {"name": "t", "source": "t", "local": SGD, "schedule": FixedRounds(1)}
    messages: list = []
    return (
        Federation(Scheme(**{**given, **changes}), module, data, rows, 0, Wire(messages.append), evaluate=False),
        messages,
    )


def test_a_gossip_hub_does_not_reuse_its_uploads_noise():
    made, messages = federation(
        [20, 20, 20],
        share="weights",
        client=(Clip(1.0), Perturb(noise_std=2.0)),
        server=(Perturb(noise_std=2.0),),
        update=Replace(),
        topology=Gossip(2),
    )
    (state,) = run_many([made])
    ids = [r.id for m in messages for r in m.releases]
    assert len(set(ids)) == 3 and not {r.id for p in state.models.values() for r in p.revealed} & set(ids)


CLIPPED = {"gather": (ClipReceived(1.0),)}
PER_STEP = {"local": LocalTraining(batch_size=4, step_clip=StepClip("gradient", 1.0))}
NOISE = (Perturb(noise_std=1.0),)
DIVIDED = (Perturb(noise_multiplier=5.0, divided_by="records"),)


@pytest.mark.parametrize(
    ("clients", "weighted", "changes", "finite"),
    [
        ([20, 20, 20, 20], True, {**CLIPPED, "server": NOISE}, True),
        ([20, 20, 20, 60], False, {**CLIPPED, "server": NOISE}, True),
        ([20, 20, 20, 60], True, {**CLIPPED, "server": NOISE}, False),
        ([20, 20, 20, 20], False, {**PER_STEP, "server": NOISE}, True),
        ([20, 20, 20, 60], False, {**PER_STEP, "server": NOISE}, False),
        ([20, 20, 20, 20], False, {**CLIPPED, "server": DIVIDED}, True),
        ([20, 20, 20, 60], False, {**CLIPPED, "server": DIVIDED}, False),
    ],
)
def test_a_secret_cohort_proves_nothing_where_bound_or_noise_follow_the_records_of_who_was_drawn(
    clients, weighted, changes, finite
):
    """Weights, a bound of so much a step, a division: .92 was proven of the second, 1.72 of the third, where counting
    shows 5.5 and 3.1 (f23_secret_cohort.py).
    """
    made, messages = federation(clients, aggregate=Mean(weighted), participation=Uniform(2), **changes)
    run_many([made])
    sent = [Parcel(m.vector, releases=m.releases, inherits=m.inherits) for m in messages if m.kind == "weights"]
    releases = [r for parcel in sent for r in parcel.revealed]
    found = proven(releases, subject=3, unit="client", adjacency="zero_out", delta=DELTA)
    assert (found.epsilon < inf) == finite, found.reasons


@pytest.mark.parametrize("rule", [Everyone(), RoundRobin(1), Uniform(1)])
def test_a_clip_of_a_hubs_running_mean_bounds_this_round_and_not_the_ones_before(rule):
    """It holds raw values of whoever took part before, whom no release of the round is about: .26 was proven of the
    final model, where counting shows 1.34 (hubmom.py).
    """
    made, messages = federation(
        [20] * 4, server=(Momentum(0.5), Clip(1.0), Perturb(noise_std=5.0)), schedule=FixedRounds(3), participation=rule
    )
    run_many([made])
    sent = [Parcel(m.vector, releases=m.releases, inherits=m.inherits) for m in messages if m.kind == "weights"]
    for adjacency in ("zero_out", "replace_one"):
        found = proven(sent[-1].revealed, subject=0, unit="client", adjacency=adjacency, delta=DELTA)
        assert found.epsilon == inf


def test_a_slot_of_laplace_sums_never_forgets_the_one_with_the_fewest_noises():
    """A record is in one of two batches; five answered in one round, its client alone in the other. Its ε is 1/b."""

    def of(senders: int) -> Release:
        law = LaplaceLaw(0.0, ((2 * sqrt(2), senders),))
        return stated(law, id=str(senders), round=9 - senders, bound_of="record", slot="epoch")  # first of equals

    many, alone = of(5), of(1)
    asked = {"subject": 0, "unit": "record", "adjacency": "zero_out", "delta": 0.01}
    exact = 1 / 2 + 2 * log(1 - 0.01)  # of one Laplace noise: δ = 1 − exp((ε − 1/b)/2)
    assert proven([many], **asked).epsilon < 0.4 < exact
    for order in ((many, alone), (alone, many)):
        assert proven(order, **asked).epsilon >= exact * (1 - 1e-9)


def broadcast_price(clients: list[int], subject: int, coalition: int = 0, **changes) -> float:
    """ε of a client of one round towards who sees the server's broadcasts alone."""
    made, messages = federation(clients, **changes)
    run_many([made])
    sent = [Parcel(m.vector, releases=m.releases, inherits=m.inherits) for m in messages if m.kind == "weights"]
    releases = [r for parcel in sent for r in parcel.revealed]
    exposure = Exposure.of(releases, [subject], coalition)
    return exposure.worst(unit="client", adjacency="zero_out", delta=DELTA).epsilon


def test_the_client_with_half_of_all_records_moves_a_weighted_mean_by_half_its_clip():
    """Of clients with 20, 20, 20 and 60 records the last moves the mean by C/2: noise of std C is twice that."""
    found = broadcast_price(
        [20, 20, 20, 60],
        3,
        gather=(ClipReceived(1.0),),
        aggregate=Mean(weighted=True),
        server=(Perturb(noise_std=1.0),),
    )
    assert found == pytest.approx(gaussian_epsilon(2.0, DELTA), rel=1e-6)


def test_a_client_counts_on_its_own_noise_and_not_on_what_others_add():
    """Each adds 48C/n: .8C for the client of 60 records, 2.4C for those of 20, who may collude and subtract theirs.

    In the mean of four the last client's part is .25C and its noise .2C; the server's .15C makes that √(.2² + .15²)C,
    as much as it can move. If the others are honest, their 3 × .6²C² count too.
    """
    costs = {
        colluding: broadcast_price(
            [20, 20, 20, 60],
            3,
            colluding,
            client=(Clip(1.0), Perturb(noise_multiplier=48.0, divided_by="records")),
            server=(Perturb(noise_std=0.15),),
        )
        for colluding in (3, 0)
    }
    assert costs[3] == pytest.approx(gaussian_epsilon(1.0, DELTA), rel=1e-6)
    assert costs[0] == pytest.approx(gaussian_epsilon(sqrt(0.25**2 + 3 * 0.6**2) / 0.25, DELTA), rel=1e-6)


BASE = {
    "data": {"name": "digits", "clients": 6, "samples_per_client": 20},
    "model": {"name": "linear"},
    "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 20},
}


def planned(scheme: dict, **tables):
    made = build(parse_config({**BASE, **tables, "scheme": scheme}), None)
    return made, planned_ledger(made)


def row(ledger, observer: str, adjacency: str = "zero_out", unit: str = "client"):
    return epsilon.rows(ledger, None, DELTA, (Observer.parse(observer),), (unit,), (adjacency,))[0]


def test_the_final_model_costs_every_round_that_went_into_it():
    """Nine rounds of everybody, noise of 6 times what a client moves the sum by: as one release of noise 6/√9 = 2."""
    _, ledger = planned({"name": "cdp", "clip": 1.0, "sigma": 6.0, "rounds": 9})
    assert row(ledger, "model").proven == pytest.approx(gaussian_epsilon(2.0, DELTA), rel=1e-6)


def test_a_cohort_is_no_secret_where_the_server_sees_who_answers():
    """3 of 6 by lot, of whom some drop out: every round in which a client answered costs as if all had known."""
    _, ledger = planned({"name": "cdp", "clip": 1.0, "sigma": 6.0, "rounds": 8, "participants": 3, "dropout": 0.3})
    answered = ledger.participations()
    assert len(set(answered.values())) > 1
    for client, rounds in answered.items():
        seen = proven(
            ledger.seen_by(Observer("downlink")), subject=client, unit="client", adjacency="zero_out", delta=DELTA
        )
        assert seen.epsilon == pytest.approx(gaussian_epsilon(6 / sqrt(rounds), DELTA), rel=1e-6)


def test_an_observer_that_cannot_be_is_not_priced():
    _, gossip = planned({"name": "anonymous-gossip", "rounds": 2, "neighbours": 2})
    for observer in ("model", "downlink", "server"):
        with pytest.raises(BadInput, match="no server; its observers are peer"):
            epsilon.rows(gossip, None, DELTA, (Observer.parse(observer),))
    assert row(gossip, "uplink").proven > 0


def test_the_row_of_a_peer_is_the_worst_of_all_peers():
    """Every party in turn as the one who looks: none learns more than the row says."""
    _, ledger = planned({"name": "anonymous-gossip", "rounds": 3, "neighbours": 2}, seed=0)
    found = row(ledger, "peer").proven
    received = [ledger.revealed(m for m in ledger.messages.values() if p in m.receivers) for p in range(6)]
    each = [
        max(
            proven(received[p], subject=s, unit="client", adjacency="zero_out", delta=DELTA).epsilon
            for s in range(6)
            if s != p
        )
        for p in range(6)
    ]
    assert found == pytest.approx(max(each)) and min(each) < max(each)


def test_uplink_l_is_any_l_of_a_clients_uploads():
    """ldp at C = 1, noise_std 2, 6 rounds: L uploads cost what L Gaussians of ratio 2·1/2 do under replace_one, be they
    the client's own, or another's that turn around.
    """
    _, ledger = planned({"name": "ldp", "clip": 1.0, "noise_std": 2.0, "rounds": 6, "participants": 3})
    busiest = max(ledger.participations().values())
    for count in (1, 2, busiest):
        assert row(ledger, f"uplink({count})", "replace_one").proven == pytest.approx(
            gaussian_epsilon(1 / sqrt(count), DELTA), rel=1e-6
        )
    _, falling = planned({"name": "geometric", "rounds": 6, "ratio": 0.5, "participants": 6})
    ratios = sorted(
        (r.ratio for r in falling.releases.values() if r.subjects == {0} and r.mechanism == "gaussian"), reverse=True
    )
    assert ratios[0] > 2 * ratios[-1] and row(falling, "uplink(1)", "replace_one").proven == pytest.approx(
        gaussian_epsilon(1 / (2 * ratios[0]), DELTA), rel=1e-6
    )


def test_the_noise_for_a_target_serves_the_worst_off_client():
    _, ledger = planned({"name": "ldp", "clip": 1.0, "noise_std": 2.0, "rounds": 6, "participants": 2})
    uploads = ledger.participations()
    assert len(set(uploads.values())) > 1
    factor = _target(Views(ledger), row(ledger, "server"), 4.0).noise_factor
    assert gaussian_epsilon(2 * factor / sqrt(max(uploads.values())), DELTA) == pytest.approx(4.0, rel=1e-6)


@pytest.mark.parametrize(
    ("scheme", "known"),
    [
        ({"name": "ldp", "sigma": 1.0}, True),
        ({"name": "fednore1", "sigma": 1.0}, False),
        ({"name": "component"}, False),
        ({"name": "component", "threshold": 0.1}, True),
        ({"name": "lcdp"}, False),
    ],
)
def test_the_attacker_is_not_told_noise_scaled_in_private(scheme, known):
    raw = {**BASE, "local": {**BASE["local"], "optimiser": "adam", "batch_size": 5}}
    made = build(parse_config({**raw, "scheme": scheme}), None)
    done = [{"figures": {"noise_std": 1.0, "norm_before_clip": 1.0, "share_clipped": 0.5}}]
    assert bool(public_facts(made, done)["extra"].get("noise_unknown")) == (not known)


# --- what a later step makes of a bound


def hub_context():
    return context(party=-1, senders=4, subjects=frozenset(range(4)))


@pytest.mark.parametrize("bend", [Clip(1.0), lambda p, c: ClipReceived(1.0)([p], c)[0]])
def test_a_clip_of_a_noisy_value_can_be_turned_around(bend):
    """Without the client the clipped vector is clipped noise, not 0: C of one side against C of the other, 2C (counted
    by an oracle: δ .1, one unit of noise, ≥ 1.29 where half of it proves 1.16).
    """
    parcel = sent(Clip(1.0), Perturb(noise_std=1.0), bend, Perturb(noise_std=1.0))
    assert price(parcel) == pytest.approx(gaussian_epsilon(0.5, DELTA), rel=1e-6)


def test_a_hubs_clip_of_a_mean_can_be_turned_around_by_one_client():
    parcel = Parcel(torch.ones(50), releases=frozenset({raw_release(hub_context())}))
    for step in (Clip(1.0), Perturb(noise_std=1.0)):
        parcel = step(parcel, hub_context())
    assert price(parcel) == pytest.approx(gaussian_epsilon(0.5, DELTA), rel=1e-6)


def test_a_hubs_choice_of_components_is_bounded_by_nothing():
    """Which components of a mean are kept may turn on one client, and brings the others' values with it."""
    parcel = Parcel(torch.ones(50), releases=frozenset({raw_release(hub_context())}))
    for step in (Clip(1.0), TopK(0.5), Perturb(noise_std=1.0)):
        parcel = step(parcel, hub_context())
    assert price(parcel) == inf


def test_a_running_mean_after_the_noise_carries_what_an_eavesdropper_did_not_catch():
    """Twenty rounds, one upload caught: the last carries them all (an oracle shows 5.70 where .919 was proven)."""
    made, _ = federation([20], client=(Clip(1.0), Perturb(noise_std=2.0), Momentum(0.9)), schedule=FixedRounds(20))
    ledger = _planned(_Plan(made.scheme, made.layout, made.data, made.clients, 0, "", {}))
    (caught,), (all_of,) = (
        epsilon.rows(ledger, None, 0.01, (Observer.parse(who),), ("client",), ("zero_out",))
        for who in ("uplink(1)", "uplink")
    )
    assert caught.proven == all_of.proven > 5.7


def test_one_records_value_does_not_end_a_training():
    """A value that is not finite is sent as 0 and noise; were it the end, the number of rounds would tell of it without
    noise: ε = ∞ (div.py of the second review: proven .302).
    """
    counts = []
    for wild in (False, True):
        made, messages = federation([20, 20], client=(Clip(1.0), Perturb(noise_std=1.0)), schedule=FixedRounds(3))
        inputs = made.data.inputs.clone()
        if wild:
            inputs[made.clients[0][0]] = 3e38
        run_many([replace(made, data=replace(made.data, inputs=inputs))])
        counts.append(len(messages))
    assert counts[0] == counts[1] > 3


def test_a_number_sent_beside_the_value_is_revealed_whatever_noise_comes_later():
    """Found by `make soundness` (seed 166): noise on the value made the norm, which is sent in the clear, forgotten."""
    parcel = sent(WithNorm(Clip(1.0)), Perturb(noise_std=1.0), Perturb(noise_std=1.0))
    assert parcel.side and price(parcel) == inf
