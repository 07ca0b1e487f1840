"""A stock BitTorrent client, libtorrent with its own defaults, against our announce over HTTP."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import libtorrent as lt
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from zookeeper_fixtures import eventually

from torrentdist.bundle.metafile import Metafile, with_trackers
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.host.http.uvicorn_adapter import WebServer
from torrentdist.host.process.listening_sockets import bind_socket
from torrentdist.model.ids import PeerId
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmAnnounce, SwarmEntry
from torrentdist.swarm.directory.directory import SwarmDirectory
from torrentdist.swarm.directory.tracker import Tracker, announce_key

SECRET = "cluster secret"


class Announcer:
    """A master that serves only `/announce/{key}`."""

    def __init__(self, metafile: Metafile) -> None:
        self.directory = SwarmDirectory()
        self.tracker = Tracker(self.directory, secret=SECRET, digests=lambda _: [metafile.digest])
        self.server = WebServer(
            Starlette(routes=[Route("/announce/{key}", self.announce)]),
            bind_socket("127.0.0.1", 0, what="a test's master"),
        )

    async def announce(self, request: Request) -> Response:
        assert request.client is not None
        body = self.tracker.answer(
            request.scope["query_string"],
            key=request.path_params["key"],
            source_host=request.client.host,
            now=time.monotonic(),
        )
        return Response(body, media_type="text/plain")


@contextmanager
def client(metafile: Metafile, save_path: Path, url: str) -> Iterator[tuple[lt.session, lt.torrent_handle]]:
    session = lt.session(
        {
            "listen_interfaces": "127.0.0.1:0",
            "enable_dht": False,
            "enable_lsd": False,
            "enable_upnp": False,
            "enable_natpmp": False,
            "enable_outgoing_utp": False,
            "enable_incoming_utp": False,
            "allow_multiple_connections_per_ip": True,
            "alert_mask": lt.alert.category_t.tracker_notification,
        }
    )
    params = lt.load_torrent_buffer(with_trackers(metafile.raw, [url]))
    params.save_path = str(save_path)
    try:
        yield session, session.add_torrent(params)
    finally:
        session.pause()
        del session


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    source = tmp_path / "seed" / "content"
    source.mkdir(parents=True)
    for name in ("one.bin", "two.bin"):
        (source / name).write_bytes(os.urandom(300_000))
    return source


def test_stock_clients_find_each_other_and_download(bundle: Path, tmp_path: Path) -> None:
    """If this failed, a v2 client with the metafile could not take part."""
    metafile = make_metafile(bundle)
    target = tmp_path / "target"
    target.mkdir()

    async def play() -> None:
        announcer = Announcer(metafile)
        await announcer.server.start()
        url = f"http://127.0.0.1:{announcer.server.port}/announce/{announce_key(SECRET, metafile.digest)}"
        directory, digest = announcer.directory, metafile.digest
        try:
            with client(metafile, bundle.parent, url) as (_, seed):
                await eventually(lambda: directory.counts(digest) == (1, 0))
                with client(metafile, target, url) as (_, leech):
                    await eventually(lambda: leech.status().is_seeding)
                    await eventually(lambda: directory.counts(digest) == (2, 0))  # it says "completed"
                    assert {member.role for member in directory.members(digest)} == {PeerRole.STOCK}
                    assert seed.status().total_payload_upload >= metafile.size
                await eventually(lambda: directory.counts(digest) == (1, 0))  # it says "stopped"
        finally:
            await announcer.server.stop()

    asyncio.run(play())

    for name in ("one.bin", "two.bin"):
        assert (target / "content" / name).read_bytes() == (bundle / name).read_bytes()


def test_a_stock_client_downloads_from_our_peer(bundle: Path, tmp_path: Path) -> None:
    """If this failed, stock clients would see only each other, and not our masters."""
    metafile = make_metafile(bundle)
    target = tmp_path / "target"
    target.mkdir()

    async def play() -> None:
        announcer = Announcer(metafile)
        await announcer.server.start()
        url = f"http://127.0.0.1:{announcer.server.port}/announce/{announce_key(SECRET, metafile.digest)}"
        try:
            with client(metafile, bundle.parent, "http://127.0.0.1:9/announce/off") as (session, seed):
                await eventually(lambda: seed.status().state == lt.torrent_status.seeding)
                entry = SwarmEntry(digest=metafile.digest, complete=True)
                ours = SwarmAnnounce(
                    peer=PeerId("m1"), role=PeerRole.MASTER, port=session.listen_port(), swarms=[entry]
                )
                announcer.directory.announce(ours, source_host="127.0.0.1", now=time.monotonic())
                with client(metafile, target, url) as (_, leech):
                    await eventually(lambda: leech.status().is_seeding)
        finally:
            await announcer.server.stop()

    asyncio.run(play())

    assert (target / "content" / "two.bin").read_bytes() == (bundle / "two.bin").read_bytes()


def test_a_wrong_key_is_told_to_the_client(bundle: Path, tmp_path: Path) -> None:
    """If this failed, a user with an old metafile would see a download that never starts, without a
    reason."""
    metafile = make_metafile(bundle)

    async def play() -> list[str]:
        announcer = Announcer(metafile)
        await announcer.server.start()
        url = f"http://127.0.0.1:{announcer.server.port}/announce/{'0' * 32}"
        failures: list[str] = []
        try:
            with client(metafile, bundle.parent, url) as (session, _):

                def failed() -> bool:
                    alerts = session.pop_alerts()
                    failures.extend(a.message() for a in alerts if isinstance(a, lt.tracker_error_alert))
                    return bool(failures)

                await eventually(failed)
        finally:
            await announcer.server.stop()
        assert announcer.directory.statistics().memberships == 0
        return failures

    assert "no such info_hash under this key" in asyncio.run(play())[0]
