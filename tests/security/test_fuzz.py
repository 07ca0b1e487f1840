"""Random and damaged inputs of every format that comes from outside: nothing crashes or hangs.

`make fuzz` tries 100,000 of each; `make test` tries 1,000. So many inputs come from seeds:
hypothesis draws those a hundred times faster than the parts of an input, but cannot make an input
smaller when it fails.
"""

from __future__ import annotations

import gc
import os
import random
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import h11
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from torrentdist.bundle import bencode
from torrentdist.bundle.metafile import parse_metafile, with_trackers
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.host.http.own_site import foreign_sign, names_of
from torrentdist.host.http.web import decode_body
from torrentdist.http.answer_parsing import chunk_size, length_in, read_head, unpacked
from torrentdist.http.http_values import Headers, HttpError
from torrentdist.master.access.audit_trail import told_in
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest
from torrentdist.model.jobs.job import parse_job
from torrentdist.model.wire.swarm_messages import SwarmAnnounce
from torrentdist.swarm.directory.directory import SwarmDirectory
from torrentdist.swarm.directory.tracker import Tracker, announce_key

pytestmark = pytest.mark.case("F11")

COUNT = int(os.environ.get("TORRENTDIST_FUZZ_COUNT", "1000"))
SMALL_ENOUGH_TO_SHRINK = 500
"""With more inputs than this, hypothesis draws seeds rather than inputs."""
MOST_SECS = 1.0
"""Processor time for one input. A real hang takes far more, also on a quick machine."""
MOST_KIB = 64 * 1024
"""Memory that one input may add to the largest that this process had."""
fuzzed = settings(
    max_examples=COUNT, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=True
)

DIGEST = Digest("ab" * 32)
SECRET = "secret"
KEY = announce_key(SECRET, DIGEST)
QUERY = (
    b"info_hash=" + b"%ab" * 20 + b"&peer_id=-LT2110-abcdefghijkl&port=6881&left=1&compact=1&numwant=50&event=started"
)
ANNOUNCE = (
    b'{"peer":"p1","role":"supervisor","port":7001,"host":"10.0.0.1","swarms":[{"digest":"%s","complete":false}]}'
    % DIGEST.encode()
)
JOB = b"""name = "etl"
command = ["python3", "main.py"]
workers = 2
dependencies = ["lib-1"]
env = { A = "b" }
[restart]
policy = "never"
[resources]
memory_bytes = 1024
"""
HEAD = b"POST /v1/jobs?a=%20b HTTP/1.1\r\nHost: master-1:7060\r\nOrigin: http://a\r\nContent-Length: 2\r\n\r\n{}"
EVENT = (
    b'{"v":1,"node":"m1","role":"master","rack":"","run":"a","seq":1,"at":1.5,"clock":0.1,"event":"access_audited",'
    b'"who":"ann","sender_role":"reader","how":"token","operation":"GET /","target":"","bundle":"","source":"::1",'
    b'"result":"ok","count":1}\n'
)
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nContent-Encoding: gzip\r\n\r\n"


@contextmanager
def quickly() -> Iterator[None]:
    """Fails if the work takes too long or too much memory. The collection of what hypothesis
    remembers of 100,000 inputs takes over a second, and is not the input's fault.
    """
    gc.disable()
    began, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        yield
    finally:
        took = time.process_time() - began
        gc.enable()
    assert took < MOST_SECS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < MOST_KIB


TOKENS = [b"[", b"{", b"d", b"l", b"e", b":", b"0", b"9" * 25, b"%", b"\r\n"]
REPEATS = [1, 1, 1, 2, 300]


def damaged(*good: bytes) -> st.SearchStrategy[bytes]:
    """Returns good inputs with parts of them replaced, repeated and cut off, and plain noise."""
    if COUNT > SMALL_ENOUGH_TO_SHRINK:
        return st.integers(0, 2**64 - 1).map(lambda seed: damaged_by(random.Random(seed), good))
    pieces = st.binary(max_size=8) | st.sampled_from(TOKENS)

    @st.composite
    def made(draw: st.DrawFn) -> bytes:
        data = draw(st.sampled_from(good))
        for _ in range(draw(st.integers(0, 4))):
            start = draw(st.integers(0, len(data)))
            end = min(len(data), start + draw(st.integers(0, 12)))
            data = data[:start] + draw(pieces) * draw(st.sampled_from(REPEATS)) + data[end:]
        return data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 9)) == 0 else data

    return made() | st.binary(max_size=200)


def damaged_by(chance: random.Random, good: tuple[bytes, ...]) -> bytes:
    """Returns one input of the same kinds as `damaged`."""
    if chance.random() < 0.1:
        return chance.randbytes(chance.randrange(200))
    data = chance.choice(good)
    for _ in range(chance.randrange(5)):
        start = chance.randint(0, len(data))
        end = min(len(data), start + chance.randint(0, 12))
        piece = chance.choice(TOKENS) if chance.random() < 0.5 else chance.randbytes(chance.randrange(9))
        data = data[:start] + piece * chance.choice(REPEATS) + data[end:]
    return data[: chance.randint(0, len(data))] if chance.random() < 0.1 else data


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def metafile(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return made_metafile(tmp_path_factory.mktemp("fuzz") / "source")


def made_metafile(source: Path) -> bytes:
    """Returns the metafile of a new directory with all kinds of entries."""
    (source / "d").mkdir(parents=True)
    (source / "void").mkdir()
    (source / "a").write_bytes(b"a" * 70_000)
    (source / "d" / "b").write_bytes(b"b")
    (source / "d" / "e").touch()
    (source / "d" / "link").symlink_to("../a")
    return make_metafile(source, piece_length=32768).raw


def tried(work: Callable[[], object], *expected: type[Exception]) -> None:
    with quickly():
        try:
            work()
        except expected:
            return


def try_metafile(raw: bytes) -> None:
    tried(lambda: parse_metafile(raw), TorrentdistError)
    tried(lambda: with_trackers(raw, ["http://127.0.0.1/"]), TorrentdistError)


def try_bencode(raw: bytes) -> None:
    tried(lambda: bencode.decode(raw), bencode.BencodeError)
    tried(lambda: bencode.spans(raw), bencode.BencodeError)


def try_query(query: bytes) -> None:
    tracker = Tracker(SwarmDirectory(), secret=SECRET, digests=lambda _: [DIGEST])
    tried(lambda: bencode.decode(tracker.answer(query, key=KEY, source_host="10.0.0.2", now=0.0)))


def try_announce(body: bytes) -> None:
    announce = SwarmDirectory().announce
    tried(lambda: announce(decode_body(body, SwarmAnnounce), source_host="10.0.0.3", now=0.0), TorrentdistError)


def try_request(request: bytes) -> None:
    def serve() -> None:
        connection = h11.Connection(h11.SERVER)
        connection.receive_data(request)
        event = connection.next_event()
        if isinstance(event, h11.Request):
            given = Headers({name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers})
            foreign_sign(event.method.decode("latin-1"), given, names_of(["master-1"]))

    tried(serve, h11.RemoteProtocolError)


def try_answer(answer: bytes) -> None:
    def ask() -> None:
        head = read_head(answer)
        length_in(head.headers)
        unpacked(answer, head.headers, 1000)

    tried(ask, HttpError)
    tried(lambda: chunk_size(answer), HttpError)


def try_events(directory: Path, raw: bytes) -> None:
    (directory / "events-1.jsonl").write_bytes(raw)
    tried(lambda: list(told_in(directory)))


def try_job(raw: bytes) -> None:
    tried(lambda: parse_job(raw.decode("utf-8", "surrogateescape"), origin="job.toml"), TorrentdistError)


@fuzzed
@given(st.data())
def test_fuzzed_metafiles(metafile: bytes, data: st.DataObject) -> None:
    """An upload would end a master's request with a bug, or never."""
    try_metafile(data.draw(damaged(metafile)))


@fuzzed
@given(damaged(b"d1:ali1e2:bcd1:xi-5eee1:bi0ee", b"l" * 90 + b"e" * 90, b"d0:d6:lengthi0eee"))
def test_fuzzed_bencode(raw: bytes) -> None:
    """A stray error would come out of whatever reads a torrent."""
    try_bencode(raw)


@fuzzed
@given(damaged(QUERY), damaged(ANNOUNCE))
def test_fuzzed_announces(query: bytes, body: bytes) -> None:
    """One peer could end the tracker, or an agent's request, with a bug."""
    try_query(query)
    try_announce(body)


@fuzzed
@given(damaged(HEAD), damaged(ANSWER))
def test_fuzzed_http_heads(request: bytes, answer: bytes) -> None:
    """A server or a client would fail with a bug at the first odd header."""
    try_request(request)
    try_answer(answer)


@fuzzed
@given(damaged(EVENT, EVENT * 3))
@example(EVENT.replace(b"ann", b"\xff"))
def test_fuzzed_events(events: Path, raw: bytes) -> None:
    """A torn or foreign line in a master's events would keep it from starting again."""
    try_events(events, raw)


@fuzzed
@given(damaged(JOB))
def test_fuzzed_job_files(raw: bytes) -> None:
    """A bundle with an odd job.toml would be called a bug of torrentdist."""
    try_job(raw)
