"""Which messages are of one sender, where addresses change every round: told by what they resemble, and nothing else.

A client trains on the same records in every round, so what its update has beside the round's common part comes back. A
fresh address hides none of that, and of noise no more than its size: in d components the product of two independent
noises of standard deviation σ is about σ²√d, while a part of squared length e² comes back as e².
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from ..defenses.layout import Layout
from .base import NOISE_KNOWN, Attack, Knowledge, Links, Part, Progress, Seen, View

NUMBERS = 2**27  # of all messages together that are compared, half a GiB
UNLIKE = 0.1  # squared cosine of unlike senders' own parts, a tensor; ours
ALIKE = 2.0  # mean likeness, in spreads of unlike messages, from which tracks are joined; ours
# `UNLIKE` and `ALIKE` were set on bundled photographs, seeds 0, 3 and 100 to 102.


@dataclass(frozen=True)
class Linking:
    """Messages of anonymous senders linked over rounds.

    Of each message the mean of its round is taken off. Two are alike by the products of their tensors, each counted by
    how well it tells senders apart (`likeness`). Between any two rounds messages are paired so that pairs are most
    alike in all (Hungarian method), whether or not they are. Beside that stand those that the attack would take for one
    sender's, `tracks_of`. There is nothing random, and labels are not looked at.
    """

    name: str = field(default="linking", init=False)

    def parts(self, view: View, knowledge: Knowledge) -> list[Part]:
        """One, of all uploads.

        Raises:
            ValueError: senders have addresses of their own, or no two rounds have two uploads each.
        """
        del knowledge
        messages = comparable(view)
        operations = 2 * len(messages) ** 2 * view.layout.dim
        return [Part("all-rounds", operations, messages)]

    def run_part(
        self, part: Part, view: View, knowledge: Knowledge, seed: int, progress: Progress | None = None
    ) -> Links:
        """The links between all pairs of rounds, and the tracks."""
        del knowledge, seed
        messages: Sequence[Seen] = part.content
        alike = likeness(messages, view)
        rounds = np.array([m.round for m in messages])
        if progress is not None:
            progress(1, 1)
        assumed = ["a sender has the same records in every round", "at most one message of a sender in a round"]
        if view.facts.noise_std:
            assumed.append(NOISE_KNOWN)
        if left := len(_uploads(view)) - len(messages):
            assumed.append(f"{left} messages not compared: of rounds with a single one, or more than memory holds")
        return Links(
            attack=self.name,
            observer=view.observer,
            manner="all-rounds",
            sender="",
            message_ids=tuple(m.id for m in messages),
            rounds=torch.tensor(rounds),
            links=torch.tensor(paired(alike, rounds), dtype=torch.int64).view(-1, 2),
            tracks=torch.tensor(put_on_tracks(alike, rounds)),
            assumed=tuple(assumed),
        )


def make_linking(settings: Mapping[str, Any], quick: bool, device: str) -> list[Attack]:
    """The attack, which has no settings. Raises ValueError for any."""
    del quick, device
    if settings:
        raise ValueError(f"unknown key {min(settings)!r}; linking has none")
    return [Linking()]


def tracks_of(view: View) -> dict[str, int]:
    """The number of a message's track by its id: those that are alike enough to be taken for one sender's share it."""
    try:
        messages = comparable(view)
    except ValueError:
        return {}
    tracks = put_on_tracks(likeness(messages, view), np.array([m.round for m in messages]))
    return {message.id: int(track) for message, track in zip(messages, tracks)}


def comparable(view: View) -> tuple[Seen, ...]:
    """The uploads of rounds with two at least, in rounds' order; where these are too many numbers, of rounds that are
    spread evenly. Raises ValueError as `Linking.parts`.
    """
    if not view.anonymous:
        raise ValueError("senders have one address in all rounds, so there is nothing to link")
    by_round: dict[int, list[Seen]] = {}
    for message in sorted(_uploads(view), key=lambda m: (m.round, m.id)):
        by_round.setdefault(message.round, []).append(message)
    usable = [group for group in by_round.values() if len(group) > 1]
    if len(usable) < 2:
        raise ValueError(
            f"the observer {view.observer!r} saw two or more uploads in {len(usable)} rounds; linking takes two such"
            " rounds"
        )
    many = max(2, NUMBERS // (view.layout.dim * max(map(len, usable))))
    places = np.linspace(0, len(usable) - 1, min(many, len(usable))).round().astype(int)
    return tuple(message for place in sorted(set(places.tolist())) for message in usable[place])


def _uploads(view: View) -> list[Seen]:
    return [m for m in view.messages if not m.broadcast and m.kind == view.facts.share]


def likeness(messages: Sequence[Seen], view: View) -> np.ndarray:
    """How alike any two messages are, (k, k) float64, in spreads of those that have better partners.

    The likelihood ratio of a Gaussian: tensor by tensor the product of what two messages have beside their rounds'
    means, times signal/variance. signal: what a message has there beyond the known noise. variance: of the product of
    two messages of different senders, d·σ⁴ + 2σ²·signal + `UNLIKE`·signal². Each message counts by its direction.

    Args:
        messages: k uploads, in rounds' order. view: with the layout and the noise.
    """
    rounds = np.array([m.round for m in messages])
    values = torch.stack([m.load() for m in messages]).float()
    for number in np.unique(rounds):
        own = torch.from_numpy(rounds == number)
        values[own] -= values[own].mean(dim=0)
    norms = values.norm(dim=1)
    values *= (norms.mean() / norms.clamp_min(1e-30))[:, None]
    alike = _weighed(values, view.layout, view.facts.noise_std or 0.0)
    unlike = rounds[:, None] != rounds[None]
    for a, b in paired(alike, rounds):
        unlike[a, b] = unlike[b, a] = False
    spread = float(np.sqrt(np.square(alike[unlike]).mean()))
    return alike / spread if spread > 0 else alike


def _weighed(values: torch.Tensor, layout: Layout, noise_std: float) -> np.ndarray:
    k, start = len(values), 0
    alike = np.zeros((k, k))
    for shape in layout.shapes:
        size = prod(shape)
        rows = values[:, start : start + size].double()
        start += size
        products = (rows @ rows.T).numpy()
        noise = size * noise_std**2
        # Where no signal can be told from the noise's own scatter, that scatter is all it may be.
        signal = max(float(np.diag(products).mean()) - noise, noise * (2 / (size * k)) ** 0.5)
        variance = noise * noise_std**2 + 2 * noise_std**2 * signal + UNLIKE * signal**2
        if variance > 0:
            alike += signal / variance * products
    return alike


def paired(alike: np.ndarray, rounds: np.ndarray) -> list[tuple[int, int]]:
    """Pairs of places of messages, of every two rounds as many as the smaller one has, each message once.

    >>> paired(np.array([[0, 0, 9, 1], [0, 0, 2, 1], [9, 2, 0, 0], [1, 1, 0, 0]]), np.array([0, 0, 1, 1]))
    [(0, 2), (1, 3)]
    """
    places = [np.flatnonzero(rounds == number) for number in np.unique(rounds)]
    pairs = []
    for i, first in enumerate(places):
        for second in places[i + 1 :]:
            rows, columns = linear_sum_assignment(-alike[np.ix_(first, second)])
            pairs += [(int(first[r]), int(second[c])) for r, c in zip(rows, columns)]
    return pairs


def put_on_tracks(alike: np.ndarray, rounds: np.ndarray, enough: float = ALIKE) -> list[int]:
    """The number of each message's track: the two tracks with the largest mean likeness are joined, again and again, as
    long as it is above `enough`; no track has two messages of a round.

    >>> put_on_tracks(np.array([[0, 0, 9, 1], [0, 0, 1, 1], [9, 1, 0, 0], [1, 1, 0, 0]]), np.array([0, 0, 1, 1]))
    [0, 1, 0, 2]
    """
    k = len(rounds)
    sums, sizes = alike.astype(np.float64), np.ones(k)
    allowed = rounds[:, None] != rounds[None]
    tracks = [[place] for place in range(k)]
    while True:
        means = np.where(allowed, sums / (sizes[:, None] * sizes[None]), -np.inf)
        a, b = sorted(map(int, np.unravel_index(int(means.argmax()), means.shape)))
        if not means[a, b] > enough:
            break
        sums[a] += sums[b]
        sums[:, a] = sums[a]
        sizes[a] += sizes[b]
        allowed[a] &= allowed[b]  # whoever shares a round with either
        allowed[:, a] = allowed[a]
        allowed[b] = allowed[:, b] = False
        tracks[a] += tracks[b]
        tracks[b] = []
    numbers = [0] * k
    for number, track in enumerate(track for track in tracks if track):
        for place in track:
            numbers[place] = number
    return numbers
