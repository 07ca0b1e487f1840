"""The overview of the console: the health, what needs attention, and running distributions."""

import time
from collections.abc import Iterable, Sequence
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from torrentdist.charts.bars import strip
from torrentdist.charts.curves import Lane, timeline
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.web import json_response
from torrentdist.master.console import console_markup as m
from torrentdist.master.console.console_markup import Markup, Visit
from torrentdist.master.console.console_sight import ConsoleSight
from torrentdist.master.console.console_views import MOST_LISTED, OverviewView
from torrentdist.master.console.event_lines import EventLine, lane_of
from torrentdist.master.console.live_feeds import LiveFeeds
from torrentdist.master.console.noted_events import Happenings
from torrentdist.master.console.visits import Visits, wants_page
from torrentdist.master.http.routes import Routes, operation, records_for
from torrentdist.master.presence.attention import health
from torrentdist.master.presence.attention_sight import AttentionSight
from torrentdist.model.wire.cluster_messages import AttentionView, ClusterView
from torrentdist.model.wire.view import view_of
from torrentdist.security.authorization import Role

LANES = {
    "Leaders": ("leads", 0),
    "Distributions": ("distribut", 2),
    "Failures": ("", 6),
    "Gone": ("gone", 1),
    "Changes": ("ok", 7),
}
"""The lanes of the timeline, each with the filter of the Events page and its colour."""


class OverviewPages(Routes):
    def __init__(self, visits: Visits, sight: ConsoleSight, feeds: LiveFeeds, happenings: Happenings) -> None:
        self._happenings = happenings
        self._visits = visits
        self._sight = sight
        self._feeds = feeds

    async def _view(self, request: Request) -> OverviewView:
        sight = self._sight.attention
        cluster = await sight.overview(principal_of(request))
        return overview_view(sight, records_for(request, sight.records), cluster)

    @operation("GET", "/ui/", OverviewView, Role.READER)
    async def overview_page(self, request: Request) -> Response:
        """The console's overview: health, what needs attention, running distributions."""
        view = await self._view(request)
        if not wants_page(request.headers, request.url.query):
            return json_response(view)
        days = 7 if request.query_params.get("days") == "7" else 1
        lines, silent = await self._happenings.everywhere(principal_of(request), {})
        past = past_part(lines, silent, self._sight.attention.now(), days)
        return HTMLResponse(overview_html(self._visits.of(request), view, past))

    @operation("GET", "/ui/live/overview", None, Role.READER)
    async def overview_live(self, request: Request) -> Response:
        """The same again and again, as server-sent events."""

        async def part() -> str:
            return overview_part(await self._view(request))

        return await self._feeds.answer(request, "overview", part, self._sight.attention.state)


def overview_view(sight: AttentionSight, seen: ClusterSnapshot, cluster: ClusterView) -> OverviewView:
    """`cluster`: its outline."""
    found, lines = cluster.attention, sight.distributions(seen)
    return view_of(
        OverviewView,
        cluster,
        masters=len(cluster.masters),
        supervisors=len(seen.supervisors),
        gone_masters=sum(view.role == "master" for view in cluster.gone),
        gone_supervisors=sum(view.role == "supervisor" for view in cluster.gone),
        jobs=len(cluster.jobs),
        health=health(cluster, found),
        attention=[*found[:MOST_LISTED]],
        attention_total=len(found),
        distributions=lines[:MOST_LISTED],
        distributions_total=len(lines),
    )


def overview_html(visit: Visit, view: OverviewView, past: Markup) -> str:
    now = m.live("/ui/live/overview", overview_part(view))
    return m.page(visit, "Overview", now, past, m.command("torrentdist cluster"))


def past_part(lines: Iterable[EventLine], silent: Sequence[str], now: float, days: int) -> Markup:
    """Returns the timeline of the last day or week. `silent`: masters whose events are missing."""
    moments: dict[str, list[float]] = {name: [] for name in LANES}
    for line in lines:
        moments.get(lane_of(line), []).append(line.at)
    begin = now - days * 86_400.0
    since = time.strftime("%Y-%m-%d %H:%M", time.gmtime(begin))
    lanes = [
        Lane(name, f"/ui/events?{urlencode({'what': what, 'since': since})}", moments[name], colour)
        for name, (what, colour) in LANES.items()
    ]
    missing = f"No answer from {', '.join(silent)}: what only they know is missing here." if silent else ""
    other = m.link("/ui/", "The last 24 hours") if days > 1 else m.link("/ui/?days=7", "The last 7 days")
    shown = Markup(timeline(lanes, begin, now))
    return m.section(
        f"The last {'24 hours' if days == 1 else '7 days'}",
        shown,
        Markup(f'<p class="soft">{m.text(missing)} {other}</p>'),
    )


def overview_part(view: OverviewView) -> Markup:
    bad = "bad" if view.leader is None or view.stale_secs is not None or view.bundles.lost else ""
    tone = bad or ("warn" if view.attention_total else "good")
    bundles = view.bundles
    figures = m.tiles(
        [
            ("Leader", m.to("masters", view.leader) if view.leader else m.text("none"), "" if view.leader else "bad"),
            ("Epoch", m.text(view.epoch), ""),
            ("Masters", *_present("/ui/masters", view.masters, view.gone_masters)),
            ("Hosts", *_present("/ui/hosts", view.supervisors, view.gone_supervisors)),
            ("Bundles", m.link("/ui/bundles", f"{bundles.total:,}"), ""),
            ("Lost", m.text(bundles.lost), "bad" if bundles.lost else ""),
            ("Too few copies", m.text(bundles.under_replicated), "warn" if bundles.under_replicated else ""),
            ("Jobs", m.link("/ui/jobs", view.jobs), ""),
        ]
    )
    running = [
        (
            m.to("bundles", line.bundle),
            m.bytes_of(line.size),
            m.text(f"{line.done} of {line.hosts}"),
            Markup(strip((line.done,), line.hosts, f"{line.done} of {line.hosts} hosts have it", (2,))),
        )
        for line in view.distributions
    ]
    return m.join(
        [
            Markup(f'<p class="notice {tone}" role="status">{m.text(view.health)}</p>'),
            figures,
            m.section(
                "Needs attention",
                m.table("Needs attention", ("What", "Where", "Why", "Help"), map(_looked, view.attention), "Nothing."),
                _more(view.attention_total - len(view.attention)),
            ),
            m.section(
                "Running distributions",
                m.table("Running distributions", ("Bundle", "Size", "Hosts", "Done"), running, "None just now."),
                _more(view.distributions_total - len(running)),
            ),
        ]
    )


def _present(address: str, here: int, gone: int) -> tuple[Markup, str]:
    """Returns a tile's value and tone: 23, or 23 of 24 if one is gone."""
    return m.link(address, f"{here:,} of {here + gone:,}" if gone else f"{here:,}"), "bad" if gone else ""


def _looked(entry: AttentionView) -> tuple[Markup, ...]:
    if entry.kind == "cluster":
        where = m.text(", ".join(entry.subjects))
    else:
        more = f" and {entry.count - len(entry.subjects):,} more" if entry.count > len(entry.subjects) else ""
        where = m.join([m.join([m.to(entry.kind, name) for name in entry.subjects], ", "), m.text(more)])
    tone = "bad" if entry.severe else "warn"
    return m.badge(entry.what, tone), where, m.text(entry.detail), Markup(f"<code>{m.text(entry.page)}</code>")


def _more(left: int) -> Markup:
    return Markup(f"<p>And {left:,} more.</p>") if left > 0 else m.NOTHING
