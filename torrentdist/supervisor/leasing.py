"""The file by which every guardian of this host knows how long its worker may run.

Always holds: it is never later than barriers and proofs allow; a job that runs on when isolated is given time only by a
supervisor that lives. Nobody reads it often: a guardian does so when the time that it knew of is over.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from torrentdist.model.job import OnIsolation
from torrentdist.supervisor.guardian import clock, write_whole
from torrentdist.supervisor.workers import NEVER, Lease, Run


class _Orders(msgspec.Struct, frozen=True):
    session: int | None
    kept: tuple[float, float]
    """Of what is behind its barrier in this session."""
    runs: dict[str, tuple[float, float]]


class LeaseFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, session: int) -> tuple[float, float]:
        """What the process before us allowed in this session, on the monotonic clock."""
        try:
            orders = msgspec.json.decode(self._path.read_bytes(), type=_Orders)
        except (OSError, msgspec.MsgspecError):
            return NEVER, NEVER
        if orders.session != session:
            return NEVER, NEVER
        ahead = clock() - time.monotonic()
        return orders.kept[0] - ahead, orders.kept[1] - ahead

    def write(self, lease: Lease, extent: float, runs: Mapping[str, tuple[Run, bool]]) -> None:
        """`lease`: on the host's clock. `runs`: each with whether it is assigned. `extent`: how long one that runs on
        when isolated does so without hearing of us."""
        until = {id_: _limits(lease, extent, run, assigned) for id_, (run, assigned) in runs.items()}
        kept = max(lease.stop, lease.proven), max(lease.kill, lease.proven + lease.ending)
        orders = _Orders(lease.session, _written(kept), {id_: _written(limits) for id_, limits in until.items()})
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        write_whole(str(self._path), msgspec.json.encode(orders))


def _limits(lease: Lease, extent: float, run: Run, assigned: bool) -> tuple[float, float]:
    stop, kill = lease.limits(run, assigned=assigned)
    if run.on_isolation is OnIsolation.STOP or run.session != lease.session:
        return stop, kill
    return max(stop, clock() + extent), max(kill, clock() + extent + lease.ending)


def _written(limits: tuple[float, float]) -> tuple[float, float]:
    """JSON has no infinity; nothing runs before the host was booted."""
    return max(0.0, limits[0]), max(0.0, limits[1])
