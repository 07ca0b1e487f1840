"""What this host should run and what it has started, on its own disk, so that a restart finds its
workers again.

Always: a start is written before it happens, and an end after it has happened. A file that cannot
be read is set aside and counts as empty. The session's password is in a file that only its owner
reads. The functions that take a directory block: call them in threads.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from torrentdist.bundle.files.durability import write_durably
from torrentdist.cluster.session.znode_operations import SessionId
from torrentdist.log import get_logger
from torrentdist.model.ids import BundleId, JobId
from torrentdist.model.jobs.job import JobSpec
from torrentdist.supervisor.exclusivity.barriers import Seat
from torrentdist.supervisor.process.guardian_processes import boot_id
from torrentdist.supervisor.worker.worker_types import Key

log = get_logger()

SCHEMA = 1
STATE, SEAT = "workers.json", "session.json"


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a master told about a job: all that its workers need."""

    incarnation: str
    """Tells apart two jobs that had the same name one after the other."""
    bundle: BundleId
    dependencies: tuple[BundleId, ...] = ()
    workers: int
    spec: JobSpec

    @property
    def needs(self) -> frozenset[BundleId]:
        return frozenset((self.bundle, *self.dependencies))


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a worker that was started and is not known to be gone."""

    id: str
    incarnation: str
    session: int
    fencing: int
    grace_secs: float
    lenient: bool
    """Whether it runs on when this host is isolated."""
    started_at: float
    """On the host's clock, in seconds since boot."""
    since: float = 0.0
    """The same moment on the wall clock, for people."""
    needs: tuple[BundleId, ...] = ()
    stderr_from: int = 0
    """Offset at which its stderr begins. Earlier runs wrote what stands before."""


class WorkerPlace(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's place on this host."""

    job: JobId
    worker: int
    slot: int
    of: int = 0
    """Number of the job's workers, as the assignment said."""
    assigned: bool = True
    active: bool = True
    run: RunRecord | None = None
    fencing: int = 0
    """Fencing number of the last run."""
    incarnation: str = ""
    """The incarnation of the job that the fields below are about."""
    restarts: int = 0
    in_a_row: int = 0
    exit_code: int | None = None
    ended: bool = False
    fetched_at: float = 0.0
    ended_at: float = 0.0
    """When the last run ended, on the wall clock, for people."""
    not_before: float = 0.0
    """When it may start again, on the host's clock."""
    detail: str = ""
    """Why it does not run, if there is anything to say."""

    @property
    def key(self) -> Key:
        return self.job, self.worker


class LocalState(msgspec.Struct, frozen=True, kw_only=True):
    schema: int = SCHEMA
    boot: str = ""
    """Id of the host's boot when this was written. No process outlives its boot."""
    cluster: str = ""
    """Id of the cluster that all of this is about; empty if an older release wrote it."""
    generation: int = 0
    places: tuple[WorkerPlace, ...] = ()
    jobs: dict[JobId, JobFacts] = {}


class _SeatRecord(msgspec.Struct, frozen=True, kw_only=True):
    boot: str
    session: int
    password: bytes
    unique: str


@dataclass(frozen=True)
class LeftBehind:
    """What the previous process left on this host."""

    boot: str
    state: LocalState
    seat: Seat | None


def read_left(data_dir: Path) -> LeftBehind:
    boot = boot_id()
    state = load_state(data_dir, boot)
    seat = load_seat(data_dir, boot)
    # Without the places, nobody knows which barriers that session owns, so it has to end.
    return LeftBehind(boot, state, seat if state.places else None)


def load_state(data_dir: Path, boot: str) -> LocalState:
    path = data_dir / STATE
    try:
        state = msgspec.json.decode(path.read_bytes(), type=LocalState)
        if state.schema != SCHEMA:
            raise msgspec.ValidationError(f"schema {state.schema}")
    except FileNotFoundError:
        return LocalState(boot=boot)
    except (OSError, msgspec.MsgspecError) as exc:
        log.error("the workers' local state cannot be read, starting without", path=str(path), reason=str(exc))
        os.replace(path, path.with_suffix(".damaged"))
        return LocalState(boot=boot)
    if state.boot == boot:
        return state
    gone = tuple(msgspec.structs.replace(place, run=None, not_before=0.0) for place in state.places)
    return msgspec.structs.replace(state, boot=boot, places=gone)


def save_state(data_dir: Path, state: LocalState) -> None:
    write_durably(data_dir / STATE, msgspec.json.encode(state))


def load_seat(data_dir: Path, boot: str) -> Seat | None:
    """Returns the session of the previous process; None after a reboot, which the lease's times do
    not survive."""
    path = data_dir / SEAT
    try:
        if path.stat().st_mode & 0o077:
            log.warning("others can read the session's password, not using it", path=str(path))
            return None
        record = msgspec.json.decode(path.read_bytes(), type=_SeatRecord)
    except (OSError, msgspec.MsgspecError):
        return None
    return Seat(SessionId(record.session, record.password), record.unique) if record.boot == boot else None


def save_seat(data_dir: Path, boot: str, seat: Seat) -> None:
    record = _SeatRecord(boot=boot, session=seat.session.id, password=seat.session.password, unique=seat.unique)
    write_durably(data_dir / SEAT, msgspec.json.encode(record), mode=0o600)


Change = Callable[[LocalState], LocalState]


class LocalStateFile:
    """The local state in memory and on disk, changed one step at a time."""

    def __init__(self, data_dir: Path, state: LocalState, on_change: Callable[[], None]) -> None:
        self._data_dir = data_dir
        self._on_change = on_change
        self._turn = asyncio.Lock()
        self._state = state

    @property
    def state(self) -> LocalState:
        return self._state

    async def commit(self, change: Change) -> None:
        """Makes a change and returns when it would survive a crash. Raises OSError if the disk
        fails."""
        async with self._turn:
            self._state = change(self._state)
            await asyncio.to_thread(save_state, self._data_dir, self._state)
        self._on_change()

    async def note(self, change: Change) -> None:
        """Makes a change that tells of something that has happened, and goes on if the disk fails.

        A process that starts after a crash finds such a thing out again."""
        try:
            await self.commit(change)
        except OSError as error:
            log.error("the workers' local state cannot be written", reason=str(error))
            self._on_change()
