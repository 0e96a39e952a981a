"""What a claim card says beside its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from ..results.format import AuditedSetup, Epsilon
from .words import between, listed, number, observer, percent, times

NOT_STATED = "Not stated."
A_CLIENT = "A client is a party with all its records; whether that is a person, the setup does not know."
WITHOUT_NOISE = "What it would have right without noise was not measured."
BY_GROUP = "By class, group or client, accuracy was not measured."
NO_CLIP, CLIPPED_INSIDE = "no clip of what is sent", "clipped inside local training"
REFUTED, NOT_REFUTED = "A test refutes a claim or a proof (above).", "No test refutes a claim or a proof."
NOT_TESTED = "The code that ran was not tested with canaries."
TIMING = "Timing: how long anything takes is not hidden."
FLOATING_POINT = (
    "Floating point: noise is drawn and added in float64 on a grid of a power of two, so that no last bit tells what it"
    " hides."
)
RANDOMNESS = (
    "Randomness: numbers of 53 bits by AES-256 in counter mode, no Gaussian one beyond 12.2 standard deviations; a"
    " proof holds against whoever cannot tell them from coin flips."
)
NOISE_OF_OTHERS = (
    "Noise: drawn by the owner's code. Its generator, its last bits and who else can draw it again were not checked."
)
KEYS = {
    "published": "Key: published, so whoever has the config can draw the noise again and take it off.",
    "secret": "Key: secret, in the setup's auditor/noise-key, which is not to be shared.",
}
FIGURES = (
    "Training's own figures (norms, shares clipped, test losses) are exact: they stand in the setup's auditor/ and in"
    " these results, and no ε covers them."
)


def owner_states(own: str) -> str:
    return f"The owner states: “{own}”"


def units_priced(rows: Sequence[Epsilon], asked: Epsilon | None) -> str:
    """asked: the row that the config asks about."""
    of = " and one ".join(dict.fromkeys(row.unit for row in rows))
    adjacencies = listed(list(dict.fromkeys(row.adjacency for row in rows)))
    if asked is None:
        question = ""
    else:
        question = f"; the config asks about one {asked.unit} under {asked.adjacency}"
    return f"Priced for one {of}, under {adjacencies}{question}."


def share_right(setup: AuditedSetup, limits: tuple[float, float] | None) -> str:
    """limits: its 95 % interval."""
    right = f"The final model has {percent(setup.test_accuracy)} of the test split right"
    if limits is None:
        return f"{right}."
    return f"{right} (of {setup.test_records} records; 95 % interval {between(limits)})."


def guessed_right(share: float, beyond: str) -> str:
    """beyond: as of `accuracy.beyond_accuracy`."""
    hidden = ""
    if beyond:
        hidden = f" Of the final model: {beyond}."
    return f"Guessing without a look at the records gets {percent(share, 3)}.{hidden}"


def test_loss(value: float) -> str:
    return f"The final model's loss on the test split is {number(value)}."


def share_cut(setup: AuditedSetup) -> str:
    share, norm = percent(setup.share_clipped), number(setup.clip_norm)
    return f"{share} of contributions were clipped (clip norm {norm}): who sends more than that counts for less."


def priced_by(accountants: list[str], recorded: bool) -> str:
    source = "the training itself recorded"
    if recorded:
        source = "its owner declares"
    return f"Priced by {listed(accountants)}, from the noise and the bounds that {source}, release by release."


def tested_by(protocols: list[str]) -> str:
    return f"Tested with canaries, by the setup's own code with and without one: protocol {listed(protocols)}."


def training_planned(rounds: int, releases: int | None, noised: bool) -> str:
    """releases: at most so many about one client; None where nobody knows."""
    about = ""
    if releases is not None:
        what = f"{times(releases, 'message')} without noise"
        if noised:
            what = f"{times(releases, 'draw')} of noise"
        about = f", at most {what} about one client"
    return f"Not interactive: a planned training of {times(rounds, 'round')}{about}."


def intermediate_seen(observers: Sequence[str]) -> str:
    who = listed([observer(name) for name in observers])
    return f"Intermediate values count: the ε towards {who} are each of all that is seen there."


def proven_towards(observers: Sequence[str], secret: bool) -> str:
    who = listed([observer(name) for name in observers])
    key = ", if the noise's key were secret"
    if secret:
        key = ""
    return f"A finite ε is proven towards {who}, all honest but curious{key}."


def none_proven_towards(observers: Sequence[str]) -> str:
    who = listed([observer(name) for name in observers])
    return f"None is proven towards {who}: they are trusted with all they see."


def honest_share(share: float) -> str:
    of = percent(share)
    return f"Where only sums are seen, {of} of the other clients are taken to draw their noise and tell nobody."


def granted_to_attacks(granted: Sequence[str]) -> str:
    return f"The attacks that were run assume: {'; '.join(granted)}."
