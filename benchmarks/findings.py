"""Published schemes' claimed ε beside what is proven and what canaries demonstrate of this toolkit's implementation of
them.

    python benchmarks/findings.py                     every row, then docs/findings.md (about 40 minutes on one core)
    python benchmarks/findings.py --row NAME …        these rows only; the page keeps the others as they were measured
    python benchmarks/findings.py --list

Data are bundled (no network). Every number follows from the seed; measured rows are kept in docs/findings.json.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import exp, inf
from pathlib import Path
from typing import Any, Self

import quiet  # noqa: F401 - before torch
import torch
from dpfl_audit.audit.files import json_text, write_bytes
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.proven.rows import rows as epsilon_rows
from dpfl_audit.audit.results.format import Number
from dpfl_audit.audit.say.words import number
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.planned import planned_ledger
from dpfl_audit.audit.worlds.federation.plan import CanarySettings
from dpfl_audit.audit.worlds.federation.rows import Question, demonstrate
from dpfl_audit.audit.worlds.function import audit_mechanism
from dpfl_audit.audit.worlds.source import own_code
from dpfl_audit.defenses.terms import Adjacency, Observer, Unit
from pydantic import BaseModel, ConfigDict, TypeAdapter

DOCS = Path(__file__).resolve().parents[1] / "docs"
THESIS = {"data": {"name": "photos", "classes": 100, "clients": 1, "samples_per_client": 100}, "model": {"name": "mlp"}}
SMALL = {
    "data": {"name": "digits", "clients": 10, "samples_per_client": 100},
    "model": {"name": "mlp", "options": {"widths": [32]}},
}
LINEAR = {**SMALL, "model": {"name": "linear"}}
FIVE = {"data": {"name": "digits", "clients": 10, "samples_per_client": 5}, "model": {"name": "linear"}}
SGD = {"optimiser": "sgd", "lr": 0.1, "batch_size": 100}
FEW = CanarySettings(draws=20_000)
LDP = "Δ = C/n is a record's; the clip bounds C for the whole update"


@dataclass(frozen=True)
class Row:
    """One line of the page. scheme, local, base: of the config. any_unit: compare with the claim although it names
    another unit or observer (said in `about`). claimed: the owner's number, instead of the paper's formula. about: the
    setting and why claim and proof differ, in a few words. code: FILE:FUNCTION of examples/, in place of a config, and
    its noise_multiplier.
    """

    name: str
    scheme: dict[str, Any]
    observer: str
    unit: Unit
    adjacency: Adjacency
    about: str
    delta: float = 1e-5
    local: dict[str, Any] = field(default_factory=dict)
    base: dict[str, Any] = field(default_factory=lambda: SMALL)
    settings: CanarySettings = FEW
    any_unit: bool = False
    claimed: float | None = None
    code: str = ""
    noise_multiplier: float = 0.0


def thesis(optimiser: str, lr: float, about: str) -> Row:
    return Row(
        f"ldp-{optimiser}-{lr:g}",
        {"name": "ldp", "clip": 1.0, "sigma": 1.0, "rounds": 1},
        "server",
        "record",
        "zero_out",
        about,
        local={"optimiser": optimiser, "lr": lr, "batch_size": 25, "epochs": 1},
        base=THESIS,
        settings=CanarySettings(),
        any_unit=True,
    )


ROWS = (
    thesis(
        "adam",
        1e-3,
        f"THESIS ch. 4: 100 photos, MLP 3×1024, adam 0.001, one epoch, batch 25, one release; {LDP}; claimed for a"
        " client, by a Δ derived for a record",
    ),
    thesis("adam", 1e-2, "the same, adam 0.01"),
    thesis("sgd", 0.1, "the same, sgd 0.1"),
    thesis("sgd", 0.01, "the same, sgd 0.01"),
    Row(
        "ldp-client",
        {"name": "ldp", "clip": 1.0, "sigma": 1.0, "rounds": 1},
        "server",
        "client",
        "zero_out",
        f"one release; {LDP}",
    ),
    Row(
        "ldp-rounds",
        {"name": "ldp", "clip": 1.0, "sigma": 1.0, "rounds": 15},
        "server",
        "client",
        "zero_out",
        f"15 releases; {LDP}",
    ),
    Row(
        "ldp-sound",
        {"name": "ldp", "clip": 1.0, "noise_std": 1.0812, "rounds": 1},
        "server",
        "client",
        "zero_out",
        "noise on the real sensitivity: a claim of multiplier 1.08 over C, ε = 4",
        settings=CanarySettings(draws=50_000),
        claimed=4.0,
    ),
    Row(
        "dpsgd",
        {"name": "dpsgd", "sigma": 1.0812, "rounds": 1},
        "server",
        "record",
        "zero_out",
        "one step, every record in the batch: ε = 4 claimed (RDP is looser) and proven",
        local={"optimiser": "sgd", "steps": 1, "batch_size": 5},
        base={"data": {"name": "digits", "clients": 1, "samples_per_client": 5}, "model": {"name": "linear"}},
        settings=CanarySettings(draws=50_000),
    ),
    Row(
        "thesis-baseline",
        {"name": "thesis-baseline", "rounds": 5},
        "server",
        "client",
        "zero_out",
        f"5 releases, σ = 2; {LDP}",
    ),
    Row(
        "geometric",
        {"name": "geometric", "participants": 1, "rounds": 30},
        "server",
        "record",
        "zero_out",
        "U = 10, K = 1, M = 30, ε = 10, ϑ = 1.05, linear hidden layer; Δ = 2C/n, but the clip bounds 2C",
        delta=1e-3,
        local={**SGD, "lr": 0.5},
        base={**SMALL, "model": {"name": "mlp", "options": {"widths": [32], "activation": "linear"}}},
    ),
    Row(
        "laplace",
        {"name": "laplace", "rounds": 5},
        "server",
        "record",
        "zero_out",
        "L1 clip on the weights; Δ = 2C/n, but the clip bounds 2C",
        local=SGD,
    ),
    Row(
        "nbafl",
        {"name": "nbafl", "rounds": 25, "epsilon": 50.0},
        "uplink(1)",
        "record",
        "replace_one",
        "N = 10, T = 25, L = 1, ε = 50, 10 local steps; Δ = 2C/m, but the clip bounds 2C",
        delta=0.01,
        local={**SGD, "lr": 0.5, "steps": 10},
        base={**SMALL, "model": {"name": "mlp", "options": {"widths": [256]}}},
        settings=CanarySettings(draws=200_000),
    ),
    Row(
        "naafl",
        {"name": "naafl", "rounds": 5},
        "downlink",
        "record",
        "replace_one",
        "noise after aggregation; Δ = 2C/|D|, but the clip bounds 2C·p",
        delta=0.01,
        local=SGD,
    ),
    Row(
        "component",
        {"name": "component", "rounds": 3, "K": 16},
        "server",
        "record",
        "replace_one",
        "σ0 = 26, three releases, a linear model; thresholds and noise follow private gradients",
        local={**SGD, "batch_size": 25},
        base=LINEAR,
    ),
    Row(
        "component-code",
        {"name": "component", "rounds": 3, "K": 16, "reading": "code", "sigma": 22.0, "delta": 1e-4},
        "server",
        "record",
        "replace_one",
        "the reading of its authors' code: σ0 = 22, three releases, a linear model; thresholds and noise follow private"
        " gradients",
        delta=1e-4,
        local={**SGD, "batch_size": 25},
        base=LINEAR,
        settings=CanarySettings(draws=2000),
    ),
    Row(
        "ldp-fl",
        {"name": "ldp-fl", "rounds": 1, "epsilon": 1.0},
        "server",
        "client",
        "replace_one",
        "one upload of 650 weights, ε = 1 of each; claimed for one weight, and each weight tells",
        local=SGD,
        base=LINEAR,
        settings=CanarySettings(draws=500),
    ),
    Row(
        "fed-cdp",
        {"name": "fed-cdp", "rounds": 4, "sigma": 6.0},
        "server",
        "record",
        "zero_out",
        "4 rounds of 10 clients, one step of a client's 5 records each; q = 1 there, so no amplification fails: six"
        " tensors clipped apart are noised as one",
        local={"optimiser": "sgd", "lr": 0.1, "batch_size": 5},
        base={**FIVE, "model": {"name": "mlp", "options": {"widths": [8, 8]}}},
        settings=CanarySettings(draws=500),
    ),
    Row(
        "fed-cdp-amplified",
        {"name": "fed-cdp", "rounds": 1, "participants": 1, "sigma": 1.0},
        "server",
        "record",
        "zero_out",
        "one client of 10 a round, batches of 1 of its 2 records: claimed at q = 1/20, but the server sees whose upload"
        " it is, and in which batch a record lies",
        local={"optimiser": "sgd", "lr": 0.1, "batch_size": 1},
        base={"data": {"name": "digits", "clients": 10, "samples_per_client": 2}, "model": {"name": "linear"}},
        settings=CanarySettings(draws=500),
    ),
    Row(
        "fed-sdp",
        {"name": "fed-sdp", "rounds": 3, "sigma": 6.0, "clip": 0.1},
        "downlink",
        "client",
        "zero_out",
        "3 rounds, 10 clients, all of them; eight tensors clipped apart are noised as one",
        local=SGD,
        base={**SMALL, "model": {"name": "mlp", "options": {"widths": [8, 8, 8]}}},
        settings=CanarySettings(draws=500),
    ),
    Row(
        "fed-alpha-cdp",
        {"name": "fed-alpha-cdp", "rounds": 1, "schedule": "constant", "sigma": 6.0},
        "server",
        "record",
        "zero_out",
        "the code's reading, σ = 6, one step of 5 records; the noise tells of the norms it is scaled by",
        local={"optimiser": "sgd", "lr": 0.1, "batch_size": 5},
        base=FIVE,
        settings=CanarySettings(draws=2000),
    ),
    Row(
        "fed-alpha-cdp-paper",
        {"name": "fed-alpha-cdp", "rounds": 1, "schedule": "constant", "sigma": 6.0, "sensitivity": "paper"},
        "server",
        "record",
        "zero_out",
        "ADN's reading: by tensor the largest clipped norm in the batch",
        local={"optimiser": "sgd", "lr": 0.1, "batch_size": 5},
        base=FIVE,
        settings=CanarySettings(draws=2000),
    ),
    Row(
        "dp-dyns",
        {"name": "dp-dyns", "rounds": 1, "batches": "disjoint", "clip": 20.0},
        "server",
        "record",
        "zero_out",
        "σ = 6, one step of 5 records, C = 20, which the others do not reach; the noise tells of the largest norm",
        local={"optimiser": "sgd", "lr": 0.1, "batch_size": 5},
        base=FIVE,
        settings=CanarySettings(draws=2000),
    ),
    Row(
        "adap-dpfl",
        {"name": "adap-dpfl", "rounds": 1, "sigma": 1.5, "threshold": "constant"},
        "server",
        "record",
        "zero_out",
        "one release, every record in the lot, a constant clip: the claim is sound",
        local={"optimiser": "sgd", "lr": 0.1, "batch_size": 5},
        base={"data": {"name": "digits", "clients": 1, "samples_per_client": 5}, "model": {"name": "linear"}},
        settings=CanarySettings(draws=4000),
    ),
    Row(
        "privatedl",
        {"name": "privatedl", "rounds": 1, "epsilon": 1.0, "sampled": 1.0},
        "server",
        "record",
        "zero_out",
        "ours, after an abstract: one gradient of 25 records, ε = 1; nothing bounds a record, and the noise follows it",
        local={**SGD, "batch_size": 25},
        base=LINEAR,
        settings=CanarySettings(draws=2000),
    ),
    Row(
        "lcdp-ldp",
        {"name": "lcdp", "rounds": 3, "sigma_cdp": 0.0},
        "server",
        "record",
        "zero_out",
        "the LDP-only run, σ = 8; noise scale, support and norm follow the update",
        delta=1e-6,
        local=SGD,
    ),
    Row(
        "lcdp",
        {"name": "lcdp", "rounds": 3, "participants": 4},
        "downlink",
        "client",
        "zero_out",
        "3 rounds, 4 of 10 clients; the median is private",
        delta=1e-3,
        local=SGD,
    ),
    Row(
        "cdp",
        {"name": "cdp", "rounds": 3, "participants": 4},
        "downlink",
        "client",
        "zero_out",
        "3 rounds, 4 of 10 clients, σ = 1.18; the median is private",
        delta=1e-3,
        local=SGD,
    ),
    Row(
        "cdp-public",
        {"name": "cdp", "rounds": 3, "participants": 4, "clip": 0.1},
        "downlink",
        "client",
        "zero_out",
        "the same with a public clip",
        delta=1e-3,
        local=SGD,
    ),
    Row(
        "iteration-gaussian",
        {"name": "iteration-gaussian", "rounds": 20, "order": 2},
        "server",
        "record",
        "replace_one",
        "20 clients of one record each, a linear model of two classes, c2 = √2; two gradients can differ by 2ζ",
        delta=1e-4,
        local={"optimiser": "sgd"},
        base={"data": {"name": "breast_cancer", "clients": 20, "samples_per_client": 1}, "model": {"name": "linear"}},
    ),
    Row(
        "iteration-gaussian-client",
        {"name": "iteration-gaussian", "rounds": 20, "order": 2},
        "server",
        "client",
        "zero_out",
        "the same for a client that sends what it likes",
        delta=1e-4,
        local={"optimiser": "sgd"},
        base={"data": {"name": "breast_cancer", "clients": 20, "samples_per_client": 1}, "model": {"name": "linear"}},
    ),
    Row(
        "iteration-laplace",
        {"name": "iteration-laplace", "rounds": 1, "epsilon": 4.0},
        "server",
        "client",
        "replace_one",
        "one release; two gradients can differ by 2ζ; the claim is a record's",
        delta=1e-4,
        local={"optimiser": "sgd"},
        base=LINEAR,
        settings=CanarySettings(draws=500),
        any_unit=True,
    ),
    Row(
        "anonymous-gossip",
        {"name": "anonymous-gossip", "neighbours": 3, "rounds": 20},
        "peer",
        "record",
        "replace_one",
        "T = 20, ε = 8; the amplification by m has no proof",
        local={"optimiser": "adam", "lr": 0.01, "batch_size": 10, "epochs": 5},
    ),
    Row(
        "anonymous-leader",
        {"name": "anonymous-leader", "rounds": 20},
        "leader",
        "record",
        "replace_one",
        "T = 20, ε = 8; the claim is towards a peer, the leader gets the messages it is made for",
        local={"optimiser": "adam", "lr": 0.01, "batch_size": 10, "epochs": 5},
        any_unit=True,
    ),
    Row(
        "dpsgd-shuffled",
        {"name": "own code"},
        "server",
        "record",
        "zero_out",
        "`examples/opacus/shuffled.py`: an epoch of 4,000 shuffled batches of 4, all records as bad as can be; the"
        " claim is of batches drawn by coins (arXiv:2411.10614)",
        claimed=1.9,  # dp_accounting 0.6, PLD: 1.898
        code="opacus/shuffled.py:seen",
        noise_multiplier=0.5,
    ),
)


class Finding(BaseModel):
    """What was measured of a row, as docs/findings.json keeps it; ∞ is "inf" there.

    sentence: claim and demonstration compared, in words. metrics: the canary attack's numbers, by name. trials: draws
    in each world; drawn: why they ended, a sentence, "" where their number was fixed beforehand. seconds: the
    demonstration's own, the one number that does not follow from the seed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    claimed: Number | None
    proven: Number
    accountant: str
    demonstrated: Number
    ceiling: Number
    confidence: float
    sentence: str
    metrics: dict[str, Number | None]
    canary: str
    trials: int
    drawn: str = ""
    manner: str
    parameters: int
    seconds: int

    @property
    def if_gaussian(self) -> bool:
        """Whether `demonstrated` holds on the condition alone that the mechanism is Gaussian-shaped."""
        return self.demonstrated == self.metrics.get("epsilon_if_gaussian") != self.metrics["epsilon"]


@dataclass(frozen=True)
class Findings:
    """Findings by the name of their row, in the page's order."""

    by_row: dict[str, Finding]

    @classmethod
    def read(cls, text: str) -> Self:
        """From the text of findings.json. Raises pydantic.ValidationError for a field that is missing or wrong."""
        return cls(TypeAdapter(dict[str, Finding]).validate_json(text))

    def having(self, name: str, finding: Finding) -> Self:
        more = {**self.by_row, name: finding}
        return type(self)({row.name: more[row.name] for row in ROWS if row.name in more})

    def text(self) -> str:
        """The text of findings.json."""
        return json_text({name: finding.model_dump() for name, finding in self.by_row.items()}, sort_keys=False)


def measure_code(row: Row, seed: int) -> Finding:
    """A function's draws, at most 5,000 in each world."""
    began = time.perf_counter()
    function = own_code(f"{DOCS.parent / 'examples' / row.code}").value
    made = audit_mechanism(
        function, delta=row.delta, claim=row.claimed, unit=row.unit, adjacency=row.adjacency, draws=5000, seed=seed
    )
    (attack,) = made.results().attacks
    return Finding(
        claimed=row.claimed,
        proven=gaussian_epsilon(row.noise_multiplier, row.delta),  # a record is in one batch
        accountant="closed form",
        demonstrated=made.counted.epsilon,
        ceiling=made.counted.ceiling,
        confidence=made.counted.confidence,
        sentence=made.finding().sentence,
        metrics=attack.numbers,
        canary="opposite",
        trials=made.measured.n,
        drawn="" if made.measured.taken is None else made.measured.taken.sentence,
        manner="one-round",
        parameters=1,
        seconds=round(time.perf_counter() - began),
    )


def measure(row: Row, seed: int) -> Finding:
    if row.code:
        return measure_code(row, seed)
    config = parse_config(
        {
            "seed": seed,
            **row.base,
            "local": {"optimiser": "adam", "lr": 1e-3, "batch_size": 25, **row.local},
            "scheme": row.scheme,
            "audit": {"delta": row.delta},
            "claim": "paper" if row.claimed is None else {"epsilon": row.claimed},
        }
    )
    experiment = build(config, Path.cwd())
    ledger, claim = planned_ledger(experiment), experiment.claim
    observer = Observer.parse(row.observer)
    (priced,) = epsilon_rows(ledger, claim, row.delta, [observer], [row.unit], [row.adjacency])
    claimed = priced.claimed
    if claimed is None and row.any_unit and claim is not None and claim.epsilon is not None:
        claimed = claim.epsilon(max(ledger.participations().values()), row.delta)
    began = time.perf_counter()
    question = replace(Question.of(priced), claimed=claimed)
    settings, drawn = row.settings, ledger.participations()
    if settings.client is None and not drawn.get(0):  # cohorts hang on the keystream
        settings = replace(settings, client=min(client for client, rounds in drawn.items() if rounds))
    demonstration = demonstrate(experiment, settings, question, seed, _Tell())
    shown = demonstration.row
    if shown is None:
        raise SystemExit(f"{row.name}: {demonstration.not_measured}")
    (attack,) = demonstration.attacks
    demonstrated, ceiling = shown.judges(claimed if claimed is not None else priced.proven or inf)
    return Finding.model_validate(
        {
            "claimed": claimed,
            "proven": priced.proven,
            "accountant": priced.accountant,
            "demonstrated": demonstrated,
            "ceiling": ceiling,
            "confidence": shown.confidence,
            "sentence": shown.notes[0],
            "metrics": attack.numbers,
            "canary": attack.settings["canary"],
            "trials": attack.n,
            "drawn": next(note for note in shown.notes if note.startswith("Draws were taken")),
            "manner": attack.manner,
            "parameters": experiment.layout.dim,
            "seconds": round(time.perf_counter() - began),
        }
    )


class _Tell:
    """Progress on one line, a tenth at a time."""

    said = -1

    def __call__(self, done: int, total: int, /, words: str = "") -> None:
        if (tenth := 10 * done // total) != self.said:
            self.said = tenth
            print(f"\r  {words}: {10 * tenth} %", end="", flush=True)


def page(findings: Findings) -> str:
    """docs/findings.md."""
    lines = [
        "# Findings: claimed, proven and demonstrated ε of published schemes",
        "",
        (
            "Written by `python benchmarks/findings.py`; one row again by `python benchmarks/findings.py --row NAME`."
            " Each row runs this toolkit's"
        ),
        (
            "implementation of the scheme with and without a canary and tells the worlds apart "
            "(`audit/two_worlds/draws.py`): the attacker knows the model, the"
        ),
        (
            "other records and the batch order (with noise inside training, no batches), and nothing of the noise."
            " *Draws*, in each world, end as soon as the"
        ),
        (
            "claim is refuted or cannot be, and are bet on with what earlier ones told"
            " (`audit/two_worlds/estimators/betting.py`). *Demonstrated* is a lower bound with 95 %"
        ),
        (
            "confidence at whatever moment draws end, by counting unless *(G)* says: on the condition that the noise is"
            " Gaussian, where counting could not reach the claim;"
        ),
        (
            "it lies just above the claim where the claim was refuted, as no more was asked. *Could show* is what a"
            " perfect attack would have got with as many draws (∞: no limit). *Shift* is how far the canary moves the"
            " noise-free message, in"
        ),
        (
            "standard deviations of the noise (μ of one Gaussian release). *Exceeds the claim*: of another unit or"
            " observer than the row's, which the list"
        ),
        (
            "below names; what the claim says of its own is not refuted by it. *Not shown*: the claim is not proven,"
            " but nothing above it was demonstrated either;"
        ),
        (
            "*consistent*: nothing contradicts what is proven. Settings are small; a demonstration holds for the code,"
            " not for one data set's people."
        ),
        "",
        (
            "| row | observer, unit, adjacency, δ | claimed | proven | demonstrated | could show | canary | shift |"
            " draws | verdict |"
        ),
        "|---|---|---:|---:|---:|---:|---|---:|---:|---|",
    ]
    measured = [(row, findings.by_row[row.name]) for row in ROWS if row.name in findings.by_row]
    for row, finding in measured:
        kind = " (G)" if finding.if_gaussian else ""
        cells = (
            f"`{row.name}`",
            f"{row.observer}, {row.unit}, {row.adjacency}, {row.delta:g}",
            number(finding.claimed),
            number(finding.proven),
            number(finding.demonstrated) + kind,
            number(finding.ceiling),
            finding.canary,
            number(finding.metrics["shift"]),
            f"{finding.trials:,}",
            _verdict(row, finding),
        )
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", _draws_taken(measured)]
    lines += [
        "",
        (
            "What each row is, the bound that is not in the table, and how badly its claim fails: the δ that the"
            " claimed ε would really need (a lower bound, by counting)."
        ),
        "",
    ]
    for row, finding in measured:
        needed = finding.metrics.get("delta_at_claim")
        failing = f" At the claimed ε, δ ≥ {needed:.2g}." if needed else ""
        lines.append(
            f"- `{row.name}` ({row.scheme['name']}, {finding.parameters:,} parameters):"
            f" {row.about}.{_other_bound(finding)}{failing}"
        )
    return "\n".join(lines) + "\n"


def few_draws(claimed: float, shape_assumed: bool) -> float:
    """In each world: 500, or some three times the e^ε·ln(1/0.05) that a perfect attack needs at δ = 0."""
    return 500 if claimed <= 4.5 or shape_assumed else 8 * exp(claimed)


def _draws_taken(measured: Sequence[tuple[Row, Finding]]) -> str:
    above = [(row, finding) for row, finding in measured if "laim" in _verdict(row, finding)]
    longer = [(r, f) for r, f in above if f.trials > few_draws(f.claimed or 0.0, f.if_gaussian)]
    words = (
        f"Of the {len(above)} rows above their claim, {len(above) - len(longer)} took at most 500 draws in each world"
        " where the claimed ε is at most 4.5 or the noise's shape is assumed, and otherwise at most 8·e^ε."
    )
    if longer:
        words += " More took " + ", ".join(f"`{row.name}` ({finding.trials:,})" for row, finding in longer) + "."
    return words


def _other_bound(finding: Finding) -> str:
    """The bound that is not the one of the table."""
    if finding.if_gaussian:
        return f" By counting ε ≥ {finding.metrics['epsilon']:.3g}."
    gaussian = finding.metrics.get("epsilon_if_gaussian")
    return "" if gaussian is None else f" If Gaussian ε ≥ {gaussian:.3g}."


def _verdict(row: Row, finding: Finding) -> str:
    shown, claimed = finding.demonstrated, inf if finding.claimed is None else finding.claimed
    condition = " (G)" if finding.if_gaussian else ""
    if shown > claimed:
        return ("exceeds the claim" if row.any_unit else "**claim violated**") + condition
    if shown > finding.proven:
        return "**proof violated**" + condition
    unproven = finding.proven > claimed * (1 + 1e-6)
    return "not shown" if unproven or shown == 0 or finding.ceiling <= claimed < inf else "consistent"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--row",
        action="append",
        choices=[row.name for row in ROWS],
        metavar="NAME",
        help="measure this row only (may be repeated)",
    )
    parser.add_argument("--list", action="store_true", help="the rows' names")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--docs", type=Path, default=DOCS, help="where findings.md and findings.json are")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{row.name:26} {row.about}" for row in ROWS))
        return
    torch.set_num_threads(options.threads)
    kept = options.docs / "findings.json"
    findings = Findings.read(kept.read_text(encoding="utf-8")) if kept.exists() else Findings({})
    for row in ROWS:
        if options.row and row.name not in options.row:
            continue
        finding = measure(row, options.seed)
        print(
            f"\r{row.name}: claimed {number(finding.claimed)}, proven {number(finding.proven)}, demonstrated"
            f" {number(finding.demonstrated)} of {number(finding.ceiling)} ({finding.canary}, {finding.seconds} s)"
            f" {_verdict(row, finding)}",
            flush=True,
        )
        findings = findings.having(row.name, finding)
        options.docs.mkdir(parents=True, exist_ok=True)
        write_bytes(kept, findings.text().encode())
        write_bytes(options.docs / "findings.md", page(findings).encode())


if __name__ == "__main__":
    main()
