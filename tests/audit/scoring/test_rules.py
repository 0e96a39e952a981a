"""Which rules p-values are computed by has a number, so that results of other rules are scored anew."""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path

import dpfl_audit
from dpfl_audit.audit.results.format import SCORING

ROOT = Path(dpfl_audit.__path__[0])
RULES = (
    "audit/scoring/answers.py",
    "audit/scoring/line_ups.py",
    "audit/scoring/questions.py",
    "metrics/closer_test.py",
    "metrics/exact.py",
    "metrics/intervals.py",
    "metrics/leakage.py",
    "metrics/pool_test.py",
    "metrics/reidentification.py",
    "metrics/significance.py",
    "metrics/swapped_test.py",
    "metrics/twins.py",
)
KNOWN = {6: "3ecc23aeb6592206"}


def test_rules_that_change_have_a_new_number() -> None:
    """If this fails: does some p-value come out otherwise now? Then raise `SCORING`; and write the digest here."""
    digest = hashlib.sha256()
    for name in RULES:
        tree = ast.parse((ROOT / name).read_text())
        for node in ast.walk(tree):  # words may change
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
                node.body = node.body[1:]
        digest.update(ast.dump(tree).encode())
    assert {SCORING: digest.hexdigest()[:16]} == KNOWN
