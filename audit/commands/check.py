"""`audit check`: is a setup folder whole?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import common
from .printing import json_document, shown_progress

if TYPE_CHECKING:
    from ...defenses.progress import Progress
    from ..setup.auditor import Auditor
    from ..setup.folder import Setup


@click.command("check")
@click.argument("setup", type=click.Path(path_type=Path))
@click.option("--results", type=click.Path(path_type=Path), help="Also bracket each ε proven in it by a second way.")
@click.option(
    "--strict",
    is_flag=True,
    help="Also every detail of the format, and that a recording is complete and nothing in it wrong.",
)
@common
def command(setup: Path, results: Path | None, strict: bool, as_json: bool, quiet: bool) -> None:
    """Check every file of a setup folder; exit code 2 and one sentence where something is wrong.

    \b
    Example:  audit check setup
    """
    progress = shown_progress(quiet)
    from ..errors import BadInput
    from ..setup.auditor import check_setup
    from ..setup.format import RECORDED_CALLS
    from ..setup.strict import faults

    found, auditor = check_setup(setup, progress)
    if strict and (wrong := faults(found, auditor)):
        progress.close()
        for fault in wrong if not quiet else ():
            click.echo(fault, err=True)
        raise BadInput(f"{setup}: {len(wrong)} things are not as docs/setup-format.md says")
    checked = None if results is None else _rechecked(auditor, results, progress)
    progress.close()
    incomplete = any(declaration.what == RECORDED_CALLS for declaration in auditor.declared)
    if as_json:
        there: dict[str, Any] = {
            "truth": auditor.truth is not None,
            "auditor": auditor.ledger is not None,
            "noise_key": auditor.knows_key,
            "edited": auditor.edited,
            "key_is_published": not auditor.key_is_secret,
            "owners_code": found.owners_code or None,
        }
        if checked is not None:
            there |= {"proofs": checked[0], "loose": checked[1]}
        if found.manifest.recorded is not None:
            there["declared"] = [declaration.model_dump() for declaration in auditor.declared]
            there["incomplete"] = incomplete
        click.echo(json_document({"setup": str(setup), **found.summary, **there}))
    elif not quiet:
        state = "whole"
        if incomplete:
            state = "incomplete"
        click.echo(f"{setup} is {state}: {_said(found, auditor)}")
        if checked is not None:
            click.echo(f"{checked[0]} proven ε lie above what an explicit attack learns of the same facts")
            for loose in checked[1]:
                click.echo(loose)
        if read_as := found.manifest.data.description.get("read_as"):
            click.echo(f"read so: {read_as}")
        for declaration in auditor.declared:
            click.echo(f"{declaration.status}: {declaration.what}: {declaration.said} ({declaration.why})")
    if strict:
        _check_recording(auditor, incomplete)


def _check_recording(auditor: Auditor, incomplete: bool) -> None:
    """Raises BadInput for one that is incomplete, or in which something is contradicted or has a defect."""
    from ..errors import BadInput

    wrong = ["it is incomplete"] * incomplete
    wrong += [f"{one.what} is contradicted" for one in auditor.declared if one.status == "contradicted"]
    wrong += [f"{one.what} has a defect" for one in auditor.declared if one.status == "defect" and not incomplete]
    if wrong:
        raise BadInput(f"{auditor.setup.folder}: {', '.join(wrong)}")


def _rechecked(auditor: Auditor, results: Path, progress: Progress) -> tuple[int, list[str]]:
    """How many finite proofs there are, and which of them are loose. Raises BadInput for one that is wrong."""
    from ..errors import BadInput
    from ..proof.recheck import recheck_rows
    from ..proven.views import Views
    from ..results.format import Results
    from ..run.audited import audited_setup
    from ..setup.planned import priced_ledger

    ledger = priced_ledger(auditor)
    if ledger is None:
        raise BadInput(f"{auditor.setup.folder} has no auditor/ folder, so no proof can be checked")
    stored, found = Results.read(results), audited_setup(auditor)
    rows = stored.epsilon
    for name in ("noise_key", "recorded", "declared"):
        if getattr(stored.setup, name) != getattr(found, name):
            raise BadInput(f"{results}: its setup.{name} is not that of {auditor.setup.folder}; run the audit again")
    said = recheck_rows(rows, Views(ledger, auditor.setup.config.audit.honest), progress)
    if wrong := [sentence for sentence in said if not sentence.endswith("it is loose")]:
        raise BadInput(f"{results}: {wrong[0]}")
    return sum(row.proven is not None and row.proven < float("inf") for row in rows), said


def _said(found: Setup, auditor: Auditor) -> str:
    from ..say.words import times

    m, priced, published = found.manifest, auditor.ledger is not None, not auditor.key_is_secret
    kept = auditor.knows_key or m.recorded is not None  # nobody here drew a recording's noise
    here = {True: "present", False: "absent"}
    key = f"auditor's key {here[kept]}"
    if not priced:
        key = "auditor/ absent, so that ε cannot be priced"
    parts = [
        f"{m.scheme.name}, {times(m.rounds, 'round')}, {times(len(found.messages), 'message')} of"
        f" {m.model.parameters:,} numbers, truth {here[auditor.truth is not None]}, {key}"
    ]
    if m.model.frozen:
        parts.append(f"a frozen base of {m.model.frozen:,} numbers stands once beside them")
    if published:
        parts.append("its key is published, so whoever has the config can draw the noise again")
    if priced and not kept:
        parts.append("auditor/noise-key is gone, and cannot be made again")
    if found.owners_code:
        parts.append(f"attacks run its owner's code, so `audit run` needs --allow-model {found.owners_code}")
    if m.recorded is not None:
        parts.append(f"recorded by {m.recorded.by}")
    if auditor.edited:
        parts.append(f"changed after training: {', '.join(auditor.edited)}")
    if found.diverged_at_once:
        parts.append("training diverged in round 0: nothing to attack")
    return "; ".join(parts)
