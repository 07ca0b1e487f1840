"""The overview of the console, and the audit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.operation import Operation
from torrentdist.host.http.web import number_parameter
from torrentdist.master.access.audit_trail import AuditTrail
from torrentdist.master.console import console_markup as m
from torrentdist.master.console.console_markup import Markup, Visit
from torrentdist.master.console.console_sight import ConsoleSight
from torrentdist.master.console.console_views import OverviewView, attention, overview_view
from torrentdist.master.console.live_feeds import LiveFeeds
from torrentdist.master.console.visits import Visits, answer
from torrentdist.master.http.mutation_requests import LONGEST_WAIT
from torrentdist.model.access.audit_messages import AuditView
from torrentdist.security.principal import Role

AUDIT_ROWS = 200
_TONES = {"lost": "bad", "problem": "bad", "silent": "bad", "under-replicated": "warn", "expiring": "warn"}


class OverviewPages:
    def __init__(self, visits: Visits, sight: ConsoleSight, feeds: LiveFeeds, trail: AuditTrail) -> None:
        self._visits = visits
        self._sight = sight
        self._feeds = feeds
        self._trail = trail

    def operations(self) -> Iterator[Operation]:
        summary = "the console's overview: health, what needs attention, running distributions"
        yield Operation("GET", "/ui/", self.overview_page, OverviewView, summary, Role.READER)
        summary = "the same again and again, as server-sent events"
        yield Operation("GET", "/ui/live/overview", self.overview_live, None, summary, Role.READER)
        summary = "the console's page of who changed what at this master"
        yield Operation("GET", "/ui/audit", self.audit_page, list[AuditView], summary, Role.READER)

    def _view(self) -> OverviewView:
        sight, cluster = self._sight, self._sight.cluster()
        found = attention(cluster, sight.lost(), sight.short_of_copies(), sight.expiring())
        return overview_view(cluster, found, sight.distributions())

    async def overview_page(self, request: Request) -> Response:
        view = self._view()
        return answer(request, lambda: overview_html(self._visits.of(request), view), view)

    async def overview_live(self, request: Request) -> Response:
        return self._feeds.answer(request, "overview", lambda: overview_part(self._view()))

    async def audit_page(self, request: Request) -> Response:
        query = request.query_params
        who, bundle = query.get("who", ""), query.get("bundle", "")
        within = number_parameter(request, "within", LONGEST_WAIT, low=0.0, high=LONGEST_WAIT)
        entries = self._trail.entries(within, who, bundle, AUDIT_ROWS)
        wanted = query.get("what", "")
        entries = [entry for entry in entries if wanted in entry.operation]
        filters = (("who", "Who", who), ("bundle", "Bundle", bundle), ("what", "What", wanted))
        return answer(request, lambda: audit_html(self._visits.of(request), entries, filters), entries)


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
            m.badge(item.what, _TONES.get(item.what, "")),
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
            _bar(line.done, line.hosts),
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


def _bar(done: int, whole: int) -> Markup:
    return Markup(
        f'<progress max="{whole}" value="{done}" aria-label="hosts that have it">{done} of {whole}</progress>'
    )


def _more(left: int) -> Markup:
    return Markup(f"<p>And {left:,} more.</p>") if left > 0 else m.NOTHING


def audit_html(visit: Visit, entries: Sequence[AuditView], filters: Sequence[tuple[str, str, str]]) -> str:
    rows = [
        (
            m.moment(entry.at),
            m.text(f"{entry.who} ({entry.role})"),
            m.text(entry.operation),
            m.text(entry.target),
            m.badge(entry.result, "good" if entry.result == "ok" else "bad"),
            m.text(entry.count),
            m.text(entry.source),
        )
        for entry in entries
    ]
    heads = ("When", "Who", "What", "About", "Result", "Times", "From")
    note = Markup("<p>What this master was asked to change, and what it refused. The command asks every master.</p>")
    listed = m.table("Audit", heads, rows, "Nothing matches.")
    return m.page(visit, "Audit", note, m.filter_form(filters), listed, m.command("torrentdist audit"))
