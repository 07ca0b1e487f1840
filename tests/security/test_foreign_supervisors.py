"""A user of this host who listens on the supervisor's port, in search of programs that take files
from there."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cluster_fixtures import NewCluster, make_source, picture
from launcher_site import as_root
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from torrentdist import AsyncClient, TorrentdistError
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.doors.bundle_filesystem import TorrentdistFileSystem
from torrentdist.host.http.uvicorn_adapter import WebServer
from torrentdist.host.http.web import json_response
from torrentdist.host.process.listening_sockets import bind_socket
from torrentdist.http.port_owner import is_trusted_listener
from torrentdist.model.ids import BundleId
from torrentdist.model.wire.fleet_messages import HostBundleView, HostState
from torrentdist.security.signing.signing_keys import generate_key
from torrentdist.spark.gateway_calls import fetch_here

pytestmark = [as_root, pytest.mark.anyio, pytest.mark.case("F12")]
ID = BundleId("etl-1")
STRANGER, DAEMON = 61001, 61002


def listening(user: int) -> socket.socket:
    """A socket as this user's process would have opened it, since the kernel keeps the user."""
    made = bind_socket("127.0.0.1", 0, what="another user's program")
    made.listen()
    os.fchown(made.fileno(), user, user)
    return made


def url_of(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


@asynccontextmanager
async def supervisor_of(user: int, home: Path, meta: Metafile) -> AsyncIterator[str]:
    """Says that this host has the bundle in `home`."""

    async def live(_: Request) -> Response:
        return Response("ok")

    async def show(_: Request) -> Response:
        path = str(home / "content")
        return json_response(HostBundleView(id=ID, digest=meta.digest, state=HostState.DONE, path=path))

    routes = [Route("/livez", live), Route(f"/v1/host/bundles/{ID}/fetch", show, methods=["POST"])]
    routes.append(Route(f"/v1/host/bundles/{ID}", show))
    listener = listening(user)
    server = WebServer(Starlette(routes=routes), listener, grace_secs=0.0)
    await server.start()
    try:
        yield url_of(listener)
    finally:
        await server.stop()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_source(tmp_path / "source", seed=3)


@pytest.fixture
def meta(source: Path) -> Metafile:
    return make_metafile(source)


@pytest.fixture
def offered(tmp_path: Path, source: Path, meta: Metafile) -> Path:
    """The bundle with its own metafile, as a store has it."""
    home = tmp_path / "offered"
    shutil.copytree(source, home / "content", symlinks=True)
    (home / "metafile").write_bytes(meta.raw)
    return home


@pytest.fixture
def altered(offered: Path) -> Path:
    """The same with other bytes in a file of the same size."""
    with (offered / "content" / "data.bin").open("r+b") as file:
        file.write(b"ALTERED")
    return offered


@pytest.fixture
def config(new_cluster: NewCluster, tmp_path: Path, source: Path) -> Path:
    """A cluster with the signed bundle, for clients that use nothing unsigned."""
    cluster, key = new_cluster(masters=1, supervisors=0), generate_key(tmp_path / "key")
    made = tmp_path / "client.toml"
    rule = f'[trust.bundles."*"]\nmode = "enforce"\nkeys = ["{key.public_key}"]\n'
    made.write_text((cluster.dir / "client.toml").read_text() + rule)
    asyncio.run(AsyncClient(config_file=made, supervisor="").upload(source, ID, sign=key.key_file))
    return made


async def test_a_strangers_altered_files_reach_no_program(
    config: Path, tmp_path: Path, source: Path, meta: Metafile, altered: Path
) -> None:
    """If this fails, any user of a host without a supervisor runs code as its other users, under
    the name of those who signed the bundle."""
    async with supervisor_of(STRANGER, altered, meta) as url:
        client = AsyncClient(config_file=config, supervisor=url)
        view = await client.download(ID, tmp_path / "dest")
        path = await client.path(ID)

    assert picture(source) == picture(tmp_path / "dest")
    assert picture(source) == picture(path)
    assert view.sources.masters == meta.size


def forget_trust(config: Path) -> None:
    config.write_text(config.read_text().partition("[trust.")[0])


@pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])
async def test_a_strangers_altered_files_reach_no_reader(
    signed: bool, config: Path, source: Path, meta: Metafile, altered: Path
) -> None:
    """If this fails, any user of a host without a supervisor chooses what pandas reads, or runs
    code as those who read a pickle."""
    if not signed:
        forget_trust(config)
    async with supervisor_of(STRANGER, altered, meta) as url:
        found = await asyncio.to_thread(TorrentdistFileSystem(config_file=config, supervisor=url).cat, f"{ID}/data.bin")

    assert (source / "data.bin").read_bytes() == found


async def test_a_reader_believes_signatures_and_not_its_supervisor(config: Path, tmp_path: Path) -> None:
    """If this fails, a rogue master brings other content under the name of a signed bundle to
    everybody who reads with fsspec."""
    other = make_source(tmp_path / "other", seed=4)
    home, meta = tmp_path / "home", make_metafile(other)
    shutil.copytree(other, home / "content", symlinks=True)
    (home / "metafile").write_bytes(meta.raw)
    async with supervisor_of(0, home, meta) as url:
        files = TorrentdistFileSystem(config_file=config, supervisor=url)
        with pytest.raises((TorrentdistError, OSError)):
            await asyncio.to_thread(files.cat, f"{ID}/data.bin")


@pytest.mark.parametrize(("user", "believed"), [(STRANGER, False), (0, True)])
async def test_an_executor_runs_no_strangers_files(user: int, believed: bool, meta: Metafile, offered: Path) -> None:
    """If this fails, any user of a host without a supervisor runs code as Spark's executors."""
    async with supervisor_of(user, offered, meta) as url:
        found = asyncio.to_thread(fetch_here, ID, url, 10.0)
        if believed:
            assert offered / "content" == await found
        else:
            with pytest.raises(TorrentdistError, match="another user"):
                await found


async def test_a_supervisor_of_another_user_serves_as_before(
    config: Path, tmp_path: Path, source: Path, meta: Metafile, offered: Path
) -> None:
    """If this fails, a job in a container fetches again what the host's supervisor has, or works in
    a directory that another user can change."""
    async with supervisor_of(STRANGER, offered, meta) as url:
        client = AsyncClient(config_file=config, supervisor=url)
        view = await client.download(ID, tmp_path / "dest")
        path = await client.path(ID)

    assert view.sources.local == meta.size
    assert picture(source) == picture(tmp_path / "dest")
    assert picture(source) == picture(path)
    assert not path.is_relative_to(offered)


async def test_a_strangers_metafile_is_not_the_masters(tmp_path: Path, meta: Metafile, offered: Path) -> None:
    """If this fails, a user of this host chooses what a bundle holds while no master answers."""
    dead = listening(0)
    masters = [url_of(dead)]
    dead.close()
    async with supervisor_of(STRANGER, offered, meta) as url:
        client = AsyncClient(masters, supervisor=url, settings={"client.deadline_secs": 0.2})
        with pytest.raises(TorrentdistError) as caught:
            await client.download(ID, tmp_path / "dest")

    assert "unreachable" == caught.value.code


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A daemon's directory where only root can make one."""
    made = Path(tempfile.mkdtemp(dir="/run"))
    yield made
    made.rmdir()


@pytest.mark.parametrize(
    ("user", "owner", "mode", "trusted"),
    [
        (0, 0, 0o755, True),
        (DAEMON, DAEMON, 0o700, True),
        (STRANGER, DAEMON, 0o700, False),
        (DAEMON, DAEMON, 0o775, False),
        (65534, 65534, 0o700, False),
    ],
)
def test_the_supervisors_user_is_the_owner_of_its_directory(
    data_dir: Path, user: int, owner: int, mode: int, trusted: bool
) -> None:
    """If this fails, a supervisor's files are hashed again for every program, or a stranger's are
    not."""
    os.chown(data_dir, owner, owner)
    data_dir.chmod(mode)
    with listening(user) as listener:
        found = is_trusted_listener(url_of(listener), str(data_dir))

    assert trusted == found


def test_a_directory_that_anybody_could_have_made_shows_no_supervisor(tmp_path: Path) -> None:
    """If this fails, a stranger becomes the supervisor by making its directory."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (shared / "data").mkdir()
    os.chown(shared / "data", STRANGER, STRANGER)
    with listening(STRANGER) as listener:
        assert not is_trusted_listener(url_of(listener), str(shared / "data"))
