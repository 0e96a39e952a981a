"""The site: `make docs` builds it into build/docs. Nothing is fetched, and a warning is an error."""

from __future__ import annotations

import re
from typing import Any

import click
import dpfl_audit
from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from dpfl_audit import cli
from dpfl_audit.attacks import base  # noqa: F401
from dpfl_audit.attacks.inversion.presets.published import PRESETS
from dpfl_audit.audit import api  # noqa: F401
from sphinx.application import Sphinx

# `base` and `api` are imported for what they import: autodoc sets TYPE_CHECKING for whatever is not imported yet, and
# pydantic then reads annotations that nobody has at run time.

project = "dpfl-audit"
version = release = dpfl_audit.__version__
copyright = "Apache-2.0"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["gallery/*.py"]
html_theme = "furo"
html_title = f"dpfl-audit {version}"
html_copy_source = False
html_show_sphinx = False

myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]

smartquotes = False  # --option is no dash
default_role = "code"  # docstrings write `code` between single backticks
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False


def as_paragraphs(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Docstrings are read in an editor. There a line that goes on is indented, and |x| is a norm; both mean something
    else in reStructuredText.
    """
    ours, inside = [], False  # inside: of a section such as Args, or of a doctest, where indentation counts
    for line in lines:
        if re.fullmatch(r"(Args|Raises|Returns|Yields):|>>> .*|:.*", line.strip()):
            inside = True
        elif line and not line.startswith(" "):
            inside = False
        plain = line if inside else line.strip()
        ours.append(plain.replace("|", "\\|").replace("*", "\\*") if ">>>" not in plain and not inside else plain)
    lines[:] = ours


class CommandHelp(Directive):
    """What every command of `audit` prints with --help."""

    def run(self) -> list[nodes.Node]:
        sections: list[nodes.Node] = []
        for name, command in sorted(cli.audit.commands.items()):
            section = nodes.section(ids=[f"audit-{name}"], names=[f"audit-{name}"])
            section += nodes.title(text=f"audit {name}")
            context = click.Context(command, info_name=f"audit {name}", max_content_width=90, terminal_width=90)
            section += nodes.literal_block(text=command.get_help(context), language="text")
            sections.append(section)
        return sections


class InversionPresets(Directive):
    """The table of `presets.PRESETS`: what a preset is, and what is not as its source has it."""

    def run(self) -> list[nodes.Node]:
        rows = ["| preset | what it is | what is not as there |", "|---|---|---|"]
        rows += [f"| `{name}` | {preset.source} | {preset.differs} |" for name, preset in PRESETS.items()]
        table = nodes.container()
        self.state.nested_parse(StringList(rows), self.content_offset, table)
        return table.children


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", as_paragraphs, priority=400)  # before napoleon reads the sections
    app.add_directive("command-help", CommandHelp)
    app.add_directive("inversion-presets", InversionPresets)
    return {"parallel_read_safe": True}
