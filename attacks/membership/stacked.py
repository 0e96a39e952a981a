"""One attacker who combines the tests of captured uploads, by weights learned on clients that he plays himself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from ...defenses.engine import looped
from ...defenses.local import LocalJob, batch_order
from ...defenses.randomness import Keystream, generator, stream
from ...defenses.steps.clip import clip_to
from ...metrics.membership import auc
from ..base import Attack, Knowledge, MembershipScores, Part, Progress, Seen, View
from ..inversion.read.clipped_weights import clips_weights
from .captured_attack import CapturedMembership
from .common import CANDIDATES, check_candidates, own_value, report_progress, sees_start
from .products import once
from .sequence import SequenceMembership
from .shadows import ShadowFactory

COMBINED: tuple[Attack, ...] = (
    CapturedMembership("cosine"),
    CapturedMembership("gradient-difference"),
    CapturedMembership("local-loss"),
    CapturedMembership("fedmia"),
    CapturedMembership("projection"),
    SequenceMembership(),
)
PLAYED = 8  # clients that the attacker plays
MOST = 1000  # auxiliary records that are asked about, or twice a client's, as half of them are to be left out
FEW = 4  # of either kind, from which weights are learned
SOFTNESS = (
    1e3  # of the prior on weights, C of scikit-learn: next to none, as thousands of records are few weights' data
)


@dataclass(frozen=True)
class StackedMembership:
    """Log-odds of membership by a logistic regression on all tests of a sender's uploads that its view allows, or on
    the one that does as well. It is learned where membership is known: a sender's messages are replaced by what
    training on auxiliary records from the same global models would have sent, clip and noise included, and auxiliary
    records are asked about. No record that anybody trained on, and no truth, has a part in it (stacked scores: NIST's
    red team, arXiv:2604.12737).
    """

    name: str = field(default="membership-stacked", init=False)

    def parts(self, view: View, knowledge: Knowledge) -> list[Part]:
        """One part a sender. The clients that are played are shared by all.

        Raises:
            ValueError: there are no candidates or too few auxiliary records, how clients train is not known, what they
                send cannot be played, or fewer than two tests apply.
        """
        check_candidates(view, knowledge)
        if knowledge.shadow_factory is None:
            raise ValueError(f"{self.name!r} plays clients, and the attacker does not know how they train")
        facts = view.facts
        if clips_weights(facts) or facts.clip_unknown or facts.noise_std is None or facts.per_layer or facts.truncated:
            raise ValueError(
                f"{self.name!r} plays clients who clip their whole update to a public norm and add noise of a public"
                " size, or neither; these do otherwise"
            )
        by_sender = _by_sender(view)
        if not by_sender:
            raise ValueError(
                f"{self.name!r} needs uploads of rounds whose global model was seen too, and the observer"
                f" {view.observer!r} has none"
            )
        records, known = _records(view), len(knowledge.auxiliary_targets)
        if not records or known < records + FEW:
            raise ValueError(
                f"{self.name!r} plays clients of {records} records with auxiliary ones, of which some are to be left"
                f" out, and there are {known}; capture more"
            )
        tests = _applying(view, knowledge)
        if len(tests) < 2:
            raise ValueError(f"{self.name!r} combines tests of uploads, and {len(tests)} of them applies here")
        sums = {
            sender: sum(work.get(messages[0].id, 0) for work in tests.values())
            for sender, messages in by_sender.items()
        }
        own = max(sums.values())
        training = 3 * knowledge.shadow_factory.operations(view.input_shape, len(next(iter(by_sender.values()))))
        asked = max(1.0, min(known, max(MOST, 2 * records)) / len(knowledge.candidate_ids))
        playing = int(PLAYED * (own * asked + training)) // len(by_sender)
        return [Part(messages[0].id, sums[sender] + playing, tuple(messages)) for sender, messages in by_sender.items()]

    def run_part(
        self, part: Part, view: View, knowledge: Knowledge, seed: int, progress: Progress | None = None
    ) -> MembershipScores:
        messages: tuple[Seen, ...] = part.content
        names = tuple(attack.name for attack in _applying(view, knowledge))
        weigh = once(view, knowledge, ("stacked", seed), lambda: _learned(view, knowledge, names, seed, progress))
        report_progress(progress, PLAYED, PLAYED + 1)
        scores = weigh(_tests(view, knowledge, messages, names))
        report_progress(progress, PLAYED + 1, PLAYED + 1)
        assumed = (
            CANDIDATES,
            "how clients train, clip and add noise",
            "auxiliary records of the same kind",
            "network in evaluation mode",
        )
        note = f"{len(names)} tests weighed as on {PLAYED} clients that the attacker played with auxiliary records"
        return MembershipScores(
            self.name, view.observer, "all-rounds", messages[0].sender, knowledge.candidate_ids, scores, assumed, note
        )


def _records(view: View) -> int:
    """How many the largest client has."""
    return max(m.num_records for m in view.messages if own_value(m, view))


def _by_sender(view: View) -> dict[str, list[Seen]]:
    """The uploads of every sender in rounds whose global model was seen, in rounds' order."""
    found: dict[str, list[Seen]] = defaultdict(list)
    for message in sorted(
        (m for m in view.messages if own_value(m, view) and sees_start(view, m)), key=lambda m: m.round
    ):
        found[message.sender].append(message)
    return found


def _applying(view: View, knowledge: Knowledge) -> dict[Attack, dict[str, int]]:
    """The tests that the view allows of every sender, with the operations of each sender's part."""
    senders = {messages[0].id for messages in _by_sender(view).values()}
    allowed = {}
    for attack in COMBINED:
        try:
            work = {part.key: part.work for part in attack.parts(view, knowledge)}
        except ValueError:
            continue
        if senders <= {*work}:
            allowed[attack] = work
    return allowed


def _tests(view: View, knowledge: Knowledge, messages: Sequence[Seen], names: Sequence[str]) -> Tensor:
    """(n, k) float64: what each test says of every candidate and the sender of these messages."""
    columns = []
    for attack in COMBINED:
        if attack.name in names:
            part = next(part for part in attack.parts(view, knowledge) if part.key == messages[0].id)
            found = attack.run_part(part, view, knowledge, 0)
            assert isinstance(found, MembershipScores)
            columns.append(found.scores.double())
    return torch.stack(columns, 1)


@dataclass(frozen=True, eq=False)
class _Scale:
    """The median and the width of the middle half of tests (k,), by which they are drawn in to a few units."""

    middle: Tensor
    width: Tensor

    @classmethod
    def of(cls, tests: Tensor) -> _Scale:
        low, middle, high = torch.quantile(tests, torch.tensor([0.25, 0.5, 0.75], dtype=tests.dtype), dim=0)
        return cls(middle, (high - low).clamp_min(1e-12))

    def __call__(self, tests: Tensor) -> Tensor:
        return torch.asinh((tests - self.middle) / self.width)


def _features(tests: Tensor, everywhere: _Scale) -> Tensor:
    """(n, 2k): each test by the scale of this sender's candidates, as senders differ, and by that of all clients that
    were played, as a rest of 0 outside of a span is 0 of whoever sent it.
    """
    return torch.cat([_Scale.of(tests)(tests), everywhere(tests)], 1)


def _learned(
    view: View, knowledge: Knowledge, names: Sequence[str], seed: int, progress: Progress | None
) -> Callable[[Tensor], Tensor]:
    """(n, k) tests of a sender → log-odds (n,). Of one test alone, where it tells members of each client that is played
    as well as weights do that were learned on the others.
    """
    factory, by_sender = knowledge.shadow_factory, list(_by_sender(view).values())
    assert factory is not None
    most = max(MOST, 2 * _records(view))
    inputs, targets = knowledge.auxiliary_inputs[:most], knowledge.auxiliary_targets[:most]
    asked = replace(
        knowledge, candidate_inputs=inputs, candidate_targets=targets, candidate_ids=torch.arange(len(targets))
    )
    rows, inside = [], []
    for number in range(PLAYED):
        messages = by_sender[number % len(by_sender)]
        order = torch.randperm(len(targets), generator=generator(seed, "stacked", number))
        held = order[: messages[0].num_records]
        alone = _played(view, asked, factory, messages, held, stream(seed, "stacked noise", number))
        own = [m for m in alone.messages if m.sender == messages[0].sender and own_value(m, alone)]
        rows.append(_tests(alone, asked, sorted(own, key=lambda m: m.round), names))
        member = torch.zeros(len(targets), dtype=torch.bool)
        member[held] = True
        inside.append(member)
        report_progress(progress, number + 1, PLAYED + 1)
    return _fitted(rows, inside)


def _fitted(rows: Sequence[Tensor], inside: Sequence[Tensor]) -> Callable[[Tensor], Tensor]:
    """What `_learned` gives, of the tests (n, k) and members (n,) of every client that was played."""
    from sklearn.linear_model import LogisticRegression  # slow to import, and few attacks need it

    model, tests_of_one = LogisticRegression(C=SOFTNESS, max_iter=10_000), rows[0].shape[1]
    everywhere, members = _Scale.of(torch.cat([*rows])), [held.numpy() for held in inside]
    features = [_features(tests, everywhere).numpy() for tests in rows]
    unseen = []
    for place, own in enumerate(features):
        others = [n for n in range(len(features)) if n != place]
        model.fit(np.concatenate([features[n] for n in others]), np.concatenate([members[n] for n in others]))
        unseen.append(model.decision_function(own))
    every, member = np.concatenate(features), np.concatenate(members)
    areas = [_area(every[:, tests_of_one + test], member) for test in range(tests_of_one)]
    columns = [*range(every.shape[1])]
    if max(areas) >= _area(np.concatenate(unseen), member):
        columns = [tests_of_one + int(np.argmax(areas))]
    model.fit(every[:, columns], member)
    return lambda tests: torch.from_numpy(model.decision_function(_features(tests, everywhere).numpy()[:, columns]))


def _area(scores: np.ndarray, member: np.ndarray) -> float:
    return auc(scores[member], scores[~member])[0]


def _played(
    view: View, knowledge: Knowledge, factory: ShadowFactory, messages: Sequence[Seen], held: Tensor, seed: int
) -> View:
    """The view with a sender's messages replaced by those of a client that holds the auxiliary rows `held`."""
    training, replaced = factory.scheme.local, {}
    for message in messages:
        facts, start = view.facts.of_round(message.round), view.global_model(message.round)
        batches = batch_order(
            training,
            factory.scheme.share,
            held,
            message.round,
            lambda epoch: generator(seed, "batches", epoch),
            Keystream(seed, "stacked batches"),
        )
        job = LocalJob(
            *(view.module, view.layout, training, start, knowledge.candidate_inputs, knowledge.candidate_targets),
            *(batches, factory.scheme.share, facts.lr, stream(seed, "local noise", message.round), facts.lr_by_step),
            len(held),
        )
        value = looped([job])[0].value
        if facts.clip_norm is not None and not facts.record_clip:
            value = clip_to(value, facts.clip_norm, facts.clip_order)
        if facts.noise_std and not facts.record_clip:
            noise = torch.randn(value.shape, generator=generator(seed, "noise", message.round), dtype=torch.float64)
            value = (value.double() + facts.noise_std * noise).to(value.dtype)
        replaced[message.id] = replace(message, load=_held(value))
    return replace(view, messages=tuple(replaced.get(m.id, m) for m in view.messages))


def _held(value: Tensor) -> Callable[[], Tensor]:
    return lambda: value
