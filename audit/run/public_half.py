"""What attackers stand on: the public half of a setup, and what is granted on top of it."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch

from ...attacks.base import Knowledge, View
from ...attacks.cells import Cell
from ...attacks.membership import ShadowFactory
from ...defenses.terms import Observer
from ..files import cache_folder
from ..setup.description import versions
from ..setup.folder import Setup
from .options import RunOptions


@dataclass(frozen=True, eq=False)
class Ground:
    """What the attacks stand on: what every observer sees, and what is granted to them.

    read: cells whose messages were read in choosing attacks, which takes long of a large network; whoever plans what
    was chosen finds them read, and lets them go.
    """

    views: tuple[View, ...]
    knowledge: Knowledge
    read: list[Cell] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class PublicHalf:
    """The public half of a setup, and what is wanted of it. Views are made where something asks for them."""

    setup: Setup
    drawn_labels: Mapping[str, torch.Tensor]
    observers: tuple[Observer, ...]
    options: RunOptions

    def with_options(self, options: RunOptions) -> PublicHalf:
        """The same half, and other wishes. What its views are made of stays."""
        other = replace(self, options=options)
        if options.allow_model == self.options.allow_model:
            other.__dict__["ground"] = self.ground  # where the cached property looks first
        return other

    @cached_property
    def ground(self) -> Ground:
        """Labels that batches drawn in secret had are granted on top of knowledge/; `judging.py` says so."""
        module = self.setup.module(self.options.allow_model)
        given = self.setup.knowledge()
        labels = {**given.labels, **self.drawn_labels}
        granted = replace(given, labels=labels)
        knowledge = _with_shadows(self.setup, granted, module)
        return Ground(tuple(self.setup.view(observer, module=module) for observer in self.observers), knowledge)


def _with_shadows(setup: Setup, knowledge: Knowledge, module: torch.nn.Module) -> Knowledge:
    """Knowledge with a factory of shadow federations: the public scheme, started from the weights the server broadcast
    first.
    """
    recorded = setup.manifest.recorded
    if not len(knowledge.candidate_ids) or (recorded is not None and not recorded.local):  # nobody told how they train
        return knowledge
    start = copy.deepcopy(module)
    first = next((m for m in setup.messages if m.round == 0 and m.sender == "server"), None)
    if first is not None:
        start.load_state_dict(setup.layout.split(setup.load(first)), strict=False)
    digest = hashlib.sha256(json.dumps([setup.manifest.digest, versions()], sort_keys=True).encode()).hexdigest()
    sizes, shadows = tuple(setup.manifest.clients), cache_folder("shadows")
    evaluate = len(knowledge.auxiliary_inputs) > 0
    factory = ShadowFactory(setup.scheme, start, sizes, digest, shadows, evaluate=evaluate)
    return replace(knowledge, shadow_factory=factory)
