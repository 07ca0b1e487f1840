"""The output of workers: which bytes a reader gets, and which files go."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from torrentdist.host.http.operation import api_app, operations_of
from torrentdist.host.http.web import PRINCIPAL
from torrentdist.model.ids import JobId
from torrentdist.model.wire.headers import NEXT_OFFSET, OFFSET
from torrentdist.security.authorization import LOCAL
from torrentdist.supervisor.jobs.host_workers import keep_tidy
from torrentdist.supervisor.process.last_words import (
    MOST_CHARACTERS,
    TAIL_BYTES,
    end_of_stderr,
    last_line,
    why_failed,
)
from torrentdist.supervisor.process.output_api import OutputApi
from torrentdist.supervisor.process.output_files import Piece, Span, Stream, read_output, span_of
from torrentdist.supervisor.process.worker_homes import (
    Homes,
    clean_up,
    close_to_others,
    drop_old_output,
    drop_orphans,
    make_told,
    write_peers,
)
from torrentdist.supervisor.worker.worker_types import Key

pytestmark = pytest.mark.anyio
ETL = JobId("etl")
KEY: Key = (ETL, 0)


@pytest.fixture
def strict_umask() -> Iterator[None]:
    """A supervisor whose new files are closed to all others."""
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.fixture
def homes(tmp_path: Path) -> Homes:
    """A host with three files of the worker's stdout, of which the first ones are gone."""
    homes = Homes(tmp_path)
    homes.guard(KEY).mkdir(parents=True)
    for start, text in ((100, "abcde"), (105, "fg"), (9, "")):
        (homes.guard(KEY) / f"stdout.{start}").write_text(text)
    (homes.guard(KEY) / "stdout.new").write_text("half")
    (homes.guard(KEY) / "stdout.9").unlink()
    os.utime(homes.guard(KEY) / "stdout.105", (50, 50))
    return homes


@pytest.mark.parametrize(
    ("offset", "limit", "expected"),
    [
        (0, 9, Piece(100, b"abcde")), (100, 2, Piece(100, b"ab")), (104, 9, Piece(104, b"e")),
        (105, 9, Piece(105, b"fg")),
        (106, 9, Piece(106, b"g")), (107, 9, Piece(107, b"")), (900, 9, Piece(107, b"")), (-1, 9, Piece(106, b"g")),
        (-3, 9, Piece(104, b"e")), (-900, 9, Piece(100, b"abcde")),
    ],
)  # fmt: skip
def test_an_offset_names_the_same_byte_for_ever(homes: Homes, offset: int, limit: int, expected: Piece) -> None:
    """If this fails, `job logs` repeats or leaves out what a worker has printed."""
    assert expected == read_output(homes.guard(KEY), Stream.STDOUT, offset, limit)


def test_what_is_kept_of_a_stream_is_told(homes: Homes) -> None:
    """If this fails, a reader begins at a byte that is not kept, or misses the end."""
    assert Span(100, 107, 50.0) == span_of(homes.guard(KEY), Stream.STDOUT)
    assert span_of(homes.guard(KEY), Stream.STDERR) is None
    assert [Piece(0, b"")] * 2 == [read_output(homes.guard(KEY), Stream.STDERR, offset) for offset in (5, -5)]


def test_the_last_words_are_searched_in_the_end_alone(tmp_path: Path) -> None:
    """If this fails, a worker that printed gigabytes holds up its supervisor when it ends."""
    (tmp_path / "stderr.0").write_bytes(b"first\n" + b"\n" * (TAIL_BYTES - 1))
    (tmp_path / "stderr.1000000").write_bytes(b"")
    before = why_failed(tmp_path, 0, spark=False)
    (tmp_path / "stderr.1000000").unlink()

    assert ("", "") == (before, why_failed(tmp_path, 0, spark=False))
    (tmp_path / "stderr.0").write_bytes(b"first\n" + b"\n" * (TAIL_BYTES - 6))
    assert "first" == why_failed(tmp_path, 0, spark=False)


def test_the_last_words_of_a_run_begin_with_its_output(tmp_path: Path) -> None:
    """If this fails, the reason of a first run lacks its first letter, or that of a later run shows
    an error of an earlier one."""
    first = end_of_stderr(tmp_path)
    (tmp_path / "stderr.0").write_bytes(b"no such file\n")
    second = end_of_stderr(tmp_path)

    assert ["no such file", ""] == [why_failed(tmp_path, since, spark=False) for since in (first, second)]


def test_last_words_are_cut_to_a_line() -> None:
    """If this fails, a worker fills the records of its job with one long line."""
    assert "x" * MOST_CHARACTERS == last_line("x" * MOST_CHARACTERS)
    assert "x" * (MOST_CHARACTERS - 1) + "…" == last_line("x" * (MOST_CHARACTERS + 1))
    assert "one" == last_line("zero\n  one \n \n")


async def asked(homes: Homes, path: str, here: frozenset[Key] = frozenset()) -> httpx.Response:
    app = api_app(operations_of(OutputApi(homes, lambda: here)))

    async def as_local(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, PRINCIPAL: LOCAL}, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=as_local), base_url="http://h") as client:
        return await client.get(f"/v1/host/jobs{path}")


async def test_output_is_read_over_http(homes: Homes) -> None:
    """If this fails, `job logs` shows another stream or place than was asked for."""
    (homes.guard(KEY) / "stderr.0").write_text("oh")
    first, end = await asked(homes, "/etl/0/log"), await asked(homes, "/etl/0/log?offset=-1")
    other, past = await asked(homes, "/etl/0/log?stream=stderr"), await asked(homes, "/etl/0/log?offset=900")

    assert ["abcde", "g", "oh", ""] == [answer.text for answer in (first, end, other, past)]
    assert [("100", "105"), ("106", "107"), ("0", "2"), ("107", "107")] == [
        (answer.headers[OFFSET], answer.headers[NEXT_OFFSET]) for answer in (first, end, other, past)
    ]
    assert [404, 404, 400] == [
        (await asked(homes, path)).status_code for path in ("/etl/1/log", "/other/0/log", "/etl/0/log?stream=x")
    ]


async def test_output_that_comes_is_waited_for(homes: Homes) -> None:
    """If this fails, `job logs --follow` asks many times a second, or misses what comes."""
    began = time.monotonic()
    await asked(homes, "/etl/0/log?offset=107")
    at_once = time.monotonic() - began
    waiting = asyncio.create_task(asked(homes, "/etl/0/log?offset=107&follow=20"))
    await asyncio.sleep(0.02)
    (homes.guard(KEY) / "stdout.107").write_text("late")
    answer = await waiting
    nothing = await asked(homes, "/etl/0/log?offset=111&follow=0.05")

    assert (True, "late", "107") == (at_once < 5, answer.text, answer.headers[OFFSET])
    assert ("", "111") == (nothing.text, nothing.headers[NEXT_OFFSET])


async def test_what_a_host_keeps_of_a_job_is_listed(homes: Homes) -> None:
    """If this fails, `job logs` does not find the output of a worker that has moved away."""
    gone = homes.guard((ETL, 1))
    gone.mkdir()
    (gone / "stderr.4").write_text("oh")
    homes.guard((JobId("other"), 0)).mkdir(parents=True)
    listed = (await asked(homes, "/etl/logs", frozenset([KEY]))).json()
    found = [(one["worker"], one["stream"], one["begin"], one["end"], one["here"]) for one in listed]

    assert [(0, "stdout", 100, 107, True), (1, "stderr", 4, 6, False)] == found
    assert [] == (await asked(homes, "/other/logs")).json()


def test_the_files_of_a_worker_that_left_go_and_its_output_stays(homes: Homes) -> None:
    """If this fails, a worker's output goes with it, or its files fill the disk."""
    homes.work(KEY).mkdir(parents=True)
    homes.work((ETL, 1)).mkdir()
    for name in ("spec.json", "status.json", "lock", "guardian.log", "heartbeat"):
        (homes.guard(KEY) / name).touch()
    clean_up(homes, KEY)

    assert ["stdout.100", "stdout.105", "stdout.new"] == sorted(path.name for path in homes.guard(KEY).iterdir())
    assert (False, True) == (homes.work(KEY).exists(), homes.work((ETL, 1)).exists())
    os.utime(homes.guard(KEY), (0, 0))
    clean_up(homes, KEY)
    assert homes.guard(KEY).stat().st_mtime > time.time() - 60
    clean_up(homes, (ETL, 1))
    assert not homes.work(KEY).parent.exists()


def test_old_output_goes_with_the_directory_of_its_job(homes: Homes) -> None:
    """If this fails, output of past jobs fills the disk, or that of a running worker goes."""
    make_told(homes, ETL, "secret")
    (homes.data_dir / "guard" / "lease.json").touch()
    old = time.time() - 100
    os.utime(homes.guard(KEY), (old, old))
    drop_old_output(homes, [KEY], 50)
    drop_old_output(homes, [], 200)
    kept = homes.guard(KEY).exists(), homes.told(ETL).exists()
    drop_old_output(homes, [(ETL, 1)], 50)
    waits = homes.guard(KEY).exists(), homes.told(ETL).exists()
    drop_old_output(homes, [], 50)

    assert ((True, True), (False, True)) == (kept, waits)
    assert ["lease.json"] == [path.name for path in (homes.data_dir / "guard").iterdir()]


def test_directories_without_a_worker_go_at_the_start(homes: Homes) -> None:
    """If this fails, each crash of a supervisor leaves the files of a worker for ever."""
    for name in ("etl/0", "etl/1", "etl/odd", "etl/²", "etl/" + "9" * 99):
        (homes.data_dir / "workers" / name).mkdir(parents=True)
    make_told(homes, ETL)
    (homes.told(ETL) / "peers.json.tmp").touch()
    drop_orphans(homes, [KEY])

    assert [homes.work(KEY)] == [*(homes.data_dir / "workers" / "etl").iterdir()]
    assert [] == [*homes.told(ETL).iterdir()]


async def test_a_disk_that_refuses_ends_no_tidying(tmp_path: Path) -> None:
    """If this fails, a host whose disk can only be read ends within the hour, although it seeds and
    serves what it has."""
    (tmp_path / "data").touch()
    tidying = asyncio.create_task(keep_tidy(Homes(tmp_path / "data"), tuple, 1.0))
    await asyncio.wait({tidying}, timeout=0.3)

    assert not tidying.done()
    tidying.cancel()


@pytest.mark.usefixtures("strict_umask")
def test_what_workers_are_told_is_theirs_to_read_alone(homes: Homes) -> None:
    """If this fails, a worker cannot read its token or peers, or other users of the host can."""
    close_to_others(homes)
    make_told(homes, ETL, "first")
    make_told(homes, ETL)
    same = homes.token(ETL).read_text()
    make_told(homes, ETL, "second")
    write_peers(homes, ETL, {"1": "h1", "0": "h0"})
    before = homes.peers(ETL).stat().st_ino
    write_peers(homes, ETL, {"0": "h0", "1": "h1"})
    unchanged = homes.peers(ETL).stat().st_ino
    write_peers(homes, ETL, {"0": "h2"})
    modes = [path.stat().st_mode & 0o777 for path in (homes.told(ETL), homes.token(ETL), homes.peers(ETL))]

    assert ("first", "second") == (same, homes.token(ETL).read_text())
    assert before == unchanged
    assert '{"job":"etl","workers":{"0":"h2"}}' == homes.peers(ETL).read_text()
    assert [0o755, 0o644, 0o644] == modes
    assert [0o700] * 2 == [(homes.data_dir / name).stat().st_mode & 0o777 for name in ("guard", "workers")]
