"""The engine when things go wrong: bad peers, full disks, damaged files, strangers, kill -9 and a
sudden end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from engines_in_process import LARGE, MiB, address, engines, published, run, some
from zookeeper_fixtures import eventually

from torrentdist.bundle.content_check import finish_content, verify_content
from torrentdist.bundle.metafile import Metafile
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.transfer_messages import TransferPhase
from torrentdist.swarm.engine.engine import Engine, EngineConfig
from torrentdist.testing.sample_trees import SMALL

FETCHER = """
import asyncio, resource, sys
from pathlib import Path
from torrentdist.bundle.metafile import parse_metafile
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole
from torrentdist.swarm.engine.engine import Engine, EngineConfig

async def main(metafile: str, home: str, port: str, limit: str, largest_file: str) -> None:
    if int(largest_file):
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(largest_file), int(largest_file)))
    engine = Engine(EngineConfig(download_limit=int(limit)))
    await engine.start()
    seeder = PeerAddress(host="127.0.0.1", port=int(port), role=PeerRole.MASTER)
    transfer = engine.fetch(parse_metafile(Path(metafile).read_bytes()), Path(home), [seeder])
    try:
        async with asyncio.timeout(15):
            await transfer.wait_done()
        sources = transfer.view().sources
        print("done", sources.masters, sources.local)
    except TorrentdistError as error:
        print(error.code, error.exit_code)
    await engine.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def fetcher(
    meta: Metafile,
    tmp_path: Path,
    engine: Engine,
    *,
    limit: int = 0,
    largest_file: int = 0,
    inside: tuple[str, ...] = (),
) -> asyncio.subprocess.Process:
    (tmp_path / "metafile").write_bytes(meta.raw)
    arguments = [tmp_path / "metafile", tmp_path / "b", engine.port, limit, largest_file]
    return await asyncio.create_subprocess_exec(
        *inside, sys.executable, "-c", FETCHER, *map(str, arguments), stdout=subprocess.PIPE
    )


def damage(path: Path, offset: int) -> None:
    path.chmod(0o644)
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(bytes(255 - byte for byte in LARGE["large.bin"][offset : offset + 100]))


def test_a_peer_with_bad_data_is_found_out(tmp_path: Path) -> None:
    """If this failed, one damaged disk would stop a download or, worse, get into it. Kraken
    checks pieces by CRC-32 only."""
    meta = published(tmp_path / "good", LARGE)
    published(tmp_path / "bad", LARGE)
    for offset in range(0, 8 * MiB, 64 * 1024):
        damage(tmp_path / "bad" / "content" / "large.bin", offset)
    failures = 0

    async def scenario() -> None:
        nonlocal failures
        async with engines(*some(3)) as (good, bad, b):
            bad.seed(meta, tmp_path / "bad")
            transfer = b.fetch(meta, tmp_path / "b", [address(bad)])
            await eventually(lambda: transfer.view().hash_failures > 0)
            good.seed(meta, tmp_path / "good")
            transfer.add_peers([address(good)])
            await transfer.wait_done()
            failures = transfer.view().hash_failures

    run(scenario())
    finish_content(meta, tmp_path / "b" / "content")

    assert verify_content(meta, tmp_path / "b" / "content") == []
    assert failures > 0


def on_disk(meta: Metafile, home: Path) -> int:
    """Returns the bytes of the large file that are in whole pieces in its copy."""
    copy, length = home / "content" / "large.bin", meta.piece_length
    have = copy.read_bytes() if copy.exists() else b""
    starts = range(0, len(have), length)
    return sum(length for at in starts if have[at : at + length] == LARGE["large.bin"][at : at + length])


def test_a_killed_fetch_goes_on_where_it_was(tmp_path: Path) -> None:
    """If this failed, a host that lost its power would fetch everything again."""
    meta = published(tmp_path / "a", LARGE)
    output = b""
    saved = 0

    async def scenario() -> None:
        nonlocal output, saved
        async with engines(*some(1)) as (a,):
            a.seed(meta, tmp_path / "a")
            first = await fetcher(meta, tmp_path, a, limit=MiB)
            await eventually(lambda: on_disk(meta, tmp_path / "b") >= 2 * MiB)
            first.send_signal(signal.SIGKILL)
            await first.communicate()
            saved = on_disk(meta, tmp_path / "b")
            second = await fetcher(meta, tmp_path, a)
            output, _ = await second.communicate()

    run(scenario())
    done, masters, local = output.split()
    finish_content(meta, tmp_path / "b" / "content")

    assert done == b"done"
    assert int(local) - saved in (0, len(LARGE["small.bin"]))
    assert int(masters) + int(local) == meta.size
    assert verify_content(meta, tmp_path / "b" / "content") == []


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """If this failed, a broken disk would look like a download that never ends."""
    meta = published(tmp_path / "a", LARGE)
    output = b""

    async def scenario() -> None:
        nonlocal output
        async with engines(*some(1)) as (a,):
            a.seed(meta, tmp_path / "a")
            process = await fetcher(meta, tmp_path, a, largest_file=MiB)
            output, _ = await process.communicate()

    run(scenario())

    assert output.split() == [b"disk_error", b"8"]


def test_a_full_disk_is_said_to_be_full(tmp_path: Path) -> None:
    """If this failed, a full disk would look like a broken one, or like a download that never
    ends."""
    meta = published(tmp_path / "a", LARGE)
    (tmp_path / "b").mkdir()
    mount = 'mount -t tmpfs -o size=3m none "$1" && shift && exec "$@"'
    inside = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh", str(tmp_path / "b"))
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this kernel lets nobody mount a small disk for the test")
    output = b""

    async def scenario() -> None:
        nonlocal output
        async with engines(*some(1)) as (a,):
            a.seed(meta, tmp_path / "a")
            process = await fetcher(meta, tmp_path, a, inside=inside)
            output, _ = await process.communicate()

    run(scenario())

    assert output.split() == [b"disk_full", b"8"]


@pytest.mark.parametrize("how", ["truncated", "gone"])
def test_damage_to_a_seeded_file_ends_its_seeding(tmp_path: Path, how: str) -> None:
    """If this failed, a damaged bundle would go on being offered, or libtorrent would write into
    published content."""
    meta = published(tmp_path / "a", LARGE)
    file = tmp_path / "a" / "content" / "large.bin"
    file.chmod(0o644)
    if how == "truncated":
        os.truncate(file, MiB)
    else:
        file.unlink()

    async def scenario() -> None:
        async with engines(*some(3)) as (a, b, c):
            seed = a.seed(meta, tmp_path / "a")
            b.fetch(meta, tmp_path / "b", [address(a)])
            await eventually(lambda: seed.phase is TransferPhase.FAILED)
            published(tmp_path / "c", LARGE)
            c.seed(meta, tmp_path / "c")
            seed.add_peers([address(c)])
            with pytest.raises(TorrentdistError) as caught:
                await seed.wait_done()

            assert caught.value.code in ("corrupt", "disk_error")

    run(scenario())

    assert not file.exists() if how == "gone" else file.stat().st_size == MiB


def test_strangers_are_refused_until_they_are_known(tmp_path: Path) -> None:
    """If this failed, any host that reaches the port could take a bundle, or a new host would never
    be let in."""
    meta = published(tmp_path / "a", SMALL)
    blocked: list[str] = []

    async def scenario() -> None:
        configs = EngineConfig(), EngineConfig(listen_host="127.0.0.2")
        async with engines(*configs, on_blocked=blocked.append) as (a, b):
            a.allow(["127.0.0.1", "not an address"])
            a.seed(meta, tmp_path / "a")
            transfer = b.fetch(meta, tmp_path / "b", [address(a)])
            await eventually(lambda: len(blocked) > 0)

            assert transfer.view().done == 0

            a.allow(["127.0.0.1", "127.0.0.2"])
            await transfer.wait_done()

    run(scenario())

    assert set(blocked) == {"127.0.0.2"}


def test_a_peer_that_is_not_known_any_more_is_disconnected(tmp_path: Path) -> None:
    """If this failed, a host that was excluded from the cluster would go on downloading."""
    meta = published(tmp_path / "a", LARGE)

    async def scenario() -> None:
        async with engines(EngineConfig(upload_limit=2 * MiB), *some(1)) as (a, b):
            a.seed(meta, tmp_path / "a")
            transfer = b.fetch(meta, tmp_path / "b", [address(a)])
            await eventually(lambda: transfer.view().done > 0)
            a.allow([])
            await eventually(lambda: transfer.view().peers == 0)

            assert transfer.view().phase is TransferPhase.FETCHING

    run(scenario())


def test_removing_closes_files_and_keeps_them(tmp_path: Path) -> None:
    """If this failed, a bundle's directory could not be deleted safely, or would lose what had
    arrived."""
    meta = published(tmp_path / "a", LARGE)

    def open_files() -> list[str]:
        links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
        return [path for link in links if os.path.lexists(link) and str(tmp_path) in (path := os.readlink(link))]

    async def scenario() -> None:
        async with engines(EngineConfig(upload_limit=4 * MiB), *some(1)) as (a, b):
            a.seed(meta, tmp_path / "a")
            transfer = b.fetch(meta, tmp_path / "b", [address(a)])
            await eventually(lambda: transfer.view().done > MiB)
            await asyncio.gather(*(engine.remove(meta.digest) for engine in (a, b, b)))

            assert open_files() == []
            assert b.transfer(meta.digest) is None
            with pytest.raises(TorrentdistError, match="shutting down"):
                await transfer.wait_done()

            a.seed(meta, tmp_path / "a")
            again = b.fetch(meta, tmp_path / "b", [address(a)])
            await again.wait_done()
            assert again.view().sources.local > 0

    run(scenario())


@pytest.mark.alone
def test_closing_is_quick_and_ends_every_wait(tmp_path: Path) -> None:
    """If this failed, a daemon would not stop, or a caller that waits for a download would wait for
    ever."""
    meta = published(tmp_path / "a", LARGE)
    seconds = 0.0

    async def scenario() -> None:
        nonlocal seconds
        async with engines(EngineConfig(upload_limit=MiB), *some(1)) as (a, b):
            a.seed(meta, tmp_path / "a")
            waiting = asyncio.create_task(b.fetch(meta, tmp_path / "b", [address(a)]).wait_done())
            await eventually(lambda: b.statistics().downloaded > 0)
            started = time.monotonic()
            await b.close()
            seconds = time.monotonic() - started
            with pytest.raises(TorrentdistError) as caught:
                await waiting

            assert caught.value.code == "closing"
            with pytest.raises(TorrentdistError, match="shutting down"):
                b.fetch(meta, tmp_path / "b")

    run(scenario())

    assert seconds < 2.0
