"""What this host should run and what it has started, on its own disk: so that a restart finds its workers again.

Always holds: it is written before what it tells of is started, and after it has ended; a file that cannot be read is
set aside and counts as empty. The session's password is in a file that only its owner reads. It blocks: use threads.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog

from torrentdist.bundle.files.durability import write_durably
from torrentdist.cluster.session.znode_operations import SessionId
from torrentdist.model.ids import BundleId, JobId
from torrentdist.model.jobs.job import JobSpec
from torrentdist.supervisor.exclusivity.barriers import Seat
from torrentdist.supervisor.process.guardian_processes import boot_id
from torrentdist.supervisor.worker.worker_plan import Key

log = structlog.get_logger(__name__)

SCHEMA = 1
STATE, SEAT = "workers.json", "session.json"


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a master told about a job: all that its workers need."""

    incarnation: str
    """Of two jobs that had one name after each other."""
    bundle: BundleId
    dependencies: tuple[BundleId, ...] = ()
    workers: int
    spec: JobSpec

    @property
    def needs(self) -> frozenset[BundleId]:
        return frozenset((self.bundle, *self.dependencies))


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that was started, and isn't known to be gone."""

    id: str
    incarnation: str
    session: int
    fencing: int
    grace_secs: float
    lenient: bool
    started_at: float
    """The host's clock."""
    since: float = 0.0
    """The wall's, for people."""
    needs: tuple[BundleId, ...] = ()
    stderr_from: int = 0
    """Offset at which its stderr begins: what stands before is of earlier runs."""


class WorkerPlace(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's place on this host."""

    job: JobId
    worker: int
    slot: int
    of: int = 0
    """How many workers the job has, as the assignment said."""
    assigned: bool = True
    active: bool = True
    run: RunRecord | None = None
    fencing: int = 0
    """Of the last run."""
    incarnation: str = ""
    """That the rest is about."""
    restarts: int = 0
    in_a_row: int = 0
    exit_code: int | None = None
    ended: bool = False
    fetched_at: float = 0.0
    ended_at: float = 0.0
    """The wall's clock, as a run's `since`: for people."""
    not_before: float = 0.0
    """When it may be started again, by the host's clock."""
    detail: str = ""

    @property
    def key(self) -> Key:
        return self.job, self.worker


class LocalState(msgspec.Struct, frozen=True, kw_only=True):
    schema: int = SCHEMA
    boot: str = ""
    """Of the host when this was written: no process outlives it."""
    cluster: str = ""
    """Id of the cluster that all of this is about, its runs included; empty: written by an older release."""
    generation: int = 0
    places: tuple[WorkerPlace, ...] = ()
    jobs: dict[JobId, JobFacts] = {}


class _SeatRecord(msgspec.Struct, frozen=True, kw_only=True):
    boot: str
    session: int
    password: bytes
    unique: str


@dataclass(frozen=True)
class Left:
    """What the process before us left on this host."""

    boot: str
    state: LocalState
    seat: Seat | None


def read_left(data_dir: Path) -> Left:
    boot = boot_id()
    state = load_state(data_dir, boot)
    seat = load_seat(data_dir, boot)
    # Without the places nobody knows which barriers of that session there are: it has to end.
    return Left(boot, state, seat if state.places else None)


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
    """The session of the process before us. Not of before a reboot: its time is not on this clock."""
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
