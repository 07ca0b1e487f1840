"""The console's list of bundles, and the page of one bundle with its live distribution."""

import asyncio
import math
from collections.abc import Sequence
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.charts.matrix import Tile, mosaic
from torrentdist.charts.svg import legend
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.master.bundles import bundle_views
from torrentdist.master.console import console_markup as m
from torrentdist.master.console.console_markup import Markup, Visit
from torrentdist.master.console.console_sight import ConsoleSight
from torrentdist.master.console.console_views import DistributionView, distribution_view
from torrentdist.master.console.forms.action_forms import action_links
from torrentdist.master.console.live_feeds import LiveFeeds
from torrentdist.master.console.pages.bundle_facts import (
    BundleLineView,
    BundlePageView,
    bundle_facts,
    bundle_line,
    bundles_table,
)
from torrentdist.master.console.pages.distribution_pages import (
    COLOURS,
    SOURCES,
    TONES,
    history_table,
    sources_strip,
)
from torrentdist.master.console.visits import Visits, answer
from torrentdist.master.history.distribution_history import DistributionHistory
from torrentdist.master.http.routes import Routes, bundle_of, operation, records_for
from torrentdist.master.policies.room_outlook import RoomOutlook
from torrentdist.master.reads.earlier_content import EarlierContent
from torrentdist.master.reads.paging import Page
from torrentdist.master.reads.time_left import eta_of
from torrentdist.model.ids import BundleId
from torrentdist.model.policies.distribution_record import DistributionState
from torrentdist.model.records import BundleState
from torrentdist.model.wire.fleet_messages import HostProgress, HostState
from torrentdist.model.wire.transfer_messages import Sources
from torrentdist.security.authorization import Role

ROWS = 100
HOST_ROWS = 50
"""Hosts that a page of a distribution lists."""
PAST = 5
"""Past distributions that the page of a bundle lists."""


WAITED = {"50 %": 0.5, "90 %": 0.9, "100 %": 1.0}
"""The shares of the hosts to wait for."""
MOSAIC_FROM = 100
"""With more hosts, a mosaic of all of them comes first."""
CELLS = {
    "d": Tile("done", 2),
    **{str(tenths): Tile(f"at {10 * tenths} %", 0, strength=30 + 7 * tenths) for tenths in range(10)},
    "w": Tile("waiting", 7, strength=40),
    "s": Tile("stuck", 6),
    "g": Tile("gone", 1),
    "x": Tile("failed", 3),
}


class BundlePages(Routes):
    def __init__(
        self,
        visits: Visits,
        sight: ConsoleSight,
        feeds: LiveFeeds,
        history: DistributionHistory,
        earlier: EarlierContent,
        room: RoomOutlook,
    ) -> None:
        self._history = history
        self._earlier = earlier
        self._room = room
        self._visits = visits
        self._sight = sight
        self._feeds = feeds

    @operation("GET", "/ui/bundles", list[BundleLineView], Role.READER)
    async def bundles_page(self, request: Request) -> Response:
        """The console's list of bundles."""
        snapshot, query = records_for(request, self._sight.records), request.query_params
        wanted, state, after = query.get("q", ""), query.get("state", ""), query.get("after", "")

        def listed(id_: BundleId) -> bool:
            found = snapshot.bundles[id_].record.state
            return found in bundle_views.LISTED and wanted in id_ and state in ("", found)

        shown = Page(after, ROWS).of(snapshot.bundles, listed)
        now, room = self._sight.records.server_now(), await self._room.of(snapshot, shown)
        views = [bundle_line(bundle_views.bundle_view(snapshot, id_, now), room.get(id_)) for id_ in shown]
        kept = {"q": wanted, "state": state}
        return answer(request, lambda: bundles_html(self._visits.of(request), views, kept), views)

    @operation("GET", "/ui/bundles/{id}", BundlePageView, Role.READER)
    async def bundle_page(self, request: Request) -> Response:
        """The console's page of one bundle, and how far it is on each host."""
        bundle, seen = bundle_of(request), records_for(request, self._sight.records)
        state, after = request.query_params.get("state", ""), request.query_params.get("after", "")
        part = self._distribution(seen, bundle, state, after)
        room, earlier = await asyncio.gather(self._room.of(seen, [bundle]), self._earlier.of(seen, bundle))
        view = BundlePageView(
            bundle=bundle_views.bundle_view(seen, bundle, self._sight.records.server_now()),
            distribution=part,
            jobs=[str(job) for job in self._sight.jobs_of(seen, bundle)],
            past=self._history.summaries(bundle)[:PAST],
            earlier=earlier,
            room=room.get(bundle),
        )
        kept = {"state": state, "wait": request.query_params.get("wait", "")}
        return answer(request, lambda: bundle_html(self._visits.of(request), view, kept, after), view)

    @operation("GET", "/ui/live/bundles/{id}", None, Role.READER)
    async def bundle_live(self, request: Request) -> Response:
        """How far a bundle is, again and again, as server-sent events."""
        bundle = bundle_of(request)
        state, after = request.query_params.get("state", ""), request.query_params.get("after", "")
        wait = request.query_params.get("wait", "")

        async def part() -> str:
            seen = records_for(request, self._sight.records)
            return distribution_part(self._distribution(seen, bundle, state, after), wait)

        return await self._feeds.answer(request, f"{bundle} {state} {wait} {after}", part)

    def _distribution(self, seen: ClusterSnapshot, bundle: BundleId, state: str, after: str) -> DistributionView:
        fleet = self._sight.fleet(seen, bundle)
        matching = (host for host in fleet.hosts if host.supervisor > after and state in ("", host.state))
        return distribution_view(fleet, [host for host, _ in zip(matching, range(HOST_ROWS), strict=False)])


def bundles_html(visit: Visit, views: Sequence[BundleLineView], kept: dict[str, str]) -> str:
    following = m.next_page(visit, views[-1].id, kept) if len(views) == ROWS else m.NOTHING
    filters = m.filter_form(
        (m.Field("q", "Name contains", kept["q"]), m.Field("state", "State", kept["state"], bundle_views.LISTED))
    )
    return m.page(visit, "Bundles", filters, bundles_table(views), following, m.command("torrentdist bundle ls"))


def bundle_html(visit: Visit, view: BundlePageView, kept: dict[str, str], after: str) -> str:
    bundle = view.bundle
    filters = m.filter_form(
        (
            m.Field("state", "State", kept["state"], tuple(HostState)),
            m.Field("wait", "Wait for", kept["wait"], tuple(WAITED)),
        )
    )
    source = f"/ui/live/bundles/{quote(bundle.id, safe='')}?{urlencode({**kept, 'after': after})}"
    part = view.distribution
    following = m.next_page(visit, part.hosts[-1].supervisor, kept) if len(part.hosts) == HOST_ROWS else m.NOTHING
    return m.page(
        visit,
        bundle.id,
        bundle_facts(view),
        action_links(visit, "bundles", bundle.id, _possible(view), bundle.id),
        m.section(
            "Distribution",
            filters,
            m.live(source, distribution_part(part, kept["wait"])),
        ),
        following,
        m.command(f"torrentdist bundle distribute {bundle.id} --wait 100%"),
        m.section(
            "Past distributions",
            history_table(view.past, "None is kept."),
            m.command(f"torrentdist bundle history {bundle.id}"),
        ),
    )


def _possible(view: BundlePageView) -> set[str]:
    """Returns the changes that apply to a bundle in this state."""
    names = {"unpin" if view.bundle.pinned else "pin"}
    if view.bundle.state is BundleState.AVAILABLE:
        names.add("distribute")
    if view.distribution.state:
        names.add("repeat")
    if view.distribution.state in (DistributionState.RUNNING, DistributionState.STANDING):
        names.add("cancel")
    if not view.bundle.pinned and not view.jobs:
        names.add("remove")
    return names


def _waiting(view: DistributionView, share: str) -> Markup:
    """Returns whether the share of the hosts that somebody waits for has the bundle."""
    if share not in WAITED:
        return m.NOTHING
    done, wanted = view.states.get(HostState.DONE, 0), math.ceil(WAITED[share] * view.told)
    if done >= wanted:
        return Markup(f'<p class="notice good" role="status">{m.text(share)} of the hosts have it.</p>')
    return Markup(f'<p class="notice" role="status">Waiting: {done:,} of {wanted:,} hosts have it.</p>')


def distribution_part(view: DistributionView, wait: str = "") -> Markup:
    """Returns the figures, the slowest hosts and the strips of a distribution. `wait`: the share of
    the hosts that somebody waits for."""
    if not view.told:
        return Markup('<p class="soft">No host is told to keep it.</p>')
    slow = [
        (
            m.to("hosts", host.supervisor),
            m.badge(host.state, TONES.get(host.state, "")),
            m.duration(host.eta),
            m.text(host.reason),
        )
        for host in view.slowest
    ]
    hosts = [_host_row(host) for host in view.hosts]
    late = m.table("The slowest", ("Host", "State", "Time left", "Why"), slow)
    why = m.text(f"The distribution was {view.state}: {view.stopped}")
    ended = Markup(f'<p class="notice warn">{why}</p>') if view.stopped else m.NOTHING
    many = len(view.cells) > MOSAIC_FROM
    return m.join(
        [
            _waiting(view, wait),
            ended,
            _figures(view),
            Markup(mosaic(view.cells, CELLS, "Hosts")) if many else m.NOTHING,
            Markup(f"<h3>The slowest</h3>{late}") if slow else m.NOTHING,
            Markup("<h3>Each host</h3>"),
            Markup(legend(SOURCES, COLOURS)),
            m.table(
                "Each host",
                ("Host", "State", "Bytes by source", "Done", "Rate", "Time left"),
                hosts,
                "No host matches.",
            ),
        ]
    )


def _figures(view: DistributionView) -> Markup:
    done = view.states.get(HostState.DONE, 0)
    return m.tiles(
        [
            ("Hosts that have it", m.text(f"{done:,} of {view.told:,}"), "good" if done == view.told else ""),
            ("Bytes there", m.share(view.arrived, view.size * view.told), ""),
            ("Rate", m.text(f"{m.bytes_of(view.rate)}/s"), ""),
            *([("Wave", m.text(f"{view.wave} of {view.waves}"), "")] if view.waves > 1 else []),
            ("Time left", m.text("none") if done == view.told else m.duration(view.eta), ""),
            ("Copies from masters", m.text(f"{view.copies_from_masters:.2f}"), ""),
            *(
                (state, m.text(f"{n:,}"), TONES.get(HostState(state), ""))
                for state, n in view.states.items()
                if state != "done"
            ),
        ]
    )


def _host_row(host: HostProgress) -> tuple[Markup, ...]:
    done = host.size if host.state is HostState.DONE else host.done
    sources = Sources(masters=host.from_masters, peers=host.from_peers, local=host.local, plugin=host.from_plugin)
    return (
        m.to("hosts", host.supervisor),
        m.badge(host.state, TONES.get(host.state, "")),
        sources_strip(sources, host.size, done),
        m.share(done, host.size),
        m.text(f"{m.bytes_of(host.rate)}/s" if host.state is HostState.FETCHING else ""),
        m.duration(eta_of(host)) if host.state is HostState.FETCHING else m.NOTHING,
    )
