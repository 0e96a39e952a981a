"""The one change that helps most, in sentences."""

from __future__ import annotations

from ..results.checks import USEFUL_EPSILON
from ..results.format import AuditedSetup, Epsilon
from .accuracy import accuracy_said, useless
from .words import at_most, listed, noise, number, percent, percent_at_most, where

SECRET_KEY = (
    "Train again with a secret noise key: without `--noise-key published` the same noise proves what stands here"
)
FIND_FAULT = (
    "Find the fault first: more was demonstrated than is proven, so the proof does not describe what ran and no noise"
    " can be computed from it"
)
FIND_VIOLATION = (
    "Mend what the replay names first, and replay again: no noise can be computed from a bound that does not hold"
)
FIND_DIFFERENCE = (
    "Mend what was recorded otherwise than declared first, and record again: no noise can be computed from a"
    " declaration that does not hold"
)
FIND_IN_CODE = (
    "Find where the function gives more away than is claimed: is the noise scaled by what the clip guarantees, is every"
    " tensor clipped and noised, does the accountant count every step?"
)
PRICE_CODE = "Price the mechanism: a test that refutes nothing proves nothing."
PRICE_CODE_NOTE = "`audit epsilon --clip C --noise-std S --target-epsilon E` computes the noise that proves ε ≤ E."
FEWER_ROUNDS = (
    "All rounds of one client together leaked, and the attacks on a single round did not beat their control: fewer"
    " rounds for each client would help (not attacked)."
)
PUBLIC_BOUNDS = (
    "A proof needs a clip norm and a noise scale that are public constants, and no step that uses private data without"
    " noise; the reasons under the table of ε say what is missing."
)
NOISE_OF_CLIENTS = (
    "A server's noise protects nobody from those who see the uploads: add noise before anything leaves the client."
)
CLAIMED, STRONG = "This is what is claimed", f"{USEFUL_EPSILON:g} is proven already; 1 is a strong guarantee"


def keep(setup: AuditedSetup, label: str, parameter: str = "") -> str:
    """label: the setting whose noise is to be used, "" where there is only one. parameter: the scheme's own of that
    noise with its value, "" for none.
    """
    if not label and parameter:
        return f"Keep this noise, {parameter}: the proof rests on it"
    if not label:
        return "Keep this noise: the proof rests on it"
    if useless(setup):
        return f"Use the noise of “{label}”, if its model is of any use: it only guesses"
    return f"Use the noise of “{label}”"


def noised(setup: AuditedSetup) -> str:
    """What `noise_std` is on: with noise inside local training not on what is sent, which sums many steps' noise."""
    inside = setup.clipped_in_training and "record's gradient" in (setup.sensitivity or "")
    if inside:
        return "a step's mean gradient"
    return "a message"


def smaller_clip(clip: float, median: float) -> str:
    """Where no contribution was as long as the clip."""
    return (
        f"The clip of {number(clip)} changed nothing: one near {number(median)}, the median norm, would need only"
        f" {percent_at_most(median / clip)} of the noise for the same proof (not attacked). The median is of private"
        " data, so choose such a clip by public data."
    )


def half_of(proven: float) -> str:
    return f"{at_most(proven)} is proven already; this is half of it"


def asked_then(epsilon: float, asked: Epsilon, row: Epsilon) -> str:
    """What more noise proves of the row that is asked about. row: the one that needs most of it."""
    place = f"per {asked.unit}" if asked.observer == row.observer else where(asked)
    return f"and ε ≤ {at_most(epsilon)} {place}, which is asked about"


def more_noise(setup: AuditedSetup, factor: float, label: str, parameter: str, claim_is_false: bool) -> str:
    """More of the same noise.

    Args:
        setup: whose noise. factor: on today's noise.
        label: as in `keep`. parameter: the scheme's own with its new value, "" for none.
        claim_is_false: whether a paper's formula promises more than holds.
    """
    times = f"{at_most(factor)} times the noise"
    name = ""
    if label:
        name = f" of “{label}”"
    now = ""
    if setup.noise_std:
        now = f" (noise_std {number(setup.noise_std)})"
    typed = ""
    if parameter:
        typed = f", {parameter}"
    claim = ""
    if claim_is_false:
        claim = ', with claim = "none", as the paper\'s formula promises more than holds'
    if setup.secret_key:
        return f"Take {times}{name}{now}{typed}{claim}"
    return f"Train with a secret noise key, and take {times}{name}{now}{typed}{claim}"


def first_steps(setup: AuditedSetup, noisy: bool) -> str:
    """Where no formula gives the noise. noisy: whether there is some already."""
    steps = [] if setup.secret_key else ["train with a secret noise key"]
    if setup.clip_norm is None:
        steps.append("clip every update to a fixed, public norm")
    steps += [] if noisy else ["add noise before anything leaves the client"]
    if setup.clip_norm is not None and noisy:
        steps.append("add more noise")
    text = listed(steps)
    return f"{text[0].upper()}{text[1:]}"


def first_steps_note(noisy: bool, unit: str, target: float, config: bool = True) -> str:
    """The command that computes the noise; a scheme without noise has none to compute. target: the ε to prove, per
    client or record (`unit`). config: whether the training has one, as a recorded one has not.
    """
    wished = f"{target:.3g}"
    if not config:
        numbers = f"`audit epsilon --clip C --rounds T --unit {unit} --target-epsilon {wished}`"
        return f"{numbers} computes how much of it proves ε ≤ {wished}."
    scheme = {"record": "dpsgd"}.get(unit, "local-gaussian")
    asked = f"--set scheme.name={scheme} --set scheme.clip=1 --set scheme.target_epsilon={wished}"
    if noisy:
        asked = f"--target-epsilon {wished}"
    return f"`audit epsilon CONFIG {asked}` computes how much of it proves ε ≤ {wished}."


def accuracy_beside(setup: AuditedSetup, without_noise: str) -> str:
    """What stands beside the accuracy that is kept."""
    return accuracy_said(setup, without_noise).partition(" (")[2].removesuffix(")")


def accuracy_now(setup: AuditedSetup, server_noise_std: float | None, without_noise: float | None) -> str:
    """The accuracy that was measured, beside that without noise and what guessing gets; "" where it was not."""
    if setup.test_accuracy is None:
        return ""
    accuracies = [f"now {percent(setup.test_accuracy, 3)} at {noise(setup.noise_std, server_noise_std)}"]
    if without_noise is not None:
        accuracies.append(f"{percent(without_noise, 3)} without noise")
    if setup.guessing_accuracy is not None:
        accuracies.append(f"{percent(setup.guessing_accuracy, 3)} by guessing")
    return "; ".join(accuracies)
