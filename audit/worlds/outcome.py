"""What the audit of somebody's own code demonstrated: a finding about its claim, and results for a report."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ...defenses.terms import Adjacency, Claimant, Observer, Unit
from ..errors import BadInput
from ..files import write_bytes
from ..lock import NAME as LOCK
from ..lock import empty, writing
from ..replay.outcome import VIOLATED
from ..results.format import FILE, OWN_CODE, SCORING, AttackResult, AuditedSetup, Epsilon, Metrics, Results
from ..results.format import UNFINISHED as WORK
from ..say.verdict import judged
from ..say.warnings import implied
from ..say.words import at_least, number, times
from ..say.words import observer as observer_said
from ..setup.description import versions
from ..setup.format import REPLAYED, Declaration
from ..two_worlds.draws import MechanismAudit
from ..two_worlds.estimators import Finding, LowerBound, violation
from ..two_worlds.estimators.finding import BY_REPLAY
from ..two_worlds.measured import Measured, bound_said, judgement
from .federation.plan import counting_takes
from .search import SearchedCanary


@dataclass(frozen=True)
class About:
    """What was audited, and how.

    name: of the code, for people. delta, unit, adjacency, observer: what an ε is about. claim: the ε that is claimed,
    None for none, and by whom. protocol: the word after "canary/" in results. told: it in a sentence. canary: planted.
    searched: the candidates it was chosen from. draws: tested trials a world, at most; calibration: further ones. seed:
    of all draws. code: SHA-256 of the code's own file, "" where it has none. parameters: what is known of the
    mechanism, for the page. notes: what else to know, sentences.
    """

    name: str
    delta: float
    unit: Unit = "client"
    adjacency: Adjacency = "zero_out"
    observer: str = "server"
    claim: float | None = None
    claimed_by: Claimant = "owner"
    protocol: str = "mechanism"
    told: str = ""
    canary: str = "own"
    searched: tuple[SearchedCanary, ...] = ()
    draws: int = 0
    calibration: int = 0
    seed: int = 0
    code: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.claim is not None and not self.claim >= 0:
            raise ValueError(f"the claimed ε must be ≥ 0, got {self.claim}")
        Observer.parse(self.observer)


@dataclass(frozen=True, eq=False)
class OwnAudit:
    """What telling two worlds of somebody's own code apart demonstrated.

    audit: the trials and their bounds. measured: the bounds that a claim is judged by. not_finite: how many results
    held a NaN or an infinity.
    """

    about: About
    audit: MechanismAudit
    measured: Measured
    not_finite: int = 0

    @property
    def counted(self) -> LowerBound:
        """By counting, without an assumption on the noise."""
        return self.measured.counted

    @property
    def if_gaussian(self) -> LowerBound | None:
        """On the condition that it names; None where none may be assumed."""
        return self.measured.if_gaussian

    @property
    def chance(self) -> LowerBound:
        return self.audit.chance

    @property
    def shift(self) -> float:
        return self.audit.shift

    @property
    def scores_in(self) -> NDArray:
        return self.audit.scores_in

    @property
    def scores_out(self) -> NDArray:
        return self.audit.scores_out

    def chosen(self, target: float) -> LowerBound:
        """The bound that an ε of `target` is judged by: counting, unless only the one on a condition exceeds the target
        or could have. Both hold together.
        """
        return self.measured.judging(target)

    def finding(self, claimed: float | None = None) -> Finding:
        """What this says about a claim of (claimed, δ)-DP; where the bound assumes a shape, also what holds without.

        claimed: None for the claim that the audit was asked about. Raises ValueError where it was about none.
        """
        claimed = self.about.claim if claimed is None else claimed
        if claimed is None:
            raise ValueError("finding() needs a claimed ε: none was given to the audit")
        chosen = self.chosen(claimed)
        found = violation(chosen, claimed, chosen.delta)
        said = found.sentence
        if chosen is not self.counted:
            counted = at_least(self.counted.epsilon)
            said += f"; by counting alone, whatever the noise, at least ε = {counted} was demonstrated"
        elif self.if_gaussian is not None:
            said += f"; if {self.if_gaussian.assumption}, at least ε = {at_least(self.if_gaussian.epsilon)} was"
        if self.not_finite:
            said += f"; results that were not finite: {self.not_finite}"
        if self.contradictions:
            said += f"; what is declared is contradicted in {times(len(self.contradictions), 'way')} (contradictions)"
        if self.violated:
            found = replace(found, level=found.level if found.level == "violated" else BY_REPLAY)
            said = f"{self.violated[0].rstrip('.')}; {said}"
        return replace(found, sentence=said)

    @property
    def violated(self) -> tuple[str, ...]:
        """What a replay showed that cannot be if the claim's ground is right, sentences: facts, without statistics."""
        return tuple(note for note in self.about.notes if note.startswith(VIOLATED))

    @property
    def contradictions(self) -> list[str]:
        """What was seen that what is declared rules out, and what is known to be wrong, sentences."""
        return [note for note in self.about.notes if note.startswith((CONTRADICTED, DEFECT))]

    @property
    def sentences(self) -> list[str]:
        """The answer in a few lines: what became of the claim, each bound, and what it rests on."""
        about, counted, other = self.about, self.measured.counted, self.measured.if_gaussian
        where = (
            f"per {about.unit} towards {observer_said(about.observer)} ({about.adjacency}, δ = {number(about.delta)})"
        )
        first = (
            "; ".join((*self.violated[:1], "no claim was given")) if about.claim is None else self.finding().sentence
        )
        said = [f"{about.name}: {first}.", *self.contradictions]
        said.append(f"By counting, whatever the noise, ε {where} is {bound_said(counted)}.")
        if other is not None:
            said.append(f"If {other.assumption}, it is {bound_said(other)}.")
        if about.claim is not None and self.measured.ceiling <= about.claim:
            said.append(counting_takes(about.claim, about.delta, counted.confidence))
        if self.measured.taken is not None:
            said.append(self.measured.taken.sentence)
        if about.searched:
            said.append(self._tried())
        return said

    def _tried(self) -> str:
        tried = ", ".join(f"{one.name} {one.shift:.3g}" for one in self.about.searched)
        return (
            f"Canary {self.about.canary!r}, of those tried the one that moves what is sent most (in standard deviations"
            f" of the noise: {tried})."
        )

    def delta_at(self, epsilon: float) -> float:
        """How badly a claim fails: the least δ at which (ε, δ)-DP is not refuted, with the bound's confidence."""
        return self.measured.delta_at(epsilon)

    def results(self) -> Results:
        """As `audit run` writes them, with one row of ε and one entry."""
        about, measured = self.about, self.measured
        row = Epsilon(
            observer=about.observer,
            unit=about.unit,
            adjacency=about.adjacency,
            delta=about.delta,
            claimed=about.claim,
            claimed_by="" if about.claim is None else about.claimed_by,
            **measured.shown,
            asked=True,
            notes=tuple(self._notes()),
        )
        failure = {}
        if about.claim is not None and measured.judging(about.claim) is measured.counted:
            failure = {"delta_at_claim": self.delta_at(about.claim)}
        known = {k: v for k, v in asdict(about).items() if k not in NOT_SETTINGS}
        entry = AttackResult(
            attack=f"canary/{about.protocol}",
            observer=about.observer,
            n=measured.n,
            settings=known,
            assumed=(about.told,),
            metrics=Metrics.of({**measured.metrics, **failure}),
            intervals=measured.intervals,
            controls=measured.controls,
        )
        parameters = about.parameters
        results = judged(
            scoring=SCORING,
            digest=self.digest,
            seed=about.seed,
            setup=AuditedSetup(
                digest=about.code or hashlib.sha256(about.name.encode()).hexdigest(),
                name=about.name,
                scheme=OWN_CODE,
                parameters=parameters,
                clip_norm=parameters.get("clip_norm"),
                noise_multiplier=parameters.get("noise_multiplier"),
                sensitivity=parameters.get("sensitivity"),
                clipped_in_training=True if "clip_norm" in parameters else None,
                versions=versions(),
                declared=tuple(
                    Declaration(what=REPLAYED, said=GROUND, status="contradicted", why=why.rstrip("."))
                    for why in self.violated[:1]
                ),
            ),
            epsilon=(row,),
            attacks=(entry,),
        )
        return results.having(warnings=tuple(dict.fromkeys([*self.contradictions, OWN_ALONE, *implied(results)])))

    @property
    def digest(self) -> str:
        """SHA-256 of what was asked, and of the code's own file: not of what that imports, so equal digests are no
        reason to leave a run out.
        """
        return hashlib.sha256(json.dumps(asdict(self.about), sort_keys=True, default=str).encode()).hexdigest()

    def save(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write `folder`/results.json, which `audit report` and `dpfl_audit.Results.read` take; gives `folder` back.

        Args:
            folder: is made where it is missing; results of the same question in it are replaced.
            force: replace other results too.

        Raises:
            BadInput: `folder` holds something else, or is being written.
        """
        folder = Path(folder)
        results = self.results()
        with writing(folder):
            check_place(folder, results.setup.title, force)
            write_bytes(folder / FILE, results.text().encode())
            shutil.rmtree(folder / WORK, ignore_errors=True)
        return folder

    def _notes(self) -> list[str]:
        about, counted = self.about, self.measured.counted
        notes = []
        if about.claim is not None:
            notes.append(judgement(self.measured.judging(about.claim), about.claim, "claim"))
        notes += self.measured.notes(repr(about.canary), f"protocol {about.protocol!r}: {about.told}")
        if self.if_gaussian is None and self.measured.why_not:
            notes.append(f"Only counting is valid here: {self.measured.why_not}.")
        if about.searched:
            notes.append(self._tried())
        if about.claim is not None and counted.ceiling <= about.claim:
            notes.append(counting_takes(about.claim, about.delta, counted.confidence))
        if self.not_finite:
            notes.append(f"Results that were not finite: {self.not_finite}.")
        return [*notes, *about.notes]


NOT_SETTINGS = ("notes", "told", "code", "name", "parameters", "claimed_by")  # of an `About`
GROUND = "what noise is added to moves by its bound at most, and nothing else that leaves moves"
CONTRADICTED = "Contradicted"  # how a note begins that says what ran is not what was declared
DEFECT = "Known defect"  # how a note begins that says what is wrong with what runs
OWN_ALONE = (
    "What was audited is what the function returns, with this canary: not the training around it, no other observer,"
    " and nothing that the function does not show."
)


def check_place(folder: Path, name: str, force: bool) -> None:
    """That results of `name` may be written to `folder`: it is empty, or holds such results. Raises BadInput."""
    if force or not folder.exists() or empty(folder) or _only_begun(folder):
        return
    held = None
    if (folder / FILE).is_file():
        held = Results.read(folder).setup.title
    if held is None:
        raise BadInput(f"{folder} is not empty and holds no results; choose another folder for -o")
    if held != name:
        raise BadInput(f"{folder} holds results of {held}, not of {name}; use --force to replace them")


def _only_begun(folder: Path) -> bool:
    """Whether there is nothing but batches of draws of a killed run."""
    return (folder / WORK).is_dir() and not [p for p in folder.iterdir() if p.name not in (WORK, LOCK)]
