"""Gates as JUnit XML, which Jenkins, GitLab and GitHub's test reporters read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from ..errors import BadInput
from ..files import write_named
from ..results.format import Results
from ..results.gates import Gate, Outcome, outcome


def judge_gates(gates: Sequence[Gate], results: Results, junit: Path | None = None) -> list[Outcome]:
    """What became of each gate; written to `junit` too, one test case a gate.

    Raises:
        BadInput: a gate that does not fail could not be judged; it is an error in `junit`, which is written all the
            same.
    """
    outcomes: list[Outcome] = []
    cases: list[tuple[Gate, Outcome | BadInput]] = []
    for gate in gates:
        try:
            outcomes.append(outcome(gate, results))
            cases.append((gate, outcomes[-1]))
        except BadInput as error:
            cases.append((gate, error))
    if junit is not None:
        write_named([(junit, junit_text(cases, results.setup.title).encode())])
    for _, found in cases:
        if isinstance(found, BadInput):
            raise found
    return outcomes


def junit_text(cases: Sequence[tuple[Gate, Outcome | BadInput]], title: str) -> str:
    """The XML of gates and what became of them. title: of what was audited. Times are left out: the same results give
    the same bytes.

    >>> gate = Gate("reidentified", ">", 0.2)
    >>> print(junit_text([(gate, Outcome(True, "gate failed"))], "digits").splitlines()[2].strip())
    <testcase classname="dpfl-audit.digits" name="reidentified &gt; 0.2">
    """
    errors = sum(isinstance(found, BadInput) for _, found in cases)
    failures = sum(isinstance(found, Outcome) and found.failed for _, found in cases)
    counts = {"tests": str(len(cases)), "failures": str(failures), "errors": str(errors)}
    suite = ElementTree.Element("testsuite", {"name": "dpfl-audit", **counts})
    for gate, found in cases:
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": f"dpfl-audit.{_printable(title)}", "name": _printable(str(gate))}
        )
        if isinstance(found, BadInput):
            ElementTree.SubElement(case, "error", {"message": _printable(str(found))})
        elif found.failed:
            ElementTree.SubElement(case, "failure", {"message": _printable(found.sentence)})
        else:
            ElementTree.SubElement(case, "system-out").text = _printable(found.sentence)
    ElementTree.indent(suite)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(suite, encoding="unicode")}\n'


def _printable(text: str) -> str:
    """XML has no control characters, not even escaped."""
    return "".join(c if c.isprintable() else " " for c in text)
