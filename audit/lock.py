"""One command at a time in a folder.

Whoever writes holds a file of its process and host under the kernel's lock, which ends with the process however it
ends. So what a killed command left is taken over, and no number of a process that has come back misleads.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from .errors import BadInput

NAME = ".lock"  # in the folder that is written
TRIES = 100  # where others make and remove folders at the same time
DEVICES = (Path("/dev"), Path("/dev/fd"))
NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)  # what file systems without locks answer


@dataclass(frozen=True)
class Holder:
    """Who writes."""

    pid: int
    host: str

    def __str__(self) -> str:
        return f"another audit (pid {self.pid} on {self.host})"

    @property
    def alive(self) -> bool:
        """Whether a process of this number runs on this host."""
        if self.host != socket.gethostname():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # it runs for somebody else
            return True
        return True


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Around everything that writes `folder`, which is made where it is missing, and goes again if it stays empty.

    Raises:
        BadInput: somebody else writes it, or it is no folder.
    """
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is a file; what is written here is a folder")
    with _held(folder / NAME, folder):
        yield


@contextmanager
def writing_file(path: Path) -> Iterator[None]:
    """Around everything that writes one file, as `writing` for a folder. Raises BadInput where somebody else does."""
    if not path.name:
        raise BadInput(f"{path} is a folder; name the file to write")
    special = path.exists() and not path.is_file() and not path.is_dir()
    if special or path.absolute().parent in DEVICES:  # /dev/stdout, also where it leads to a file, would be replaced
        raise BadInput(f"{path} is a device or a pipe; name a file to write")
    with _held(path.with_name(f".{path.name}{NAME}"), path):
        yield


def holder_of(folder: Path) -> Holder | None:
    """Who writes `folder` on this host; None where nobody does."""
    try:
        holder = _read((folder / NAME).read_bytes())
    except OSError:
        return None
    if holder is not None and holder.alive:
        return holder
    return None


def empty(folder: Path) -> bool:
    """Whether there is nothing in a folder but a lock, and what was cut off in writing."""
    return all(path.name == NAME or path.suffix == ".part" for path in folder.iterdir())


@contextmanager
def _held(lock: Path, what: Path) -> Iterator[None]:
    if "\0" in str(what):
        raise BadInput(f"{str(what)!r}: a path holds no NUL byte; name another one")
    missing = [folder for folder in lock.parents if not folder.exists()]
    file = _taken_over(lock, what)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)  # while it is held: afterwards it may be somebody else's
        os.close(file)
        with suppress(OSError):  # something was written, as a rule
            for folder in missing:
                folder.rmdir()


def _taken_over(lock: Path, what: Path) -> int:
    """The lock file, open and ours. Raises BadInput."""
    own = Holder(os.getpid(), socket.gethostname())
    gone = 0
    while True:
        _make(lock.parent)
        try:
            file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except FileNotFoundError:  # whoever had made the folder removed it just now
            gone += 1
            if gone < TRIES:
                continue
            raise  # a file system that makes no files, such as /proc
        try:
            holder = _read(os.pread(file, 4096, 0))
            if not _free(file, holder):
                raise BadInput(f"{what}: {holder or 'another audit'} is writing here; wait until it has ended")
            if holder is not None and holder.host != own.host:
                raise BadInput(f"{what}: {holder} is writing here; if it has ended, remove {lock}")
            if _is_at(file, lock):
                os.ftruncate(file, 0)
                os.pwrite(file, json.dumps(asdict(own)).encode(), 0)
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _make(folder: Path) -> None:
    """Makes `folder`. Raises OSError where something that stays is in its way.

    A folder that somebody else makes and removes at the same time is in the way (or its parent is missing) for a
    moment only: `Path.mkdir` takes even `exist_ok` for a file then.
    """
    for left in reversed(range(TRIES)):
        try:
            return folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, FileNotFoundError):
            if not left:
                raise


def _free(file: int, holder: Holder | None) -> bool:
    """Whether nobody has it, so that now we do."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        return holder is None or not holder.alive  # all that is left to go by
    return True


def _is_at(file: int, lock: Path) -> bool:
    """Whether the open file is still the one at `lock`: its holder may have removed it in between."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(lock))
    except FileNotFoundError:
        return False


def _read(content: bytes) -> Holder | None:
    """Who wrote a lock file; None where nobody has yet, or it was cut off."""
    try:
        return Holder(**json.loads(content))
    except (ValueError, TypeError):
        return None
