"""Decides which supervisor runs which worker. Pure.

Always: a supervisor gets at most as many workers as it has slots. A running worker stays where it
is while its supervisor is registered and takes part. A worker that must move goes to the supervisor
with the fewest workers of its own job, then to the one with the most free slots. With too few slots
the remaining workers get no place, and no other worker moves for them. Those of a silent supervisor
stay with it in that case.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

import msgspec

from torrentdist.model.ids import JobId, SupervisorId

Worker = tuple[JobId, int]
Placement = Mapping[Worker, SupervisorId]
NOWHERE = SupervisorId("")


class HostSlots(msgspec.Struct, frozen=True):
    id: SupervisorId
    slots: int
    draining: bool = False
    silent: bool = False
    """Whether it is registered but sends no heartbeats."""


class Demand(msgspec.Struct, frozen=True):
    job: JobId
    workers: int
    ended: frozenset[int] = frozenset()
    """Workers that have ended for good."""

    def wanted(self) -> list[Worker]:
        return [(self.job, k) for k in range(self.workers) if k not in self.ended]


def demand_for(workers: Collection[Worker]) -> list[Demand]:
    """Returns the demand for these workers and no others of their jobs."""
    numbers = {job: {k for of, k in workers if of == job} for job in sorted({job for job, _ in workers})}
    return [Demand(job, max(some) + 1, frozenset(range(max(some))) - some) for job, some in numbers.items()]


def place(
    demands: Sequence[Demand], hosts: Sequence[HostSlots], current: Placement, respread: Collection[JobId] = ()
) -> dict[Worker, SupervisorId]:
    """Returns the new placement. `respread`: jobs that are being rebalanced. Only their workers
    move for an even spread."""
    free = {host.id: host.slots for host in hosts if not (host.draining or host.silent)}
    silent = {host.id: host.slots for host in hosts if host.silent and not host.draining}
    per_job: defaultdict[JobId, Counter[SupervisorId]] = defaultdict(Counter)
    placed: dict[Worker, SupervisorId] = {}
    waiting: list[Worker] = []

    def put(worker: Worker, host: SupervisorId) -> None:
        placed[worker] = host
        free[host] -= 1
        per_job[worker[0]][host] += 1

    for worker in (w for demand in demands for w in demand.wanted()):
        host = current.get(worker, NOWHERE)
        if free.get(host, 0) > 0:
            put(worker, host)
        else:
            waiting.append(worker)
    for worker in waiting:
        best = _best(free, per_job[worker[0]])
        before = current.get(worker, NOWHERE)
        if best is not None:
            put(worker, best)
        elif silent.get(before, 0) > 0:
            placed[worker] = before
            silent[before] -= 1
    for job in sorted(respread):
        _even_out(job, placed, free, per_job[job])
    return placed


def _best(free: Mapping[SupervisorId, int], counts: Mapping[SupervisorId, int]) -> SupervisorId | None:
    """Returns the host for a worker: fewest workers of its job, which are `counts`, then most free
    slots, then by name, so that every leader decides the same."""
    open_hosts = [host for host, slots in free.items() if slots > 0]
    return min(open_hosts, key=lambda host: (counts[host], -free[host], host), default=None)


def _even_out(
    job: JobId, placed: dict[Worker, SupervisorId], free: dict[SupervisorId, int], counts: Counter[SupervisorId]
) -> None:
    """Moves workers of this job, one at a time, while that makes two hosts more equal."""
    while (emptiest := _best(free, counts)) is not None:
        fullest = max(free, key=lambda host: (counts[host], host))
        if counts[fullest] - counts[emptiest] < 2:
            return
        worker = max(w for w, host in placed.items() if w[0] == job and host == fullest)
        placed[worker] = emptiest
        free[fullest] += 1
        free[emptiest] -= 1
        counts[fullest] -= 1
        counts[emptiest] += 1
