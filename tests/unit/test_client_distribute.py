"""`bundle distribute` against a master that shows a fleet's progress picture by picture."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from scripted_http import ScriptedHttp

from torrentdist.client.bundles.distribute import distribute, hosts_needed, poll_secs, wait_for_hosts
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.model.configuration.config import ClientConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, supervisor_id
from torrentdist.model.wire.fleet_messages import DistributeView, FailedHost, FleetView
from torrentdist.model.wire.transfer_messages import Sources

ETL = BundleId("etl-1")
Hosts = dict[str, dict[str, Any]]
DONE = {"state": "done"}
FETCHING = {"state": "fetching", "done": 3, "size": 10}


def fleet(hosts: Hosts) -> dict[str, Any]:
    rows = [{"supervisor": name, **progress} for name, progress in hosts.items()]
    return {"id": "etl-1", "digest": "ab" * 32, "size": 10, "hosts": rows}


def watch(pictures: Sequence[Hosts | str], seen: list[FleetView], asked: list[Any], **options: Any) -> DistributeView:
    """Runs distribute() while the masters show `pictures`, the last one for ever. A text is an
    error code."""
    told = iter([*pictures[:-1]])

    def script(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            asked.append(json.loads(request.content))
        picture = next(told, pictures[-1])
        if isinstance(picture, str):
            error = TorrentdistError(picture, detail="away")
            return httpx.Response(error.http_status, json=error.to_wire())
        return httpx.Response(200, json=fleet(picture))

    async def run() -> DistributeView:
        config = ClientConfig(masters=["http://127.0.0.1:7060"], deadline_secs=0.1)
        async with MasterClient(config, open_http=lambda access: ScriptedHttp(script, access)) as client:
            return await distribute(client, ETL, progress=seen.append, **options)

    return asyncio.run(run())


def test_waits_until_the_share_is_done() -> None:
    """If this failed, --wait 100% would return before every host has the bundle, or never."""
    seen: list[FleetView] = []
    asked: list[Any] = []
    pictures: list[Hosts | str] = [
        {"s1": FETCHING, "s2": FETCHING},
        {"s1": DONE, "s2": FETCHING},
        {"s1": DONE, "s2": DONE},
    ]
    result = watch(pictures, seen, asked, wait_share=1.0)

    assert (result.hosts, result.done, result.failed) == (2, 2, [])
    assert [sum(host.state == "done" for host in view.hosts) for view in seen] == [0, 1, 2]
    assert asked == [{}]


def test_a_share_of_nothing_returns_at_once() -> None:
    """If this failed, a command that should only start the work would wait for it."""
    seen: list[FleetView] = []
    result = watch([{"s1": FETCHING}], seen, [], wait_share=0.0)

    assert (result.hosts, result.done, result.failed, len(seen)) == (1, 0, [], 1)


def test_names_what_is_missing_at_the_deadline() -> None:
    """If this failed, an operator would not know which hosts lack the bundle, nor why."""
    stuck = {"state": "stuck", "done": 3, "size": 10, "reason": "no peers"}
    hosts: Hosts = {"s1": DONE, "s2": stuck, "s3": {"state": "failed", "reason": "disk full"}, "s4": FETCHING}
    result = watch([hosts], [], [], wait_share=1.0, timeout=0.5)

    assert (result.hosts, result.done) == (4, 1)
    assert result.failed == [
        FailedHost(supervisor=supervisor_id("s2"), reason="stuck at 30 %: no peers"),
        FailedHost(supervisor=supervisor_id("s3"), reason="failed: disk full"),
        FailedHost(supervisor=supervisor_id("s4"), reason="fetching at 30 %"),
    ]


def test_counts_only_the_hosts_that_were_asked_for() -> None:
    """If this failed, other hosts that hold the bundle would make up for those that were named."""
    asked: list[Any] = []
    hosts: Hosts = {"s1": DONE, "s2": DONE}
    named = [supervisor_id("s2"), supervisor_id("s9")]
    result = watch([hosts], [], asked, wait_share=1.0, timeout=0.4, supervisors=named)

    assert asked == [{"supervisors": ["s2", "s9"]}]
    assert (result.hosts, result.done) == (2, 1)
    assert result.failed == [FailedHost(supervisor=supervisor_id("s9"), reason="no master knows of it")]


def test_masters_that_are_away_do_not_end_the_wait() -> None:
    """B9: if this failed, a failover during the wait would end the command although the hosts
    continue."""
    pictures: list[Hosts | str] = [{"s1": FETCHING}, "zookeeper_unavailable", "zookeeper_unavailable", {"s1": DONE}]
    result = watch(pictures, [], [], wait_share=1.0)

    assert result.done == 1


def test_no_host_at_all_is_an_error() -> None:
    """If this failed, a label that no host has would look like a success."""
    with pytest.raises(TorrentdistError) as caught:
        watch([{}], [], [], wait_share=1.0, labels={"rack": "9"})

    assert (caught.value.code, caught.value.exit_code) == ("no_supervisor_matches", 3)


def test_a_wait_for_a_cancelled_distribution_says_so() -> None:
    """If this failed, `bundle wait` after a cancel would say that a host does not exist."""

    def script(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={**fleet({}), "distribution": "cancelled", "stopped": "ann cancelled it"})

    async def run() -> DistributeView:
        config = ClientConfig(masters=["http://127.0.0.1:7060"], deadline_secs=0.1)
        async with MasterClient(config, open_http=lambda access: ScriptedHttp(script, access)) as client:
            return await wait_for_hosts(client, ETL, share=1.0)

    with pytest.raises(TorrentdistError) as caught:
        asyncio.run(run())
    assert ("distribution_stopped", True) == (caught.value.code, "ann cancelled it" in caught.value.message)


def test_the_share_rounds_up() -> None:
    """If this failed, 99 % of three hosts would be two."""
    needed = [hosts_needed(share, hosts) for share, hosts in ((0.99, 3), (0.5, 4), (1.0, 7), (0.0, 9), (0.1, 10))]

    assert needed == [3, 2, 7, 0, 1]


def test_a_big_fleet_is_asked_less_often() -> None:
    """If this failed, watching ten thousand hosts would keep a master busy with it."""
    periods = [poll_secs(hosts, waited=1.0) for hosts in (1, 200, 1000, 100_000)]

    assert periods == [0.5, 0.5, 2.5, 5.0]
    assert math.isclose(poll_secs(400, waited=1.0), 1.0)


def test_a_small_bundle_is_waited_for_in_short_steps() -> None:
    """If this failed, each distribution of a small bundle would take half a second."""
    waited, looks = 0.0, []
    while waited < 1.0:
        waited += poll_secs(1, waited)
        looks.append(waited)

    assert all(later <= 0.05 + 1.5 * looked for looked, later in itertools.pairwise([0.0, *looks]))
    assert len(looks) <= 10


def test_who_waits_long_asks_less_often_until_the_end_is_near() -> None:
    """If this failed, many watchers would slow a distribution down, or see its end seconds late."""
    assert math.isclose(poll_secs(1, waited=40.0), 4.0)
    assert math.isclose(poll_secs(1, waited=40.0, done=0.5), 4.0)
    assert math.isclose(poll_secs(1, waited=40.0, done=0.95), 40 * 0.05 / 0.95 / 2)
    assert math.isclose(poll_secs(1, waited=40.0, done=0.999), 0.5)


def test_what_a_host_had_before_is_no_traffic_of_now() -> None:
    """If this failed, a second distribution would count the masters' bytes of the first one
    again."""
    had = {"state": "done", "done": 10, "size": 10, "from_masters": 10}
    new = {"state": "done", "done": 10, "size": 10, "from_peers": 4, "from_plugin": 6}
    view = watch([{"s1": had, "s2": FETCHING}, {"s1": had, "s2": new}], [], [], wait_share=1.0)

    assert Sources(masters=0, peers=4, plugin=6, local=10) == view.sources
