"""A backup that is older than a revocation is restored, and the revocation stays."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest
from masters_in_process import Enter
from zookeeper_fixtures import Connect, eventually

from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import ClusterSnapshot, HostEntry, TokenEntry
from torrentdist.cluster.records.tree_backup import make_backup, restore
from torrentdist.cluster.records.tree_restore import passing
from torrentdist.cluster.session.znode_operations import Create, Set
from torrentdist.master.access.kept_revocations import KeptRevocations, Known, forgotten_ops, learned
from torrentdist.master.master_session import MasterSession
from torrentdist.model.access.host_record import HostRecord
from torrentdist.model.access.token_messages import TokenRecord
from torrentdist.model.access.url_messages import KEY_NAME, KEY_ROLE
from torrentdist.model.ids import MasterId
from torrentdist.model.records import ClusterRecord, encode

pytestmark = pytest.mark.anyio

LIVE = HostRecord(id="a", role="supervisor", serial="1", key="k")
REVOKED = HostRecord(id="a", role="supervisor", serial="1", key="k", is_revoked=True, revoked_until=50.0)
TOKEN = TokenRecord(name="t", role="operator", bundles="*", hash="h", created_at=1.0)
ENDED = TokenRecord(name="t", role="operator", bundles="*", hash="h", created_at=1.0, revoked_at=9.0)


def records(*hosts: HostRecord, cluster: str = "c", tokens: tuple[TokenRecord, ...] = ()) -> ClusterSnapshot:
    return ClusterSnapshot(
        cluster=ClusterRecord(id=cluster, announce_key=""),
        hosts={host.id: HostEntry(host, 7) for host in hosts},
        tokens={token.name: TokenEntry(token, 8) for token in tokens},
    )


@pytest.mark.case("F15")
def test_the_restored_records_and_what_is_known_make_a_union() -> None:
    """If this fails, a restore lets a thief in again, or keeps out a host invited since."""
    known = learned(Known(), records(REVOKED, tokens=(ENDED,)))
    gone = learned(known, msgspec.structs.replace(records(), cluster=None))
    kept = learned(gone, records(LIVE, tokens=(TOKEN,)))
    again = msgspec.structs.replace(records(), hosts={"a": HostEntry(LIVE, 7)})
    newer = HostRecord(id="a", role="supervisor", serial="2", key="k2", revoked_until=60.0)
    anew = TokenRecord(name="t", role="operator", bundles="*", hash="another", created_at=99.0)

    assert known == gone == kept
    assert [Set(paths.host("a"), encode(REVOKED), 7)] == forgotten_ops(kept, again)
    assert [Create(paths.host("a"), encode(REVOKED))] == forgotten_ops(kept, records())
    assert [Set(paths.token("t"), encode(ENDED), 8)] == forgotten_ops(kept, records(REVOKED, tokens=(TOKEN,)))
    assert [] == forgotten_ops(kept, records(newer, tokens=(anew,)))
    assert [] == forgotten_ops(kept, records(LIVE, cluster="another"))
    assert Known("another") == learned(kept, records(LIVE, cluster="another"))


@pytest.mark.case("F15")
def test_a_restore_does_not_bring_back_an_old_key_of_urls() -> None:
    """If this fails, a key that was stolen, and replaced since, signs URLs again."""
    old = TokenRecord(name=KEY_NAME, role=KEY_ROLE, hash="old", created_at=1.0)
    new = msgspec.structs.replace(old, hash="new", created_at=2.0)
    known = learned(learned(Known(), records(tokens=(old,))), records(tokens=(new,)))
    restored = learned(known, records(tokens=(old,)))

    assert [Set(paths.token(KEY_NAME), encode(new), 8)] == forgotten_ops(restored, records(tokens=(old,)))
    assert [Create(paths.token(KEY_NAME), encode(new))] == forgotten_ops(learned(restored, records()), records())
    assert [] == forgotten_ops(restored, records(tokens=(new,)))


@pytest.mark.case("F15")
async def test_a_master_revokes_again_what_a_restore_has_forgotten(enter: Enter, connect: Connect) -> None:
    """If this fails, the union is right and nobody writes it."""
    master = await enter("m1")
    await master.leads()
    zk = master.zk
    await zk.create(paths.host("a"), encode(LIVE))
    await zk.ensure(paths.INVITATIONS)
    await zk.create(paths.invitation("b"), b"{}")
    backup = await make_backup(zk)
    await zk.set(paths.host("a"), encode(REVOKED))
    snapshot = await master.mirror.sync(5.0)
    kept = KeptRevocations(MasterSession(MasterId("m1"), zk, master.mirror), master.leadership, snapshot)
    task = asyncio.create_task(kept.run())
    await zk.delete(paths.CLUSTER)
    await eventually(lambda: not master.mirror.snapshot.present)
    for path in (paths.host("a"), paths.invitation("b")):
        await zk.delete(path)
    await restore(await connect(founded=False), backup)
    await eventually(lambda: (e := master.mirror.snapshot.hosts.get("a")) is not None and e.record == REVOKED)
    left = await zk.exists(paths.invitation("b"))
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task

    assert left is None
    assert passing(paths.invitation("b"))
