"""All attacks by name: one line in this list each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .base import Attack, Knowledge, View
from .inversion.ablated import Ablation, ablation
from .inversion.make import make_inversions, picked_inversion
from .inversion.presets.automatic import AUTO, Suiting
from .linking import make_linking
from .membership import (
    AttributeInference,
    CapturedMembership,
    ExposedNumbers,
    LossThreshold,
    QuantileMembership,
    SequenceMembership,
    ShadowMembership,
    StackedMembership,
)
from .membership.make import maker
from .text.attack import make_text_inversion


@dataclass(frozen=True)
class AttackKind:
    """An attack that can be asked for by name.

    about: one line for `audit list attacks` and the report. make: `make(settings, quick, device)` builds the attack (or
    several variants of it) from its config table; ValueError in one sentence.
    pick: `pick(settings, views, knowledge)` settles `preset = "auto"` of the table by what the views tell, which `make`
    does not take; None where there are no presets.
    ablate: `ablate(attack, views, knowledge)`: the attack without each piece of what it knows; None where it is not
    known how to withhold any.
    arises: whether what it asks is a question of a view at all; where not, nothing is said of it unless it is named.
    """

    about: str
    make: Callable[[Mapping[str, Any], bool, str], list[Attack]]
    pick: Callable[[Mapping[str, Any], Sequence[View], Knowledge], Suiting] | None = None
    ablate: Callable[[Attack, Sequence[View], Knowledge], Ablation] | None = None
    arises: Callable[[View], bool] = lambda view: True


ATTACKS: dict[str, AttackKind] = {
    "inversion": AttackKind(
        "gradient inversion: images, and rows of a table, out of captured gradients, updates or weights",
        make_inversions,
        picked_inversion,
        ablation,
        arises=lambda view: view.vocabulary is None,
    ),
    "inversion-text": AttackKind(
        "words and sentences out of captured gradients, updates or weights of a language model (DAGER)",
        make_text_inversion,
        arises=lambda view: view.vocabulary is not None,
    ),
    "linking": AttackKind(
        "messages of anonymous senders linked over rounds, by what they resemble",
        make_linking,
        arises=lambda view: view.anonymous,
    ),
    "attribute": AttackKind(
        "one column of a table's records, by the value with which a record looks most like a member",
        maker(AttributeInference),
        arises=lambda view: bool(view.columns),
    ),
    "membership-stacked": AttackKind(
        "all tests of captured uploads as one, weighed as on clients that the attacker plays with auxiliary records",
        maker(StackedMembership),
    ),
    "membership-loss": AttackKind("membership by the final model's loss (Yeom et al.)", maker(LossThreshold)),
    "membership-cosine": AttackKind(
        "membership by the cosine of a record's gradient and the captured uploads, averaged over rounds",
        maker(CapturedMembership, statistic="cosine"),
    ),
    "membership-gradient-difference": AttackKind(
        "membership by 2⟨g, u⟩ − ‖g‖² over captured uploads (plain SGD)",
        maker(CapturedMembership, statistic="gradient-difference"),
    ),
    "membership-local-loss": AttackKind(
        "membership by the loss of the sender's own model", maker(CapturedMembership, statistic="local-loss")
    ),
    "membership-loss-trajectory": AttackKind(
        "membership by the loss over all global models", maker(CapturedMembership, statistic="loss-trajectory")
    ),
    "membership-fedmia": AttackKind(
        "membership by the cosine compared with other clients' uploads (FedMIA; 5 captured clients or more)",
        maker(CapturedMembership, statistic="fedmia"),
    ),
    "membership-projection": AttackKind(
        "membership by what of a record lies outside of the span of an upload's linear layers (ProjRes)",
        maker(CapturedMembership, statistic="projection"),
    ),
    "membership-exposure": AttackKind(
        "how exposed numbers in texts are: their rank among alternatives by the final model's loss (Carlini et al.)",
        maker(ExposedNumbers),
        arises=lambda view: view.vocabulary is not None and bool(view.target_shape),
    ),
    "membership-sequence": AttackKind(
        "likelihood ratio of all captured uploads of a sender, under the known noise (plain SGD)",
        maker(SequenceMembership),
    ),
    "membership-quantile": AttackKind(
        "membership by how sure the final model is, compared with what records like it get (QMIA; no shadow models)",
        maker(QuantileMembership),
    ),
    "membership-shokri": AttackKind(
        "shadow models and an attack classifier per class (Shokri et al.)", maker(ShadowMembership, method="shokri")
    ),
    "membership-lira": AttackKind(
        "likelihood ratio against shadow models, online (Carlini et al.)", maker(ShadowMembership, method="lira")
    ),
    "membership-lira-offline": AttackKind(
        "likelihood of non-membership by shadow models, one-sided", maker(ShadowMembership, method="lira-offline")
    ),
    "membership-rmia": AttackKind(
        "relative likelihoods against a population (RMIA, offline)", maker(ShadowMembership, method="rmia")
    ),
}

__all__ = ["ATTACKS", "AUTO", "AttackKind"]
