"""What this host should run and what it has started, kept on its own disk so that a restarted
supervisor finds its workers again.

Always: a start is written before it happens, and an end after it has happened. An unreadable file
is set aside and counts as empty. The session's password is in a file that only its owner can read.
Functions that take a directory block: call them in threads.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from torrentdist.bundle.files.durability import write_durably
from torrentdist.cluster.session.znode_operations import SessionId
from torrentdist.log import get_logger
from torrentdist.model.access.envelope import Envelope
from torrentdist.model.ids import BundleId, JobId
from torrentdist.model.jobs.job import JobSpec
from torrentdist.model.wire.view import decode_json
from torrentdist.supervisor.exclusivity.barriers import Seat
from torrentdist.supervisor.process.guardian_processes import boot_id
from torrentdist.supervisor.worker.worker_types import Key
from torrentdist.supervisor.yarn.yarn_place import YarnPlace

log = get_logger()

SCHEMA = 1
STATE, SEAT = "workers.json", "session.json"


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a master said about a job: everything that its workers need."""

    incarnation: str
    """Distinguishes jobs that had the same name at different times."""
    bundle: BundleId
    dependencies: tuple[BundleId, ...] = ()
    workers: int
    spec: JobSpec
    signature: Envelope | None = None
    """The submitter's signature, as the master passed it on."""

    @property
    def needs(self) -> frozenset[BundleId]:
        return frozenset((self.bundle, *self.dependencies))


Facts = Callable[[JobId], Awaitable[JobFacts | None]]
"""Asks the masters about a job. Returns None if the job does not exist."""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a worker that was started and is not known to have ended."""

    id: str
    incarnation: str
    session: int
    fencing: int
    grace_secs: float
    lenient: bool
    """Whether it goes on running while this host is isolated."""
    started_at: float
    """In seconds since boot, on the host's clock."""
    since: float = 0.0
    """The same moment in wall-clock time, for display."""
    needs: tuple[BundleId, ...] = ()
    stderr_from: int = 0
    """Offset in the stderr file where this run's output begins. Earlier runs wrote what precedes
    it."""
    yarn: YarnPlace | None = None
    """Where its application is found, if its driver runs in YARN."""


class WorkerPlace(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's place on this host."""

    job: JobId
    worker: int
    slot: int
    of: int = 0
    """Number of workers in the job, according to the assignment."""
    assigned: bool = True
    active: bool = True
    run: RunRecord | None = None
    fencing: int = 0
    """Fencing number of the latest run."""
    incarnation: str = ""
    """Incarnation of the job that the fields below belong to."""
    restarts: int = 0
    in_a_row: int = 0
    exit_code: int | None = None
    ended: bool = False
    fetched_at: float = 0.0
    ended_at: float = 0.0
    """When the latest run ended, in wall-clock time, for display."""
    not_before: float = 0.0
    """Earliest time for the next start, on the host's clock."""
    detail: str = ""
    """Why the worker does not run; empty if there is no particular reason."""

    @property
    def key(self) -> Key:
        return self.job, self.worker


class LocalState(msgspec.Struct, frozen=True, kw_only=True):
    schema: int = SCHEMA
    boot: str = ""
    """Boot id of the host when this was written. No process survives a reboot."""
    cluster: str = ""
    """Id of the cluster that this state belongs to; empty if an older release wrote it."""
    generation: int = 0
    places: tuple[WorkerPlace, ...] = ()
    jobs: dict[JobId, JobFacts] = {}
    users: dict[JobId, int] = {}
    """The users that the jobs of this host run as, besides the supervisor's own."""


class _SeatRecord(msgspec.Struct, frozen=True, kw_only=True):
    boot: str
    session: int
    password: bytes
    unique: str
    user: str = ""


class LeftBehind(msgspec.Struct, frozen=True):
    """What the previous process left on this host."""

    boot: str
    state: LocalState
    seat: Seat | None

    @property
    def session(self) -> SessionId | None:
        return None if self.seat is None else self.seat.session


def read_left(data_dir: Path, user: str = "") -> LeftBehind:
    """`user`: this host's own user in ZooKeeper, if it has one. Another user cannot release the
    barriers of the session that was left, so that session has to end."""
    boot = boot_id()
    state = load_state(data_dir, boot)
    seat = load_seat(data_dir, boot)
    # Without the places, we do not know which barriers that session owns, so the session has to
    # end.
    usable = bool(state.places) and seat is not None and seat.user == user
    return LeftBehind(boot, state, seat if usable else None)


def load_state(data_dir: Path, boot: str) -> LocalState:
    path = data_dir / STATE
    try:
        state = decode_json(path.read_bytes(), LocalState)
        if state.schema != SCHEMA:
            raise msgspec.ValidationError(f"schema {state.schema}")
    except FileNotFoundError:
        return LocalState(boot=boot)
    except (OSError, msgspec.MsgspecError) as exc:
        log.error("cannot read the workers' local state, starting without it", path=str(path), reason=str(exc))
        os.replace(path, path.with_suffix(".damaged"))
        return LocalState(boot=boot)
    if state.boot == boot:
        return state
    gone = tuple(msgspec.structs.replace(place, run=None, not_before=0.0) for place in state.places)
    return msgspec.structs.replace(state, boot=boot, places=gone)


def save_state(data_dir: Path, state: LocalState) -> None:
    _write_state(data_dir, msgspec.json.encode(state))


def _write_state(data_dir: Path, data: bytes) -> None:
    write_durably(data_dir / STATE, data, mode=0o600)


def load_seat(data_dir: Path, boot: str) -> Seat | None:
    """Returns the session of the previous process, or None after a reboot: the lease's times are
    only valid within one boot."""
    path = data_dir / SEAT
    try:
        if path.stat().st_mode & 0o077:
            log.warning("other users can read the session's password, not using it", path=str(path))
            return None
        record = decode_json(path.read_bytes(), _SeatRecord)
    except (OSError, msgspec.MsgspecError):
        return None
    return Seat(SessionId(record.session, record.password), record.unique, record.user) if record.boot == boot else None


def save_seat(data_dir: Path, boot: str, seat: Seat) -> None:
    session = seat.session
    record = _SeatRecord(boot=boot, session=session.id, password=session.password, unique=seat.unique, user=seat.user)
    write_durably(data_dir / SEAT, msgspec.json.encode(record), mode=0o600)


Change = Callable[[LocalState], LocalState]


class LocalStateFile:
    """The local state in memory and on disk. Changes are applied one at a time."""

    def __init__(self, data_dir: Path, state: LocalState, on_change: Callable[[], None]) -> None:
        self._data_dir = data_dir
        self._on_change = on_change
        self._turn = asyncio.Lock()
        self._state = state
        self.confirmed_in: int | None = None
        """The last session in which the assignment was read that the state follows."""

    @property
    def state(self) -> LocalState:
        return self._state

    def confirm(self, session: int) -> None:
        """Notes that the state follows the assignment as it was read in this session."""
        if self.confirmed_in != session:
            self.confirmed_in = session
            self._on_change()

    async def commit(self, change: Change) -> None:
        """Applies a change, and returns when it would survive a crash. Raises OSError if the disk
        fails."""
        async with self._turn:
            state = change(self._state)
            data = msgspec.json.encode(state)  # What cannot be written must not count.
            self._state = state
            await asyncio.to_thread(_write_state, self._data_dir, data)
        self._on_change()

    async def note(self, change: Change) -> None:
        """Applies a change that records something that has already happened, even if the disk
        fails.

        After a crash, the next process discovers such facts again.
        """
        try:
            await self.commit(change)
        except OSError as error:
            log.error("cannot write the workers' local state", reason=str(error))
            self._on_change()
