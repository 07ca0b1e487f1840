"""A stolen identity of a host in ZooKeeper, in the hands of a raw client of a real server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.security import OPEN_ACL_UNSAFE
from masters_in_process import Enter, InProcess
from zookeeper_fixtures import Connect, eventually, eventually_async

from torrentdist.cluster import paths
from torrentdist.cluster.session import acl
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper
from torrentdist.master.master_session import MasterSession
from torrentdist.master.places.grant_loop import GrantLoop
from torrentdist.master.places.place_operations import PARENTS, place_ops, user_of
from torrentdist.model.access.zookeeper_identity import auth_text, identity_of
from torrentdist.model.ids import JobId, MasterId, SupervisorId
from torrentdist.model.records import AssignmentRecord, WorkerAssignment, encode
from torrentdist.supervisor.exclusivity.barriers import Barriers, Seat
from torrentdist.supervisor.worker.worker_types import Barrier

pytestmark = pytest.mark.anyio

SECRET = "a-secret-that-only-the-masters-have-0123456789"
ETL = paths.worker_resource(JobId("etl"), 0)
WEB = paths.worker_resource(JobId("web"), 0)


def write_auth(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


@dataclass
class Site:
    """A leader with identities, and hosts that take barriers."""

    master: InProcess
    connect: Connect
    directory: Path
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def place(self, host: str) -> str:
        """Makes a host's place, as the leader does. Returns its auth file."""
        for parent in PARENTS:
            await self.master.zk.ensure(parent)
        await self.master.changes.make_alone(None, lambda s: place_ops(s, host), lambda s: "")
        user = user_of(self.master.mirror.snapshot, host)
        return write_auth(self.directory / f"{host}.auth", auth_text(identity_of(SECRET, user)))

    async def barriers(self, host: str) -> tuple[ZooKeeper, Barriers]:
        zk = await self.connect(auth_file=str(self.directory / f"{host}.auth"), founded=False)

        async def save(_: Seat) -> None: ...

        barriers = Barriers(zk, save, lambda: None, lambda: None)
        self.tasks.append(asyncio.create_task(barriers.run()))
        return zk, barriers

    async def assign(self, host: str, *jobs: str) -> None:
        """Says which first workers of jobs a host runs."""
        workers = tuple(WorkerAssignment(job=JobId(job), worker=0) for job in jobs)
        path, data = paths.assignment(SupervisorId(host)), encode(AssignmentRecord(generation=1, workers=workers))
        zk = self.master.zk
        await (zk.create(path, data) if await zk.exists(path) is None else zk.set(path, data))

    def start_grants(self) -> None:
        session = MasterSession(MasterId("m1"), self.master.zk, self.master.mirror)
        self.grants = asyncio.create_task(GrantLoop(session, self.master.leadership).run())

    async def stop_grants(self) -> None:
        self.grants.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.grants

    async def granted(self, resource: str, user: str | None) -> None:
        """Waits until this user has the grant."""

        async def has() -> bool:
            return await self.user_with_grant(resource) == user

        await eventually_async(has)

    async def user_with_grant(self, resource: str) -> str | None:
        found = await self.master.zk.get(paths.JOB_GROUP.barrier(resource))
        return None if found is None else found[0].decode()


@pytest.fixture
async def site(enter: Enter, connect: Connect, tmp_path: Path) -> AsyncIterator[Site]:
    auth = write_auth(tmp_path / "masters.auth", f"masters:{SECRET}\n")
    master = await enter("m1", auth_file=auth, identities=True)
    await master.leads()
    made = Site(master, connect, tmp_path)
    made.start_grants()
    yield made
    await made.stop_grants()
    for task in made.tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@dataclass(frozen=True)
class Thief:
    """A client of no code of ours, with all that is in a host's auth file."""

    client: KazooClient
    chroot: str

    def create(self, path: str) -> str:
        return _outcome(lambda: self.client.create(self.chroot + path, b"{}"))

    def write(self, path: str) -> str:
        return _outcome(lambda: self.client.set(self.chroot + path, b"{}"))

    def delete(self, path: str) -> str:
        return _outcome(lambda: self.client.delete(self.chroot + path))

    def read(self, path: str) -> str:
        return _outcome(lambda: self.client.get(self.chroot + path))

    def open(self, path: str) -> str:
        return _outcome(lambda: self.client.set_acls(self.chroot + path, OPEN_ACL_UNSAFE))


def _outcome(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except KazooException as exc:
        return type(exc).__name__
    return "done"


@contextlib.contextmanager
def thief(zookeeper: EmbeddedZooKeeper, chroot: str, auth_file: str) -> Iterator[Thief]:
    lines = Path(auth_file).read_text().split()
    client = KazooClient(hosts=zookeeper.addresses[0], auth_data=[("digest", line) for line in lines])
    client.start(10)
    try:
        yield Thief(client, chroot)
    finally:
        client.stop()
        client.close()


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
