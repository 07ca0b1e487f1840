"""Downloads through a supervisor's HTTP surface: what it has, what it lacks, and when it cannot be
used."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from engines_in_process import run
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from torrentdist.bundle.content_check import same_content
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.client.bundles.destination import open_part
from torrentdist.client.bundles.download import DownloadWanted, download
from torrentdist.client.bundles.host_download import NotHere, fetch_through_supervisor
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.host.http.uvicorn_adapter import WebServer
from torrentdist.host.http.web import json_response, on_torrentdist_error
from torrentdist.host.process.listening_sockets import bind_socket
from torrentdist.model.configuration.config import ClientConfig, Config
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.wire.fleet_messages import HostBundleView, HostState
from torrentdist.model.wire.transfer_messages import DownloadView, Sources, TransferPhase, TransferView

ID = BundleId("etl-1")


@dataclass
class Supervisor:
    """Reports for `polls` polls that it is fetching, and then shows what is in `home`."""

    home: Path
    meta: Metafile
    polls: int = 0
    error: TorrentdistError | None = None
    alive: bool = True
    token: str | None = None

    async def open(self) -> None:
        routes = [
            Route("/livez", self.livez),
            Route(f"/v1/host/bundles/{ID}", self.show),
            Route(f"/v1/host/bundles/{ID}/fetch", self.show, methods=["POST"]),
        ]
        app = Starlette(routes=routes, exception_handlers={TorrentdistError: on_torrentdist_error})
        self.server = WebServer(app, bind_socket("127.0.0.1", 0, what="a test's supervisor"))
        await self.server.start()
        self.url = f"http://127.0.0.1:{self.server.port}"

    async def livez(self, request: Request) -> Response:
        self.token = request.headers.get("authorization")
        return Response("ok") if self.alive else Response("no", status_code=404)

    async def show(self, request: Request) -> Response:
        if self.error is not None:
            raise self.error
        self.polls -= 1
        size = self.meta.size
        sources = Sources(masters=size - 10, peers=10)
        phase = TransferPhase.SEEDING if self.polls < 0 else TransferPhase.FETCHING
        transfer = TransferView(digest=self.meta.digest, phase=phase, size=size, done=size, sources=sources)
        state = HostState.DONE if self.polls < 0 else HostState.FETCHING
        path = str(self.home / "content") if self.polls < 0 else ""
        return json_response(HostBundleView(id=ID, digest=self.meta.digest, state=state, path=path, transfer=transfer))


@pytest.fixture
def supervisor(tmp_path: Path) -> Supervisor:
    source = tmp_path / "source"
    source.mkdir()
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o755)
    (source / "data").write_bytes(b"x" * 100_000)
    (source / "link").symlink_to("data")
    meta = make_metafile(source)
    shutil.copytree(source, tmp_path / "object" / "content", symlinks=True)
    (tmp_path / "object" / "metafile").write_bytes(meta.raw)
    return Supervisor(tmp_path / "object", meta)


@asynccontextmanager
async def serving(supervisor: Supervisor) -> AsyncIterator[str]:
    await supervisor.open()
    try:
        yield supervisor.url
    finally:
        await supervisor.server.stop()


async def fetch(url: str, dest: Path | str, token_file: Path | None = None, **options: Any) -> DownloadView:
    """Downloads while no master answers."""
    here = bind_socket("127.0.0.1", 0, what="a dead master")
    nobody = f"http://127.0.0.1:{here.getsockname()[1]}"
    here.close()
    token = str(token_file) if token_file else ""
    config = ClientConfig(masters=[nobody], supervisor=url, deadline_secs=0.2, token_file=token)
    async with MasterClient(config) as client:
        return await download(client, Config(client=config), ID, dest, DownloadWanted(timeout=10.0, **options))


@pytest.mark.parametrize("polls", [0, 2])
def test_dest_is_a_copy_of_the_hosts_bundle(tmp_path: Path, supervisor: Supervisor, polls: int) -> None:
    """If this failed, a host with a supervisor would fetch everything twice, or misstate where it
    came from."""
    supervisor.polls = polls
    size = supervisor.meta.size
    expected = Sources(local=size) if polls == 0 else Sources(masters=size - 10, peers=10)

    async def test() -> None:
        async with serving(supervisor) as url:
            result = await fetch(url, tmp_path / "new" / "dest")

        assert same_content(supervisor.meta, tmp_path / "new" / "dest")
        assert result.sources == expected

    run(test())


def test_a_download_that_began_without_the_supervisor_goes_on_through_it(
    tmp_path: Path, supervisor: Supervisor
) -> None:
    """If this failed, a host would fetch a second time what its supervisor has, only because the
    supervisor was down when the download began; or the abandoned part would stay on the disk."""
    dest = tmp_path / "dest"
    with open_part(dest) as part:
        part.begin(ID, supervisor.meta)
        (part.content / "data").write_bytes(b"x" * 50_000)

    async def test() -> None:
        async with serving(supervisor) as url:
            result = await fetch(url, dest)

        assert same_content(supervisor.meta, dest)
        assert result.sources == Sources(local=supervisor.meta.size)
        assert not part.home.exists()

    run(test())


def test_the_room_that_an_earlier_attempt_takes_is_room(
    tmp_path: Path, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this failed, a download that filled most of a disk without the supervisor could not go on
    once the supervisor is back."""
    dest, size = tmp_path / "dest", supervisor.meta.size
    supervisor.polls = 2
    with open_part(dest) as part:
        part.begin(ID, supervisor.meta)
        (part.content / "data").write_bytes(b"x" * 80_000)
        os.sync()
    free = shutil.disk_usage(tmp_path)._replace(free=size // 2)
    monkeypatch.setattr("shutil.disk_usage", lambda _: free)

    async def test() -> None:
        async with serving(supervisor) as url:
            await fetch(url, dest)

        assert same_content(supervisor.meta, dest)

    run(test())


def test_other_content_at_dest_is_replaced_by_force_alone(tmp_path: Path, supervisor: Supervisor) -> None:
    """If this failed, a download would destroy a user's files, or --force would be of no use."""
    dest = tmp_path / "dest"
    dest.mkdir()
    (dest / "mine").touch()

    async def test() -> None:
        async with serving(supervisor) as url:
            with pytest.raises(TorrentdistError) as caught:
                await fetch(url, dest)
            supervisor.polls = 0
            kept = os.listdir(dest)
            await fetch(url, dest, force=True)

        assert (caught.value.code, kept) == ("dest_exists", ["mine"])
        assert same_content(supervisor.meta, dest)

    run(test())


@pytest.mark.case("G4")
def test_the_current_directory_is_not_replaced(
    tmp_path: Path, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this failed, `download etl-1 . --force`, or an empty DEST, would delete everything in the
    user's directory."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "mine").touch()
    monkeypatch.chdir(tmp_path / "here")

    async def test() -> None:
        async with serving(supervisor) as url:
            with pytest.raises(TorrentdistError) as caught:
                await fetch(url, Path("."), force=True)
            with pytest.raises(TorrentdistError) as empty:
                await fetch(url, "", force=True)

        assert (caught.value.code, empty.value.code) == ("protected_path", "empty_path")
        assert os.listdir(tmp_path / "here") == ["mine"]

    run(test())


async def command_line(url: str, *args: str) -> tuple[int | None, str, str]:
    """Runs `torrentdist download` while no master answers. Returns its exit code and output."""
    code = "import sys; from torrentdist_cli.main import main; sys.exit(main(sys.argv[1:]))"
    options = ["--masters", "http://127.0.0.1:1"]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("TORRENTDIST_")},
        "TORRENTDIST_CLIENT_SUPERVISOR": url,
        "TORRENTDIST_CLIENT_DEADLINE_SECS": "0.2",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, *options, "download", ID, *args, stdout=PIPE, stderr=PIPE, env=environment
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@pytest.mark.case("G4")
def test_an_empty_current_directory_is_not_replaced(
    tmp_path: Path, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this failed, the user's shell would stand in a directory that is deleted."""
    (tmp_path / "here").mkdir()
    before = (tmp_path / "here").stat().st_ino
    monkeypatch.chdir(tmp_path / "here")

    async def test() -> None:
        async with serving(supervisor) as url:
            code, _, err = await command_line(url, ".", "--force")

        assert 4 == code
        assert err.startswith("error[protected_path]: ")
        assert (before, []) == ((tmp_path / "here").stat().st_ino, os.listdir(tmp_path / "here"))

    run(test())


def test_a_single_file_goes_into_a_destination_with_a_slash(tmp_path: Path, supervisor: Supervisor) -> None:
    """If this failed, `download ID new/` would give the file another name than `cp` does."""
    single = make_metafile(supervisor.home / "content" / "data")
    (supervisor.home / "metafile").write_bytes(single.raw)
    for name in ("run.sh", "link"):
        (supervisor.home / "content" / name).unlink()
    supervisor.meta = single

    async def test() -> None:
        async with serving(supervisor) as url:
            code, _, err = await command_line(url, f"{tmp_path}/new/")

        assert (0, "") == (code, err)
        assert ["data"] == os.listdir(tmp_path / "new")

    run(test())


def test_a_parent_that_is_a_file_is_named(tmp_path: Path, supervisor: Supervisor) -> None:
    """If this failed, a typing mistake would show as a bug of torrentdist."""
    (tmp_path / "file").touch()

    async def test() -> None:
        async with serving(supervisor) as url:
            with pytest.raises(TorrentdistError) as caught:
                await fetch(url, tmp_path / "file" / "x")

        assert "disk_error" == caught.value.code
        assert str(tmp_path / "file") in caught.value.message

    run(test())


def test_the_supervisor_is_not_told_the_token(tmp_path: Path, supervisor: Supervisor) -> None:
    """If this failed, any user of a host that listens on the supervisor's port would get the
    cluster's token."""
    (tmp_path / "token").write_text("s3cret")
    (tmp_path / "token").chmod(0o600)

    async def test() -> None:
        async with serving(supervisor) as url:
            await fetch(url, tmp_path / "dest", tmp_path / "token")

        assert supervisor.token is None

    run(test())


def test_the_supervisors_failure_is_the_downloads(tmp_path: Path, supervisor: Supervisor) -> None:
    """A25: if this failed, a full disk or an unknown id on the host would show as something else,
    or as a success."""
    supervisor.error = TorrentdistError("disk_full", path="/data", needed=9, free=1)

    async def test() -> None:
        async with serving(supervisor) as url:
            with pytest.raises(TorrentdistError) as caught:
                await fetch(url, tmp_path / "dest")

        assert (caught.value.code, caught.value.exit_code) == ("disk_full", 8)

    run(test())


def test_a_supervisor_that_does_not_finish_is_timed_out(supervisor: Supervisor) -> None:
    """A25: if this failed, a download through a supervisor would have no deadline."""
    supervisor.polls = 1_000_000

    async def test() -> None:
        async with serving(supervisor) as url:
            with pytest.raises(TorrentdistError) as caught:
                await fetch_through_supervisor(url, ID, 0.3, lambda news: None)

        assert (caught.value.code, caught.value.exit_code) == ("timed_out", 6)

    run(test())


@pytest.mark.parametrize("fault", ["dead", "silent", "stranger", "unreadable", "other content"])
def test_a_supervisor_that_cannot_be_used_is_left_aside(supervisor: Supervisor, fault: str) -> None:
    """If this failed, a host with a broken supervisor, or another service on its port, could not
    download at all."""

    async def test() -> None:
        async with serving(supervisor) as url:
            if fault == "silent":
                silent = bind_socket("127.0.0.1", 0, what="a stopped supervisor")
                url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            elif fault == "dead":
                await supervisor.server.stop()
            elif fault == "stranger":
                supervisor.alive = False
            elif fault == "unreadable":
                supervisor.home = Path("/nonexistent")
            else:
                (supervisor.home / "metafile").write_bytes(make_metafile(supervisor.home / "content/data").raw)
            with pytest.raises(NotHere):
                await fetch_through_supervisor(url, ID, 5.0, lambda news: None)
            if fault == "silent":
                silent.close()

    run(test())
