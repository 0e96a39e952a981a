"""Many machines: units of work on a Ray cluster, which alone decides who does what, and does again what a dead worker
left. Nothing of Ray is imported until `--ray` is given.
"""

from __future__ import annotations

import logging
import os
import pickle
import platform
import socket
import subprocess
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

import torch

from .. import __version__
from ..defenses.losses import ALLOWED
from ..defenses.process import ready
from ..defenses.progress import Progress
from ..defenses.workers import HERE, Brought, Task, Workers
from .errors import BadInput

ANSWER = 10.0  # seconds for an address to answer
JOIN = 60.0  # and for Ray behind it to let us in
AGAIN = 5  # times that a unit is done again whose worker died
AHEAD = 2  # units under way, or done and not asked for yet, by place for one: so much is held in memory
LOOK = 1.0  # seconds after which we look whether somebody has joined


@dataclass(frozen=True)
class Place:
    """What a worker must have in common with the command for its bytes to be the same, and to find what it reads.

    threads: of torch, as sums over other numbers of threads round differently; a unit takes as many CPUs.
    folder: in which the command works. paths: where it finds modules. versions: of what computes.
    """

    threads: int
    folder: str
    paths: tuple[str, ...]
    versions: tuple[str, ...]

    @classmethod
    def here(cls) -> Place:
        folder = os.getcwd()
        paths = tuple(path or folder for path in sys.path)
        return cls(torch.get_num_threads(), folder, (*paths, folder), _versions())

    def take(self) -> None:
        """Become such a worker. Raises BadInput where this machine cannot."""
        if _versions() != self.versions:
            there, here = ", ".join(_versions()), ", ".join(self.versions)
            raise BadInput(
                f"--ray: {_host()} has {there}, and this command {here}; install the same everywhere, and set"
                " CUDA_VISIBLE_DEVICES= where some machines have CUDA and some have not"
            )
        try:
            os.chdir(self.folder)
        except OSError:
            raise BadInput(f"--ray: {_host()} does not see {self.folder}; all machines must share it (NFS)") from None
        ready()
        torch.set_num_threads(self.threads)


def _host() -> str:
    return f"the worker on {socket.gethostname()}"


def _versions() -> tuple[str, ...]:
    device = "no CUDA"
    if torch.cuda.is_available():
        device = "CUDA"
    return f"dpfl-audit {__version__}", f"torch {torch.__version__}", f"Python {platform.python_version()}", device


@dataclass(frozen=True)
class RayWorkers:
    """The cluster that this process has joined. A unit may itself have units done: while it waits for them, its CPUs
    are theirs.
    """

    place: Place

    def map(
        self,
        function: Callable[[Task, Progress | None], Brought],
        units: Iterable[Task],
        watch: Callable[[int], Progress | None] | None = None,
    ) -> Iterator[Brought]:
        """As `Workers.map`; nobody hears how far a unit is.

        Raises:
            BadInput: a worker cannot do such units, or units end their workers time after time.
        """
        import ray

        del watch
        todo = iter(units)
        first = list(islice(todo, 1))
        if not first:
            return
        shared = ray.put(ray.cloudpickle.dumps((function, ALLOWED)))
        task = ray.remote(num_cpus=self.place.threads, max_retries=AGAIN)(_task(self.place))
        under_way: deque[Any] = deque()

        def begin(some: Iterable[Task]) -> None:
            under_way.extend(task.remote(shared, ray.cloudpickle.dumps(unit)) for unit in some)

        begin(first)
        try:
            while under_way:
                begin(islice(todo, max(0, AHEAD * self._at_once() - len(under_way))))
                done, _ = ray.wait([under_way[0]], timeout=LOOK)
                if done:
                    yield _outcome(under_way.popleft())
        finally:
            for left in under_way if ray.is_initialized() else ():  # nobody asks for them any more
                ray.cancel(left, force=True)

    def _at_once(self) -> int:
        """How many units the cluster can do at once, now."""
        import ray

        return max(1, int(ray.cluster_resources().get("CPU", 0)) // self.place.threads)


def _task(place: Place) -> Callable[[bytes, bytes], bytes]:
    """What a worker is given to call. It travels by value, as a worker may not find this package yet."""
    paths = place.paths

    def task(function: bytes, unit: bytes) -> bytes:
        import sys

        sys.path += [path for path in paths if path not in sys.path]
        from dpfl_audit.audit.cluster import carried_out

        return carried_out(function, unit, place_of)

    place_of = pickle.dumps(place)
    return task


def carried_out(function: bytes, unit: bytes, place: bytes) -> bytes:
    """On a worker: a unit, done. Raises BadInput where this worker cannot, and what the function raises."""
    import ray

    pickle.loads(place).take()
    return ray.cloudpickle.dumps(_function(function)(pickle.loads(unit), None))


@lru_cache(maxsize=1)
def _function(pickled: bytes) -> Callable[[Any, Progress | None], Any]:
    """Read once for all its units that come to this worker: it may hold a data set. Losses of their owner's run there
    as they do here.
    """
    function, allowed = pickle.loads(pickled)
    ALLOWED.update(allowed)
    return function


def _outcome(reference: Any) -> Any:
    from ray import get
    from ray.exceptions import RayError, RayTaskError

    try:
        return pickle.loads(get(reference))
    except RayTaskError as error:  # the function's own
        raise (error.cause if isinstance(error.cause, Exception) else error) from error
    except RayError as error:
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise BadInput(
            f"--ray: a unit of work was lost {AGAIN + 1} times with its worker ({first_line}); a machine"
            " may have too little memory"
        ) from error


@contextmanager
def joined(address: str | None) -> Iterator[Workers]:
    """The workers of a cluster, as long as the context lasts; this process where the address is None.

    Args:
        address: HOST:PORT of a cluster that this machine is a node of; or auto, for the one that RAY_ADDRESS names,
            else one of this machine's cores alone, which ends with the context.

    Raises:
        BadInput: Ray is not installed, or nobody answers within `ANSWER` + `JOIN` seconds; or no machine has as many
            CPUs as a unit has threads.
    """
    if address is not None and not address.strip():
        raise BadInput("--ray '': expected auto or HOST:PORT")
    if address is None:
        yield HERE
        return
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # nothing goes anywhere but to the cluster
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else a warning; units compute on CPUs
    try:
        import ray
    except ImportError:
        raise BadInput("--ray needs Ray: pip install 'dpfl-audit[ray]'") from None
    place = Place.here()
    named = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    if named in ("", "local"):
        named = "local"
    else:
        _check_answers(named)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dashboard = None
        if named == "local":
            dashboard = False
        ray.init(named, log_to_driver=False, logging_level=logging.CRITICAL, include_dashboard=dashboard)
    try:
        most = max((node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]), default=0)
        if most < place.threads:
            raise BadInput(
                f"--ray: a unit computes with {place.threads} threads, as this command does, and no machine of the"
                f" cluster has more than {most:g} CPUs; set OMP_NUM_THREADS={max(1, int(most))}"
            )
        yield RayWorkers(place)
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """That a cluster is there and takes us in. Ray itself tries for minutes, and says so on stderr. Raises BadInput."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise BadInput(f"--ray {address}: expected auto, or HOST:PORT of a cluster (what `ray start` prints)")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER).close()
    except (OSError, OverflowError) as error:
        raise BadInput(
            f"--ray {address}: nobody answers there ({error}); `ray start --head` begins a cluster"
        ) from None
    trial = "import sys, ray; ray.init(sys.argv[1], log_to_driver=False, logging_level='ERROR')"
    try:
        call = [sys.executable, "-W", "ignore", "-c", trial, address]
        tried = subprocess.run(call, capture_output=True, text=True, timeout=JOIN)
    except subprocess.TimeoutExpired:
        raise BadInput(
            f"--ray {address}: what answers there is no Ray cluster that this machine is a node of; the port is that of"
            " `ray start --head`, 6379 unless said otherwise"
        ) from None
    if tried.returncode != 0:
        why = (tried.stderr.strip().splitlines() or ["Ray does not let us in"])[-1].rstrip(".")
        raise BadInput(
            f"--ray {address}: {why}; expected the port of `ray start --head` on a machine of this machine's cluster"
        )
