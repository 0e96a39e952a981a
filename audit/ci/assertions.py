"""`dpfl_audit.assert_private` and `assert_leakage`: an audit as a line of a test suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

from ...defenses.nearest import instead
from .. import api
from ..errors import BadInput, bad_input
from ..report.saved import SavedResults
from ..results.format import FILE, Results
from ..results.gates import Gate, outcome, parse_gate
from ..say.words import could_show
from ..setup.folder import Setup
from ..worlds.function import audit_mechanism
from ..worlds.outcome import OwnAudit

OPPOSITE = {">": "<=", "<": ">=", ">=": "<", "<=": ">", "==": "!=", "!=": "=="}


def assert_private(update_fn: Callable[..., Any], epsilon: float, delta: float, **options: Any) -> OwnAudit:
    """Fails where telling two worlds apart refutes that `update_fn` is (ε, δ)-DP.

    A false alarm has probability 1 − confidence (5 %) at most, and a seed of its own: a test that passes once passes
    again. That it passes is no proof, since another canary may show more.

    Args:
        update_fn: (world, seed) → what an observer gets; see `dpfl_audit.audit_mechanism`.
        epsilon, delta: what is claimed.
        options: further ones of `audit_mechanism`: candidates, draws, unit, gaussian, …

    Returns:
        The audit, whose `save(folder)` keeps it for `audit report`.

    Raises:
        AssertionError: the claim is refuted, on a condition where `gaussian=True` states one.
        BadInput: so few draws could not have refuted it, or as `audit_mechanism` says.

    >>> import numpy as np
    >>> def noisy_sum(world, seed):
    ...     return np.random.default_rng(seed).normal(size=3) + [3.0 * world, 0, 0]
    >>> assert_private(noisy_sum, epsilon=1, delta=1e-5, draws=300)
    Traceback (most recent call last):
    AssertionError: noisy_sum is not (1, 1e-05)-DP per client (zero_out, server)
      claim violated: at least ε = 1.09 was demonstrated with 0.95 confidence, the claim is ε = 1
    """
    __tracebackhide__ = True
    _check_options("assert_private", options, audit_mechanism, ("update_fn", "delta", "claim"))
    with bad_input("assert_private"):
        audit = audit_mechanism(update_fn, delta=delta, claim=epsilon, **options)
    return _assert_kept(audit)


def _assert_kept(audit: OwnAudit) -> OwnAudit:
    __tracebackhide__ = True
    about, found = audit.about, audit.finding()
    if found.level.startswith("violated"):
        kept = f"is not ({about.claim:.3g}, {about.delta:g})-DP per {about.unit} ({about.adjacency}, {about.observer})"
        raise AssertionError(f"{about.name} {kept}\n  {found.sentence.replace('; ', chr(10) + '  ')}")
    if found.level == "nothing shown":
        most = audit.chosen(about.claim or 0.0).ceiling
        raise BadInput(
            f"assert_private: {could_show(most)}, the claim is ε = {about.claim:.3g}, so that it passes says nothing;"
            " take more draws, or pass gaussian=True where the noise is Gaussian and nothing is sampled"
        )
    return audit


def assert_leakage(what: Setup | Results | OwnAudit | str | Path, statement: str, **options: Any) -> None:
    """Fails where a statement about leakage does not hold for the worst value measured.

    Args:
        what: results, or their folder; or a setup, or its folder, which is then attacked (`dpfl_audit.run`).
        statement: what must hold, in the words of `--fail-if`: "reidentified <= .2", "proven[client,server] <= 10",
            "level < high", "proof == proven".
        options: of `dpfl_audit.run`, where a setup is attacked: attacks, minutes, …

    Raises:
        AssertionError: it does not hold; says by which attack or row.
        BadInput: it is no such statement, or what it is about was not measured: that never passes.
    """
    __tracebackhide__ = True
    _check_options("assert_leakage", options, api.run, ("setup",))
    gate = _gate(statement)
    results = _results(what, options)
    try:
        judged = outcome(gate, results)
    except BadInput as error:
        raise BadInput(f"assert_leakage {statement!r}: {_reason(error)}") from None
    if judged.failed:
        raise AssertionError(
            f"{results.setup.title}: {statement} does not hold ({judged.sentence.partition(': ')[2]})\n"
            f"  {results.verdict.sentences[0]}"
        )


def _check_options(asserted: str, options: Mapping[str, Any], function: Callable[..., Any], own: Sequence[str]) -> None:
    """Raises BadInput for an option that `function` does not have, or that is the assertion's own."""
    known = [name for name in signature(function).parameters if name not in own]
    if stranger := next((name for name in options if name not in known), None):
        raise BadInput(f"{asserted}: {stranger!r} is no option{instead(stranger, known)}")


def _gate(statement: str) -> Gate:
    """The gate that fails where the statement does not hold."""
    try:
        gate = parse_gate(statement)
    except BadInput as error:
        raise BadInput(f"assert_leakage {statement!r}: {_reason(error)}") from None
    return replace(gate, sign=OPPOSITE[gate.sign])


def _reason(error: BadInput) -> str:
    """What a gate's complaint says after naming the gate, which is the opposite of what was asserted."""
    return str(error).removeprefix("--fail-if ").partition("': ")[2] or str(error)


def _results(what: object, options: dict[str, Any]) -> Results:
    if isinstance(what, OwnAudit):
        what = what.results()
    there = isinstance(what, str | Path) and (Path(what) / FILE).exists()
    if isinstance(what, Results) or there:
        if options:
            raise BadInput(f"assert_leakage: {', '.join(options)} are for attacking a setup, and these are results")
        return what if isinstance(what, Results) else SavedResults.read(what)  # type: ignore[arg-type]
    if not isinstance(what, Setup | str | Path):
        raise BadInput(f"assert_leakage: expected a setup, results or a folder, got a {type(what).__name__}")
    return api.run(what, **{"quiet": True, **options})
