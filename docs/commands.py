"""Every command on the pages, run in order as a reader would type it, and what it prints compared with what is shown.

    python docs/commands.py                     all pages; what differs is printed
    python docs/commands.py docs/tutorial.md    one
    python docs/commands.py --write             put what is printed now in the place of what is shown

A page has a scratch folder of its own, and its blocks run there from top to bottom:

    ```bash      commands, each must end with 0
    ```console   the same, each line after `$ `, and below it what it prints
    ```python    a program; a ```text block right after it is what it prints

and before a block, where no reader sees it:

    <!-- file: NAME -->         the block is a file that the reader saves
    <!-- not run: REASON -->    it needs the network, or hours
    <!-- measured -->           its numbers differ from machine to machine, so only the words are compared
    <!-- run: COMMAND -->       no block follows: a command of the test's own, such as making a config smaller

Programs are real processes with streams and exit codes of their own. Only their imports are shared: one process has
torch and the rest loaded, and each command is a fork of it; else a page would take minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import runpy
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from unittest.mock import patch

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"^<!-- (?P<word>file|not run|measured|run)(?:: (?P<value>.*?))? -->$", re.MULTILINE)
NUMBER = re.compile(r"[-−]?\d(?:[\d.,:·⁻⁰¹²³⁴⁵⁶⁷⁸⁹\N{NARROW NO-BREAK SPACE}]*[\d⁰¹²³⁴⁵⁶⁷⁸⁹])?(?:e[-+]\d+)?|∞|\binf\b")
SECONDS = 900.0  # that one command may take: many times what it takes on an idle machine


def pages() -> list[Path]:
    """The README and every page of the site."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, or a command in a comment.

    start, end: where its text is in the page. marks: the comments right before it.
    """

    language: str
    text: str
    start: int
    end: int
    marks: dict[str, str]

    @property
    def not_run(self) -> str | None:
        """Why it is not, if it is not."""
        return self.marks.get("not run")


@dataclass(frozen=True)
class Command:
    """A shell command or a program, and what the page says that it prints; None where it says nothing.

    start, end: where what is shown lies in the page. exact: whether numbers are compared as well.
    """

    kind: str
    text: str
    shown: str | None
    start: int
    end: int
    exact: bool


def blocks(page: str) -> Iterator[Block]:
    """All fenced blocks, and the hidden commands between them, in the order of the page."""
    fences = list(FENCE.finditer(page))
    inside = [(fence.start(), fence.end()) for fence in fences]
    comments = [c for c in COMMENT.finditer(page) if not any(a <= c.start() < b for a, b in inside)]
    marks: dict[str, str] = {}
    last = 0
    for match in sorted([*fences, *comments], key=lambda m: m.start()):
        if page[last : match.start()].strip():
            marks = {}  # a comment belongs to the block right after it
        last = match.end()
        if match.re is COMMENT and match["word"] != "run":
            marks[match["word"]] = match["value"] or ""
            continue
        if match.re is COMMENT:
            yield Block("bash", match["value"], match.start("value"), match.end("value"), {})
        else:
            indent = match["indent"]
            text = "".join(line.removeprefix(indent) for line in match["text"].splitlines(keepends=True))
            yield Block(match["language"], text, match.start("text"), match.end("text"), marks)
        marks = {}


def commands(page: str) -> Iterator[Command | Block]:
    """What is run, in order; a `Block` is a file to be saved."""
    every = list(blocks(page))
    for block, after in zip(every, [*every[1:], None]):
        exact = "measured" not in block.marks
        if block.not_run is not None:
            continue
        if "file" in block.marks:
            yield block
        elif block.language == "bash":
            yield Command("bash", block.text, None, 0, 0, exact)
        elif block.language == "console":
            place = block.start
            for part in re.split(r"^(?=\$ )", block.text, flags=re.MULTILINE)[1:]:
                typed = re.match(r"\$ .*?(?<!\\)\n", part, re.DOTALL)
                assert typed is not None, part
                yield Command(
                    "bash",
                    typed[0].removeprefix("$ "),
                    part[typed.end() :],
                    place + typed.end(),
                    place + len(part),
                    exact,
                )
                place += len(part)
        elif block.language == "python":
            between = "" if after is None else COMMENT.sub("", page[block.end : after.start])
            if after is not None and between.split() == ["```", "```text"]:
                exact &= "measured" not in after.marks
                yield Command("python", block.text, after.text, after.start, after.end, exact)
            else:
                yield Command("python", block.text, None, 0, 0, exact)


def same(printed: str, shown: str, exact: bool) -> bool:
    """Whether a command printed what the page shows; a line of … stands for any lines.

    >>> same("ε 5.06 of 7.3", "ε 5.1 of 12", exact=False), same("ε 5.06", "ε 5.1", exact=True)
    (True, False)
    >>> same("first\\nsecond\\nlast", "first\\n…\\nlast", exact=True)
    True
    """

    def plain(text: str) -> str:
        lines = [" ".join(line.split()) for line in text.strip().splitlines()]
        return "\n".join(lines if exact else [NUMBER.sub("#", line) for line in lines])

    parts = [re.escape(part) for part in re.split(r"^…$", plain(shown), flags=re.MULTILINE)]
    return re.fullmatch("(?:.*)".join(parts), plain(printed), re.DOTALL) is not None


# --- programs that share their imports ---

CLIENT = """#!{python} -SE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    request = json.dumps([{program!r}, sys.argv[1:], os.getcwd()]).encode()
    socket.send_fds(server, [request], [0, 1, 2])
    code = server.recv(4)
sys.exit(int(code or b"70"))
"""


def serve(address: str) -> None:
    """Forks a process for every `audit` or `python` that is called, until it is terminated."""
    import torch
    from dpfl_audit import cli
    from dpfl_audit.audit import api, demo, progress  # noqa: F401  (loaded once, for all that are forked)
    from dpfl_audit.defenses.data import photos

    torch.set_num_threads(1)
    patch.object(secrets, "token_hex", _no_lot).start()  # the noise's key: fresh ones would be lucky now and then
    progress.LINE = 3600.0  # what a busy machine says every ten seconds is on no page
    for classes in (10, 20):  # to cut the bundled photographs up takes seconds
        photos.capacity(classes)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)
        while True:
            caller, _ = listener.accept()
            with caller:
                request, streams, _, _ = socket.recv_fds(caller, 2**20, 3)
                program, arguments, folder = json.loads(request)
                child = os.fork()
                if child == 0:
                    for number, stream in enumerate(streams):
                        os.dup2(stream, number)
                    os.chdir(folder)
                    os._exit(_called(cli.main, program, arguments))
                for stream in streams:
                    os.close(stream)
                code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                with contextlib.suppress(BrokenPipeError):  # who was killed for the time it took waits no more
                    caller.sendall(str(code).encode())


def _no_lot(count: int | None = None) -> str:
    return "d0c5" * ((count or 32) // 2)


def _called(audit: object, program: str, arguments: list[str]) -> int:
    """The exit code of `audit ARGUMENTS` or `python FILE`."""
    assert callable(audit)
    try:
        if program == "audit":
            audit(arguments)
        else:
            sys.argv, sys.path[0] = arguments, str(Path(arguments[0]).resolve().parent)
            runpy.run_path(arguments[0], run_name="__main__")
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


@contextlib.contextmanager
def programs() -> Iterator[dict[str, str]]:
    """An environment whose `audit` and `python` are this checkout's, and start at once."""
    with tempfile.TemporaryDirectory(prefix="docs-") as folder:
        address = f"{folder}/socket"
        for program in ("audit", "python"):
            path = Path(folder, program)
            path.write_text(CLIENT.format(python=sys.executable, address=address, program=program))
            path.chmod(0o755)
        environment = {
            **os.environ,
            "PATH": os.pathsep.join([folder, os.environ["PATH"]]),
            "OMP_NUM_THREADS": "1",
            "TORCH_HOME": f"{folder}/torch",  # as on a fresh machine: no weights for LPIPS
            "COLUMNS": "110",
        }
        server = subprocess.Popen(
            [sys.executable, __file__, "--serve", address],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that it ends with whatever it still runs
        )
        assert server.stdout is not None
        try:
            if server.stdout.readline() != "ready\n":
                raise RuntimeError("the programs did not start")
            yield environment
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
            server.stdout.close()


# --- pages ---


@dataclass(frozen=True)
class Difference:
    """A command that failed, or printed something else than the page shows."""

    command: Command
    printed: str
    code: int

    def __str__(self) -> str:
        shown = (self.command.shown or "").splitlines()
        difference = "\n".join(unified_diff(shown, self.printed.splitlines(), "shown", "printed", lineterm=""))
        return f"$ {self.command.text}exit code {self.code}\n{difference}"


def run_page(page: Path, folder: Path, environment: dict[str, str], exact: bool = False) -> list[Difference]:
    """Runs a page in an empty folder. Stops at the first command that fails, as a reader would.

    exact: measured numbers are compared as well.
    """
    different = []
    for number, command in enumerate(commands(page.read_text(encoding="utf-8"))):
        if isinstance(command, Block):
            saved = folder / command.marks["file"]
            saved.parent.mkdir(parents=True, exist_ok=True)
            saved.write_text(command.text, encoding="utf-8")
            continue
        if command.kind == "python":
            program = folder / f".block{number}.py"
            program.write_text(command.text, encoding="utf-8")
            call: Sequence[str] = ["python", str(program)]
        else:
            call = ["bash", "-euo", "pipefail", "-c", command.text]
        ended = subprocess.run(
            call,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )
        shown = command.shown
        if ended.returncode or (shown is not None and not same(ended.stdout, shown, exact or command.exact)):
            different.append(Difference(command, ended.stdout, ended.returncode))
        if ended.returncode:
            break
    return different


def written(page: str, different: Sequence[Difference]) -> str:
    """The page with what its commands print now."""
    for one in sorted(different, key=lambda d: d.command.start, reverse=True):
        if one.command.shown is not None and not one.code:
            page = page[: one.command.start] + one.printed.rstrip() + "\n" + page[one.command.end :]
    return page


def main() -> int:
    parser = argparse.ArgumentParser(description="Run every command on the pages.")
    parser.add_argument("pages", type=Path, nargs="*", help="default: the README and all of docs/")
    parser.add_argument("--write", action="store_true", help="put what is printed in the place of what is shown")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        serve(given.serve)
        return 0
    failed = False
    with programs() as environment:
        for page in given.pages or pages():
            with tempfile.TemporaryDirectory(prefix="docs-page-") as folder:
                different = run_page(page, Path(folder), environment, exact=given.write)
            for one in different:
                print(f"--- {page}\n{one}")
            if given.write:
                page.write_text(written(page.read_text(encoding="utf-8"), different), encoding="utf-8")
            failed |= any(one.code for one in different) or bool(different and not given.write)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
