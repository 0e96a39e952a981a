"""Who is audited, what is seen of it, and with which canary."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import inf, isfinite

import torch
from torch import Tensor

from ....attacks.canary import CLIENT_CANARIES, RECORD_CANARIES, Canary, PlantedSecret, UpdateCanary
from ....defenses.data.vocabulary import vocabulary_of
from ....defenses.federation import Federation, State
from ....defenses.layout import Layout
from ....defenses.participation import Everyone, RoundRobin
from ....defenses.randomness import Keystream, generator
from ....defenses.schedule import rounds_planned
from ....defenses.terms import Adjacency, Observer, Unit
from ....defenses.wire import SERVER, Parcel, client_address
from ....defenses.workers import HERE, Workers
from ...errors import BadInput
from ...results.format import AttackResult, Epsilon
from ...setup.auditor import Auditor
from ...setup.experiment import Experiment, build
from ...setup.key import FILE as KEY_FILE
from ...setup.key import keyed
from ...setup.ledger import Ledger
from ...setup.planned import planned_ledger
from ...setup.reading import present
from .client_round import Moment, World, client_worlds, constants_apart, moments, record_worlds
from .plan import CRAFTED_START, NOISE_IN_OPEN_BATCHES, NOISE_IN_TRAINING, OVERHEAD, PROTOCOLS, CanarySettings, planned
from .sequence import SequenceTrials, chain_of
from .trials import FederationTrials, HubTrials, ToldTrials, UploadTrials

OWN = "existing"  # the client, or its record, as it is
DIRAC = "dirac-gradient"
EQUAL = 0.05  # a canary must be better than those before it in the list by this share


class NoDemonstration(Exception):
    """Why a demonstration is not possible, in one sentence."""


@dataclass(frozen=True)
class Question:
    """A row of the ε table: what an observer may learn of one unit at δ, and the ε claimed and proven of it (None:
    nothing is).
    """

    observer: Observer
    unit: Unit
    adjacency: Adjacency
    delta: float
    claimed: float | None = None
    proven: float | None = None

    @classmethod
    def of(cls, row: Epsilon) -> Question:
        """The question a row of the ε table asks."""
        assert row.delta is not None
        return cls(Observer.parse(row.observer), row.unit, row.adjacency, row.delta, row.claimed, row.proven)

    @property
    def targets(self) -> tuple[float, ...]:
        """The ε that draws are taken to refute: the claim, and the proof where it is below it or there is no claim."""
        known = [v for v in (self.claimed, self.proven) if v is not None and isfinite(v)]
        return tuple(v for v in known if self.claimed is None or v <= self.claimed)

    @property
    def target(self) -> float:
        """The ε a demonstration is worth having above: the smaller of claim and proof, ∞ without either."""
        return min(self.claimed or inf, self.proven or inf)


@dataclass(frozen=True, eq=False)
class CanaryCase:
    """One row's audit: the federation and its ledger, the rounds seen, the canary and its place, and who draws and
    trains.
    """

    experiment: Experiment
    ledger: Ledger
    settings: CanarySettings
    question: Question
    seed: int
    client: int
    rounds: list[Moment]
    canary: Canary | UpdateCanary | None
    place: int | None
    influence: float
    workers: Workers = HERE

    @classmethod
    def of(cls, source: Auditor | Experiment, settings: CanarySettings, question: Question, seed: int) -> CanaryCase:
        """The case of a question.

        Raises:
            BadInput: the observer is unknown.
            NoDemonstration: nothing can be demonstrated, with the reason.
        """
        observer = question.observer
        experiment = experiment_of(source)
        federation = experiment.federation()
        if settings.client is not None:
            client = settings.client
        else:
            client = _somebody(experiment, observer)
        if not 0 <= client < len(experiment.clients):
            raise NoDemonstration(f"client = {client}: clients are 0 to {len(experiment.clients) - 1}")
        cost = trial_cost(experiment, observer, client)
        at_most = planned(
            settings,
            dim=experiment.layout.dim,
            rounds=releases_seen(federation, observer),
            target=question.target,
            delta=question.delta,
            training=cost,
        ).rounds
        rounds = _moments(source, experiment, federation, client, at_most, observer)
        if not rounds:
            raise NoDemonstration(f"{observer} sees no message of client {client}")
        recorded = None
        if isinstance(source, Auditor):
            recorded = source.ledger
        ledger = planned_ledger(experiment) if recorded is None else recorded
        bare = cls(experiment, ledger, settings, question, seed, client, rounds, None, None, 0.0)
        return bare._with_canary()

    @property
    def federation(self) -> Federation:
        return self.rounds[0].federation

    @property
    def aggregate(self) -> bool:
        return self.question.observer.sees_merged_only

    @property
    def name(self) -> str:
        if self.canary is None:
            return OWN
        return self.canary.name

    def worlds(self, moment: Moment, seed: int | None = None) -> tuple[World, World]:
        chosen = self.seed if seed is None else seed
        if self.question.unit == "client":
            if self.canary is not None and self.canary.name in RECORD_CANARIES:
                return _whole_client(moment, self.canary, self.question.adjacency, chosen)  # type: ignore[arg-type]
            return client_worlds(moment, self.canary, self.question.adjacency, chosen)  # type: ignore[arg-type]
        assert self.canary is not None and self.place is not None
        return record_worlds(moment, self.canary, self.place, self.question.adjacency, chosen)  # type: ignore[arg-type]

    def secrets(self) -> tuple[Tensor, Tensor] | None:
        """A planted secret's text and its alternatives, with their targets; None of another canary."""
        if not isinstance(self.canary, PlantedSecret) or self.place is None:
            return None
        return self.canary.texts(self.rounds[0].job, self.place, self.seed)

    @property
    def whole(self) -> bool:
        """Whether all rounds together are one message, as the noise of each is in others too."""
        return self.aggregate and chain_of(self.federation.scheme) is not None

    def trials(self, moment: Moment, worlds: tuple[World, World], redraw: bool = False) -> FederationTrials:
        trials: FederationTrials = self._of_round(moment, worlds, redraw)
        if isinstance(trials, HubTrials) and self.whole:
            trials = SequenceTrials.of([trials])
        return self._told(trials, worlds)

    def _of_round(self, moment: Moment, worlds: tuple[World, World], redraw: bool) -> UploadTrials | HubTrials:
        uploads = UploadTrials(moment, worlds, redraw)
        if self.aggregate:
            return HubTrials.of(uploads, self.experiment.config.audit.honest)
        return uploads

    def _told(self, trials: FederationTrials, worlds: tuple[World, World]) -> FederationTrials:
        apart = constants_apart(worlds)
        if apart is None:
            return trials
        return ToldTrials(trials, apart)

    def messages(self, redraw: bool = False) -> list[FederationTrials]:
        """All messages of a trial, one a round or one of all rounds; a client's own lasting state goes on from round to
        round within its world.
        """
        rounds: list[UploadTrials | HubTrials] = []
        for moment in self.rounds:
            without, present = self.worlds(moment)
            if rounds:
                before = rounds[-1]
                without = replace(without, memory=before.memory_after(0))
                present = replace(present, memory=before.memory_after(1))
            rounds.append(self._of_round(moment, (without, present), redraw))
        if self.whole:
            hubs = [trials for trials in rounds if isinstance(trials, HubTrials)]
            return [self._told(SequenceTrials.of(hubs), hubs[0].uploads.worlds)]
        return [
            self._told(trials, (trials.uploads if isinstance(trials, HubTrials) else trials).worlds)
            for trials in rounds
        ]

    def entry(self, protocol: str) -> AttackResult:
        """The parts of a results entry that every protocol shares."""
        chosen = {
            "canary": self.name,
            "place": self.place,
            "unit": self.question.unit,
            "adjacency": self.question.adjacency,
            "influence": self.influence,
        }
        return AttackResult(
            attack=f"canary/{protocol}",
            observer=str(self.question.observer),
            round=self.rounds[0].state.round,
            client=None if self.aggregate else client_address(self.client),
            settings={**asdict(self.settings), **chosen, "initial_weights": self.weights(protocol)},
            assumed=tuple(self.assumed(protocol)),
        )

    def weights(self, protocol: str) -> str:
        """Whose initial weights a protocol starts from: "crafted" ones are for whole trainings alone."""
        if protocol == "end-to-end":
            return self.settings.initial_weights
        return "own"

    def told(self, protocol: str) -> str:
        """The protocol in words."""
        if self.weights(protocol) == "crafted":
            return CRAFTED_START
        rule = self.federation.scheme.local.per_example
        if protocol != "mechanism" or rule is None:
            return PROTOCOLS[protocol]
        if rule.batches == "poisson":
            return NOISE_IN_TRAINING
        return NOISE_IN_OPEN_BATCHES

    def assumed(self, protocol: str) -> list[str]:
        """In plain words."""
        models = " and the model each round began with"
        if protocol == "end-to-end":
            models = ""
        words = [self.told(protocol), f"the client's other records{models} are known"]
        if protocol == "mechanism" and len(self.rounds) > 1:
            words.append(f"the models of {len(self.rounds)} rounds are as they were, whatever the client sends")
        if self.aggregate and protocol != "end-to-end":
            honest, known = self.experiment.config.audit.honest, "the other clients' messages are known"
            if honest > 0:
                known += f", but for the noise of {honest:.0%} of them"
            words.append(known)
            if self.whole:
                words.append(
                    "the noise of a round is in other rounds too: what is scored is all rounds together, decorrelated"
                )
            cohort = self.rounds[0].cohort()[0]
            if cohort.size_is_secret:
                words.append(
                    "the client is drawn by a coin of its own, in secret; where it is not, nobody is in its place"
                )
            elif cohort.sampling is not None:
                words.append(
                    "the cohort is drawn in secret; where the client is not drawn, either world has in its place what"
                    " the world without the canary sends (under replace_one: the one with the opposite canary)"
                )
        elif protocol != "end-to-end" and not isinstance(self.federation.scheme.participation, Everyone | RoundRobin):
            words.append(
                "the client takes part in the audited rounds, as this observer sees; where the chance of that is q,"
                " what is demonstrated at δ holds of the whole training at q·δ"
            )
        if self.question.unit == "client" and self.canary is not None:
            words.append("the client sends what it likes")
        if constants_apart(self.worlds(self.rounds[0])) is not None:
            words.append("the model's mean and std, which are those of each world's own rows, are seen")
        return words

    def _with_canary(self) -> CanaryCase:
        """The case with the canary and place that move the noise-free message furthest; the first of near equals."""
        moment, best = self.rounds[0], None
        candidates = self._candidates()
        for canary in candidates.values():
            for place in self._places(moment) if self.question.unit == "record" else [None]:
                trial = replace(self, canary=canary, place=place)
                try:
                    influence = _influence(trial.trials(moment, trial.worlds(moment)))
                except ValueError:
                    continue
                if best is None or influence > (1 + EQUAL) * best.influence:
                    best = replace(trial, influence=influence)
        if best is None or best.influence == 0:
            raise NoDemonstration(f"no canary of {', '.join(candidates)} changes what {self.question.observer} sees")
        return best

    def _candidates(self) -> dict[str, Canary | UpdateCanary | None]:
        per_example = self.federation.scheme.local.per_example is not None
        known: dict[str, Canary | UpdateCanary | None]
        if self.question.unit == "record":
            known = {name: c for name, c in RECORD_CANARIES.items() if per_example or name != DIRAC}
            secret = PlantedSecret().of(vocabulary_of(self.federation.data.description))
            known[secret.name] = secret
            if self.question.adjacency == "replace_one":
                known.pop(OWN)
        else:
            if per_example:
                known = {DIRAC: RECORD_CANARIES[DIRAC], OWN: None}
            else:
                known = {**CLIENT_CANARIES, OWN: None}
        chosen = {name: c for name, c in known.items() if not self.settings.canaries or name in self.settings.canaries}
        if not chosen:
            raise NoDemonstration(
                f"none of the canaries {', '.join(self.settings.canaries)} fits unit {self.question.unit}; those that"
                f" do are {', '.join(known)}"
            )
        return chosen

    def _places(self, moment: Moment) -> list[int]:
        used = moment.job.batches
        rows = used[used >= 0].unique()
        if moment.job.training.per_example is not None:
            rows = torch.arange(len(moment.job.inputs))
        order = torch.randperm(len(rows), generator=generator(self.seed, "canary place", self.client))
        return rows[order[: self.settings.places]].tolist()


def _whole_client(moment: Moment, canary: Canary, adjacency: Adjacency, seed: int) -> tuple[World, World]:
    """All of a client's records as gradient canaries, which per-example clipping bounds one by one; or none of them."""
    absent, present = client_worlds(moment, None, adjacency, seed)
    ((_, gradient),) = canary.insert(moment.job, 0, moment.federation.data.classes, seed).planted
    rows = range(len(moment.job.inputs))
    if adjacency == "replace_one":
        absent = World(replace(moment.job, planted=tuple((row, -gradient) for row in rows)), memory=absent.memory)
    return absent, World(replace(moment.job, planted=tuple((row, gradient) for row in rows)), memory=present.memory)


def _influence(trials: FederationTrials) -> float:
    """How far apart two worlds are: their noise-free messages, in standard deviations of the noise, and their noise.

    The root of the symmetrised divergence J of two Gaussians, which is ‖v₁ − v₀‖/std where the noise does not depend on
    the data. ∞ where only one of the worlds is finite (and noise promises to hide which).
    """
    without, present = trials.expected()
    noisy = isinstance(present.shape, torch.Tensor) or present.shape != 1.0
    if noisy and bool((torch.isfinite(without.centre) != torch.isfinite(present.centre)).any()):
        return inf
    first, second = (
        torch.as_tensor(world.shape, dtype=torch.float64).square().expand(len(world.centre))
        for world in (without, present)
    )
    moved = torch.nan_to_num(present.centre - without.centre).double().square() * (1 / first + 1 / second) / 2
    resized = (first / second + second / first - 2) / 2
    return float((moved + resized).sum().sqrt())


def experiment_of(source: Auditor | Experiment) -> Experiment:
    """The experiment a setup was trained from, built again from its config.

    Raises:
        NoDemonstration: the data are not the same, or not there.
    """
    if isinstance(source, Experiment):
        return source
    if source.truth is None:
        raise NoDemonstration("truth/ is absent, and a canary audit trains on the client's own records")
    setup = source.setup
    config, described = setup.config, setup.manifest.data.description
    try:
        experiment = build(config, setup.folder.parent / source.source.folder, source.allow_model)
    except BadInput as reason:
        raise NoDemonstration(f"the training data cannot be loaded again ({reason})") from reason
    if not present(setup.folder / KEY_FILE):
        raise NoDemonstration("auditor/noise-key is absent, by which alone the training data can be known again")
    now = dict(experiment.data.description)
    if "sha256" in now:
        now["sha256"] = keyed(now["sha256"], source.key)
    # a digest that setup.json lacks refuses too: else a stranger's setup could name any file of this machine
    if any(now[name] != described.get(name) for name in ("sha256", "auxiliary_sha256") if name in now):
        raise NoDemonstration("the training data that the config names are no longer those the setup was trained on")
    return replace(experiment, key=source.key, drawn_with=source.streams)  # who was in which round is drawn with it


def training_cost(federation: Federation, client: int) -> float:
    """The cost of one local training, in random numbers drawn, where every trial needs one.

    Measured on per-example gradients of small models.
    """
    local, n = federation.scheme.local, len(federation.clients[client])
    if local.per_example is None:
        return 0.0
    if local.steps is not None:
        rows = local.steps * min(local.batch_size, n)
    else:
        rows = n * (local.epochs or 1)
    return 20.0 * rows * Layout.of(federation.module).dim


def trial_cost(experiment: Experiment, observer: Observer, client: int) -> float:
    """What one trial costs beyond the client's own noise, in random numbers drawn: its local training where every trial
    needs one, and the noise of the others where it is drawn anew too.
    """
    federation, scheme = experiment.federation(), experiment.scheme
    cost = training_cost(federation, client)
    if observer.sees_merged_only and scheme.topology.central:
        cohort = scheme.participation.select(0, range(len(experiment.clients)), Keystream(0, "cost"))
        cost += experiment.config.audit.honest * max(0, len(cohort.members) - 1) * experiment.layout.dim
        if chain_of(scheme) is not None:
            cost += OVERHEAD * (rounds_planned(scheme.schedule) - 1)  # every round is gone through in every trial
    return cost


def _somebody(experiment: Experiment, observer: Observer) -> int:
    """The first captured client, or one whose messages the observer gets, where it is a client itself."""
    captured = experiment.config.capture.clients
    party = experiment.observer_parties.get(observer.name)
    if not observer.kind.party or party is None:
        return captured[0]
    heard = [m for m in planned_ledger(experiment).messages.values() if m.upload and party in m.receivers]
    senders = [m.sender for m in sorted(heard, key=lambda m: (m.round, m.sender not in captured, m.sender))]
    if not senders:
        raise NoDemonstration(f"no client ever sends a value of its own to the {observer} (client {party})")
    return senders[0]


def releases_seen(federation: Federation, observer: Observer) -> int:
    """At most how many rounds an observer may see."""
    rounds = rounds_planned(federation.scheme.schedule)
    return min(rounds, observer.catches or rounds)


def _moments(
    source: Auditor | Experiment,
    experiment: Experiment,
    federation: Federation,
    client: int,
    count: int,
    observer: Observer,
) -> list[Moment]:
    if observer.kind.party:
        party = experiment.observer_parties.get(observer.name)
        if party is None or party == client:
            raise NoDemonstration(f"this federation has no {observer} beside client {client}")
        return moments(
            federation,
            client,
            count,
            wanted=lambda m: any(g.hub == party and client in g.members for g in m.cohort()[1]),
        )
    if not experiment.scheme.topology.central:
        raise NoDemonstration(f"this federation has no server, so nothing for {observer} to see")
    if not observer.sees_every_round:
        rounds = rounds_planned(federation.scheme.schedule)
        made = range(1, rounds + 1)  # a round's model is broadcast in the next one
        count = sum(observer.sees(from_server=True, to_server=False, round=r, last_round=rounds) for r in made)
        if not count:
            return []
        count = 1
    if isinstance(source, Auditor) and not observer.sees_merged_only:
        return _captured(source, federation, client, count, observer.catches)
    return moments(federation, client, count, observer.catches)


def _captured(source: Auditor, federation: Federation, client: int, count: int, before: int | None) -> list[Moment]:
    """The client's rounds from the captured broadcasts: nobody else has to be trained again."""
    setup, measured = source.setup, source.rounds
    models = {m.round: m for m in setup.messages if m.sender == "server"}
    uploads = sorted(
        m.round
        for m in setup.messages
        if m.sender == client_address(client) and m.round in models and (before is None or m.round < before)
    )
    starts = []
    for round in uploads[:count]:
        history = {
            name: [row[name] for row in measured[:round] if name in row] for name in ("test_loss", "test_accuracy")
        }
        model = Parcel(setup.load(models[round]), side=models[round].side)
        state = State(round, {SERVER: model}, history=history)
        starts.append(Moment(federation, state, client))
    return starts
