"""A host that was revoked loses what it had in ZooKeeper, whoever holds its identity."""

from __future__ import annotations

import asyncio
import shutil

import pytest
from identity_site import ETL, LEASE_SECS, WEB, Site, thief
from kazoo.security import make_digest_acl
from masters_in_process import Enter
from msgspec.structs import replace
from zookeeper_fixtures import eventually, eventually_async

from torrentdist.cluster import paths
from torrentdist.cluster.session import acl
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper
from torrentdist.launcher.run.run_lease import clock
from torrentdist.master.master_session import MasterSession
from torrentdist.master.places.place_operations import user_of
from torrentdist.master.places.place_removal import PlaceRemoval, to_remove
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MasterId, SupervisorId
from torrentdist.supervisor.worker.worker_types import Barrier

pytestmark = pytest.mark.anyio


@pytest.mark.case("F6")
async def test_a_revoked_host_loses_its_lease_first_and_then_its_barrier(site: Site) -> None:
    """If this fails, a revoked host keeps a worker from running anywhere else, or runs it beside
    another host."""
    for host in ("a", "b"):
        await site.place(host)
    await site.assign("a", "etl")
    (zk, first), (_, second) = await site.barriers("a"), await site.barriers("b")
    await zk.create(paths.registration(SupervisorId("a")), ephemeral=True)
    first.take(ETL)
    second.take(ETL)
    await eventually(lambda: first.state_of(ETL) is Barrier.HELD)
    await site.revoke("a")

    async def is_gone() -> bool:
        return await site.master.zk.exists(paths.place("a")) is None

    await eventually_async(is_gone)
    await site.assign("a")
    await site.assign("b", "etl")
    renewed = first.lease.sent
    await eventually(lambda: second.state_of(ETL) is Barrier.HELD)

    lost = await site.written_at(paths.host("a"))
    granted = await site.written_at(paths.JOB_GROUP.barrier("etl.0"))
    assert granted >= lost + LEASE_SECS
    assert first.lease.sent == renewed
    with pytest.raises(TorrentdistError):
        await site.place("a")
    await acl.check_tree(site.master.zk)


async def test_a_place_that_was_taken_stays_away_while_the_mirror_still_shows_it(site: Site) -> None:
    """If this fails, a revoked host's place is made again, empty, and stays for ever."""
    await site.place("a")
    before = site.master.mirror.snapshot
    await site.revoke("a")

    async def is_gone() -> bool:
        return await site.master.zk.exists(paths.place("a")) is None

    await eventually_async(is_gone)
    entry, found = site.master.mirror.snapshot.hosts["a"], await site.master.zk.get(paths.host("a"))
    assert found is not None
    behind = replace(before, hosts={"a": replace(entry, version=found[1].version - 1)})
    session = MasterSession(MasterId("m1"), site.master.zk, site.master.mirror)
    await PlaceRemoval(session, site.master.leadership)._step(behind)

    assert ["a"] == list(to_remove(behind))
    assert await is_gone()


async def test_a_new_leader_waits_for_what_is_left_of_a_lease(site: Site) -> None:
    """Under leaders that change all the time, the workers of a revoked host would run nowhere."""
    for host in ("a", "b"):
        await site.place(host)
    await site.assign("a", "etl")
    (_, first), (_, second) = await site.barriers("a"), await site.barriers("b")
    first.take(ETL)
    await eventually(lambda: first.state_of(ETL) is Barrier.HELD)
    await site.revoke("a")

    async def lease_ended() -> bool:
        host = await site.master.zk.get(paths.host("a"))
        gone = await site.master.zk.exists(paths.place("a")) is None
        return gone and host is not None and (site.master.zk.server_now() or 0.0) > host[1].mtime + LEASE_SECS

    await site.stop_grants()
    await eventually_async(lease_ended)
    await site.assign("a")
    await site.assign("b", "etl")
    second.take(ETL)
    began = clock()
    site.start_grants()
    await eventually(lambda: second.state_of(ETL) is Barrier.HELD)

    assert clock() - began < LEASE_SECS * 0.9


@pytest.mark.case("F6")
async def test_the_next_host_of_an_id_is_another_user(site: Site, zookeeper: EmbeddedZooKeeper, chroot: str) -> None:
    """If this fails, the thief of a revoked host works on beside the host that replaced it."""
    stolen = shutil.copy(await site.place("a"), site.directory / "stolen")
    await site.revoke("a")

    async def is_gone() -> bool:
        return "a" not in (await site.master.mirror.sync(5.0)).places

    await eventually_async(is_gone)
    await site.invite_again("a")
    await site.place("a")
    await site.assign("a", "web")
    _, owner = await site.barriers("a")
    owner.take(WEB)
    await eventually(lambda: owner.state_of(WEB) is Barrier.HELD)
    own = paths.registration(SupervisorId("a"))
    held = paths.held(paths.JOB_GROUP.barrier(WEB))

    def attempts() -> list[str]:
        with thief(zookeeper, chroot, stolen) as zk:
            return [zk.create(own), zk.create(f"{paths.host_members('a')}/m"), zk.delete(held)]

    assert ["NoAuthError"] * 3 == await asyncio.to_thread(attempts)
    assert owner.state_of(WEB) is Barrier.HELD


async def test_what_a_host_closes_to_the_masters_stops_nobody_else(
    site: Site, zookeeper: EmbeddedZooKeeper, chroot: str, enter: Enter
) -> None:
    """If this fails, one stolen identity blinds every master, or stops the placement of all
    workers."""
    stolen = await site.place("a")
    await site.place("b")
    await site.assign("a", "etl")
    await site.granted(ETL, "host-a")
    closed = [make_digest_acl("nobody", "knows", all=True)]

    def close() -> None:
        with thief(zookeeper, chroot, stolen) as zk:
            for path in (paths.registration(SupervisorId("a")), paths.held(paths.JOB_GROUP.barrier(ETL))):
                zk.client.create(chroot + path, b"{}", acl=closed)

    await asyncio.to_thread(close)
    await site.assign("a")
    await site.assign("b", "etl", "web")
    await site.granted(WEB, "host-b")
    later = await enter("m2", auth_file=str(site.directory / "masters.auth"), identities=True)
    snapshot = await later.mirror.sync(5.0)

    assert {"a": "host-a", "b": "host-b"} == snapshot.places
    assert SupervisorId("a") not in snapshot.supervisors
    assert "host-a" == await site.user_with_grant(ETL)
    await site.revoke("a")
    await site.granted(ETL, "host-b")


@pytest.mark.case("F6")
async def test_a_revoked_host_keeps_its_place_by_nothing_that_it_put_there(
    site: Site, zookeeper: EmbeddedZooKeeper, chroot: str
) -> None:
    """If this fails, one znode below another keeps a revoked host's worker from running anywhere
    else, its id from being given to another host, or masters from starting again."""
    stolen = await site.place("a")
    await site.place("b")
    await site.assign("a", "etl")
    await site.granted(ETL, "host-a")
    closed = [make_digest_acl("nobody", "knows", all=True)]
    registered = paths.registration(SupervisorId("a"))

    def occupy() -> None:
        with thief(zookeeper, chroot, stolen) as zk:
            zk.create(f"{paths.host_members('a')}/m")
            zk.create(f"{paths.host_members('a')}/m/deep")
            zk.create(registered)
            zk.create(f"{registered}/closed")
            zk.client.create(f"{chroot}{registered}/closed/deep", b"", acl=closed)
            zk.client.set_acls(f"{chroot}{registered}/closed", closed)

    await asyncio.to_thread(occupy)
    await site.revoke("a")
    await eventually(lambda: site.master.mirror.snapshot.places.get("a") == "")
    await acl.check_tree(site.master.zk)
    await site.assign("a")
    await site.assign("b", "etl")
    await site.granted(ETL, "host-b")
    await site.invite_again("a")
    await site.place("a")
    snapshot = await site.master.mirror.sync(5.0)

    members = await site.master.zk.get(paths.host_members("a"))
    assert members is not None
    assert user_of(snapshot, "a") == snapshot.places["a"] == members[0].decode() != "host-a"
    assert await site.master.zk.exists(f"{paths.host_members('a')}/m") is None
