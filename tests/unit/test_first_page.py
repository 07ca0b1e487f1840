"""What the first page costs with 1,000 hosts."""

import time
from types import SimpleNamespace
from typing import Any

from records_of import bundle, snapshot, supervisor

from torrentdist.master.console.console_markup import Visit
from torrentdist.master.console.console_views import OverviewView
from torrentdist.master.console.event_lines import EventLine
from torrentdist.master.console.pages.overview_pages import overview_html, overview_view, past_part
from torrentdist.master.jobs.heartbeats import Heartbeats
from torrentdist.master.presence.attention_sight import AttentionSight
from torrentdist.model.ids import MasterId, PeerId
from torrentdist.model.wire.job_messages import HeartbeatBody
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmAnnounce, SwarmEntry
from torrentdist.security.authorization import LOCAL
from torrentdist.swarm.directory.directory import SwarmDirectory

HOSTS = [f"host-{number:04}" for number in range(1000)]
BUNDLES = [f"etl-{number:02}" for number in range(30)]
MOST_BYTES = 30_000
MOST_SECS = 0.05
VISIT = Visit(master="m1", path="/ui/", query="", sender=LOCAL, form_key="k")
WEEK = [
    EventLine(at=n * 200.0, who="op", what="distribute" if n % 3 else "gone", about=HOSTS[n % 1000], result="ok")
    for n in range(2000)
]


def sight() -> AttentionSight:
    """Returns what a leader knows of 1,000 hosts that fetch 30 bundles. A tenth of them are full,
    and another tenth get nowhere."""
    seen = snapshot(
        [bundle(name) for name in BUNDLES],
        masters=["m1", "m2", "m3"],
        supervisors=[supervisor(name) for name in HOSTS],
        assigned=dict.fromkeys(HOSTS, BUNDLES),
    )
    directory = SwarmDirectory()
    for number, name in enumerate(HOSTS):
        full, stuck = "no room" if number % 10 == 0 else "", "no peer" if number % 10 == 1 else ""
        entries = [
            SwarmEntry(digest=seen.bundles[id_].record.digest, complete=number % 2 == 0 and not full, problem=stuck)
            for id_ in seen.bundles
        ]
        said = SwarmAnnounce(peer=PeerId(name), role=PeerRole.SUPERVISOR, port=7000, swarms=entries, full=full)
        directory.announce(said, source_host=f"10.0.{number // 250}.{number % 250 + 1}", now=0.0)
    records: Any = SimpleNamespace(
        snapshot=lambda: seen, server_now=lambda: 400_000.0, stale_secs=lambda: None, lacks_cluster=lambda: False
    )
    leads: Any = SimpleNamespace(
        leader_id=lambda: MasterId("m1"), me=MasterId("m1"), is_leader=lambda: True, led_for=lambda: 1e6,
        fence=lambda: None, elections=SimpleNamespace(recent=[]),
    )  # fmt: skip
    zookeeper = SimpleNamespace(server_now=lambda: 400_000.0)
    session: Any = SimpleNamespace(mirror=SimpleNamespace(snapshot=seen), zookeeper=zookeeper)
    reachability: Any = SimpleNamespace(seen_for=lambda: 1e6)
    heartbeats = Heartbeats(session, leads, reachability, 30.0)
    for id_ in seen.supervisors:
        heartbeats.hear(HeartbeatBody(supervisor=id_, generation=1, workers=[]))
    swarms: Any = SimpleNamespace(directory=directory, held=directory.complete_bundles)
    return AttentionSight(records, leads, heartbeats, swarms, records)


def test_the_first_page_of_1000_hosts_is_small_and_quick() -> None:
    """An operator of a large cluster would wait for the page that tells whether anything is wrong,
    and so would everybody else: a master renders it on its event loop."""
    known = sight()
    seen = known.snapshot()

    def page() -> tuple[OverviewView, str]:
        view = overview_view(known, seen, known.outline(seen))
        return view, overview_html(VISIT, view, past_part(WEEK, (), 400_000.0, 7))

    view, html = page()  # the first look at a cluster walks over all of it
    times = []
    for _ in range(5):
        began = time.process_time()
        page()
        times.append(time.process_time() - began)

    assert (1000, 30) == (view.supervisors, view.distributions_total)
    assert {"full", "stuck"} <= {entry.what for entry in view.attention}
    assert len(html.encode()) <= MOST_BYTES
    assert min(times) <= MOST_SECS
