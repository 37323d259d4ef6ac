"""Where the units of a study are computed: processes of this machine, or jobs of an engine that is there already.

An engine takes calls and says which of them are done. SLURM is reached through submitit, and any Dask cluster through
dask.distributed; neither is imported before it is asked for. Jobs elsewhere tell how far they are by files in the run
folder, which every machine of the cluster must see.
"""

import json
import multiprocessing
import queue
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from biasbound._io import remove, workers
from biasbound.registry import home
from biasbound.study.config import ExecuteConfig
from biasbound.study.follow import Event, Tell

TRIES = 3  # how often a call is given to an engine that loses its jobs
QUEUE = 10**6  # jobs at a time of an engine that has its own queue
SOON = 0.2  # seconds between looks at what is done

Call = Callable[[Tell], Any]  # what a job does, and to whom it tells how far it is


@runtime_checkable
class Handle(Protocol):
    """A call that was submitted."""

    def done(self) -> bool: ...

    def result(self) -> Any:
        """What the call returned, or raised; asked only when it is done."""


@runtime_checkable
class Engine(Protocol):
    """Takes calls, and computes up to `room` of them at a time."""

    room: int

    def submit(self, call: Call, name: str, stage: str) -> Handle: ...

    def finished(self, handles: Collection[Any]) -> list[Any]:
        """Those that are done, after a short wait if there are none."""

    def news(self) -> list[Event]:
        """What the jobs have told since the last time."""

    def lost(self, error: Exception) -> bool:
        """Whether a job ended without its call: the machine went away, or the time was up."""


@dataclass(frozen=True)
class Terms:
    """What an engine is opened with."""

    folder: Path  # of the run
    jobs: int
    wishes: ExecuteConfig
    begin: Callable[[], None]  # what a fresh process does before its first call


_to_parent: Any = None  # of a worker process


def _begun(events: Any, begin: Callable[[], None]) -> None:
    global _to_parent
    _to_parent = events
    begin()


def _told(call: Call) -> Any:
    return call(_to_parent.put)


class Processes:
    """Worker processes of this machine, which end with this one."""

    def __init__(self, pool: Any, events: Any, room: int) -> None:
        self.pool, self.events, self.room = pool, events, room

    def submit(self, call: Call, name: str, stage: str) -> Handle:
        submitted: Handle = self.pool.submit(_told, call)
        return submitted

    def finished(self, handles: Collection[Any]) -> list[Any]:
        return list(wait(handles, timeout=SOON, return_when=FIRST_COMPLETED).done)

    def news(self) -> list[Event]:
        told: list[Event] = []
        while True:
            try:
                told.append(self.events.get_nowait())
            except queue.Empty:
                return told

    def lost(self, error: Exception) -> bool:
        return False


@contextmanager
def local(terms: Terms) -> Iterator[Engine]:
    """As many processes as `jobs`."""
    events = multiprocessing.get_context("spawn").Queue()
    with workers(terms.jobs, _begun, events, terms.begin) as pool:
        yield Processes(pool, events, terms.jobs)


@dataclass(frozen=True)
class Note:
    """Tells by a file: one line per event, each written whole, so that a reader elsewhere can follow."""

    path: Path

    def __call__(self, event: Event) -> None:
        with self.path.open("a") as stream:
            stream.write(json.dumps(asdict(event)) + "\n")


def _noted(call: Call, begin: Callable[[], None], path: Path) -> Any:
    begin()
    return call(Note(path))


class Jobs:
    """Calls as jobs of a cluster: `send(call, stage)` gives a handle; `gone` are the errors of a job that died."""

    def __init__(
        self, terms: Terms, send: Callable[[Callable[[], Any], str], Handle], gone: tuple[type, ...], room: int = QUEUE
    ) -> None:
        self.room = room
        self.notes = terms.folder / ".jobs" / "told"
        self.begin, self.send, self.gone = terms.begin, send, gone
        self.read: dict[Path, int] = {}
        remove(self.notes)
        self.notes.mkdir(parents=True)

    def submit(self, call: Call, name: str, stage: str) -> Handle:
        path = self.notes / f"{name.replace('/', '~')}.jsonl"
        return self.send(partial(_noted, call, self.begin, path.resolve()), stage)

    def finished(self, handles: Collection[Any]) -> list[Any]:
        done = [handle for handle in handles if handle.done()]
        if not done:
            time.sleep(SOON)
        return done

    def news(self) -> list[Event]:
        """Lines that are whole; the rest of a line that is being written comes next time."""
        told: list[Event] = []
        for path in sorted(self.notes.glob("*.jsonl")):
            with path.open("rb") as stream:
                stream.seek(self.read.get(path, 0))
                whole, end, _ = stream.read().rpartition(b"\n")
            self.read[path] = self.read.get(path, 0) + len(whole) + len(end)
            told += [Event(**json.loads(line)) for line in whole.splitlines()]
        return told

    def lost(self, error: Exception) -> bool:
        return isinstance(error, self.gone)


def _needed(package: str) -> Any:
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError:
        raise ValueError(
            f"this executor needs {package}: install it with pip install 'biasbound[cluster]', or use --executor local"
        ) from None


@dataclass(frozen=True)
class _Resumable:
    """A call that SLURM may stop and start again: when its time is up it is queued anew, and goes on."""

    call: Callable[[], Any]

    def __call__(self) -> Any:
        return self.call()

    def checkpoint(self, *arguments: Any) -> Any:
        return _needed("submitit").helpers.DelayedSubmission(self)


@contextmanager
def slurm(terms: Terms) -> Iterator[Engine]:
    """Jobs of SLURM through submitit, or processes of this machine, `jobs` at a time, where there is no SLURM."""
    submitit, wishes = _needed("submitit"), terms.wishes
    logs = terms.folder / ".jobs" / "submitit"
    cluster = None if wishes.cluster == "auto" else wishes.cluster
    sent = []

    def send(call: Callable[[], Any], stage: str) -> Handle:
        executor = submitit.AutoExecutor(folder=logs, cluster=cluster)
        try:
            executor.update_parameters(name=f"biasbound-{stage}", **{"timeout_min": 24 * 60, **wishes.of(stage)})
        except (ValueError, TypeError, NameError) as error:
            raise ValueError(f"execute.resources.{stage}: {' '.join(str(error).split())}") from error
        job = executor.submit(_Resumable(call))
        sent.append(job)
        made: Handle = job
        return made

    queued = submitit.AutoExecutor(folder=logs, cluster=cluster).cluster == "slurm"
    try:
        yield Jobs(terms, send, (submitit.core.utils.UncompletedJobError,), QUEUE if queued else terms.jobs)
    finally:
        for job in sent:
            if not job.done():
                job.cancel()


@contextmanager
def dask(terms: Terms) -> Iterator[Engine]:
    """Tasks of the Dask cluster at `execute.address`, or of one on this machine with `jobs` processes."""
    distributed, address = _needed("distributed"), terms.wishes.address
    if not address and terms.wishes.resources:
        raise ValueError(
            "execute.resources: workers that are started here have none to give; name a Dask cluster with "
            "execute.address, or leave them out"
        )
    here: dict[str, Any] = {"n_workers": terms.jobs, "threads_per_worker": 1, "dashboard_address": None}
    try:
        client = distributed.Client(address, timeout="20s") if address else distributed.Client(**here)
    except OSError as error:
        raise ValueError(f"execute.address: no Dask scheduler answers at {address} ({error})") from error
    sent: Any = (
        weakref.WeakSet()
    )  # held by nobody, the result of a task dies with its worker instead of being made again

    def send(call: Callable[[], Any], stage: str) -> Handle:
        future: Handle = client.submit(call, pure=False, resources=dict(terms.wishes.of(stage)) or None)
        sent.add(future)
        return future

    with client:
        try:
            yield Jobs(terms, send, (distributed.KilledWorker, distributed.CancelledError))
        finally:
            client.cancel([future for future in sent if not future.done()])


ENGINES: dict[str, Callable[[Terms], AbstractContextManager[Engine]]] = home(
    "executors", {"local": local, "submitit": slurm, "dask": dask}
)


def spread(engine: Engine, calls: Mapping[str, Callable[[], int]], stage: str) -> Iterator[int]:
    """The results of calls that tell nothing, as they come; one that was lost is given again."""
    todo, tries, running = dict(calls), dict.fromkeys(calls, 0), dict[Any, str]()
    while todo or running:
        while todo and len(running) < engine.room:
            name, call = todo.popitem()
            tries[name] += 1
            running[engine.submit(partial(_silently, call), name, stage)] = name
        for handle in engine.finished(list(running)):
            name = running.pop(handle)
            try:
                yield handle.result()
            except Exception as error:
                if not engine.lost(error) or tries[name] >= TRIES:
                    raise
                todo[name] = calls[name]


def _silently(call: Callable[[], int], tell: Tell) -> int:
    return call()
