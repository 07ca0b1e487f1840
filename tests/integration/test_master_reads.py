"""A client sees its change at every master, and nothing that exists is called missing."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from masters_in_process import BUNDLE, Enter, InProcess, leader_with_bundle, put_bundle
from starlette.requests import Request
from starlette.responses import Response
from zookeeper_fixtures import TcpProxy, eventually_async

from torrentdist.cluster import paths
from torrentdist.host.http.web import json_response
from torrentdist.http.connection_pool import Http
from torrentdist.master.bundles import bundle_views
from torrentdist.master.reads.answer_freshness import Fresh, confirmed
from torrentdist.master.reads.saved_records import Records, SavingPace
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, MasterId
from torrentdist.model.wire.headers import CLUSTER, ZXID

ME, NOWHERE = MasterId("m"), Path("/nowhere")
pytestmark = pytest.mark.anyio


async def asked(master: InProcess, zxid: int | None, **headers: str) -> httpx.Response:
    async def shows(scope: object, receive: object, send: object) -> None:
        pinned = master.mirror.snapshot.bundles[BUNDLE].record.pinned
        await json_response(pinned)(scope, receive, send)  # type: ignore[arg-type]

    async with Http() as others:
        records = Records(ME, NOWHERE, master.zk, master.mirror, others, SavingPace(1, 1.0))
        app = Fresh(shows, master.mirror, records, master.leadership.is_leader)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as http:
            return await http.get("http://m/v1/x", headers={} if zxid is None else {ZXID: str(zxid)} | headers)


async def test_a_master_that_is_behind_catches_up_or_says_so(enter: Enter, proxy: TcpProxy) -> None:
    """B11: without this, a master that is cut off from ZooKeeper would show a client an old
    state."""
    leader = await leader_with_bundle(enter)
    standby = await enter("m2", servers=[proxy.address])
    proxy.hold_answers()
    await leader.operations.set_pinned(None, BUNDLE, True)
    wrote = leader.mirror.applied_zxid

    behind = await asked(standby, wrote)
    stale = await asked(standby, None)
    proxy.mend()
    proxy.drop()
    await eventually_async(lambda: succeeded(standby, wrote))
    caught_up = await asked(standby, wrote)

    assert (503, "not_ready") == (behind.status_code, behind.json()["error"])
    assert behind.json()["behind"] is True
    assert (200, False) == (stale.status_code, stale.json())  # a client that has seen nothing is promised nothing
    assert int(stale.headers[ZXID]) < wrote
    assert (200, True) == (caught_up.status_code, caught_up.json())
    assert int(caught_up.headers[ZXID]) >= wrote


async def succeeded(master: InProcess, zxid: int) -> bool:
    return (await asked(master, zxid)).status_code == 200


async def test_what_was_seen_of_a_lost_ensemble_is_no_reason_to_refuse(enter: Enter) -> None:
    """D18: without this, a client that has seen more than a restored ensemble has would be refused
    for ever."""
    master = await leader_with_bundle(enter)
    await master.mirror.wait_for(lambda s: s.present, 10.0)

    answer = await asked(master, 2**62)
    of_another_cluster = await asked(master, 2**62, **{CLUSTER: "another"})

    assert answer.status_code == of_another_cluster.status_code == 200
    assert int(answer.headers[ZXID]) < 2**62
    assert answer.headers[CLUSTER]


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_nothing_is_called_missing_by_a_master_that_is_behind(enter: Enter, proxy: TcpProxy, method: str) -> None:
    """B11: without this, a master that is cut off from ZooKeeper calls a bundle missing that
    another client has just uploaded.
    """
    leader = await leader_with_bundle(enter)
    standby = await enter("m2", servers=[proxy.address])
    late = BundleId("late")
    others = Http()
    records = Records(ME, NOWHERE, standby.zk, standby.mirror, others, SavingPace(1, 1.0))

    async def show(_: Request) -> Response:
        bundle_views.entry_of(standby.mirror.snapshot, late, *bundle_views.LISTED)
        return Response("there")

    async def look() -> str:
        try:
            asking = Request({"type": "http", "method": method})
            return bytes((await confirmed(show, standby.mirror, records)(asking)).body).decode()
        except TorrentdistError as error:
            return error.code

    await standby.mirror.wait_for(lambda s: s.present, 10.0)
    before = await look()
    assert not records.from_file()
    for master in (leader, standby):
        await master.retires()
    await leader.zk.delete(paths.CLUSTER)
    await standby.mirror.wait_for(lambda s: not s.present, 10.0)
    proxy.hold_answers()
    with leader.zk.without_cluster():
        await put_bundle(leader.zk, late)
    behind = await look()  # it has seen the tree go, which is evidence of nothing
    proxy.mend()
    proxy.drop()
    said: set[str] = set()

    async def is_there() -> bool:
        said.add(await look())
        return "there" in said

    await eventually_async(is_there)
    await others.aclose()

    assert ("bundle_not_found", "not_ready") == (before, behind)
    assert "bundle_not_found" not in said


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_nothing_is_called_missing_while_a_backup_is_brought_back(enter: Enter, method: str) -> None:
    """D18: without this, a client that asks during a restore is told that its bundle is missing."""
    leader = await leader_with_bundle(enter)
    await leader.mirror.wait_for(lambda s: s.present, 10.0)

    async def show(_: Request) -> Response:
        bundle_views.entry_of(leader.mirror.snapshot, BundleId("later"), *bundle_views.LISTED)
        return Response("there")

    async def refusal() -> str:
        async with Http() as others:
            records = Records(ME, NOWHERE, leader.zk, leader.mirror, others, SavingPace(1, 1.0))
            with pytest.raises(TorrentdistError) as caught:
                await confirmed(show, leader.mirror, records)(Request({"type": "http", "method": method}))
        return caught.value.code

    await leader.zk.create(paths.RESTORING, b"a backup")
    during = await refusal()
    await leader.zk.delete(paths.RESTORING)

    assert ("not_ready", "bundle_not_found") == (during, await refusal())
