"""Leadership handed over to a chosen master: its place in the queue is named in /epoch, and whoever stands before it
steps to the end of the queue.

Always holds: the election itself is what it was; a successor that dies, or that cannot become ready, stops nobody.
Must not do: touch another session's znode.
"""

from __future__ import annotations

from torrentdist.cluster import paths
from torrentdist.cluster.election.term import OwnNode, left_to, queue, read_term
from torrentdist.cluster.session.znode_operations import Check, Create, Delete
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.model.ids import MasterId


async def place_of(zk: ZooKeeper, master: MasterId) -> str | None:
    """The election znode that stands for a registered master, in the very session that it is registered in."""
    registered = await zk.exists(paths.master(master))
    if registered is None:
        return None
    for name in queue(await zk.children(paths.ELECTION) or ()):
        found = await zk.get(paths.election_node(name))
        if found is not None and (found[0], found[1].ephemeral_owner) == (master.encode(), registered.ephemeral_owner):
            return name
    return None


async def step_aside(zk: ZooKeeper, own: OwnNode, master: MasterId, prefix: str) -> OwnNode | None:
    """Our new place at the end of the queue, if the last leader left its office to somebody else who is in it."""
    found = await zk.get(paths.EPOCH)
    children = await zk.children(paths.ELECTION) or ()
    if found is None or left_to(read_term(found[0]), own.name, children) is None:
        return None
    again = Create(prefix, master.encode(), ephemeral=True, sequential=True)
    made = (await zk.commit([again, Delete(paths.election_node(own.name)), Check(paths.EPOCH, found[1].version)]))[0]
    assert isinstance(made, str)
    return OwnNode(paths.name(made), own.owner)
