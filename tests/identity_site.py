"""A leader that gives hosts identities in ZooKeeper, its hosts' barriers, and a thief with a host's
auth file."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.security import OPEN_ACL_UNSAFE
from masters_in_process import Enter, InProcess
from zookeeper_fixtures import Connect, eventually_async, write_auth

from torrentdist.cluster import paths
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper
from torrentdist.master.access.host_operations import revocation_ops
from torrentdist.master.master_session import MasterSession
from torrentdist.master.places.grant_loop import GrantLoop
from torrentdist.master.places.place_operations import PARENTS, place_ops, user_of
from torrentdist.master.places.place_removal import PlaceRemoval
from torrentdist.model.access.zookeeper_identity import auth_text, identity_of
from torrentdist.model.ids import JobId, MasterId, SupervisorId
from torrentdist.model.records import AssignmentRecord, WorkerAssignment, encode
from torrentdist.supervisor.exclusivity.barriers import Barriers, Seat

SECRET = "a-secret-that-only-the-masters-have-0123456789"
LEASE_SECS = 2.0
"""How long the leader takes the lease of a host that was shut out to last."""
ETL = paths.worker_resource(JobId("etl"), 0)
WEB = paths.worker_resource(JobId("web"), 0)


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
        return write_auth(self.directory / f"{host}.auth", auth_text(identity_of(SECRET, user)).rstrip())

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

    async def revoke(self, host: str) -> None:
        await self.master.changes.make_alone(
            None, lambda s: revocation_ops(s, host, "an operator", time.time(), unknown=True), lambda s: ""
        )

    async def invite_again(self, host: str) -> None:
        """Gives a revoked id to a new host, as a redeemed invitation does."""
        entry = self.master.mirror.snapshot.hosts[host]
        record = msgspec.structs.replace(entry.record, is_revoked=False)
        await self.master.zk.set(paths.host(host), encode(record))
        await self.master.mirror.sync(5.0)

    def start_grants(self) -> None:
        session, leadership = MasterSession(MasterId("m1"), self.master.zk, self.master.mirror), self.master.leadership
        self.grants = asyncio.create_task(GrantLoop(session, leadership, LEASE_SECS).run())

    async def stop_grants(self) -> None:
        self.grants.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.grants

    async def granted(self, resource: str, user: str | None) -> None:
        """Waits until this user has the grant."""

        async def has() -> bool:
            return await self.user_with_grant(resource) == user

        await eventually_async(has)

    async def written_at(self, path: str) -> float:
        """Returns when a znode was last written, by ZooKeeper's clock."""
        found = await self.master.zk.get(path)
        assert found is not None
        return found[1].mtime

    async def user_with_grant(self, resource: str) -> str | None:
        found = await self.master.zk.get(paths.JOB_GROUP.barrier(resource))
        return None if found is None else found[0].decode()


@pytest.fixture
async def site(enter: Enter, connect: Connect, tmp_path: Path) -> AsyncIterator[Site]:
    auth = write_auth(tmp_path / "masters.auth", f"masters:{SECRET}")
    master = await enter("m1", auth_file=auth, identities=True)
    await master.leads()
    made = Site(master, connect, tmp_path)
    made.start_grants()
    session = MasterSession(MasterId("m1"), master.zk, master.mirror)
    made.tasks.append(asyncio.create_task(PlaceRemoval(session, master.leadership).run()))
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
def thief(zookeeper: EmbeddedZooKeeper, chroot: str, auth_file: str | Path) -> Iterator[Thief]:
    lines = Path(auth_file).read_text().split()
    client = KazooClient(hosts=zookeeper.addresses[0], auth_data=[("digest", line) for line in lines])
    client.start(10)
    try:
        yield Thief(client, chroot)
    finally:
        client.stop()
        client.close()
