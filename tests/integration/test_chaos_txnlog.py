"""The transaction log of a real ZooKeeper, as the oracle of `make chaos` reads it."""

from __future__ import annotations

import pytest
from chaos.txnlog import Kind, committed
from zookeeper_fixtures import Connect

from torrentdist.cluster.session.znode_operations import Check, Create, Set, TransactionFailed
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper

pytestmark = pytest.mark.anyio


async def test_the_log_tells_what_was_done_and_nothing_else(
    own_zookeeper: EmbeddedZooKeeper, connect: Connect, chroot: str
) -> None:
    """If this failed, the oracle would judge transactions that were refused, or miss some that were
    made."""
    await connect(servers=own_zookeeper.addresses)  # founds the cluster, in a session of its own
    zk = await connect(servers=own_zookeeper.addresses)
    await zk.create("/a")
    await zk.commit([Check("/a", 0), Set("/a", b"x", 0), Create("/b", b"y", ephemeral=True)])
    with pytest.raises(TransactionFailed):
        await zk.commit([Set("/a", b"refused", 1), Check("/b", 7)])
    _, made = await zk.commit([Check("/a", 1), Create("/c-", b"z", sequential=True)])
    session = zk.session_id
    await zk.delete("/a")
    await zk.close()
    found = [
        (change.kind, change.path.removeprefix(chroot), change.data, change.version, change.ephemeral)
        for txn in committed([own_zookeeper.servers[0].directory / "data"])
        for change in txn.changes
        if txn.session == session and change.path != f"{chroot}/cluster"  # checked with every write
    ]

    assert found == [
        (Kind.CREATE, "/a", b"", 0, False),
        (Kind.CHECK, "/a", b"", 0, False),
        (Kind.SET, "/a", b"x", 1, False),
        (Kind.CREATE, "/b", b"y", 0, True),
        (Kind.CHECK, "/a", b"", 1, False),
        (Kind.CREATE, made, b"z", 0, False),
        (Kind.DELETE, "/a", b"", 0, False),
        (Kind.DELETE, "/b", b"", 0, False),
    ]
