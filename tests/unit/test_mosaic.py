"""Thousands of hosts at a glance, and the list of hosts."""

from __future__ import annotations

import re

import pytest

from torrentdist.charts.matrix import mosaic
from torrentdist.master.console import console_markup as m
from torrentdist.master.console.console_views import distribution_view
from torrentdist.master.console.pages.bundle_pages import CELLS, distribution_part
from torrentdist.master.console.pages.host_pages import SORTS, TILES, HostsPage, hosts_html
from torrentdist.model.ids import BundleId, Digest, SupervisorId
from torrentdist.model.wire.cluster_messages import SupervisorView
from torrentdist.model.wire.fleet_messages import FleetView, HostProgress, HostState
from torrentdist.security.authorization import LOCAL

VISIT = m.Visit(master="m1", path="/ui/hosts", query="", sender=LOCAL, form_key="k")


def host(n: int, state: HostState = HostState.DONE, done: int = 0) -> HostProgress:
    return HostProgress(supervisor=SupervisorId(f"h{n:04}"), state=state, done=done, size=100)


def test_5000_hosts_are_seen_at_a_glance() -> None:
    """If this fails, an operator of 5,000 hosts turns 50 pages to find the ten that are ill."""
    states = ["silent" if n % 500 == 7 else "up" for n in range(5000)]
    shown = mosaic(states, TILES, "Hosts")

    assert len(shown) < 120_000
    assert "4,990 up" in shown
    assert '<a href="/ui/hosts?state=silent">10 silent</a>' in shown
    assert 5000 == len(re.findall(r"M\d+ \d+h", shown))


def test_a_distribution_shows_each_host_by_its_progress() -> None:
    """If this fails, a rack that lags is found by reading 500 rows."""
    hosts = [host(n) for n in range(400)]
    hosts += [host(900, HostState.FETCHING, done=55), host(901, HostState.STUCK), host(902, HostState.GONE)]
    view = distribution_view(FleetView(id=BundleId("etl"), digest=Digest("a" * 64), size=100, hosts=hosts), hosts[:5])
    few = distribution_view(FleetView(id=BundleId("etl"), digest=Digest("a" * 64), size=100, hosts=hosts[:9]), [])

    assert "d" * 400 + "5sg" == view.cells
    assert set(view.cells) <= CELLS.keys()
    assert 'class="mosaic"' in distribution_part(view)
    assert 'class="mosaic"' not in distribution_part(few)


def view(id_: str, **more: int) -> SupervisorView:
    figures = {"bundles": 1, "bytes": 10, "own_bytes": 5} | more
    return SupervisorView(
        id=SupervisorId(id_), host="h", gateway="", slots=4, slots_used=0, labels={}, version="1", uptime_secs=1.0,
        problem="no room", bundles=figures["bundles"], bytes=figures["bytes"], own_bytes=figures["own_bytes"],
    )  # fmt: skip


@pytest.mark.parametrize(("key", "first"), [("size", "b"), ("own", "a"), ("bundles", "c")])
def test_hosts_are_sorted_by_what_they_hold(key: str, first: str) -> None:
    """If this fails, nobody finds the host whose disk is the fullest."""
    hosts = [view("a", own_bytes=90), view("b", bytes=90), view("c", bundles=90)]

    assert first == min(hosts, key=SORTS[key]).id


def test_the_list_of_hosts_says_what_each_holds_and_what_is_wrong() -> None:
    """If this fails, an operator opens 500 pages to learn where the bytes are."""
    query = {"q": "", "state": "", "sort": "size", "page": ""}
    page = hosts_html(VISIT, HostsPage([view("a", bytes=2**30)], [], 250, ["up"] * 250, query, 1))

    assert "1.0 GiB" in page
    assert "no room" in page
    assert 'class="mosaic"' in page
    assert "page=2" in page
