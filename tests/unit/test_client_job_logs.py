"""`job logs` against hosts that keep output. A table maps host, worker and stream to the kept
bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import msgspec
import pytest
from scripted_http import ScriptedHttp

from torrentdist.client import job_logs
from torrentdist.client.job_logs import LogLine, Wanted, follow_logs, read_logs
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.model.configuration.config import ClientConfig
from torrentdist.model.errors import TorrentdistError

Kept = dict[tuple[str, int, str], bytes]
HOSTS = ("h1", "h2")


class Hosts:
    """The masters and the hosts of one job `j`."""

    def __init__(self, kept: Kept, *, begin: int = 0, silent: tuple[str, ...] = (), known: bool = True) -> None:
        self.kept = kept
        self.begin = begin
        self.silent = silent
        self.known = known
        self.placed: dict[int, str] = {}
        self.status = "active"
        self.notes: list[str] = []
        self.said: list[LogLine] = []
        self.looks = 0
        self.away = False
        self.refusing: tuple[str, ...] = ()
        self.on_look: Callable[[], None] = lambda: None
        self.on_away: Callable[[], None] = lambda: None

    def answer(self, request: httpx.Request) -> httpx.Response:
        host, path = request.url.host, request.url.path
        if host == "m" and self.away:
            self.on_away()
            raise httpx.ConnectError("no master")
        if host in self.refusing:
            error = TorrentdistError("not_ready", detail="it starts")
            return httpx.Response(error.http_status, json=error.to_wire())
        if path == "/v1/cluster":
            return httpx.Response(200, content=msgspec.json.encode(_cluster()))
        if path == "/v1/jobs/j":
            self.looks += 1
            self.on_look()
            return self._job()
        if host in self.silent:
            raise httpx.ConnectError("nobody there")
        if path.endswith("/logs"):
            return httpx.Response(
                200, json=[self._span(key, data) for key, data in self.kept.items() if key[0] == host]
            )
        return self._output(host, int(path.split("/")[5]), request.url.params)

    def _job(self) -> httpx.Response:
        if not self.known:
            error = TorrentdistError("job_not_found", id="j")
            return httpx.Response(error.http_status, json=error.to_wire())
        workers = [
            {"worker": k, "supervisor": host, "slot": 0, "state": "running", "pid": 1}
            for k, host in self.placed.items()
        ]
        view = {"id": "j", "name": "j", "status": self.status, "bundle": "b", "dependencies": [], "wanted": 1}
        return httpx.Response(200, json={**view, "workers": workers, "created_at": 0.0})

    def _span(self, key: tuple[str, int, str], data: bytes) -> dict[str, Any]:
        here = self.placed.get(key[1]) == key[0]
        at = float(HOSTS.index(key[0]))
        return {"worker": key[1], "stream": key[2], "begin": self.begin, "end": len(data), "at": at, "here": here}

    def _output(self, host: str, worker: int, params: httpx.QueryParams) -> httpx.Response:
        data = self.kept[host, worker, params["stream"]]
        offset = max(self.begin, int(params["offset"]))
        piece = data[offset : offset + 7]  # little at a time
        headers = {"X-Offset": str(offset), "X-Next-Offset": str(offset + len(piece))}
        return httpx.Response(200, content=piece, headers=headers)

    def lines(self) -> list[tuple[str, int, str]]:
        return [(line.supervisor, line.worker, line.line.decode()) for line in self.said]


def _cluster() -> dict[str, Any]:
    host = {"host": "h", "gateway": "", "slots": 1, "slots_used": 0, "labels": {}, "bundles": 0, "version": "0"}
    counts = {"total": 0, "available": 0, "uploading": 0, "lost": 0, "under_replicated": 0}
    hosts = [{**host, "id": name, "uptime_secs": 1.0, "url": f"http://{name}:1"} for name in HOSTS]
    return {"leader": None, "epoch": 1, "masters": [], "supervisors": hosts, "jobs": ["j"], "bundles": counts}


def read(hosts: Hosts, reader: Any, wanted: Wanted = Wanted()) -> None:  # noqa: B008  # frozen
    async def work() -> None:
        async with MasterClient(
            ClientConfig(masters=["http://m:1"], deadline_secs=0.5),
            open_http=lambda access: ScriptedHttp(hosts.answer, access),
        ) as client:
            await reader(client, "j", wanted, hosts.said.append, hosts.notes.append)

    asyncio.run(asyncio.wait_for(work(), 30.0))


def test_output_is_read_from_every_host_that_keeps_some() -> None:
    """If this fails, what a worker printed before it moved is lost to its user."""
    hosts = Hosts({("h2", 0, "stdout"): b"third\nfourth", ("h1", 0, "stdout"): b"first\nsecond\n"})
    read(hosts, read_logs)

    assert [("h1", 0, "first"), ("h1", 0, "second"), ("h2", 0, "third"), ("h2", 0, "fourth")] == hosts.lines()


def test_what_was_rotated_away_is_skipped() -> None:
    """If this fails, the output of a long-running worker cannot be read at all."""
    hosts = Hosts({("h1", 0, "stdout"): b"gone\nkept\n"}, begin=5)
    read(hosts, read_logs)

    assert [("h1", 0, "kept")] == hosts.lines()
    assert ["5 bytes of stdout of worker 0 on h1 are gone: it keeps the last output only (supervisor.log_bytes)"] == (
        hosts.notes
    )


@pytest.mark.parametrize(("last", "noted"), [(1, 0), (2, 1)])
def test_what_is_gone_of_the_last_lines_is_said(last: int, noted: int) -> None:
    """If this fails, `-n 1000` shows fewer lines and does not say why."""
    hosts = Hosts({("h1", 0, "stdout"): b"gone\nkept\n"}, begin=5)
    read(hosts, read_logs, Wanted(last=last))

    assert [("h1", 0, "kept")] == hosts.lines()
    assert noted == len(hosts.notes)


def test_the_last_lines_are_whole_whatever_their_length() -> None:
    """If this fails, `-n` shows half a line, or too few."""
    long = b"x" * 3000
    hosts = Hosts({("h1", 0, "stdout"): b"a\nb\n" + long + b"\nlast\n"})
    read(hosts, read_logs, Wanted(last=2))

    assert [("h1", 0, long.decode()), ("h1", 0, "last")] == hosts.lines()


def test_a_line_that_does_not_end_is_given_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, `-f` shows nothing of a worker that only moves a progress bar, and keeps all
    of it in memory."""
    monkeypatch.setattr(job_logs, "LONGEST_LINE", 14)
    bar = b"".join(b"%3d%%\r" % n for n in range(10))
    hosts = Hosts({("h1", 0, "stdout"): bar + b"\nend\n"})
    read(hosts, read_logs)
    *parts, end = [line.line for line in hosts.said]

    assert (bar, b"end") == (b"".join(parts), end)
    assert 21 > max(map(len, parts))


def test_only_what_is_wanted_is_read() -> None:
    """If this fails, one worker's error is lost among the output of all."""
    kept = {("h1", k, stream): f"{k} {stream}\n".encode() for k in (0, 1) for stream in ("stdout", "stderr")}
    hosts = Hosts(kept)
    read(hosts, read_logs, Wanted(frozenset({1}), ("stderr",)))

    assert [("h1", 1, "1 stderr")] == hosts.lines()


def test_a_host_that_does_not_answer_is_told_and_the_others_are_read() -> None:
    """If this fails, one dead host hides the output of all hosts, or its absence is not
    reported."""
    hosts = Hosts({("h1", 0, "stdout"): b"here\n"}, silent=("h2",))
    read(hosts, read_logs)

    assert [("h1", 0, "here")] == hosts.lines()
    assert ["supervisor h2 does not answer: nobody there"] == hosts.notes


def test_a_removed_job_is_read_while_hosts_keep_it_and_then_unknown() -> None:
    """If this fails, the output of a job disappears with its record, before a user can read why it
    ended."""
    kept = Hosts({("h1", 0, "stdout"): b"why\n"}, known=False)
    read(kept, read_logs)

    assert [("h1", 0, "why")] == kept.lines()
    with pytest.raises(TorrentdistError) as caught:
        read(Hosts({}, known=False), read_logs)
    assert "job_not_found" == caught.value.code


def test_following_goes_where_the_worker_goes_and_ends_with_the_job() -> None:
    """If this fails, `-f` falls silent when a worker moves, or never ends."""
    hosts = Hosts({("h1", 0, "stdout"): b"one\n"})
    hosts.placed = {0: "h1"}

    def on_look() -> None:
        if hosts.looks == 2:
            hosts.kept["h1", 0, "stdout"] += b"two\n"
            hosts.placed = {0: "h2"}
            hosts.kept["h2", 0, "stdout"] = b"three\nfo"
        if hosts.looks == 3:
            hosts.kept["h2", 0, "stdout"] += b"ur"
            hosts.known = False

    hosts.on_look = on_look
    read(hosts, follow_logs)

    assert sorted([("h1", 0, "one"), ("h1", 0, "two"), ("h2", 0, "three"), ("h2", 0, "four")]) == sorted(hosts.lines())
    assert len(hosts.lines()) == 4


def test_a_host_that_refuses_is_told_and_the_others_are_read() -> None:
    """If this fails, one host that just starts hides the output of all hosts."""
    hosts = Hosts({("h1", 0, "stdout"): b"here\n"})
    hosts.refusing = ("h2",)
    read(hosts, read_logs)

    assert [("h1", 0, "here")] == hosts.lines()
    assert ["supervisor h2 refuses: this master is not ready: it starts"] == hosts.notes


def test_a_refusal_by_all_hosts_is_an_error() -> None:
    """If this fails, a user who may not read the output sees an empty one, and a success."""
    hosts = Hosts({("h1", 0, "stdout"): b"here\n"})
    hosts.refusing = HOSTS
    with pytest.raises(TorrentdistError) as caught:
        read(hosts, read_logs)

    assert "not_ready" == caught.value.code


def test_following_goes_on_while_no_master_answers() -> None:
    """If this fails, `-f` ends at every restart of the masters, while the job prints on."""
    hosts = Hosts({("h1", 0, "stdout"): b"one\n"})
    hosts.placed = {0: "h1"}

    def on_look() -> None:
        hosts.away = hosts.looks == 2
        hosts.known = hosts.looks < 4

    def on_away() -> None:
        if b"two" not in hosts.kept["h1", 0, "stdout"]:
            hosts.kept["h1", 0, "stdout"] += b"two\n"
        elif hosts.notes and ("h1", 0, "two") in hosts.lines():
            hosts.away = False

    hosts.on_look, hosts.on_away = on_look, on_away
    read(hosts, follow_logs)

    assert [("h1", 0, "one"), ("h1", 0, "two")] == hosts.lines()
    assert 1 == len(hosts.notes)
    assert hosts.notes[0].startswith("no master could be reached")


class ClosedPipe(list[LogLine]):
    """Takes one line. Then its reader is gone."""

    def append(self, line: LogLine) -> None:
        if self:
            raise BrokenPipeError
        super().append(line)


def test_following_ends_when_nobody_reads_it_any_more() -> None:
    """If this fails, `job logs -f | head -1` reads the hosts for as long as the job runs, and with
    a full disk it leaves out lines and says nothing."""
    hosts = Hosts({("h1", 0, "stdout"): b"one\ntwo\n"})
    hosts.placed, hosts.said = {0: "h1"}, ClosedPipe()

    def on_look() -> None:
        hosts.known = hosts.looks < 4

    hosts.on_look = on_look
    with pytest.raises(BrokenPipeError):
        read(hosts, follow_logs)

    assert 4 > hosts.looks
