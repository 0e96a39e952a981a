"""What a client replies in the two worlds, before its mods: nothing, or a canary made of what it really trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

ClientArrays = Mapping[str, NDArray]
LONG = 1000.0  # times the trained update: longer than any clip
FAR = 1000.0  # of a number that no clip reaches, in parameter units


def trained(sent: ClientArrays, reply: ClientArrays) -> ClientArrays:
    """What the client really trained."""
    del sent
    return reply


def long(sent: ClientArrays, reply: ClientArrays, times: float = LONG) -> ClientArrays:
    """The same update, a thousand times as long; of nothing trained, in all numbers alike.

    >>> long({"w": np.zeros(2)}, {"w": np.array([1.0, -2.0])})["w"]
    array([ 1000., -2000.])
    """
    still = all(np.array_equal(reply[name], sent[name]) for name in _moved(sent, reply))
    made = dict(reply)
    for name in _moved(sent, reply):
        if still:
            step = np.ones_like(sent[name], dtype=np.float64)
        else:
            step = np.subtract(reply[name], sent[name], dtype=float)
        made[name] = np.asarray(sent[name] + times * step, dtype=reply[name].dtype)
    return made


def opposite(sent: ClientArrays, reply: ClientArrays) -> ClientArrays:
    """The update turned round, a thousand times as long."""
    return long(sent, reply, -LONG)


def scalars(sent: ClientArrays, reply: ClientArrays) -> ClientArrays:
    """Nothing but numbers without a dimension moved (logit scales), which some clips do not reach."""
    made = dict(nothing(sent, reply))
    for name in _scalars(reply):
        made[name] = np.asarray(sent[name] + FAR, dtype=reply[name].dtype)
    return made


def nothing(sent: ClientArrays, reply: ClientArrays) -> ClientArrays:
    """The model as it came, one number of it moved by a step of its float type: Flower's clips divide by the update's
    length, and stop at 0.

    >>> moved = nothing({"w": np.array([0.5, 2.0])}, {"w": np.array([1.0, 1.0])})["w"] - [0.5, 2.0]
    >>> bool(0 < abs(moved).max() < 1e-15)
    True
    """
    made = {name: np.array(sent.get(name, value), dtype=value.dtype) for name, value in reply.items()}
    name = max(_moved(sent, reply), key=lambda one: float(np.abs(made[one]).max(initial=-1.0)))
    flat = made[name].reshape(-1)
    place = int(np.abs(flat).argmax())
    if flat[place]:
        step = np.spacing(np.abs(flat[place]))
    else:
        step = np.asarray(1e-6, dtype=flat.dtype)
    flat[place] = flat[place] + step
    return made


CLIENT_CANARIES: dict[str, Callable[[ClientArrays, ClientArrays], ClientArrays]] = {
    "trained": trained,
    "long": long,
    "scalars": scalars,
}


def not_a_number(sent: ClientArrays, reply: ClientArrays) -> ClientArrays:
    """One number of the update is none: a clip that compares lengths may let all others pass."""
    return _with_one(sent, long(sent, reply), np.nan)


def infinite(sent: ClientArrays, reply: ClientArrays) -> ClientArrays:
    """One number of the update is infinite."""
    return _with_one(sent, long(sent, reply), np.inf)


def unmoved(sent: ClientArrays, reply: ClientArrays) -> ClientArrays:
    """The model as it came, to the last bit: an update of length 0."""
    return {name: np.array(sent.get(name, value), dtype=value.dtype) for name, value in reply.items()}


def _with_one(sent: ClientArrays, made: ClientArrays, value: float) -> ClientArrays:
    name = max(_moved(sent, made), key=lambda one: made[one].size)
    changed = made[name].copy()
    changed.reshape(-1)[0] = value
    return {**made, name: changed}


# For replay alone: an audit's draws want numbers.
FAULTY_CANARIES: dict[str, Callable[[ClientArrays, ClientArrays], ClientArrays]] = {
    "nan": not_a_number,
    "infinite": infinite,
    "unmoved": unmoved,
}


def client_canaries(reply: ClientArrays) -> list[str]:
    """Which of them a reply has room for."""
    return [name for name in CLIENT_CANARIES if name != "scalars" or _scalars(reply)]


def _moved(sent: ClientArrays, reply: ClientArrays) -> list[str]:
    """The tensors that training moves: floats of the model that came. Raises ValueError where there are none."""
    names = [n for n, v in reply.items() if v.dtype.kind == "f" and n in sent and v.shape == sent[n].shape and v.size]
    if not names:
        raise ValueError("the client replies with no tensor of floats that it was sent, by the same name and shape")
    return names


def _scalars(reply: ClientArrays) -> list[str]:
    return [name for name, value in reply.items() if value.dtype.kind == "f" and value.ndim == 0]
