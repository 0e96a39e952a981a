"""The two answers of a verdict in a few words: the leak, and the proof."""

from __future__ import annotations

from ..judge.judgement import Judgement
from ..results.format import NOT_MEASURED, Verdict
from .words import at_most

LEAKS = {"none found": "no leak found", "moderate": "moderate leak", "high": "high leak", "severe": "severe leak"}


def leak_said(verdict: Verdict | Judgement) -> str:
    """Which leak was found, in words: the first half of the badge. Nothing found is no praise where nothing was tried.

    >>> said = {"level": "not measured", "measured": False, "proof": "none", "sentences": ("", "", "")}
    >>> [leak_said(Verdict(**said, attacked=attacked)) for attacked in (True, False)]
    ['leak not measured', 'not attacked']
    """
    if verdict.only_claim:
        return "claim refuted"
    if verdict.level != NOT_MEASURED:
        return LEAKS[verdict.level]
    if verdict.attacked:
        return "leak not measured"
    return "not attacked"


def proof_said(verdict: Verdict | Judgement) -> str:
    """What is proven, in words: the second half of the badge.

    >>> said = {"level": "high", "measured": True, "attacked": True, "sentences": ("", "", "")}
    >>> proofs = (("proven", 7.2911), ("weak", 159.0), ("weak", None), ("none", None), ("not priced", None))
    >>> [proof_said(Verdict(**said, proof=how, proven=epsilon)) for how, epsilon in proofs]
    ['proven ε ≤ 7.3', 'only ε ≤ 159 proven', 'no useful ε proven', 'nothing proven', 'ε not priced']
    """
    if verdict.proof == "proven":
        return f"{'as declared' if verdict.declared else 'proven'} ε ≤ {at_most(verdict.proven)}"
    if verdict.proof == "weak" and verdict.declared and verdict.proven is not None:
        return f"only ε ≤ {at_most(verdict.proven)}, as declared"
    if verdict.proof == "weak":
        if verdict.proven is None:
            return "no useful ε proven"
        return f"only ε ≤ {at_most(verdict.proven)} proven"
    if verdict.proof == "none":
        return "nothing proven"
    return "ε not priced"


def proof_word(verdict: Verdict | Judgement) -> str:
    """The same without its number, for beside a table: that is of one unit, and the verdict's of the worst row."""
    words: dict[str, str] = {"proven": "useful ε proven", "weak": "no useful ε proven", "none": "nothing proven"}
    if verdict.declared and verdict.proof == "proven":
        return "useful ε, as declared"
    return words.get(verdict.proof, "ε not priced")


def badge(verdict: Verdict | Judgement) -> str:
    """Both answers: one of them alone says nothing of the other.

    >>> said = {"measured": True, "attacked": True, "sentences": ("", "", "")}
    >>> badge(Verdict(level="severe", proof="none", **said))
    'severe leak · nothing proven'
    >>> badge(Verdict(level="none found", proof="proven", proven=7.3, **said))
    'no leak found · proven ε ≤ 7.3'
    """
    return f"{leak_said(verdict)} · {proof_said(verdict)}"
