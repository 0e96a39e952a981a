"""Results that lie in a folder, for Python and notebooks: tables, the page, a copy to keep."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any, Self

from markupsafe import escape
from pydantic import PrivateAttr

from ..errors import BadInput
from ..lock import NAME as LOCK
from ..lock import empty, writing
from ..results.format import FILE, Results
from ..say.badge import badge
from ..say.words import times
from .page import page
from .render import render

PAGE = "report.html"
HEIGHT = 800  # pixels of the page in a notebook


class SavedResults(Results):
    """`Results` that know the folder they were read from, so they can show the pictures that lie beside results.json.

    temporary: the folder goes when this process ends.
    """

    _folder: Path | None = PrivateAttr(default=None)
    _temporary: bool = PrivateAttr(default=False)

    def __repr__(self) -> str:
        return f"<Results of {self.setup.title!r}: {badge(self.verdict)}; {times(len(self.attacks), 'attack')}>"

    __str__ = __repr__  # pydantic's holds every number

    @classmethod
    def read(cls, folder: Path | str, *, temporary: bool = False) -> Self:
        """As `Results.read`. Raises BadInput."""
        results = super().read(folder)
        assert isinstance(results, cls)
        results._folder, results._temporary = Path(folder), temporary
        return results

    @property
    def folder(self) -> Path:
        """RESULTS. Raises BadInput where these results are of no folder."""
        if self._folder is None:
            raise BadInput("these results were not read from a folder; Results.read(folder) gives some with a page")
        return self._folder

    def show(self) -> None:
        """In a notebook the page; elsewhere it is written to RESULTS/report.html and its path printed."""
        if _in_a_notebook():
            sys.modules["IPython"].display.display(self)
            return
        path = render([self.folder], self.folder / PAGE)
        why = ""
        if self._temporary:
            why = " (it goes when this process ends; .save(folder) keeps it)"
        print(f"{Path(path).resolve()}{why}")

    def save(self, folder: Path | str) -> Path:
        """Copy everything of the results to `folder`, with the page, whose path is returned.

        results.json comes last: a folder that has it is whole.

        Raises:
            BadInput: `folder` holds anything but a copy of these results, or lies inside them.
        """
        source, target = self.folder.resolve(), Path(folder).expanduser()
        if target.resolve() != source:
            _copy(source, target)
        return Path(render([target], target / PAGE))

    def _repr_html_(self) -> str:
        """The page in a frame of its own: neither its styles nor a stranger's text in it reach the notebook."""
        name = escape(self.setup.title)
        return (
            f'<iframe title="dpfl-audit report: {name}" srcdoc="{escape(page([self.folder]))}" width="100%"'
            f' height="{HEIGHT}" sandbox="allow-scripts" style="border: 0"></iframe>'
        )


def _copy(source: Path, target: Path) -> None:
    if target.resolve().is_relative_to(source):
        raise BadInput(f"{target} lies inside the results that are to be saved; choose a folder outside {source}")
    with writing(target):
        if not empty(target) and not _same(source / FILE, target / FILE):
            raise BadInput(f"{target} is not empty and holds no copy of these results; choose another folder")
        skipped = shutil.ignore_patterns(LOCK, ".work", FILE, f".*{LOCK}", "*.part")
        shutil.copytree(source, target, ignore=skipped, dirs_exist_ok=True)
        shutil.copyfile(source / FILE, target / f"{FILE}.part")
        (target / f"{FILE}.part").replace(target / FILE)


def _same(one: Path, other: Path) -> bool:
    return other.is_file() and one.read_bytes() == other.read_bytes()


def _in_a_notebook() -> bool:
    """Whether IPython runs with a front end that shows HTML. It is never imported: where it runs, it is there."""
    ipython: Any = sys.modules.get("IPython")
    shell = None
    if ipython is not None:
        shell = ipython.get_ipython()
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"
