"""A stolen identity of a host in ZooKeeper, in the hands of a raw client of a real server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from identity_site import ETL, WEB, Site, thief
from masters_in_process import Enter
from zookeeper_fixtures import eventually

from torrentdist.cluster import paths
from torrentdist.cluster.session import acl
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper
from torrentdist.model.ids import SupervisorId
from torrentdist.supervisor.worker.worker_types import Barrier

pytestmark = pytest.mark.anyio

SECTIONS = [
    "/masters",
    "/supervisors",
    "/election",
    "/failovers",
    "/assignments",
    "/code-distributor",
    "/tokens",
    "/hosts",
    "/invitations",
    "/jobs",
    "/requests",
    "/places",
    "/groups",
    "/groups/jobs",
    "/groups/jobs/barriers",
    "/groups/jobs/members",
]
GRANT_ETL, GRANT_WEB = paths.JOB_GROUP.barrier(ETL), paths.JOB_GROUP.barrier(WEB)


@pytest.mark.case("F6")
@pytest.mark.case("F16")
async def test_a_stolen_identity_writes_nothing_but_its_own(
    site: Site, zookeeper: EmbeddedZooKeeper, chroot: str
) -> None:
    """If this fails, whoever breaks into one host runs code on all of them, or stops their work."""
    stolen, _ = await site.place("a"), await site.place("b")
    await site.assign("a", "web")
    await site.assign("b", "etl")
    secrets = [f"{parent}/x" for parent in (paths.TOKENS, paths.HOSTS, paths.JOBS, paths.INVITATIONS, paths.REQUESTS)]
    for secret in secrets:
        await site.master.zk.ensure(secret)
    _, owner = await site.barriers("b")
    owner.take(ETL)
    await eventually(lambda: owner.state_of(ETL) is Barrier.HELD)
    await site.granted(WEB, "host-a")
    places = [paths.place("a"), paths.place("b"), paths.host_members("a"), paths.host_members("b")]
    records = [*secrets, *places, "/cluster", "/epoch", "/assignments/a", "/assignments/b", GRANT_ETL, GRANT_WEB]
    others = ["", *SECTIONS, paths.place("b"), paths.host_members("b"), GRANT_ETL, "/assignments/a"]
    own = [paths.registration(SupervisorId("a")), f"{paths.host_members('a')}/m", paths.held(GRANT_WEB)]

    def attempts() -> tuple[dict[str, str], dict[str, str]]:
        with thief(zookeeper, chroot, stolen) as zk:
            evil = {f"write {path}": zk.write(path) for path in (*records, paths.held(GRANT_ETL))}
            evil |= {f"open {path}": zk.open(path) for path in records}
            evil |= {f"create in {parent}": zk.create(f"{parent}/y") for parent in others}
            evil |= {f"read {path}": zk.read(path) for path in secrets}
            evil |= {f"delete {path}": zk.delete(path) for path in (*records, paths.held(GRANT_ETL))}
            good = {f"read {path}": zk.read(path) for path in ("/cluster", "/assignments/a", "/masters")}
            good |= {f"create {path}": zk.create(path) for path in own}
            good |= {f"delete {path}": zk.delete(path) for path in own}
        return evil, good

    evil, good = await asyncio.to_thread(attempts)

    assert {} == {attempt: said for attempt, said in evil.items() if said != "NoAuthError"}
    assert {} == {attempt: said for attempt, said in good.items() if said != "done"}
    assert owner.state_of(ETL) is Barrier.HELD
    await acl.check_tree(site.master.zk)


@pytest.mark.case("C6")
async def test_a_barrier_moves_only_after_its_host_has_released_it(site: Site) -> None:
    """If this fails, two hosts run one worker, or a moved worker never starts again."""
    for host in ("a", "b"):
        await site.place(host)
    await site.assign("a", "etl")
    (_, first), (_, second) = await site.barriers("a"), await site.barriers("b")
    first.take(ETL)
    second.take(ETL)
    await eventually(lambda: first.state_of(ETL) is Barrier.HELD)
    await site.assign("a")
    await site.assign("b", "etl")
    await site.master.mirror.sync(5.0)
    owners = [(await site.user_with_grant(ETL), second.state_of(ETL))]
    first.release(ETL)
    await eventually(lambda: second.state_of(ETL) is Barrier.HELD)
    owners.append((await site.user_with_grant(ETL), second.state_of(ETL)))

    assert [("host-a", Barrier.ASKED), ("host-b", Barrier.HELD)] == owners
    assert first.state_of(ETL) is Barrier.FREE


async def test_a_grant_ends_with_its_assignment(site: Site) -> None:
    """If this fails, the tree fills with grants of workers that are gone."""
    await site.place("a")
    await site.assign("a", "etl")
    _, owner = await site.barriers("a")
    owner.take(ETL)
    await eventually(lambda: owner.state_of(ETL) is Barrier.HELD)
    await site.assign("a")
    owner.release(ETL)
    await site.granted(ETL, None)


async def test_a_host_without_an_identity_excludes_one_with_it(site: Site) -> None:
    """If this fails, a worker runs twice while a cluster goes over to identities."""
    await site.place("b")
    await site.assign("a", "etl")
    _, old = await site.barriers("masters")
    old.take(ETL)
    await eventually(lambda: old.state_of(ETL) is Barrier.HELD)
    await site.assign("a")
    await site.assign("b", "etl")
    _, new = await site.barriers("b")
    new.take(ETL)
    await site.master.mirror.sync(5.0)
    during = new.state_of(ETL)
    old.release(ETL)
    await eventually(lambda: new.state_of(ETL) is Barrier.HELD)
    await site.assign("b")
    await site.assign("a", "etl")
    old.take(ETL)
    new.release(ETL)
    await eventually(lambda: old.state_of(ETL) is Barrier.HELD)

    assert during is not Barrier.HELD
    assert new.state_of(ETL) is Barrier.FREE


async def test_a_next_leader_goes_on_with_the_grants_that_are_there(site: Site, enter: Enter) -> None:
    """If this fails, every failover stops workers, or leaves moved ones without a barrier."""
    for host in ("a", "b"):
        await site.place(host)
    await site.assign("a", "etl", "web")
    _, owner = await site.barriers("a")
    owner.take(ETL)
    await eventually(lambda: owner.state_of(ETL) is Barrier.HELD)
    await site.granted(WEB, "host-a")
    await site.stop_grants()
    await site.assign("a", "etl")
    await site.assign("b", "web")
    site.start_grants()
    await site.granted(WEB, "host-b")

    assert owner.state_of(ETL) is Barrier.HELD
    assert "host-a" == await site.user_with_grant(ETL)


async def test_a_next_leader_reads_the_grants_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, workers that end during a failover leave grants behind, or each change of the
    cluster makes its leader read all grants again."""
    await site.place("a")
    await site.assign("a", "etl", "web")
    for resource in (ETL, WEB):
        await site.granted(resource, "host-a")
    await site.stop_grants()
    await site.assign("a", "web")
    listed, children = list[str](), site.master.zk.children

    async def counted(path: str, *more: Any) -> Any:
        listed.append(path)
        return await children(path, *more)

    monkeypatch.setattr(site.master.zk, "children", counted)
    site.start_grants()
    await site.granted(ETL, None)
    await site.assign("a", "etl", "web")
    await site.granted(ETL, "host-a")

    assert 1 == listed.count(paths.JOB_GROUP.barriers)
    assert "host-a" == await site.user_with_grant(WEB)
