"""Several engines in one process, on loopback, with real libtorrent and real files."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import stat
import time
from pathlib import Path

import pytest
from engines_in_process import LARGE, MiB, address, engines, published, run, some
from zookeeper_fixtures import eventually

from torrentdist.bundle.content_check import finish_content, verify_content
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.packs.pack_files import write_files
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole
from torrentdist.model.wire.transfer_messages import Sources, TransferPhase
from torrentdist.swarm.engine.engine import Engine, EngineConfig, Transfer
from torrentdist.testing.sample_trees import NESTED, ODD_NAMES, SINGLE_FILE, SMALL, Tree, some_bytes, write_tree


def damaged_in(meta: Metafile, home: Path) -> list[str]:
    """Returns the damage found after the content was brought into its final form, which is the
    host's work."""
    write_files(meta, home)
    finish_content(meta, home / "content")
    return [damage.path for damage in verify_content(meta, home / "content")]


@pytest.mark.parametrize(
    "tree",
    [
        NESTED,
        ODD_NAMES,
        {f"{number % 7}/{number}": b"%d" % number for number in range(2000)},
        {"only one.jar": some_bytes(200_000, 3)},
        {"a": b"1", "A": b"2", "dir/x": b"3", "DIR/x": b"4", ".pad/7": b"5", "_____padding_file_0": b"6"},
        {"\x01ctl": b"1", "\u200b": b"2", "x": b"", "y\u0301": b"3", "content/content": b"4", "n" * 250: b"5"},
        {"deep/" * 40 + "f": b"1", "other": b"2"},
    ],
    ids=["nested", "odd", "many", "one-file-directory", "case", "invisible", "deep"],
)
def test_content_arrives_under_its_own_names(tmp_path: Path, tree: Tree) -> None:
    """If this failed, a bundle with such names would arrive under other names, or not at all."""
    meta = published(tmp_path / "a", tree)

    async def scenario() -> None:
        async with engines(*some(2)) as (a, b):
            a.seed(meta, tmp_path / "a")
            await b.fetch(meta, tmp_path / "b", [address(a)]).wait_done()

    run(scenario())

    assert damaged_in(meta, tmp_path / "b") == []
    assert sorted(os.listdir(tmp_path / "b")) == (["content", "packs"] if meta.packed.counts else ["content"])


def test_a_bundle_that_is_one_file_arrives_in_content(tmp_path: Path) -> None:
    """If this failed, a single-file bundle would arrive one directory above the place where the
    store looks for it."""
    write_tree(tmp_path / "a" / "content", SINGLE_FILE)
    meta = make_metafile(tmp_path / "a" / "content" / "only one.jar")

    async def scenario() -> None:
        async with engines(*some(2)) as (a, b):
            a.seed(meta, tmp_path / "a")
            await b.fetch(meta, tmp_path / "b", [address(a)]).wait_done()

    run(scenario())

    assert (tmp_path / "b" / "content" / "only one.jar").read_bytes() == SINGLE_FILE["only one.jar"]


def test_seeding_opens_published_files_for_reading_only(tmp_path: Path) -> None:
    """If this failed, a daemon that is not root could not seed its own published, read-only
    files."""
    meta = published(tmp_path / "a", SMALL)

    def modes() -> set[int]:
        links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        ours = [link for link in links if os.path.lexists(link) and str(tmp_path / "a") in os.readlink(link)]
        return {stat.S_IMODE(os.lstat(link).st_mode) for link in ours}

    async def scenario() -> None:
        async with engines(*some(2)) as (a, b):
            a.seed(meta, tmp_path / "a")
            await b.fetch(meta, tmp_path / "b", [address(a)]).wait_done()

            assert modes() == {0o500}

    run(scenario())


def test_content_may_be_reached_through_a_symlink(tmp_path: Path) -> None:
    """If this failed, an uploader could not seed a directory where it lies, and would have to copy
    it."""
    write_tree(tmp_path / "elsewhere", NESTED)
    meta = make_metafile(tmp_path / "elsewhere")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "content").symlink_to(tmp_path / "elsewhere")

    async def scenario() -> None:
        async with engines(*some(2)) as (a, b):
            a.seed(meta, tmp_path / "a")
            await b.fetch(meta, tmp_path / "b", [address(a)]).wait_done()

    run(scenario())

    assert damaged_in(meta, tmp_path / "b") == []


@pytest.mark.alone
@pytest.mark.parametrize("limited", ["upload", "download"])
def test_limits_hold_on_loopback(tmp_path: Path, limited: str) -> None:
    """If this failed, a limit would not apply between private addresses, which clusters use."""
    meta = published(tmp_path / "a", LARGE)
    limit = 4 * MiB
    up = EngineConfig(upload_limit=limit if limited == "upload" else 0)
    down = EngineConfig(download_limit=limit if limited == "download" else 0)
    took = 0.0

    async def scenario() -> None:
        nonlocal took
        async with engines(up, down) as (a, b):
            a.seed(meta, tmp_path / "a")
            started = time.monotonic()
            await b.fetch(meta, tmp_path / "b", [address(a)]).wait_done()
            took = time.monotonic() - started

    run(scenario())

    assert 1.7 <= took <= 4.0


@pytest.mark.alone
def test_a_peer_that_was_not_ready_is_dialled_again(tmp_path: Path) -> None:
    """If this failed, a downloader that was quicker than the seeder would wait for a long
    back-off."""
    meta = published(tmp_path / "a", LARGE)
    waited = 0.0

    async def scenario() -> None:
        nonlocal waited
        async with engines(*some(2)) as (a, b):
            transfer = b.fetch(meta, tmp_path / "b", [address(a)])
            await asyncio.sleep(0.3)  # It is dialled and knows of nothing.
            a.seed(meta, tmp_path / "a")
            ready = time.monotonic()
            await transfer.wait_done()
            waited = time.monotonic() - ready

    run(scenario())

    assert waited < 1.5


def test_a_peer_that_was_down_is_dialled_until_it_is_there(tmp_path: Path) -> None:
    """If this failed, a seeder that restarts would never be dialled again after three refusals,
    while no master answers that names it."""
    meta = published(tmp_path / "a", SMALL)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    late = PeerAddress(host="127.0.0.1", port=port, role=PeerRole.MASTER)

    async def scenario() -> None:
        async with engines(EngineConfig()) as (b,):
            transfer = b.fetch(meta, tmp_path / "b", [late])
            await asyncio.sleep(6.0)
            async with engines(EngineConfig(port=port)) as (a,):
                a.seed(meta, tmp_path / "a")
                await transfer.wait_done()

    run(scenario())

    assert damaged_in(meta, tmp_path / "b") == []


def test_incomplete_peers_serve_each_other(tmp_path: Path) -> None:
    """If this failed, all content would leave the seeder once per host, and the swarm would be
    useless."""
    meta = published(tmp_path / "a", LARGE)
    transfers: list[Transfer] = []

    async def scenario() -> None:
        slow = EngineConfig(upload_limit=4 * MiB)
        async with engines(slow, *some(2)) as (a, b, c):
            a.seed(meta, tmp_path / "a")
            for engine, other in ((b, c), (c, b)):
                peers = [address(a), address(other, PeerRole.SUPERVISOR)]
                transfers.append(engine.fetch(meta, tmp_path / str(engine.port), peers))
            for transfer in transfers:
                await transfer.wait_done()

    run(scenario())
    sources = [transfer.view().sources for transfer in transfers]

    assert [source.masters + source.peers for source in sources] == [meta.size] * 2
    assert all(source.peers > MiB and source.masters > MiB for source in sources)


def test_bytes_are_counted_by_sender(tmp_path: Path) -> None:
    """If this failed, a user would be told that peers carried what the masters carried, or the
    other way round."""
    meta = published(tmp_path / "a", LARGE)
    seen: list[Sources] = []

    async def scenario() -> None:
        async with engines(*some(3)) as (a, b, c):
            seed = a.seed(meta, tmp_path / "a")
            first = b.fetch(meta, tmp_path / "b", [address(a, PeerRole.MASTER)])
            await first.wait_done()
            seen.append(first.view().sources)
            # Its source dials it, from a port that no peer was told.
            second = c.fetch(meta, tmp_path / "c")
            seed.add_peers([address(c, PeerRole.SUPERVISOR)])
            await second.wait_done()
            for role, other in ((PeerRole.MASTER, PeerRole.CLIENT), (PeerRole.SUPERVISOR, PeerRole.MASTER)):
                second.add_peers([address(a, role, complete=True), address(b, other, complete=True)])
                seen.append(second.view().sources)

    run(scenario())

    assert seen == [Sources(masters=meta.size), Sources(masters=meta.size), Sources(peers=meta.size)]


def test_done_means_in_the_files(tmp_path: Path) -> None:
    """If this failed, a sync after the last piece would publish files whose end is still in
    libtorrent's memory."""
    tree = {f"{number:04}": some_bytes(1000, number) for number in range(2000)}
    meta = published(tmp_path / "a", tree, packed=False)
    missing: list[str] = []

    async def scenario() -> None:
        async with engines(*some(2)) as (a, b):
            a.seed(meta, tmp_path / "a")
            await b.fetch(meta, tmp_path / "b", [address(a)]).wait_done()
            content = tmp_path / "b" / "content"
            missing.extend(
                name for name in tree if not (content / name).exists() or (content / name).stat().st_size == 0
            )

    run(scenario())

    assert missing == []


def test_complete_peers_part(tmp_path: Path) -> None:
    """If this failed, every host would stay connected to every other host for each bundle that both
    have."""
    meta = published(tmp_path / "a", SMALL)

    async def scenario() -> None:
        async with engines(*some(3)) as (a, b, c):
            seed = a.seed(meta, tmp_path / "a")
            await b.fetch(meta, tmp_path / "b", [address(a)]).wait_done()
            await eventually(lambda: seed.view().uploaded == meta.size)
            await eventually(lambda: a.statistics().peers == 0)
            await c.fetch(meta, tmp_path / "c", [address(a)]).wait_done()

            assert (seed.phase, a.statistics().torrents) == (TransferPhase.SEEDING, 1)

    run(scenario())


def test_a_connected_peer_is_not_dialled_again(tmp_path: Path) -> None:
    """If this failed, every announce would open connections between all pairs of hosts, only to
    close them again."""
    meta = published(tmp_path / "a", LARGE)
    again: set[tuple[str, ...]] | None = None

    async def connections(*ports: int) -> set[tuple[str, ...]]:
        rows = (await asyncio.to_thread(Path("/proc/net/tcp").read_text, encoding="ascii")).splitlines()[1:]
        pairs = {tuple(row.split()[1:3]) for row in rows if row.split()[3] != "0A"}
        return {pair for pair in pairs if any(end.endswith(f":{port:04X}") for port in ports for end in pair)}

    async def scenario() -> None:
        nonlocal again
        async with engines(EngineConfig(upload_limit=6 * MiB), *some(1)) as (a, b):
            seed = a.seed(meta, tmp_path / "a")
            transfer = b.fetch(meta, tmp_path / "b", [address(a)])
            await eventually(lambda: transfer.view().done > 0)
            # Among them may be one that came before the master knew the torrent, which closed it.
            before = await connections(a.port, b.port)
            while transfer.active:
                seed.add_peers([address(b, PeerRole.SUPERVISOR)])
                transfer.add_peers([address(a)])
                await asyncio.sleep(0.1)  # More often than any agent.
            again = await connections(a.port, b.port) - before

    run(scenario())

    # A closed one would still be listed, waiting.
    assert again == set()


def test_what_is_there_is_kept_and_counted_as_local(tmp_path: Path) -> None:
    """If this failed, a host that was killed in the middle would fetch everything again."""
    meta = published(tmp_path / "a", LARGE)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    damaged = tmp_path / "b" / "content" / "large.bin"
    (tmp_path / "b" / "content" / "small.bin").chmod(0o644)
    with open(tmp_path / "b" / "content" / "small.bin", "ab") as small:
        small.write(b"too long")
    content = bytearray(damaged.read_bytes())
    content[5 * MiB] ^= 1
    damaged.unlink()
    damaged.write_bytes(content)
    damaged.chmod(0o444)
    fetched = -1

    async def scenario() -> None:
        nonlocal fetched
        async with engines(*some(2)) as (a, b):
            a.seed(meta, tmp_path / "a")
            transfer = b.fetch(meta, tmp_path / "b", [address(a)])

            assert transfer.view().phase is TransferPhase.CHECKING

            await transfer.wait_done()
            sources = transfer.view().sources
            fetched = sources.masters
            assert (sources.peers, sources.masters + sources.local) == (0, meta.size)

    run(scenario())

    assert damaged_in(meta, tmp_path / "b") == []
    assert fetched == meta.piece_length


def test_everything_there_is_done_without_peers(tmp_path: Path) -> None:
    """If this failed, a host that died just before publishing would wait for peers that it does not
    need."""
    meta = published(tmp_path / "a", NESTED)
    sources: list[Sources] = []

    async def scenario() -> None:
        async with engines(*some(1)) as (a,):
            transfer = a.fetch(meta, tmp_path / "a")
            await transfer.wait_done()
            sources.append(transfer.view().sources)

    run(scenario())

    assert sources == [Sources(local=meta.size)]


def test_a_taken_port_is_an_error(tmp_path: Path) -> None:
    """If this failed, a daemon would silently listen on a port that no peer was told."""

    async def scenario() -> None:
        async with engines(EngineConfig()) as (a,):
            with pytest.raises(TorrentdistError) as caught:
                await Engine(EngineConfig(port=a.port)).start()

            assert caught.value.code == "port_in_use"

    run(scenario())
