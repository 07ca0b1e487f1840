"""Ends a rolling upgrade: when every registered daemon runs the newer release, the leader raises
the cluster's schema and rewrites the older records.

Always: the schema is raised only after all daemons have run the newer release for a while, so that
a daemon that is just restarting is waited for. The cluster's record says since when they have, so
that a new leader does not count anew. The schema never falls. Every step goes through the
fence. Never: change the meaning of a record.
"""

from collections.abc import Iterator

import msgspec

from torrentdist.cluster import paths
from torrentdist.cluster.election.fence import Fence
from torrentdist.cluster.records.record_schema import newest_for_all
from torrentdist.cluster.records.snapshot import Changes, ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Op, Set
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.log import get_logger
from torrentdist.master.changes.record_loop import RecordLoop
from torrentdist.model.records import ClusterRecord, decode, encode

log = get_logger()

BATCH = 100


def outdated(snapshot: ClusterSnapshot, news: Changes | None = None) -> Iterator[Op]:
    """Yields writes of records that are of an older schema than the cluster's, with the same
    content.

    Masters write their replica records themselves. `news`: the changes to look at; None: all
    records.
    """
    everything = news is None or news.cluster
    for id_ in sorted(snapshot.bundles if everything or news is None else news.bundles & snapshot.bundles.keys()):
        bundle = snapshot.bundles[id_]
        if bundle.record.schema < snapshot.schema:
            yield Set(paths.bundle(id_), encode(bundle.record), bundle.version)
    for job_id in sorted(snapshot.jobs if everything or news is None else news.jobs & snapshot.jobs.keys()):
        job = snapshot.jobs[job_id]
        if job.record.schema < snapshot.schema:
            yield Set(paths.job(job_id), encode(job.record), job.version)
    hosts = snapshot.assignments if everything or news is None else news.assignments & snapshot.assignments.keys()
    for host in sorted(hosts):
        assignment = snapshot.assignments[host]
        if assignment.record.schema < snapshot.schema:
            yield Set(paths.assignment(host), encode(assignment.record), assignment.version)


class Upgrade:
    def __init__(self, zookeeper: ZooKeeper, settle_secs: float) -> None:
        self._zookeeper = zookeeper
        self._settle_secs = settle_secs
        self._clean_at = -1
        """Version of the newest snapshot in which no record was outdated."""

    async def step(self, snapshot: ClusterSnapshot, fence: Fence, turns: RecordLoop) -> float:
        """Does what is due, and returns the seconds after which to look again."""
        if not snapshot.present:
            return self._settle_secs
        left = list(outdated(snapshot, snapshot.changes_since(self._clean_at)))
        if left:
            due = [op for op in left if not turns.rests(op.path)][:BATCH]
            await turns.commit_each(fence, due, BATCH)
            log.info("records written in the cluster's schema", schema=snapshot.schema, records=len(due))
            return 0.0 if due else self._settle_secs
        self._clean_at = snapshot.version
        newest = newest_for_all(snapshot.masters.values(), snapshot.supervisors.values())
        since, now = 0.0 if snapshot.cluster is None else snapshot.cluster.newer_since, self._zookeeper.server_now()
        if now is None or (newest <= snapshot.schema and not since):
            return self._settle_secs
        if newest <= snapshot.schema or not since:
            await self._write(fence, snapshot.schema, 0.0 if since else now)
            return self._settle_secs
        if now - since < self._settle_secs:
            return since + self._settle_secs - now
        await self._write(fence, newest, 0.0)
        log.info("every daemon is of this release: the records' schema is raised", schema=newest)
        return 0.0

    async def _write(self, fence: Fence, schema: int, newer_since: float) -> None:
        found = await self._zookeeper.get(paths.CLUSTER)
        if found is not None:
            before = decode(found[0], ClusterRecord, path=paths.CLUSTER)
            record = msgspec.structs.replace(before, schema=max(before.schema, schema), newer_since=newer_since)
            await fence.commit([Set(paths.CLUSTER, msgspec.json.encode(record), found[1].version)])
