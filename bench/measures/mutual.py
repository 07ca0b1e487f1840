"""Measures what TLS costs an upload and a request on a kept connection: the same to masters with
`tls.mode` mutual and to masters with off, in turns. Measures the start of the command line too.

All masters are real daemons on loopback. The client is ours, and pays for TLS as well.

Run it alone with `python -m bench --only mutual`.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from bench.measures.upload import upload_one
from bench.results import Row, paired
from bench.stage import cluster_of, run
from torrentdist.client.client_access import access_of, only_https
from torrentdist.http.connection_pool import Http
from torrentdist.model.configuration.settings import load
from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmAnnounce, SwarmEntry

BAR, UPLOAD_BAR, HELP_BAR = 1.3, 1.5, 0.25
UPLOADS = 9
WARM = 20
ANNOUNCE = msgspec.json.encode(
    SwarmAnnounce(
        peer=PeerId("client-bench"),
        role=PeerRole.CLIENT,
        port=7001,
        swarms=[SwarmEntry(digest=Digest("ab" * 32), complete=False, size=1)],
    )
)
JSON = {"content-type": "application/json"}


def measure(directory: Path, *, pairs: int, requests: int, helps: int) -> list[Row]:
    with (
        cluster_of(directory / "mutual", masters=1, supervisors=0, tls=True) as mutual,
        cluster_of(directory / "off", masters=1, supervisors=0) as off,
    ):
        reads, announces = asyncio.run(_requests(mutual.dir, off.dir, pairs, requests))
    uploads = _uploads(directory)
    note = f"{requests} requests each, one after the other on one kept connection"
    return [
        paired("mutual-reads", "small reads in a mutual cluster", reads, against="off", bar=BAR, note=note),
        paired("mutual-announces", "announces in a mutual cluster", announces, against="off", bar=BAR, note=note),
        paired("mutual-upload", "upload of 1 MiB to 3 mutual masters", uploads, against="off", bar=UPLOAD_BAR),
        _help(directory, helps),
    ]


def _uploads(directory: Path) -> Pairs:
    with (
        cluster_of(directory / "mutual-3", masters=3, supervisors=0, tls=True) as mutual,
        cluster_of(directory / "off-3", masters=3, supervisors=0) as off,
    ):
        return [
            (
                upload_one(mutual, directory / f"tls-{number}", 3).seconds,
                upload_one(off, directory / f"plain-{number}", 3).seconds,
            )
            for number in range(UPLOADS)
        ]


Pairs = list[tuple[float, float]]


async def _requests(mutual: Path, off: Path, pairs: int, requests: int) -> tuple[Pairs, Pairs]:
    async with _Master(mutual) as secure, _Master(off) as plain:
        for master in (secure, plain):
            await master.took(master.read, WARM)
            await master.took(master.announce, WARM)
        reads = [
            (await secure.took(secure.read, requests), await plain.took(plain.read, requests)) for _ in range(pairs)
        ]
        announces = [
            (await secure.took(secure.announce, requests), await plain.took(plain.announce, requests))
            for _ in range(pairs)
        ]
    return reads, announces


class _Master:
    """The only master of a cluster, as its `client.toml` names it."""

    def __init__(self, directory: Path) -> None:
        config = load(config_file=directory / "client.toml", environ={}).config.client
        self._url = config.masters[0]
        self._http = Http(access=access_of(config), only_https=only_https(config))

    async def __aenter__(self) -> _Master:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def read(self) -> None:
        answer = await self._http.get(f"{self._url}/v1/leader")
        assert answer.status_code == 200, answer.content

    async def announce(self) -> None:
        answer = await self._http.post(f"{self._url}/v1/swarm", content=ANNOUNCE, headers=JSON)
        assert answer.status_code == 200, answer.content

    async def took(self, ask: Callable[[], Awaitable[None]], times: int) -> float:
        """Returns the seconds of this many requests."""
        began = time.perf_counter()
        for _ in range(times):
            await ask()
        return time.perf_counter() - began


def _help(directory: Path, times: int) -> Row:
    command = [sys.executable, "-m", "torrentdist_cli", "--help"]
    seconds = [run(command, directory).seconds for _ in range(times)]
    return Row(
        key="help",
        what="torrentdist --help",
        ours=statistics.median(seconds),
        unit="s",
        bar=HELP_BAR,
        note=f"{times} times, {min(seconds):.2f}-{max(seconds):.2f} s",
    )
