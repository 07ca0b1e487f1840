"""The console's pages of hosts: what a list shows of many, and what a page says of one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pytest
from msgspec.structs import replace
from records_of import bundle, job, snapshot, supervisor

from torrentdist.cluster.records.snapshot import AssignmentEntry
from torrentdist.host.http.operation import api_app, operations_of
from torrentdist.host.http.web import PRINCIPAL
from torrentdist.master.console.console_markup import Visit
from torrentdist.master.console.console_sight import ConsoleSight
from torrentdist.master.console.pages.host_pages import ROWS, HostPages
from torrentdist.master.presence.attention_sight import AttentionSight
from torrentdist.model.access.host_record import PresenceRecord
from torrentdist.model.ids import BundleId, JobId, PeerId, SupervisorId
from torrentdist.model.records import AssignmentRecord
from torrentdist.model.wire.cluster_messages import HostStateView
from torrentdist.model.wire.job_messages import WorkerReport, WorkerState
from torrentdist.security.authorization import LOCAL, Principal, Proof, Role
from torrentdist.swarm.directory.directory_values import HeldBundles, HostConditions

pytestmark = pytest.mark.anyio
GIB = 1024**3
HELD = {
    "alpha": HeldBundles(3, 9 * GIB, 2 * GIB, rate=5 * GIB, problem="etl-42: its source is gone"),
    "beta": HeldBundles(7, 4 * GIB, GIB),
}
SAID = HostConditions(full={PeerId("beta"): "no room for etl"}, free={PeerId("alpha"): 8 * GIB, PeerId("beta"): 1})
STATE = HostStateView(
    published_bytes=9 * GIB, arriving_bytes=3 * GIB, free_bytes=7 * GIB, limit_bytes=20 * GIB, reserve_bytes=GIB,
    upload_rate=2 * GIB, download_rate=5 * GIB, peers=1234, errors={"etl-42": "its source is gone", "own": "late"},
)  # fmt: skip
READER = Principal("r", Role.READER, Proof.TOKEN, reads=("own*",))


def cluster(many: int = 0) -> Any:
    """Returns the records of four hosts and one that is gone, and of `many` further ones."""
    hosts = [supervisor("alpha", rack="r1"), supervisor("beta"), supervisor("delta", rack="r2"), supervisor("mute")]
    hosts = [msgspec.structs.replace(host, host=f"10.0.0.{n}", slots=n) for n, host in enumerate(hosts)]
    seen = snapshot(
        [bundle("etl-42"), bundle("own")], jobs=[job("nightly", ["own"])],
        supervisors=[*hosts, *(supervisor(f"more-{n:03}") for n in range(many))],
        known=[PresenceRecord(id="lost", host="10.9.9.9", absent_at=100.0, ran=(JobId("nightly"),))],
    )  # fmt: skip
    kept = AssignmentRecord(bundles=(BundleId("own"), BundleId("etl-42")), draining=True)
    return replace(seen, assignments={SupervisorId("delta"): AssignmentEntry(kept, 0)})


def console(many: int = 0, sender: Principal = LOCAL, state: HostStateView | None = None) -> httpx.AsyncClient:
    """Returns a program in front of a master that leads, and has heard these hosts."""
    seen, unused = cluster(many), None
    work = WorkerReport(job=JobId("nightly"), worker=4, state=WorkerState.RUNNING, pid=77, restarts=2, detail="busy")
    late = WorkerReport(job=JobId("nightly"), worker=5, state=WorkerState.WAITING, restarts=3)
    hidden = WorkerReport(job=JobId("other"), worker=1, state=WorkerState.RUNNING)
    heard = {SupervisorId("alpha"): SimpleNamespace(workers=[work, late, hidden])}
    records: Any = SimpleNamespace(snapshot=lambda: seen, readable_by=lambda _: seen, server_now=lambda: 10_000.0)
    heartbeats: Any = SimpleNamespace(silent_secs=lambda _: {SupervisorId("mute"): 99.0}, recent=lambda: heard)
    swarms: Any = SimpleNamespace(directory=SimpleNamespace(conditions=SAID), held=HELD.get)
    attention = AttentionSight(records, unused, heartbeats, swarms, unused)  # type: ignore[arg-type]
    sight = ConsoleSight(attention, unused, heartbeats, swarms)  # type: ignore[arg-type]

    async def answer(_: object) -> HostStateView | None:
        return state

    async def of(_: object, bundles: object) -> dict[str, Any]:
        return {"own": SimpleNamespace(goes=bool(bundles)), "etl-42": SimpleNamespace(goes="")}

    visit = Visit("m1", "/ui/hosts", "", LOCAL, "key", leader="m1")
    visits, asking, room = SimpleNamespace(of=lambda _: visit), SimpleNamespace(state=answer), SimpleNamespace(of=of)
    pages = HostPages(visits, sight, asking, room)  # type: ignore[arg-type]
    app = api_app(operations_of(pages))

    async def known(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, PRINCIPAL: sender}, receive, send)

    return httpx.AsyncClient(transport=httpx.ASGITransport(app=known), base_url="http://m1")


async def listed(query: str, many: int = 0) -> list[str]:
    async with console(many) as program:
        return [host["id"] for host in (await program.get(f"/ui/hosts?{query}")).json()]


async def page(path: str, **given: Any) -> str:
    """Returns the text of a page that a browser shows, with a blank between elements."""
    async with console(**given) as browser:
        answer = await browser.get(path, headers={"accept": "text/html"})
    return " ".join(answer.text.replace("<", " <").split())


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["alpha", "beta", "delta", "mute"]), ("q=et", ["beta"]), ("q=10.0.0.2", ["delta"]),
        ("q=rack=r", ["alpha", "delta"]), ("state=silent", ["mute"]), ("state=full", ["beta"]),
        ("state=draining", ["delta"]), ("state=up", ["alpha"]), ("state=up&q=beta", []),
        ("sort=bundles", ["beta", "alpha", "delta", "mute"]), ("sort=size", ["alpha", "beta", "delta", "mute"]),
        ("sort=own", ["alpha", "beta", "delta", "mute"]), ("sort=free", ["beta", "alpha", "delta", "mute"]),
        ("sort=rate", ["alpha", "beta", "delta", "mute"]), ("sort=trouble", ["alpha", "beta", "delta", "mute"]),
        ("page=2", []), ("sort=nonsense", ["alpha", "beta", "delta", "mute"]),
    ],
)  # fmt: skip
async def test_hosts_are_found_and_sorted(query: str, expected: list[str]) -> None:
    """An operator would not find the host that is full among thousands."""
    assert expected == await listed(query)


@pytest.mark.parametrize("sort", ["", "&sort=bundles"])
async def test_each_host_is_on_one_page(sort: str) -> None:
    """Following the pages would miss hosts, or show some twice."""
    first, second = [await listed(f"page={number}{sort}", many=150) for number in (1, 2)]

    assert (ROWS, 54, 154) == (len(first), len(second), len({*first, *second}))


async def test_a_list_says_who_is_gone_and_what_a_host_lacks() -> None:
    """A host that is gone would be missed by nobody, or an unknown size be called zero."""
    shown, second = await page("/ui/hosts"), await page("/ui/hosts?page=2")
    rows = [row for row in shown.split("<tr>") if "/ui/hosts/" in row]
    of = {name: next(row for row in rows if f"/ui/hosts/{name}" in row) for name in ("alpha", "beta", "mute", "lost")}

    assert "4 hosts, and 1 gone." in shown
    assert [] == [word for word in ("9.0 GiB", "2.0 GiB", "8.0 GiB", "5.0 GiB/s", "rack=r1") if word not in of["alpha"]]
    assert [] == [word for word in (">full", "no room for etl", ">7") if word not in of["beta"]]
    assert [] == [word for word in ("silent for 99 s", ">unknown") if word not in of["mute"]]
    assert [] == [word for word in ("10.9.9.9", ">gone", "nightly") if word not in of["lost"]]
    assert "/ui/hosts/lost" not in second
    assert "mosaic" not in shown


async def test_many_hosts_come_with_a_picture_and_a_next_page() -> None:
    """An operator would see 100 of 1,000 hosts, and no way to the others."""
    shown, last = await page("/ui/hosts?q=more&sort=", many=150), await page("/ui/hosts?q=more&page=2", many=150)

    assert "Hosts: 151 up, 1 draining, 1 full, 1 silent, 1 gone" in shown
    assert "/ui/hosts?q=more&amp;page=2" in shown
    assert "Next page" not in last


async def test_a_page_of_a_host_says_what_it_keeps_and_runs() -> None:
    """An operator would drain a host without knowing what runs there."""
    draining, runs = await page("/ui/hosts/delta"), await page("/ui/hosts/alpha", state=STATE)
    said = (
        "9.0 GiB", "3.0 GiB", "7.0 GiB", "5.0 GiB/s", "2.0 GiB/s", "1,234", "Bundles of 20.0 GiB at most",
        "1.0 GiB of the disk stay free", "its source is gone", "/ui/jobs/nightly", ">77", ">busy", "0 of 0 taken",
        "It has room for 8.0 GiB of bundles.", "none issued by the cluster", "/ui/hosts/alpha/drain",
    )  # fmt: skip

    assert [] == [word for word in said if word not in runs]
    assert "/ui/jobs/other" not in runs, "its job is not shown to this visitor"
    assert ">0 </td" not in runs, "a worker that has no process"
    assert ">none <" in await page("/ui/hosts/beta"), "it has no labels"
    kept = ("/ui/bundles/etl-42", "/ui/bundles/own", ">draining", "/ui/hosts/delta/undrain", "rack=r2")
    assert [] == [word for word in kept if word not in draining]
    unknown = ("Unknown: the host does not answer", "Unknown: only the leader hears", "Retention frees 1 B next")
    assert [] == [word for word in unknown if word not in draining]


@pytest.mark.parametrize(("free", "tone"), [(GIB, "bad"), (GIB + 1, "")])
async def test_a_full_disk_is_seen_at_once(free: int, tone: str) -> None:
    """A disk without room would look like any other."""
    shown = await page("/ui/hosts/alpha", state=msgspec.structs.replace(STATE, free_bytes=free, limit_bytes=0))

    assert bool(tone) is ("bad" in shown.partition("Free on its disk")[0].rpartition("<div")[2])
    assert "Bundles without a limit" in shown


async def test_who_may_not_read_a_bundle_is_told_nothing_of_it() -> None:
    """An id that is hidden from a reader would show in a host's errors."""
    async with console(sender=READER, state=STATE) as program:
        one, every = (await program.get("/ui/hosts/alpha")).json(), (await program.get("/ui/hosts")).json()

    assert ({"own": "late"}, None) == (one["state"]["errors"], one["growth"])
    assert {""} == {host["problem"] for host in [*every, one["host"]]}


async def test_a_host_that_is_gone_has_a_page_and_one_that_never_was_has_none() -> None:
    """A link to a host that has just left would lead to an error."""
    gone = await page("/ui/hosts/lost")
    async with console() as program:
        none = await program.get("/ui/hosts/nobody")

    assert [] == [word for word in (">gone", "10.9.9.9", "/ui/jobs/nightly") if word not in gone]
    assert (404, "not_found") == (none.status_code, none.json()["error"])
