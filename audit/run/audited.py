"""What the results say of the setup."""

from __future__ import annotations

import hashlib
import json

from ...defenses.data.columns import facts_of
from ..results.format import AuditedModel, AuditedSetup
from ..setup.auditor import Auditor


def audited_setup(auditor: Auditor) -> AuditedSetup:
    """What the results say of the setup, as far as the auditor's half is there to say it."""
    manifest, facts, rounds = auditor.setup.manifest, auditor.facts, auditor.rounds
    inside = auditor.setup.scheme.local.per_example  # DP-SGD bounds records in training and sends what comes of it
    clip_norm, noise_multiplier, sensitivity = facts.clip_norm, facts.noise_multiplier, facts.sensitivity
    if inside is not None:
        clip_norm, noise_multiplier = inside.clip_norm, inside.noise_multiplier
        sensitivity = f"C = {inside.clip_norm:g} (each record's gradient in a local step; record, zero_out)"
    last = rounds[-1] if rounds else {}
    return AuditedSetup(
        digest=manifest.digest,
        name=manifest.name,
        scheme=manifest.scheme.name,
        parameters=manifest.scheme.parameters,
        share=facts.share,
        clients=len(manifest.clients),
        rounds=manifest.rounds,
        clip_norm=clip_norm,
        noise_std=facts.noise_std,
        noise_multiplier=noise_multiplier,
        sensitivity=sensitivity,
        share_clipped=facts.share_clipped,
        clipped_in_training=facts.clipped_in_training,
        norm_before_clip_median=facts.norm_before_clip_median,
        test_accuracy=last.get("test_accuracy"),
        majority_accuracy=last.get("majority_accuracy"),
        balanced_accuracy=last.get("balanced_accuracy"),
        test_auc=last.get("test_auc"),
        status=manifest.status,
        engine=None if manifest.engine.name == "recorded" else manifest.engine.name,
        recorded="" if manifest.recorded is None else manifest.recorded.by,
        declared=auditor.declared,
        seed=manifest.seed,
        holders=tuple(auditor.source.holders),
        noise_key="secret" if auditor.key_is_secret else "published",
        messages=hashlib.sha256(json.dumps(manifest.files, sort_keys=True).encode()).hexdigest(),
        config=manifest.config,
        versions=manifest.versions,
        data={
            "name": manifest.data.name,
            "classes": manifest.data.classes,
            **{name: value for name, value in manifest.data.description.items() if name != "vocabulary"},
            **(facts_of(auditor.setup.columns) if auditor.setup.columns else {}),
        },
        model=AuditedModel(name=manifest.model.name, parameters=manifest.model.parameters),
    )
