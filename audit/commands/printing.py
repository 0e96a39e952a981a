"""What several commands do around what they call: show progress, let a cluster work, print JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ...defenses.workers import Workers
    from ..progress import Reporter


def json_document(content: Any) -> str:
    """As --json prints it."""
    from ..files import json_text

    return json_text(content, sort_keys=False).rstrip()


def shown_progress(quiet: bool) -> Reporter:
    """Shows from now on how far the command is; `close` it before anything is printed."""
    from ..progress import Reporter

    return click.get_current_context().with_resource(Reporter(quiet))


def workers_at(address: str | None) -> Workers:
    """Who does the command's work: until it ends a cluster's, or this process."""
    from ..cluster import joined

    return click.get_current_context().with_resource(joined(address))
