"""The overview of the console: the health, what needs attention, and running distributions."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.charts.strips import strip
from torrentdist.host.http.operation import Operation
from torrentdist.master.console import console_markup as m
from torrentdist.master.console.console_markup import Markup, Visit
from torrentdist.master.console.console_sight import ConsoleSight
from torrentdist.master.console.live_feeds import LiveFeeds
from torrentdist.master.console.overview_views import OverviewView, attention, overview_view
from torrentdist.master.console.visits import Visits, answer
from torrentdist.master.http.mutation_requests import records_for
from torrentdist.security.principal import Role

_TONES = {"lost": "bad", "problem": "bad", "silent": "bad", "stopped": "bad"}
"""What is not named is a warning."""


class OverviewPages:
    def __init__(self, visits: Visits, sight: ConsoleSight, feeds: LiveFeeds) -> None:
        self._visits = visits
        self._sight = sight
        self._feeds = feeds

    def operations(self) -> Iterator[Operation]:
        summary = "the console's overview: health, what needs attention, running distributions"
        yield Operation("GET", "/ui/", self.overview_page, OverviewView, summary, Role.READER)
        summary = "the same again and again, as server-sent events"
        yield Operation("GET", "/ui/live/overview", self.overview_live, None, summary, Role.READER)

    def _view(self, request: Request) -> OverviewView:
        sight = self._sight
        seen = records_for(request, sight.records)
        cluster, troubles = sight.cluster(seen), sight.troubles(seen)
        found = attention(cluster, troubles, sight.now())
        return overview_view(cluster, len(seen.supervisors), found, troubles.running)

    async def overview_page(self, request: Request) -> Response:
        view = self._view(request)
        return answer(request, lambda: overview_html(self._visits.of(request), view), view)

    async def overview_live(self, request: Request) -> Response:
        async def part() -> str:
            return overview_part(self._view(request))

        return await self._feeds.answer(request, "overview", part, self._sight.overview_state)


def overview_html(visit: Visit, view: OverviewView) -> str:
    return m.page(visit, "Overview", m.live("/ui/live/overview", overview_part(view)), m.command("torrentdist cluster"))


def overview_part(view: OverviewView) -> Markup:
    bad = "bad" if view.leader is None or view.stale_secs is not None or view.bundles.lost else ""
    tone = bad or ("warn" if view.attention_total else "good")
    bundles = view.bundles
    figures = m.tiles(
        [
            ("Leader", m.to("masters", view.leader) if view.leader else m.text("none"), "" if view.leader else "bad"),
            ("Epoch", m.text(view.epoch), ""),
            ("Masters", m.link("/ui/masters", view.masters), ""),
            ("Hosts", m.link("/ui/hosts", f"{view.supervisors:,}"), ""),
            ("Bundles", m.link("/ui/bundles", f"{bundles.total:,}"), ""),
            ("Lost", m.text(bundles.lost), "bad" if bundles.lost else ""),
            ("Too few copies", m.text(bundles.under_replicated), "warn" if bundles.under_replicated else ""),
            ("Jobs", m.link("/ui/jobs", view.jobs), ""),
        ]
    )
    looked = [
        (
            m.badge(item.what, _TONES.get(item.what, "warn")),
            m.text(item.subject) if item.what == "problem" else m.to(item.kind, item.subject),
            m.text(item.detail),
        )
        for item in view.attention
    ]
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
                m.table("Needs attention", ("What", "Where", "Why"), looked, "Nothing."),
                _more(view.attention_total - len(looked)),
            ),
            m.section(
                "Running distributions",
                m.table("Running distributions", ("Bundle", "Size", "Hosts", "Done"), running, "None just now."),
                _more(view.distributions_total - len(running)),
            ),
        ]
    )


def _more(left: int) -> Markup:
    return Markup(f"<p>And {left:,} more.</p>") if left > 0 else m.NOTHING
