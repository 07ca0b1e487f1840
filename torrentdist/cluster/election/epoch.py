"""Takes office and hands it over: what a master writes to /epoch and to the election queue.

One transaction raises the epoch and records the failover, also if the same master leads again. A
leader that hands over names its successor's znode in /epoch, and each master ahead of that znode
moves to the end of the queue.
Always: only a master whose election znode exists at that moment raises the epoch, and only from the
value that it has read. A successor that dies or cannot become ready blocks nobody.
Never: ask whether the master is ready (the elector has done so), or touch another session's znode.
"""

import contextlib
import time

from torrentdist.cluster import paths
from torrentdist.cluster.election.fence import Fence
from torrentdist.cluster.election.term import (
    OwnNode,
    Term,
    TermRecord,
    failover_reason,
    left_to,
    outdated,
    queue,
    read_term,
)
from torrentdist.cluster.session.znode_operations import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    Op,
    Set,
    Stat,
    TransactionFailed,
)
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.model.ids import MasterId
from torrentdist.model.records import FailoverRecord, encode


class Displaced(Exception):
    """Our znode is no longer in the queue."""


async def raise_epoch(zk: ZooKeeper, own: OwnNode, master: MasterId) -> Term:
    """Raises the epoch and returns the new term. Raises Displaced if our znode has disappeared.

    Repeats the attempt if others raise it too: the queue decides between them.
    """
    path = paths.election_node(own.name)
    await zk.ensure(paths.FAILOVERS)
    while True:
        found = await zk.get(paths.EPOCH)
        if found is None:
            with contextlib.suppress(NodeExists):
                await zk.create(paths.EPOCH)
            continue
        previous, version = read_term(found[0]), found[1].version
        record = TermRecord(leader=master, election=own.name)
        ops: list[Op] = [Check(path), Set(paths.EPOCH, encode(record), version)]
        ops.append(await _failover(zk, previous, record))
        try:
            raised = (await zk.commit(ops))[1]
        except TransactionFailed as exc:
            if isinstance(exc.reason, BadVersion):
                continue
            raise Displaced from exc
        assert isinstance(raised, Stat)
        return Term(raised.version, path, own.owner)


async def _failover(zk: ZooKeeper, previous: TermRecord | None, now: TermRecord) -> Op:
    registered = previous is not None and await zk.exists(paths.master(previous.leader)) is not None
    record = FailoverRecord(
        previous=previous.leader if previous else None,
        current=now.leader,
        at=time.time(),  # For display only.
        reason=failover_reason(previous, now, registered),
    )
    return Create(paths.failover_prefix(), encode(record), sequential=True)


async def trim_history(zk: ZooKeeper, fence: Fence) -> None:
    """Deletes the oldest failover records."""
    old = outdated(await zk.children(paths.FAILOVERS) or ())
    if old:
        await fence.commit([Delete(paths.failover(name)) for name in old[:1000]])


async def place_of(zk: ZooKeeper, master: MasterId) -> str | None:
    """Returns the election znode of a registered master, if it belongs to the session that
    registered it."""
    registered = await zk.exists(paths.master(master))
    if registered is None:
        return None
    for name in queue(await zk.children(paths.ELECTION) or ()):
        found = await zk.get(paths.election_node(name))
        if found is not None and (found[0], found[1].ephemeral_owner) == (master.encode(), registered.ephemeral_owner):
            return name
    return None


async def step_aside(zk: ZooKeeper, own: OwnNode, master: MasterId, prefix: str) -> OwnNode | None:
    """Moves our znode to the end of the queue if the last leader named another master there as its
    successor.

    Returns our new place, or None if there is nothing to do.
    """
    found = await zk.get(paths.EPOCH)
    children = await zk.children(paths.ELECTION) or ()
    if found is None or left_to(read_term(found[0]), own.name, children) is None:
        return None
    again = Create(prefix, master.encode(), ephemeral=True, sequential=True)
    made = (await zk.commit([again, Delete(paths.election_node(own.name)), Check(paths.EPOCH, found[1].version)]))[0]
    assert isinstance(made, str)
    return OwnNode(paths.name(made), own.owner)
