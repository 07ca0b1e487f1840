"""The lease file, which tells every guardian on this host how long its worker may run.

A guardian reads it only when the limit that it already knows has passed.
Always: it never allows more than the barriers and proofs do. A job that may run while isolated gets
more time only from a supervisor that is alive.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from torrentdist.launcher.run.run_files import begun, write_whole
from torrentdist.launcher.run.run_lease import clock
from torrentdist.model.ids import MasterId
from torrentdist.model.jobs.job import OnIsolation
from torrentdist.model.wire.view import decode_json
from torrentdist.supervisor.worker.worker_types import NEVER, Run, RunLease


class ToProve(msgspec.Struct, frozen=True):
    """What the next process needs to prove that workers may run longer."""

    timeout: float = 0.0
    """Timeout of the session, in seconds."""
    masters: dict[MasterId, tuple[str, float]] = {}
    """Each master's URL, and when it was last registered, on the host's clock."""
    informed: bool = False
    """Whether `masters` includes every master that was registered at the session's last write."""


class _Orders(msgspec.Struct, frozen=True):
    session: int | None
    kept: tuple[float, float]
    """When runs behind a barrier of this session must begin to stop, and when they must be gone."""
    runs: dict[str, tuple[float, float]]
    proven: float = 0.0
    to_prove: ToProve = ToProve()


class Inherited(msgspec.Struct, frozen=True, kw_only=True):
    """The limits that the previous process set for its session, on the host's clock."""

    stop: float = NEVER
    kill: float = NEVER
    proven: float = NEVER
    to_prove: ToProve = ToProve()


class LeaseFile:
    def __init__(self, path: Path) -> None:
        """Removes what an earlier process of this host had begun to write."""
        self._path = path
        with contextlib.suppress(OSError):
            os.unlink(begun(str(path)))

    def read(self, session: int) -> Inherited:
        """Returns the limits for `session`. A proof stays valid across sessions."""
        try:
            orders = decode_json(self._path.read_bytes(), _Orders)
        except (OSError, msgspec.MsgspecError):
            return Inherited()
        stop, kill = orders.kept if orders.session == session else (NEVER, NEVER)
        return Inherited(stop=stop, kill=kill, proven=orders.proven, to_prove=orders.to_prove)

    def write(
        self,
        lease: RunLease,
        lease_secs: float,
        runs: Mapping[str, tuple[Run, bool]],
        to_prove: ToProve,
    ) -> None:
        """Writes each run's limits. `runs` maps a run's id to the run and whether it is still
        assigned here.

        `lease` is on the host's clock. `lease_secs` is the number of seconds that a run which may
        go on while isolated survives without its supervisor.
        """
        until = {id_: _limits(lease, lease_secs, run, assigned) for id_, (run, assigned) in runs.items()}
        kept = max(lease.stop, lease.proven), max(lease.kill, lease.proven + lease.ending)
        orders = _Orders(
            lease.session,
            _written(kept),
            {id_: _written(limits) for id_, limits in until.items()},
            max(0.0, lease.proven),
            to_prove,
        )
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        write_whole(str(self._path), msgspec.json.encode(orders))


def _limits(lease: RunLease, lease_secs: float, run: Run, assigned: bool) -> tuple[float, float]:
    stop, kill = lease.limits(run, assigned=assigned)
    if run.on_isolation is OnIsolation.STOP or run.session != lease.session:
        return stop, kill
    return max(stop, clock() + lease_secs), max(kill, clock() + lease_secs + lease.ending)


def _written(limits: tuple[float, float]) -> tuple[float, float]:
    """Replaces NEVER, which JSON cannot express, with 0: the moment of the host's boot."""
    return max(0.0, limits[0]), max(0.0, limits[1])
