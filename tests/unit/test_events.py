"""The log of events: files appear complete, survive crashes, are limited, and never disturb the
daemon."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.host.telemetry import event_log
from torrentdist.host.telemetry.event_log import MAX_PER_SECOND, EventLog, _Closed, surplus
from torrentdist.host.telemetry.upload_opening import FILES_A_LINE, tell_files
from torrentdist.model.configuration.config import EventsConfig
from torrentdist.model.events import KINDS, NAMES, BundleFiles, HashFailed, Writer
from torrentdist.model.ids import BundleId
from torrentdist.model.wire.job_messages import WorkerReport, WorkerState
from torrentdist.supervisor.jobs.reporting import transitions
from torrentdist.testing.sample_trees import write_tree

FACT = HashFailed(digest="d" * 64, piece=3)


def open_log(directory: Path, server_now: float | None = None, **settings: Any) -> EventLog:
    config = EventsConfig(**settings)
    writer = Writer(node="host-1", role="supervisor", rack="b", run="0" * 12)
    return EventLog(directory, config, writer, lambda: server_now)


def lines(directory: Path, pattern: str = "events-*.jsonl") -> Iterator[dict[str, Any]]:
    for path in sorted(directory.glob(pattern)):
        yield from map(json.loads, path.read_text().splitlines())


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    """A reader that sees a growing file reads half of it, and never the rest."""
    log = open_log(tmp_path)
    log.emit(FACT)
    while_open = [path.name[:8] for path in tmp_path.iterdir()]
    log.close()

    assert ["_events-"] == while_open
    assert ["events-h"] == [path.name[:8] for path in tmp_path.iterdir()]


def test_a_line_says_who_when_and_what(tmp_path: Path) -> None:
    """A line without its writer, number or clock cannot be put in order, or told from its copy."""
    log = open_log(tmp_path, server_now=0.0)
    log.emit(FACT)
    log.emit(FACT)
    log.close()
    first, second = lines(tmp_path)
    same = ("host-1", "supervisor", "b", 1, "hash_failed", 3)

    assert same == tuple(first[key] for key in ("node", "role", "rack", "v", "event", "piece"))
    assert (1, 2, first["run"]) == (first["seq"], second["seq"], second["run"])
    assert first["at"] == pytest.approx(-first["clock"], abs=1e-3)


def test_what_a_killed_daemon_had_open_is_published_at_the_next_start(tmp_path: Path) -> None:
    """The last events before a crash, which explain it, would be missing."""
    dead = open_log(tmp_path)
    dead.emit(FACT)
    (torn,) = tmp_path.iterdir()
    torn.write_bytes(torn.read_bytes() + b'{"v":1,"node"')
    open_log(tmp_path)
    (published,) = tmp_path.iterdir()

    assert torn.name.removeprefix("_") == published.name
    assert 2 == len(published.read_bytes().splitlines())


def test_nothing_is_published_that_holds_nothing(tmp_path: Path) -> None:
    """Daemons that start and stop would fill the directory with empty files."""
    (tmp_path / "_events-host-1-5.jsonl").touch()
    open_log(tmp_path).close()

    assert [] == list(tmp_path.iterdir())


def test_a_flood_is_cut_and_counted(tmp_path: Path) -> None:
    """A million events a minute would push out those that explain them, or a reader would not know
    that some are missing."""
    log = open_log(tmp_path)
    for _ in range(3 * MAX_PER_SECOND):
        log.emit(FACT)
    log._second = 0  # the next second
    log.emit(FACT)
    log.close()
    written = list(lines(tmp_path))
    told = sum(line["count"] for line in written if line["event"] == "events_dropped")

    assert 3 * MAX_PER_SECOND + 1 == told + sum(line["event"] == "hash_failed" for line in written)


def test_a_line_that_has_no_room_spoils_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full for a moment takes the beginning of a line. The next event, written once
    there is room, would be lost with it."""
    log, write = open_log(tmp_path), os.write
    log.emit(FACT)
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda fd, data: write(fd, data[:10]))
        log.emit(FACT)
    log.emit(FACT)
    log.close()

    assert [1, 3] == [line["seq"] for line in lines(tmp_path)]


def test_a_directory_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    """A full disk would take the daemon down with its log."""
    (tmp_path / "events").touch()
    log = open_log(tmp_path / "events")
    log.emit(FACT)
    log.close()

    assert (tmp_path / "events").is_file()


def test_switched_off_it_writes_nothing(tmp_path: Path) -> None:
    """An operator who turned events off would still find files."""
    log = open_log(tmp_path / "events", enabled=False)
    log.emit(FACT)
    log.close()

    assert not (tmp_path / "events").exists()


@pytest.mark.parametrize(
    ("keep_bytes", "keep_secs", "going"),
    [(250, 1000, ["a"]), (1000, 15, ["a"]), (0, 1000, ["c", "b", "a"]), (999, 999, [])],
)
def test_the_oldest_files_go_first(keep_bytes: int, keep_secs: float, going: list[str]) -> None:
    """Events that are kept for ever fill the disk that bundles need."""
    closed = [_Closed(Path(name), 100, at) for name, at in (("a", 10.0), ("c", 30.0), ("b", 20.0))]

    assert going == [
        path.name for path in surplus(closed, 30.0, EventsConfig(keep_bytes=keep_bytes, keep_secs=keep_secs))
    ]


def test_every_kind_of_event_is_in_the_documentation() -> None:
    """A reader could not look up what an event means."""
    page = (Path(__file__).parent.parent.parent / "docs" / "events.md").read_text()
    missing = [name for name in NAMES if f"`{name}`" not in page]
    fields = {field.name for kind in KINDS for field in msgspec.structs.fields(kind)}

    assert ([], []) == (missing, [name for name in sorted(fields) if f"`{name}`" not in page])


def report(state: WorkerState, **fields: Any) -> WorkerReport:
    return WorkerReport(job="etl", worker=0, state=state, **fields)  # type: ignore[arg-type]


def test_a_worker_is_told_about_when_it_changes_and_only_then() -> None:
    """Every heartbeat would be an event, and hide the few that matter."""
    waiting, running = report(WorkerState.WAITING), report(WorkerState.RUNNING, pid=7, fencing=1)
    again = report(WorkerState.RUNNING, pid=9, fencing=2, restarts=1, exit_code=1)
    told = [
        [(fact.before, fact.state, fact.pid) for fact in transitions(before, after)]
        for before, after in (([], [waiting]), ([waiting], [running]), ([running], [running]), ([running], [again]))
    ]

    assert [
        [(None, WorkerState.WAITING, 0)],
        [(WorkerState.WAITING, WorkerState.RUNNING, 7)],
        [],
        [(WorkerState.RUNNING, WorkerState.RUNNING, 9)],
    ] == told


def test_a_bundle_with_many_files_does_not_hold_up_the_loop(tmp_path: Path) -> None:
    """The leader would answer nobody while it names the files of an upload."""
    write_tree(tmp_path / "source", {f"f{number:04}": b"%d" % number for number in range(3 * FILES_A_LINE + 1)})
    meta, log = make_metafile(tmp_path / "source"), open_log(tmp_path / "events")
    told: list[int] = []
    log.subscribe(lambda fact: told.append(len(fact.files) if isinstance(fact, BundleFiles) else 0))

    async def others() -> list[int]:
        turns = []
        while sum(told) < len(meta.files):
            turns.append(len(told))
            await asyncio.sleep(0)
        return turns

    async def both() -> list[int]:
        return (await asyncio.gather(tell_files(log, BundleId("many"), meta), others()))[1]

    turns = asyncio.run(both())
    log.close()

    assert [1, 2, 3] == turns
    assert [FILES_A_LINE] * 3 + [1] == told


@pytest.mark.parametrize(
    ("settings", "published"),
    [({"file_bytes": 1, "file_secs": 3600.0}, 1), ({"file_secs": 0.0}, 1), ({"file_secs": 3600.0}, 0)],
    ids=["large", "old", "neither"],
)
def test_a_file_is_closed_when_it_is_large_or_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], published: int
) -> None:
    """The events of a day come when the daemon ends, or each of them makes a file."""
    monkeypatch.setattr(event_log, "LOOK_SECS", 0.001)
    monkeypatch.setattr(event_log, "IDLE_LOOK_SECS", 0.001)
    log = open_log(tmp_path, **settings)

    def has_closed() -> bool:
        return any(tmp_path.glob("events-*"))

    async def play() -> None:
        running = asyncio.create_task(log.run())
        await asyncio.sleep(0)
        log.emit(FACT)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(10 if published else 0.05):
                while not has_closed():  # noqa: ASYNC110  # a thread closes the file
                    await asyncio.sleep(0.001)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(play())
    closed, still_open = list(tmp_path.glob("events-*")), list(tmp_path.glob("_events-*"))
    log.emit(FACT)
    log.close()

    assert (published, 1 - published) == (len(closed), len(still_open))
    assert [1, 2] == [line["seq"] for line in lines(tmp_path)]
