"""Flower's LocalDpMod by itself, as a function of a world and a seed: docs/howto/mechanism.md goes with it."""

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, RecordDict
from flwr.clientapp.mod import LocalDpMod

logging.getLogger("flwr").setLevel(logging.WARNING)
CLIP, MODEL = 1.0, np.zeros(210)
LARGE, NOTHING = np.full(210, 3.0), np.full(210, 1e-9)  # the mod divides by an update's norm, so not 0


def client(sensitivity, without=NOTHING):
    mod: Any = LocalDpMod(CLIP, sensitivity, 8.0, 1e-5)  # clipping_norm, sensitivity, epsilon, delta

    def sent(world, seed):
        np.random.seed(seed)  # the mod draws from NumPy's global randomness
        message = SimpleNamespace(content=RecordDict({"arrays": ArrayRecord([MODEL])}))
        trained = RecordDict({"arrays": ArrayRecord([MODEL + (LARGE if world else without)])})
        reply = mod(message, None, lambda *_: SimpleNamespace(content=trained, has_error=lambda: False))
        return reply.content["arrays"].to_numpy_ndarrays()[0]

    return sent


hundredth = client(CLIP / 100)
right = client(CLIP)
exchanged = client(CLIP, without=-LARGE)
