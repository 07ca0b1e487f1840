"""A peer with a damaged small file. The fetch runs in a process of its own, because such a peer
used to end the process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.swarm.engine.engine import Engine, EngineConfig
from torrentdist.testing.sample_trees import some_bytes, write_tree

pytestmark = pytest.mark.anyio

DEADLINE_SECS = 40.0

FETCHER = """
import asyncio, sys
from pathlib import Path
from torrentdist.bundle.metafile import parse_metafile
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole
from torrentdist.swarm.engine.engine import Engine, EngineConfig

async def main(metafile, home, *ports):
    meta = parse_metafile(Path(metafile).read_bytes())
    damaged, sound = [PeerAddress(host="127.0.0.1", port=int(port), role=PeerRole.MASTER) for port in ports]
    for turn in range(3):
        engine = Engine(EngineConfig())
        await engine.start()
        transfer = engine.fetch(meta, Path(home) / str(turn), [damaged])
        await asyncio.sleep(0.5)  # for what must not happen: by now its bytes have been found wrong
        transfer.add_peers([sound])
        async with asyncio.timeout(12):
            await transfer.wait_done()
        await engine.close()
    print("done")

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.case("E5")
@pytest.mark.parametrize("size", [1, 7000, 16 * 1024, 30_000])
async def test_a_wrong_byte_in_a_small_file_ends_no_downloader(tmp_path: Path, size: int) -> None:
    """If this fails, one damaged disk, or one hostile peer, kills every process that fetches from
    it (libtorrent 2.1.1, where a piece is a single block)."""
    content = some_bytes(size, 1)
    write_tree(tmp_path / "sound" / "content", {"small.bin": content})
    write_tree(tmp_path / "damaged" / "content", {"small.bin": bytes([content[0] ^ 1]) + content[1:]})
    meta = make_metafile(tmp_path / "sound" / "content")
    (tmp_path / "metafile").write_bytes(meta.raw)
    engines = [Engine(EngineConfig()), Engine(EngineConfig())]
    for engine, home in zip(engines, ("damaged", "sound"), strict=True):
        await engine.start()
        engine.seed(meta, tmp_path / home)
    ports = [str(engine.port) for engine in engines]
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", FETCHER, str(tmp_path / "metafile"), str(tmp_path / "fetched"), *ports],
        capture_output=True, text=True, timeout=DEADLINE_SECS, check=False,
    )  # fmt: skip
    for engine in engines:
        await engine.close()

    assert (0, "done\n") == (done.returncode, done.stdout), done.stderr[-2000:]
