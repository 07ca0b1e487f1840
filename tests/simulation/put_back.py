"""Known errors, put back by hand: each takes away one thing that the product gets right.

`python -m simulation.put_back` tells for each of them after how many stories it was found.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from simulation import clocks  # noqa: F401  # before the product
from simulation.aimed_stories import STORIES
from simulation.more_known_errors import MORE
from simulation.story_pool import Pool, end_in_order, is_clean, repeat_order_of_sets

import torrentdist.master.leading.gate as gate
import torrentdist.master.replication.replicator as replicator
import torrentdist.supervisor.exclusivity.barriers as barriers
from torrentdist.client.masters.seen_cluster import Seen
from torrentdist.cluster.election.elector import Elector
from torrentdist.cluster.election.fence import Fence
from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.host.swarm_transfers import SwarmTransfers
from torrentdist.master.changes.answered_requests import Requests
from torrentdist.master.replication.fetch_attempts import FetchAttempts
from torrentdist.master.replication.replication_plan import DropReplica
from torrentdist.supervisor.bundles.keeper import Keeper
from torrentdist.supervisor.exclusivity.barriers import resource_of
from torrentdist.supervisor.exclusivity.lease_file import LeaseFile
from torrentdist.supervisor.jobs.worker_loop import WorkerLoop
from torrentdist.supervisor.jobs.worker_starts import WorkerStarts
from torrentdist.supervisor.worker.worker_plan import EndRun
from torrentdist.supervisor.worker.worker_types import Barrier


def unfenced() -> None:
    async def commit(self: Fence, ops: Any) -> Any:
        return await self._zk.commit(list(ops))

    Fence.commit = commit  # type: ignore[method-assign]


def lease_from_the_answer() -> None:
    write = ZooKeeper._write

    async def late(self: ZooKeeper, path: str, ask: Any) -> Any:
        try:
            return await write(self, path, ask)
        finally:
            self.last_write_acknowledged = time.monotonic()

    ZooKeeper._write = late  # type: ignore[method-assign]


def lease_without_end() -> None:
    Elector._lease_end = lambda self: math.inf  # type: ignore[method-assign]


def replica_before_publication() -> None:
    plan = replicator.plan  # type: ignore[attr-defined]

    def early(snapshot: Any, local: Any, *args: Any, **kwargs: Any) -> Any:
        return plan(
            snapshot, msgspec.structs.replace(local, published=local.published | local.fetching), *args, **kwargs
        )

    replicator.plan = early  # type: ignore[attr-defined]


def published_unverified() -> None:
    async def at_once(self: SwarmTransfers, transfer: Any, stall_secs: float) -> None:
        return None

    SwarmTransfers._unless_stalled = at_once  # type: ignore[method-assign]


def answered_twice() -> None:
    async def nothing(self: Requests, mutation: Any) -> None:
        return None

    Requests.find = nothing  # type: ignore[method-assign]


def never_fetched_again() -> None:
    failed = FetchAttempts.failed

    def forever(self: FetchAttempts, digest: Any, error: Any, *, uploading: bool) -> int:
        count = failed(self, digest, error, uploading=uploading)
        self._not_before[digest] = math.inf
        return count

    FetchAttempts.failed = forever  # type: ignore[method-assign]


def removals_unheard() -> None:
    Keeper.hear_removed = lambda self, said: None  # type: ignore[method-assign]


def barriers_released_early() -> None:
    """A supervisor gives a worker's barrier back when it tells the worker to stop."""
    carry_out = WorkerLoop._carry_out

    def hold_none(self: WorkerStarts) -> None:
        self._leases.barriers.use(frozenset())

    def early(self: WorkerLoop, action: Any) -> None:
        carry_out(self, action)
        if isinstance(action, EndRun):
            self._leases.barriers.release(resource_of(action.key))

    WorkerStarts.hold_barriers = hold_none  # type: ignore[method-assign]
    WorkerLoop._carry_out = early  # type: ignore[method-assign]


def released_barrier_counts_as_held() -> None:
    """A worker starts behind a barrier that its host is about to release."""
    state = barriers.barrier_state

    def held(resource: str, ownership: Any, *args: Any) -> Any:
        return Barrier.HELD if resource in ownership.owned else state(resource, ownership, *args)

    barriers.barrier_state = held  # type: ignore[assignment]


def reads_of_old_records() -> None:
    """A client does not ask for records as new as those that it was told of, and a leader answers
    before its own records show a change."""

    async def at_once(self: Mirror, *args: Any) -> Any:
        return self.snapshot

    Seen.demand = lambda self: {}  # type: ignore[method-assign]
    Mirror.sync = Mirror.sync_to = at_once  # type: ignore[method-assign,assignment]


def missing_record_deletes() -> None:
    """A master deletes what no record names."""
    plan = replicator.plan  # type: ignore[attr-defined]

    def careless(snapshot: Any, local: Any, *args: Any, **kwargs: Any) -> Any:
        named = {entry.record.digest for entry in snapshot.bundles.values()}
        unknown = [DropReplica(digest) for digest in sorted(local.published - named)]
        return [*plan(snapshot, local, *args, **kwargs), *unknown]

    replicator.plan = careless  # type: ignore[attr-defined]
    replicator.is_unrecorded = lambda *args: False  # type: ignore[attr-defined]


def leader_not_ready() -> None:
    """A master leads that lacks the bundles of live jobs."""
    gate.missing = lambda *args: []


def leases_too_long() -> None:
    write = LeaseFile.write

    def longer(self: LeaseFile, lease: Any, *args: Any, **kwargs: Any) -> None:
        write(self, msgspec.structs.replace(lease, stop=lease.stop + 30.0, kill=lease.kill + 30.0), *args, **kwargs)

    LeaseFile.write = longer  # type: ignore[method-assign]


ERRORS: dict[str, Callable[[], None]] = {
    each.__name__.replace("_", " "): each
    for each in (
        unfenced,
        lease_from_the_answer,
        lease_without_end,
        replica_before_publication,
        published_unverified,
        answered_twice,
        never_fetched_again,
        removals_unheard,
        barriers_released_early,
        leases_too_long,
        reads_of_old_records,
        missing_record_deletes,
        leader_not_ready,
        released_barrier_counts_as_held,
        *MORE,
    )
}

SUITED = {
    "answered twice": "retries",
    "barriers released early": "jobs",
    "leases too long": "jobs",
    "reads of old records": "operators",
    "leader not ready": "jobs",
    "released barrier counts as held": "jobs",
    "unfenced": "retries",
    "missing record deletes": "restores",
    "removals unheard": "operators",
    "evicted counts as verified": "caches",
    "dropped while uploaded": "retries",
    "disk error told as bug": "storm",
    "fetched again at once": "rooms",
    "probes stay": "storm",
    "torn files stay": "storm",
    "texts without bounds": "jobs",
    "retention counts uploads": "operators",
    "batch too large": "packed",
    "cancelled order ends earlier": "operators",
    "assignment counts as known": "caches",
}
"""The kind of story for each error, where it is not a night."""


def main() -> None:
    repeat_order_of_sets()
    end_in_order()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="some of them; none: all")
    parser.add_argument("--story", choices=STORIES, help="the kind of the stories; as a rule the one that suits")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--secs", type=float, default=math.inf, help="begin no story of an error after this time")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    gc.freeze()
    for name in given.names or ERRORS:
        tried, told = _found(name, given.story, range(given.seed, given.seed + given.count), given.secs, given.jobs)
        print(f"{name}: {'found by' if told else 'not found by'} {tried} stories  {told}", flush=True)


def _found(name: str, kind: str | None, seeds: Sequence[int], secs: float, jobs: int) -> tuple[int, str]:
    """Returns how many stories were run, and what the one said that found the error; empty: none
    did."""
    tried, told, deadline = 0, "", time.perf_counter() + secs

    def stories() -> Iterator[object]:
        for seed in seeds:
            if told or time.perf_counter() > deadline:
                return
            yield STORIES[kind or SUITED.get(name, "night")](seed)

    for story, outcome in Pool(jobs, before=lambda _: ERRORS[name]()).run(stories()):
        tried += 1
        if outcome.findings and not told and is_clean(story):
            told = f"seed {story.seed}: {outcome.findings[0]}"
    return tried, told


if __name__ == "__main__":
    main()
