"""Computes how long this host's workers may run, and tells the worker plan and the guardians.

Always: one dedicated thread writes all leases, so that a write never waits behind other work and
never overwrites a later lease. On a busy machine a write usually takes 1 ms but up to 90 ms, too
long for the event loop.
Never: decide which workers run.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from torrentdist.launcher.run.run_lease import clock
from torrentdist.log import get_logger
from torrentdist.supervisor.exclusivity.barriers import Barriers, Seat
from torrentdist.supervisor.exclusivity.isolation import IsolatedHost, Isolation
from torrentdist.supervisor.exclusivity.lease_file import Inherited, LeaseFile
from torrentdist.supervisor.worker.worker_types import Run, RunLease

log = get_logger()

PROLONG_SECS = 1.0
"""How long `prolong` waits for ZooKeeper."""

Runs = Callable[[], Mapping[str, tuple[Run, bool]]]
"""Returns this host's runs by id, and whether each one's worker is still assigned here."""


class LeaseKeeper:
    def __init__(self, barriers: Barriers, isolation: Isolation, path: Path, runs: Runs) -> None:
        """`path` is the lease file."""
        self.barriers = barriers
        self._isolation = isolation
        self._file = LeaseFile(path)
        self._runs = runs
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lease")
        self._inherited: tuple[int, Inherited] | None = None
        """Session of the previous process, and the limits that it set."""

    def resume(self, seat: Seat, resources: Collection[str]) -> None:
        """Resumes the session of the previous process, which may own the barriers of `resources`.
        Blocks."""
        inherited = self._file.read(seat.session.id)
        self.barriers.resume(seat, resources, inherited.to_prove.timeout)
        self._inherited = seat.session.id, inherited
        self._isolation.resume(inherited)

    def lease(self) -> RunLease:
        """Returns the current lease, on the monotonic clock."""
        barriers = self.barriers
        session, stop, kill = barriers.session, barriers.lease.stop, barriers.kill_at
        ahead = clock() - time.monotonic()
        if self._inherited is not None and self._inherited[0] == session and not barriers.leased:
            stop, kill = self._inherited[1].stop - ahead, self._inherited[1].kill - ahead
        return RunLease(session, stop, kill, self._isolation.proven - ahead, barriers.ending_secs)

    async def write(self) -> None:
        """Tells every guardian how long its run may go on. Raises OSError if the file cannot be
        written."""
        proven, barriers, runs = self._isolation.proven, self.barriers, self._runs()
        if runs and (barriers.leased or clock() < proven):
            host = barriers.host_lease()
            lease = RunLease(host.session, host.stop, host.kill, proven, barriers.ending_secs)
            to_prove = self._isolation.for_next_process(barriers)
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, self._file.write, lease, host.lease_secs, runs, to_prove)

    async def renew(self) -> None:
        """Writes the lease. If that fails, the guardians end their workers on time."""
        try:
            await self.write()
        except OSError as error:
            log.error("cannot write the workers' lease", reason=str(error))

    async def prolong(self, host: IsolatedHost) -> None:
        """Renews the lease and the proof before this process ends, to give the next process the
        most time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PROLONG_SECS):
                await self.barriers.mark()
        await self._isolation.prolong(self.barriers, host)
        await self.renew()

    async def watch_isolation(self, host: IsolatedHost) -> None:
        """Looks for a proof that workers may go on running whenever ZooKeeper does not answer."""
        await self._isolation.watch(self.barriers, host)

    def close(self) -> None:
        """Returns at once. Writes that have begun are completed."""
        self._thread.shutdown(wait=False)
