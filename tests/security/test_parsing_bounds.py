"""No input from outside takes more than its bound, however it is packed or nested."""

from __future__ import annotations

import asyncio
import gzip
import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from raw_http_server import heads, served

from torrentdist.bundle import bencode
from torrentdist.bundle.job_files import job_text
from torrentdist.bundle.metafile import parse_metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.host.http.body_room import BodyRoom
from torrentdist.host.http.web import decode_body
from torrentdist.http.api_calls import Broken, decode, error_in
from torrentdist.http.http_values import Answer, AnswerTooLarge
from torrentdist.model.backup import decode_backup
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.jobs.job import parse_job
from torrentdist.model.wire.bundle_messages import BundleView

pytestmark = [pytest.mark.anyio, pytest.mark.case("F11")]

MIB = 1024 * 1024
END = b"12:meta versioni2e4:name7:content12:piece lengthi32768e7:privatei1e11:torrentdist"
MANIFEST = b"d10:empty dirsl%be10:executablel%be6:schemai1e11:single filei0e8:symlinksd%bee"
EMPTY = b"d0:d6:lengthi0eee"


def described(tree: bytes, *lists: bytes) -> bytes:
    """Returns a metafile with this file tree and these lists of its manifest."""
    return b"d4:infod9:file tree" + tree + END + MANIFEST % (lists or (b"", b"", b"")) + b"e12:piece layersdee"


SIZE = 2_000_000
BOMBS = {
    "empty lists": lambda: b"d4:infol" + b"le" * (SIZE // 2) + b"ee",
    "empty lists in the manifest": lambda: described(b"d1:a" + EMPTY + b"e", b"", b"le" * (SIZE // 2), b""),
    "empty dictionaries": lambda: described(b"d" + b"".join(b"7:%07dde" % i for i in range(SIZE // 11)) + b"e"),
    "deep directories": lambda: described(
        b"d" + b"".join(b"7:%07dd" % i + b"1:ad" * 80 + b"1:a" + EMPTY + b"e" * 81 for i in range(SIZE // 430)) + b"e"
    ),
    "an unknown key": lambda: b"d3:abcl" + b"1:x" * (SIZE // 3) + b"ee",
}
"""Metafiles that a decoder would turn into thirty times their size."""


PARSE = """
import resource, sys, time
from pathlib import Path
from torrentdist.bundle.metafile import parse_metafile
from torrentdist.model.errors import TorrentdistError
raw = Path(sys.argv[1]).read_bytes()
before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
try:
    parse_metafile(raw)
except TorrentdistError as exc:
    print(exc.code)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, time.process_time() - began)
"""


@pytest.mark.parametrize("kind", BOMBS)
def test_a_metafile_of_brackets_costs_little(tmp_path: Path, kind: str) -> None:
    """Three uploads of 20 MB would take 2 GB and 40 s of a master, and the leader with it. It takes
    long: it tries what would cost much more."""
    bomb = tmp_path / "bomb"
    bomb.write_bytes(BOMBS[kind]())
    ran = subprocess.run([sys.executable, "-c", PARSE, bomb], capture_output=True, text=True, check=True, timeout=120)
    code, cost = ran.stdout.split("\n")[:2]
    kib, seconds = map(float, cost.split())

    assert "invalid_metafile" == code
    assert kib < 40 * 1024  # it was 75 MiB
    assert seconds < 30  # not for ever, on a busy machine too


async def test_a_packed_answer_is_not_unpacked_beyond_its_bound() -> None:
    """1.5 MB from one master would become 3 GB in its caller's memory."""
    bomb = gzip.compress(bytes(256 * MIB), 9)

    async def packs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for _ in heads(reader):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb) + bomb)

    async with served(packs) as (server, client):
        tracemalloc.start()
        with pytest.raises(AnswerTooLarge):
            await client.request("GET", server.url, most_bytes=8 * MIB)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert peak < 32 * MIB


DEEP = [b"[" * 100_000, b'{"a":' * 100_000, b'{"id":"b","extra":' + b"[" * 5000 + b"]" * 5000 + b"}", b'{"id":"\x80"}']


@pytest.mark.parametrize("body", DEEP)
def test_nested_json_is_an_error_like_any_other(body: bytes) -> None:
    """A body of brackets would be an internal error in a daemon's log, or end a command."""
    with pytest.raises(TorrentdistError):
        decode_body(body, BundleView)
    with pytest.raises(Broken):
        decode(Answer(200, content=body), BundleView)
    with pytest.raises(Broken):
        error_in(Answer(500, content=body))
    with pytest.raises(TorrentdistError):
        decode_backup(b'{"format":"torrentdist-backup","x":' + body, "f")


@pytest.mark.parametrize(
    "text", ["name = " + "[" * 5000, "name = 'x'\n" * 100_000, "x" + ".x" * 100_000 + " = 1", "name = " + "9" * 5000]
)
def test_a_hostile_job_file_is_an_error_of_the_job(text: str) -> None:
    """One submit would use up the leader's memory, or be reported as a bug of torrentdist."""
    with pytest.raises(TorrentdistError) as caught:
        parse_job(text, origin="job.toml")

    assert "job_invalid" == caught.value.code


def test_no_more_of_a_job_file_is_read_than_a_job_has(tmp_path: Path) -> None:
    """A job.toml of 10 GB would be read into the leader's memory before it is refused."""
    with (tmp_path / "job.toml").open("wb") as file:
        file.truncate(10 * 1024 * MIB)
    with pytest.raises(TorrentdistError, match="more than") as caught:
        job_text(tmp_path, "job.toml")

    assert "job_invalid" == caught.value.code


async def test_large_bodies_wait_for_each_other_and_small_ones_do_not() -> None:
    """A hundred uploads at once would hold a hundred bodies of 64 MiB in memory."""
    room, held, most = BodyRoom(100 * MIB), 0, 0
    release, full = asyncio.Event(), asyncio.Event()

    async def upload(sender: str, size: int) -> None:
        nonlocal held, most
        async with room.taken(sender, size) as grow:
            await grow(size)
            held += size
            most = max(most, held)
            if held == 60 * MIB + 1000:
                full.set()
            await release.wait()
            held -= size

    large = [asyncio.create_task(upload(f"sender {n}", 30 * MIB)) for n in range(10)]
    small = asyncio.create_task(upload("sender", 1000))
    await asyncio.wait_for(full.wait(), 10)
    release.set()
    await asyncio.wait_for(asyncio.gather(small, *large), 10)

    assert 60 * MIB + 1000 == most


def test_json_that_fits_is_read() -> None:
    """The bounds would refuse a good answer."""
    body = json.dumps({"a": [[[[1]]]]}).encode()

    assert {"a": [[[[1]]]]} == decode(Answer(200, content=body), dict[str, object])


@pytest.mark.case("F10")
@pytest.mark.parametrize("key", ["announce", "announce-list", "httpseeds", "nodes", "url-list", "creation date"])
def test_no_metafile_names_a_stranger_to_connect_to(tmp_path: Path, key: str) -> None:
    """A metafile could have every host of the cluster ask an address of its maker's choice (SSRF),
    as Dragonfly's peers did."""
    (tmp_path / "a").write_bytes(b"a")
    made = bencode.decode(make_metafile(tmp_path).raw)
    assert isinstance(made, dict)
    strange = bencode.encode({**made, key.encode(): [b"http://192.0.2.1/"]})
    with pytest.raises(TorrentdistError, match=key) as caught:
        parse_metafile(strange)

    assert "invalid_metafile" == caught.value.code
