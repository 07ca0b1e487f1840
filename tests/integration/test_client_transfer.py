"""Uploads and downloads with real engines, against a small master: a directory, an engine and the
routes they need."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from engines_in_process import run
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from zookeeper_fixtures import eventually

from torrentdist.bundle.content_check import finish_content, same_content
from torrentdist.bundle.metafile import Metafile, parse_metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.client.bundles.destination import part_path
from torrentdist.client.bundles.download import DownloadWanted, download
from torrentdist.client.bundles.transfer_progress import TransferProgress, TransferStage, UploadProgress
from torrentdist.client.bundles.upload import UploadWanted, upload
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.host.http.uvicorn_adapter import WebServer
from torrentdist.host.http.web import decode_body, json_response, on_torrentdist_error
from torrentdist.host.process.listening_sockets import bind_socket
from torrentdist.model.configuration.config import ClientConfig, Config, SwarmConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, MasterId, PeerId
from torrentdist.model.records import BundleState
from torrentdist.model.wire.bundle_messages import BundleView
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole, SwarmAnnounce, SwarmEntry
from torrentdist.model.wire.transfer_messages import DownloadView, Sources, UploadView
from torrentdist.swarm.directory.directory import Periods, SwarmDirectory
from torrentdist.swarm.engine.engine import Engine, EngineConfig
from torrentdist.testing.sample_trees import NESTED, write_tree

ID = BundleId("etl-1")
FAST = Periods(fetching_secs=0.1, seeding_secs=0.5, grace_secs=0.2)


@dataclass
class Master:
    """A master with one bundle. `deaf`: its engine dials no peer and accepts none."""

    home: Path
    deaf: bool = False
    upload_limit: int = 0
    meta: Metafile | None = None
    state: BundleState = BundleState.AVAILABLE
    replicas: int = 0
    sent: bytearray = field(default_factory=bytearray)
    requests: list[str] = field(default_factory=list)

    async def open(self, port: int = 0) -> None:
        self.directory = SwarmDirectory(periods=FAST)
        self.engine = Engine(EngineConfig(upload_limit=self.upload_limit))
        await self.engine.start()
        self.engine.allow(())
        routes = [
            Route("/v1/bundles/{id}", self.show),
            Route("/v1/bundles/{id}", self.begin, methods=["POST"]),
            Route("/v1/bundles/{id}/wait", self.wait),
            Route("/v1/bundles/{id}/metafile", self.metafile),
            Route("/v1/swarm", self.hear, methods=["POST"]),
            Route("/v1/uploads/{digest}", self.offset),
            Route("/v1/uploads/{digest}", self.append, methods=["PUT"]),
            Route("/v1/uploads/{digest}/finish", self.finish, methods=["POST"]),
        ]
        app = Starlette(routes=routes, exception_handlers={TorrentdistError: on_torrentdist_error})
        self.server = WebServer(app, bind_socket("127.0.0.1", port, what="a test's master"))
        await self.server.start()

    async def close(self) -> None:
        await self.server.stop()
        await self.engine.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    def hold(self, source: Path) -> Metafile:
        """Publishes the content of `source`, as a holder does."""
        self.meta = make_metafile(source)
        content = self.home / "content"
        if self.meta.single_file:
            content.mkdir(parents=True)
            shutil.copy(source, content / self.meta.name)
        else:
            shutil.copytree(source, content, symlinks=True)
        self.replicas = 1
        self.engine.seed(self.meta, self.home)
        self._tell()
        return self.meta

    def _tell(self) -> None:
        assert self.meta is not None
        entry = SwarmEntry(digest=self.meta.digest, complete=self.replicas > 0)
        said = SwarmAnnounce(peer=PeerId("m1"), role=PeerRole.MASTER, port=self.engine.port, swarms=[entry])
        self.directory.hear(said, source_host="127.0.0.1", now=time.monotonic() + 3600)

    def _members(self) -> list[PeerAddress]:
        assert self.meta is not None
        return self.directory.handout(self.meta.digest, PeerId("m1"), now=time.monotonic())

    def view(self) -> BundleView:
        if self.meta is None:
            raise TorrentdistError("bundle_not_found", id=ID)
        return BundleView(
            id=ID, digest=self.meta.digest, size=self.meta.size, files=self.meta.file_count, replicas=self.replicas,
            min_replicas=1, holders=[MasterId("m1")], created_at=0.0, state=self.state, pinned=False,
        )  # fmt: skip

    async def show(self, request: Request) -> Response:
        return json_response(self.view())

    async def begin(self, request: Request) -> Response:
        self.requests.append("open")
        self.meta = parse_metafile(await request.body())
        if not self.deaf:
            self.engine.fetch(self.meta, self.home, self._members())
        self._tell()
        return json_response(self.view())

    async def wait(self, request: Request) -> Response:
        assert self.meta is not None
        transfer = self.engine.transfer(self.meta.digest)
        try:
            async with asyncio.timeout(float(request.query_params["timeout"])):
                if transfer is None:
                    await asyncio.sleep(0.05)
                else:
                    await transfer.wait_done()
                    self.replicas = 1
                    self._tell()
        except TimeoutError:
            pass
        return json_response(self.view())

    async def metafile(self, request: Request) -> Response:
        if self.meta is None:
            raise TorrentdistError("bundle_not_found", id=ID)
        return Response(self.meta.raw, headers={"X-Digest": self.meta.digest})

    async def hear(self, request: Request) -> Response:
        said = decode_body(await request.body(), SwarmAnnounce)
        self.requests.append("announce")
        answer = self.directory.announce(said, source_host="127.0.0.1", now=time.monotonic(), masters=[self.url])
        if not self.deaf:
            self.engine.allow(self.directory.addresses((), 0.0))
            for entry in said.swarms:
                transfer = self.engine.transfer(entry.digest)
                if transfer is not None:
                    transfer.add_peers(self._members())
        return json_response(answer)

    async def offset(self, request: Request) -> Response:
        return json_response({"offset": len(self.sent)})

    async def append(self, request: Request) -> Response:
        assert int(request.query_params["offset"]) == len(self.sent)
        self.sent += await request.body()
        return json_response({"offset": len(self.sent)})

    async def finish(self, request: Request) -> Response:
        self.replicas = 1
        return json_response(self.view())


@asynccontextmanager
async def talking(tmp_path: Path, **options: Any) -> AsyncIterator[tuple[Master, MasterClient]]:
    master = Master(tmp_path / "master", **options)
    await master.open()
    try:
        async with MasterClient(ClientConfig(masters=[master.url], deadline_secs=5.0)) as client:
            yield master, client
    finally:
        await master.close()


CONFIG = Config(client=ClientConfig(supervisor=""))


async def fetch(
    client: MasterClient, dest: Path, *, progress: Callable[[TransferProgress], None] = lambda _: None, **options: Any
) -> DownloadView:
    wanted = DownloadWanted(timeout=options.pop("timeout", 20.0), **options)
    return await download(client, CONFIG, ID, dest, wanted, progress=progress)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    top = tmp_path / "source"
    write_tree(top, NESTED)
    (top / "job.py").chmod(0o755)
    (top / "hollow").mkdir()
    (top / "link").symlink_to("job.py")
    return top


@pytest.mark.parametrize("what", [".", "data/one-byte", "data/deeper/still deeper/large.bin"])
def test_an_upload_leaves_from_where_it_lies(tmp_path: Path, source: Path, what: str) -> None:
    """If this failed, an upload would copy the bundle first, or the masters would never get it."""

    async def test() -> None:
        seen: list[UploadProgress] = []
        async with talking(tmp_path) as (master, client):
            result = await upload(client, source / what, ID, UploadWanted(timeout=20.0), progress=seen.append)
            assert master.meta is not None
            await asyncio.to_thread(finish_content, master.meta, master.home / "content")

        name = "" if what == "." else os.path.basename(what)
        assert (result.replicas, result.achieved) == (1, True)
        assert {news.phase for news in seen} >= {TransferStage.HASHING}
        assert master.requests[0] == "announce"
        assert same_content(master.meta, master.home / "content" / name)

    run(test())


def test_too_few_replicas_at_the_deadline_are_said(tmp_path: Path, source: Path) -> None:
    """A7: if this failed, an upload with too few replicas would look like a success, or hang."""

    async def test() -> None:
        async with talking(tmp_path) as (_, client):
            result: UploadView = await upload(client, source, ID, UploadWanted(min_replicas=2, timeout=1.5))

            assert (result.replicas, result.min_replicas, result.achieved) == (1, 2, False)

    run(test())


def test_an_uploader_that_nobody_can_dial_sends_over_http(tmp_path: Path, source: Path) -> None:
    """If this failed, an upload from behind a firewall could not succeed."""

    async def test() -> None:
        async with talking(tmp_path, deaf=True) as (master, client):
            result = await upload(client, source, ID, UploadWanted(timeout=20.0, unreachable_secs=0.3))
            assert master.meta is not None
            expected = b"".join((source / file.path).read_bytes() for file in master.meta.files)

            assert result.achieved
            assert bytes(master.sent) == expected

    run(test())


@pytest.mark.parametrize("what", [".", "data/one-byte", "data/deeper/still deeper/large.bin"])
def test_a_download_is_what_was_uploaded(tmp_path: Path, source: Path, what: str) -> None:
    """If this failed, a download would differ from its upload, or leave something beside it."""

    async def test() -> None:
        async with talking(tmp_path) as (master, client):
            meta = await asyncio.to_thread(master.hold, source / what)
            result = await fetch(client, tmp_path / "new" / "dest")

        assert same_content(meta, tmp_path / "new" / "dest")
        assert result.sources == Sources(masters=meta.size)
        assert [entry.name for entry in (tmp_path / "new").iterdir()] == ["dest"]

    run(test())


def test_a_second_download_to_the_same_place_moves_nothing(tmp_path: Path, source: Path) -> None:
    """If this failed, a command that is run again would fetch again, or fail."""

    async def test() -> None:
        async with talking(tmp_path) as (master, client):
            meta = await asyncio.to_thread(master.hold, source)
            await fetch(client, tmp_path / "dest")
            master.requests.clear()
            again = await fetch(client, tmp_path / "dest")

            assert again.sources == Sources(local=meta.size)
            assert master.requests == []

    run(test())


def test_other_content_at_dest_is_replaced_by_force_alone(tmp_path: Path, source: Path) -> None:
    """If this failed, a download would destroy a user's files, or --force would be of no use."""
    dest = tmp_path / "dest"
    dest.mkdir()
    (dest / "mine").touch()

    async def test() -> None:
        async with talking(tmp_path) as (master, client):
            meta = await asyncio.to_thread(master.hold, source)
            with pytest.raises(TorrentdistError) as caught:
                await fetch(client, dest)
            untouched = (dest / "mine").exists()
            await fetch(client, dest, force=True)

        assert (caught.value.code, untouched) == ("dest_exists", True)
        assert same_content(meta, dest)

    run(test())


def test_no_holder_is_a_failure_at_the_deadline_and_the_next_try_goes_on(tmp_path: Path, source: Path) -> None:
    """A25: if this failed, a download without a source would hang or count as done, or content that
    had arrived would be fetched again."""

    async def test() -> None:
        async with talking(tmp_path) as (master, client):
            meta = await asyncio.to_thread(master.hold, source)
            await interrupted(client, tmp_path / "dest")
            await master.engine.remove(meta.digest)
            with pytest.raises(TorrentdistError) as caught:
                await fetch(client, tmp_path / "dest", timeout=1.0)
            kept = part_path(tmp_path / "dest").exists()
            master.engine.seed(meta, master.home)
            result = await fetch(client, tmp_path / "dest")

        assert (caught.value.code, caught.value.exit_code, kept) == ("timed_out", 6, True)
        assert same_content(meta, tmp_path / "dest")
        assert result.sources.local > 0
        assert result.sources.local + result.sources.masters == meta.size

    run(test())


def test_a_download_goes_on_when_the_api_is_away(tmp_path: Path, source: Path) -> None:
    """A23: if this failed, a host with the metafile and known peers could not finish without the
    masters' API."""

    async def test() -> None:
        async with talking(tmp_path) as (master, client):
            meta = await asyncio.to_thread(master.hold, source)
            await interrupted(client, tmp_path / "dest")
            await master.server.stop()
            await fetch(client, tmp_path / "dest")

        assert same_content(meta, tmp_path / "dest")

    run(test())


async def interrupted(client: MasterClient, dest: Path) -> None:
    """Cancels a download when a part of it has arrived."""
    slow = Config(client=ClientConfig(supervisor=""), swarm=SwarmConfig(download_limit=2_000_000))
    some = asyncio.Event()

    def note(news: TransferProgress) -> None:
        if news.done > 100_000:
            some.set()

    work = asyncio.create_task(download(client, slow, ID, dest, DownloadWanted(timeout=20.0), progress=note))
    await some.wait()
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


def test_a_downloader_can_stay_and_seed(tmp_path: Path, source: Path) -> None:
    """If this failed, --seed-for would offer nothing, and the masters would carry every download
    alone."""
    first, second = tmp_path / "first", tmp_path / "second"

    async def test() -> None:
        async with talking(tmp_path) as (master, client):
            meta = await asyncio.to_thread(master.hold, source)
            seeding = asyncio.Event()

            def note(news: TransferProgress) -> None:
                if news.phase is TransferStage.SEEDING:
                    seeding.set()

            staying = asyncio.create_task(fetch(client, first, seed_for=15.0, progress=note))
            await eventually(lambda: first.exists() and seeding.is_set())
            await master.engine.remove(meta.digest)
            result = await fetch(client, second)
            staying.cancel()
            await asyncio.gather(staying, return_exceptions=True)

        assert result.sources == Sources(peers=meta.size)
        assert same_content(meta, second)

    run(test())
