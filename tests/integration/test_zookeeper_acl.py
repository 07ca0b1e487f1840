"""Authentication against a real ZooKeeper, and the ACLs of our znodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from zookeeper_fixtures import Connect, write_auth

from torrentdist.client.zookeeper_probe import TreeAccess, ask_access
from torrentdist.cluster.session import acl
from torrentdist.cluster.session.acl_table import OPEN, Acl
from torrentdist.cluster.session.znode_operations import Create
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper
from torrentdist.model.configuration.config import ZooKeeperConfig
from torrentdist.model.errors import TorrentdistError

pytestmark = pytest.mark.anyio


@pytest.fixture
def auth_file(tmp_path: Path) -> str:
    return write_auth(tmp_path / "auth", "td:s3cret:with:colons")


async def test_others_are_refused(
    zookeeper: EmbeddedZooKeeper, chroot: str, connect: Connect, auth_file: str, tmp_path: Path
) -> None:
    """If this fails, every user who reaches ZooKeeper can run code on every host through
    /assignments."""
    owner = await connect(auth_file=auth_file)
    await owner.ensure("/assignments")
    await owner.commit([Create("/assignments/s1", b"x")])
    await owner.create("/assignments/s2", b"x", ephemeral=True)
    codes = []
    for auth in ("", write_auth(tmp_path / "other", "td:wrong")):
        with pytest.raises(TorrentdistError) as caught:
            await connect(auth_file=auth)
        codes.append(caught.value.code)
    stranger = await asyncio.to_thread(_raw_attempts, zookeeper.addresses[0], chroot)

    assert codes == ["forbidden", "forbidden"]
    assert stranger == ["NoAuthError"] * 4
    await acl.check_tree(owner)


async def test_the_doctor_asks_as_a_stranger(
    zookeeper: EmbeddedZooKeeper, chroot: str, connect: Connect, auth_file: str
) -> None:
    """If this fails, the doctor calls a tree closed that anybody can write."""

    async def door(path: str) -> TreeAccess:
        server = zookeeper.servers[0]
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        try:
            return await ask_access(reader, writer, path)
        finally:
            writer.close()

    before = await door(chroot)
    await connect(auth_file=auth_file)
    await connect(chroot=f"{chroot}-open")

    assert [TreeAccess.ABSENT, TreeAccess.CLOSED, TreeAccess.OPEN] == [
        before,
        await door(chroot),
        await door(f"{chroot}-open"),
    ]


def _raw_attempts(address: str, chroot: str) -> list[str]:
    """Returns ZooKeeper's answers to a client that knows our paths but not our password."""
    stranger = KazooClient(hosts=address)
    stranger.start(10)
    attempts: list[Callable[[], object]] = [
        lambda: stranger.get(f"{chroot}/assignments/s1"),
        lambda: stranger.set(f"{chroot}/assignments/s2", b"y"),
        lambda: stranger.create(f"{chroot}/assignments/s3"),
        lambda: stranger.delete(f"{chroot}/assignments/s1"),
    ]
    said = []
    for attempt in attempts:
        try:
            said.append(str(attempt()))
        except Exception as exc:
            said.append(type(exc).__name__)
    stranger.stop()
    stranger.close()
    return said


async def test_an_open_znode_is_named_and_mended(connect: Connect, auth_file: str) -> None:
    """If this fails, a tree that was opened, or was created without authentication, goes
    unnoticed."""
    open_client = await connect()
    before = 1 + len(await open_client.children("/") or ())  # counting the root
    for path in ("/a", "/a/1", "/b"):
        await open_client.create(path)
    owner = await connect(auth_file=auth_file)
    await owner.create("/c")
    with pytest.raises(TorrentdistError) as caught:
        await acl.check_tree(owner)
    mended = await acl.repair_tree(owner)
    await acl.check_tree(owner)

    assert (caught.value.code, caught.value.fields["path"]) == ("acl_mismatch", "/")
    assert mended == before + 3
    with pytest.raises(TorrentdistError):
        await open_client.get("/a/1")


async def test_the_first_open_path_is_named(connect: Connect, auth_file: str) -> None:
    """If this fails, the operator is not told which znode is open."""
    owner = await connect(auth_file=auth_file)
    for n in range(200):
        await owner.create(f"/n{n:03}")
    for n in (77, 150):
        await owner.secure(f"/n{n:03}", [OPEN])
    with pytest.raises(TorrentdistError) as caught:
        await acl.check_tree(owner)

    assert caught.value.fields["path"] == "/n077"
    assert await acl.repair_tree(owner) == 2


async def test_an_open_cluster_is_not_checked(connect: Connect) -> None:
    """If this fails, `dev` does not start."""
    zk = await connect()
    await zk.create("/a")
    await acl.check_tree(zk)

    assert await acl.repair_tree(zk) == 0


@pytest.mark.parametrize("content", ["", "user", "user:", ":password", "\n"])
def test_an_unusable_auth_file_is_refused(tmp_path: Path, content: str) -> None:
    """If this fails, a daemon starts without authentication though it was asked for."""
    path = write_auth(tmp_path / "auth", content)
    with pytest.raises(TorrentdistError) as caught:
        ZooKeeper(ZooKeeperConfig(auth_file=path))

    assert caught.value.code == "secret_invalid"
    with pytest.raises(TorrentdistError):
        ZooKeeper(ZooKeeperConfig(auth_file=str(tmp_path / "missing")))


def test_an_auth_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """If this fails, any user of a host can run code on all hosts."""
    path = write_auth(tmp_path / "auth", "td:s3cret")
    Path(path).chmod(0o640)
    with pytest.raises(TorrentdistError) as caught:
        ZooKeeper(ZooKeeperConfig(auth_file=path))

    assert caught.value.code == "secret_invalid"


@pytest.fixture
def sasl_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that knows one user, td with the password s3cret."""
    jaas = tmp_path / "jaas.conf"
    module = "org.apache.zookeeper.server.auth.DigestLoginModule"
    jaas.write_text(f'Server {{ {module} required user_td="s3cret"; }};\n')
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.auth.login.config={jaas}")
    provider = "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
    server = EmbeddedZooKeeper(tmp_path / "zookeeper", config=[provider])
    server.start()
    yield server.addresses[0]
    server.stop()


async def test_sasl_closes_the_tree_to_others(sasl_address: str, connect: Connect, tmp_path: Path) -> None:
    """If this fails, a cluster that is told to use SASL is open, or no daemon can connect."""
    owner = await connect(servers=[sasl_address], sasl=True, auth_file=write_auth(tmp_path / "own", "td:s3cret"))
    await owner.ensure("/assignments")
    await owner.commit([Create("/assignments/s1", b"x")])
    found = await owner.acls("/assignments/s1")
    codes = []
    for settings in ({}, {"sasl": True, "auth_file": write_auth(tmp_path / "other", "td:wrong")}):
        with pytest.raises(TorrentdistError) as caught:
            await connect(servers=[sasl_address], **settings)
        codes.append(caught.value.code)
    await acl.check_tree(owner)

    assert [Acl("sasl", "td")] == found
    assert codes == ["forbidden", "forbidden"]


def test_sasl_without_its_library_or_file_is_refused(auth_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, the only sign of the cause is a connection that never comes."""
    monkeypatch.setattr("torrentdist.cluster.session.zookeeper_session.SASL_AVAILABLE", False)
    codes = []
    for config in (ZooKeeperConfig(sasl=True), ZooKeeperConfig(sasl=True, auth_file=auth_file)):
        with pytest.raises(TorrentdistError) as caught:
            ZooKeeper(config)
        codes.append(caught.value.code)

    assert codes == ["config_missing", "missing_dependency"]


def test_a_password_is_not_shown(auth_file: str) -> None:
    """If this fails, the password gets into a log with the first traceback."""
    assert "s3cret" not in repr(acl.read_credentials(auth_file))
