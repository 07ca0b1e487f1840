"""Taking office: the epoch is raised and the failover noted in one transaction.

Always holds: the epoch rises only by the master whose election znode exists in that very moment, and from the value
that it has seen. Must not do: ask whether the master is ready (the elector has).
"""

from __future__ import annotations

import contextlib
import time

from torrentdist.cluster import paths
from torrentdist.cluster.election.fence import Fence
from torrentdist.cluster.election.term import OwnNode, Term, TermRecord, failover_reason, outdated, read_term
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
    """Nothing in the queue stands for us any more."""


async def raise_epoch(zk: ZooKeeper, own: OwnNode, master: MasterId) -> Term:
    """The new term, or Displaced. Tried again while others raise it too: the queue decides between them."""
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
        if previous is None or previous.election != own.name:
            ops.append(await _failover(zk, previous, master))
        try:
            raised = (await zk.commit(ops))[1]
        except TransactionFailed as exc:
            if isinstance(exc.reason, BadVersion):
                continue
            raise Displaced from exc
        assert isinstance(raised, Stat)
        return Term(raised.version, path, own.owner)


async def _failover(zk: ZooKeeper, previous: TermRecord | None, master: MasterId) -> Op:
    registered = previous is not None and await zk.exists(paths.master(previous.leader)) is not None
    record = FailoverRecord(
        previous=previous.leader if previous else None,
        current=master,
        at=time.time(),  # for people; nothing is decided by it
        reason=failover_reason(previous, master, registered),
    )
    return Create(paths.failover_prefix(), encode(record), sequential=True)


async def trim_history(zk: ZooKeeper, fence: Fence) -> None:
    """Forget the oldest failovers."""
    old = outdated(await zk.children(paths.FAILOVERS) or ())
    if old:
        await fence.commit([Delete(paths.failover(name)) for name in old[:1000]])
