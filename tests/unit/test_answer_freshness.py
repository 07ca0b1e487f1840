"""How new a master's answers are, and what it says of their age."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from msgspec.structs import replace
from records_of import bundle, job, snapshot
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.master.reads.answer_freshness import (
    CATCH_UP_SECS,
    Fresh,
    answered_here,
    confirmed,
    require_zookeeper,
    seen,
)
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.headers import CLUSTER, STALE, ZXID

pytestmark = pytest.mark.anyio


class Master:
    """The records of one master, as the test says, and what it does to get newer ones."""

    def __init__(self, known: ClusterSnapshot | None = None) -> None:
        self.known = snapshot() if known is None else known
        self.newest = self.known
        self.applied, self.cut_off = 5, 0.0
        self.is_file, self.fresh = False, True
        self.stale: float | None = None
        self.why_incomplete: TorrentdistError | None = None
        self.fails = False
        self.calls: list[tuple[str, Any]] = []

    # as a mirror

    @property
    def snapshot(self) -> Any:
        return _Both(self.known)

    async def sync(self, timeout: float) -> None:
        self.calls.append(("sync", timeout))
        if self.fails:
            raise TorrentdistError("zookeeper_unavailable", detail="no current view")
        self.known = self.newest

    async def sync_to(self, zxid: int, timeout: float) -> None:
        self.calls.append(("sync to", zxid))
        await self.sync(timeout)
        self.applied = max(self.applied, zxid)

    async def incomplete(self) -> TorrentdistError | None:
        return self.why_incomplete

    # as records

    def zxid(self) -> int:
        return self.applied

    def cut_off_secs(self) -> float:
        return self.cut_off

    def from_file(self) -> bool:
        return self.is_file

    def stale_secs(self) -> float | None:
        return self.stale


class _Both:
    """A snapshot that is called, as records are, or looked at, as a mirror is."""

    def __init__(self, known: ClusterSnapshot) -> None:
        self._known = known

    def __call__(self) -> ClusterSnapshot:
        return self._known

    def __getattr__(self, name: str) -> Any:
        return getattr(self._known, name)


async def asked(
    master: Any, path: str = "/v1/bundles", *, method: str = "GET", leads: bool = False, **headers: str
) -> httpx.Response:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse(f"as of {master.applied}")(scope, receive, send)

    names = {"zxid": ZXID, "cluster": CLUSTER}
    fresh = Fresh(app, master, master, lambda: leads)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=fresh), base_url="http://m1") as client:
        return await client.request(method, path, headers={names[key]: value for key, value in headers.items()})


async def test_an_answer_says_how_old_it_is() -> None:
    """If this fails, a client reads records that are older than what it has written itself."""
    master = Master()
    now = await asked(master)
    master.stale = 12.4
    old, other = await asked(master), await asked(master, "/livez")

    assert ("5", "c", None) == tuple(now.headers.get(name) for name in (ZXID, CLUSTER, STALE))
    assert ("5", "12") == (old.headers[ZXID], old.headers[STALE])
    assert ("5", None) == (other.headers[ZXID], other.headers.get(STALE))


async def test_an_answer_without_records_names_no_transaction() -> None:
    """If this fails, a client of a new cluster waits for transactions that no master has."""
    master = Master(snapshot(present=False))
    master.applied = 0

    answer = await asked(master)
    assert (None, None) == (answer.headers.get(ZXID), answer.headers.get(CLUSTER))


async def test_a_request_waits_for_what_its_sender_has_seen() -> None:
    """If this fails, `job show` right after `job submit` finds no job."""
    master = Master()
    same = await asked(master, zxid="5", cluster="c")
    calls = [*master.calls]
    newer = await asked(master, zxid="6", cluster="c")

    assert ("as of 5", []) == (same.text, calls)
    assert ("as of 6", [("sync to", 6), ("sync", CATCH_UP_SECS)]) == (newer.text, master.calls)
    assert "6" == newer.headers[ZXID]


async def test_what_another_cluster_has_counted_keeps_nobody_waiting() -> None:
    """If this fails, clients of a cluster that was founded anew are refused for ever."""
    master = Master()
    other = await asked(master, zxid="900", cluster="before")
    unknown = await asked(master, zxid="7")

    assert ("as of 5", "as of 7") == (other.text, unknown.text)


async def test_a_master_that_stays_behind_says_so() -> None:
    """If this fails, a client takes old records for the newest ones and does not ask another
    master."""
    master = Master()
    master.fails = True
    behind = await asked(master, zxid="6")
    master.fails, master.cut_off, master.calls = False, CATCH_UP_SECS, []
    waits = await asked(master, zxid="6")
    master.cut_off, master.calls = CATCH_UP_SECS + 0.1, []
    cut_off = await asked(master, zxid="7")

    assert [("not_ready", True)] * 2 == [(one.json()["error"], one.json()["behind"]) for one in (behind, cut_off)]
    assert "5" == behind.headers[ZXID]
    assert (200, []) == (waits.status_code, master.calls)


async def test_a_change_on_a_standby_is_not_delayed() -> None:
    """If this fails, each change at a standby waits for records before it is sent to the leader."""
    master = Master()
    texts = [(await asked(master, method="POST", leads=leads, zxid="6")).text for leads in (False, True)]

    assert ["as of 5", "as of 6"] == texts


@pytest.mark.parametrize(
    ("method", "path", "leads", "expected"),
    [
        ("GET", "/v1/bundles", False, True), ("HEAD", "/v1/bundles", False, True), ("POST", "/v1/jobs", False, False),
        ("POST", "/v1/jobs", True, True), ("GET", "/v1/uploads/etl", False, False),
        ("GET", "/v1/uploads/etl", True, True), ("GET", "/livez", True, False), ("GET", "/metrics", False, False),
    ],
)  # fmt: skip
def test_who_answers_a_request(method: str, path: str, leads: bool, expected: bool) -> None:
    """If this fails, a standby answers what only the leader knows."""
    assert expected == answered_here(method, path, leads)


def test_what_a_sender_has_seen_is_a_number_or_nothing() -> None:
    """If this fails, a damaged header ends a request with an error of the server."""
    with pytest.raises(TorrentdistError) as refused:
        seen("x" * 100)

    assert (0, 7) == (seen(None), seen("7"))
    assert ("invalid_request", f"{ZXID}: {'x' * 40!r} is no ZooKeeper transaction id") == (
        refused.value.code, refused.value.fields["detail"],
    )  # fmt: skip


def test_a_backup_is_refused_at_once_where_zookeeper_is_away() -> None:
    """If this fails, `ha backup` waits for a long time for what it cannot get."""
    master: Any = Master()
    master.cut_off = CATCH_UP_SECS
    require_zookeeper(master)
    master.cut_off = CATCH_UP_SECS + 0.6
    with pytest.raises(TorrentdistError) as refused:
        require_zookeeper(master)

    assert "zookeeper_unavailable" == refused.value.code
    assert "for 1 s" in str(refused.value.fields["detail"])


def looking_for(master: Master, id_: str, code: str = "bundle_not_found") -> Callable[[Request], Any]:
    async def handler(request: Request) -> Response:
        master.calls.append(("handled", id_))
        if id_ in master.known.bundles or id_ in master.known.jobs:
            return PlainTextResponse(id_)
        raise TorrentdistError(code, id=id_, note="", detail="")

    return handler


async def outcome(master: Any, method: str = "GET", code: str = "bundle_not_found", id_: str = "etl") -> str:
    handle = confirmed(looking_for(master, id_, code), master, master)
    try:
        return bytes((await handle(Request({"type": "http", "method": method, "headers": []}))).body).decode()
    except TorrentdistError as error:
        return error.code


async def test_nothing_is_called_missing_before_the_newest_records_were_seen() -> None:
    """If this fails, a host that was told to fetch a bundle hears that there is none."""
    master = Master()
    master.newest = snapshot([bundle("etl")], jobs=[job("j", ["etl"])])
    found = await outcome(master)
    calls = master.calls
    master.known = snapshot()

    assert ("etl", [("handled", "etl"), ("sync", CATCH_UP_SECS), ("handled", "etl")]) == (found, calls)
    assert "j" == await outcome(master, code="job_not_found", id_="j")


async def test_what_is_nowhere_is_missing() -> None:
    """If this fails, a name that was never used gets an error that a client repeats."""
    assert "bundle_not_found" == await outcome(Master())
    assert "bundle_not_found" == await outcome(Master(), "DELETE")
    assert "job_not_found" == await outcome(Master(), code="job_not_found")


async def test_a_change_is_not_begun_twice() -> None:
    """If this fails, a change that found no record runs again with what it has done half."""
    master = Master()
    master.newest = snapshot([bundle("etl")])
    first = await outcome(master, "DELETE")

    assert ("not_ready", 1) == (first, master.calls.count(("handled", "etl")))
    known = Master(snapshot([bundle("other")]))

    async def refused(request: Request) -> Response:
        raise TorrentdistError("not_for_host", name="h", id="other")

    records: Any = known
    with pytest.raises(TorrentdistError) as told:
        await confirmed(refused, records, records)(Request({"type": "http", "method": "PUT", "headers": []}))
    assert "not_for_host" == told.value.code


async def test_other_errors_are_told_at_once() -> None:
    """If this fails, each refusal costs a question to ZooKeeper."""
    master = Master()

    assert ("forbidden", [("handled", "etl")]) == (await outcome(master, code="forbidden"), master.calls)


async def test_a_master_without_zookeeper_answers_from_its_file() -> None:
    """If this fails, reads fail while ZooKeeper is away, although the records are at hand."""
    master = Master()
    master.is_file, master.fresh = True, False
    from_file = await outcome(master)
    calls = [*master.calls]
    master.fresh, master.known = True, snapshot(present=False)
    master.newest = master.known
    wiped = await outcome(master)

    assert ("bundle_not_found", [("handled", "etl")]) == (from_file, calls)
    assert ("bundle_not_found", True) == (wiped, ("sync", CATCH_UP_SECS) in master.calls)


async def test_a_master_that_cannot_tell_says_so() -> None:
    """If this fails, a master that is cut off calls bundles missing that exist."""
    master = Master()
    master.fails = True
    failed = await outcome(master)
    master.fails, master.cut_off, master.calls = False, CATCH_UP_SECS + 0.1, []
    cut_off = await outcome(master)
    calls = [*master.calls]
    master.cut_off = CATCH_UP_SECS

    assert ("not_ready", "not_ready", [("handled", "etl")]) == (failed, cut_off, calls)
    assert "bundle_not_found" == await outcome(master)


async def test_during_a_restore_nothing_is_missing_yet() -> None:
    """If this fails, hosts drop bundles whose records are just being restored."""
    master = Master()
    master.why_incomplete = TorrentdistError("not_ready", detail="a backup is being restored")
    absent = await outcome(master)
    master.newest = replace(snapshot([bundle("etl")]), version=1)

    assert ("not_ready", "etl") == (absent, await outcome(master))
