"""The console's pages of distributions: the list of running and ended ones, and a page with the
history of one."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.charts.bars import strip
from torrentdist.charts.curves import Curve, step_plot
from torrentdist.charts.svg import legend
from torrentdist.host.http.authentication import principal_of
from torrentdist.master.console import console_markup as m
from torrentdist.master.console.console_markup import Markup, Visit
from torrentdist.master.console.forms.action_forms import action_links
from torrentdist.master.console.live_feeds import LiveFeeds
from torrentdist.master.console.visits import Visits, answer
from torrentdist.master.history.distribution_history import DistributionHistory
from torrentdist.master.http.routes import Routes, operation
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.fleet_messages import DistributionSummary, HostArrival, HostState
from torrentdist.model.wire.transfer_messages import Sources
from torrentdist.model.wording import counted
from torrentdist.security.authorization import Principal, Role, may_read

ROWS = 50
CURVE_SECS = 5.0
"""How often the curve of a run that stalls goes on."""
SOURCES = ("was there", "from masters", "from hosts", "by the plug-in")
COLOURS = (7, 1, 0, 4)
TONES = {HostState.DONE: "good", HostState.STUCK: "bad", HostState.FAILED: "bad", HostState.GONE: "warn"}


class DistributionPages(Routes):
    def __init__(self, visits: Visits, feeds: LiveFeeds, history: DistributionHistory) -> None:
        self._visits = visits
        self._feeds = feeds
        self._history = history

    @operation("GET", "/ui/distributions", list[DistributionSummary], Role.READER)
    async def list_page(self, request: Request) -> Response:
        """The console's list of distributions, the newest first."""
        query, sender = request.query_params, principal_of(request)
        wanted, after = query.get("q", ""), query.get("after", "")
        known = (one for one in self._history.summaries() if may_read(sender, one.bundle))
        matching = [one for one in known if wanted in one.bundle]
        place = next((place + 1 for place, one in enumerate(matching) if one.run == after), 0)
        shown = matching[place : place + ROWS]
        return answer(request, lambda: list_html(self._visits.of(request), shown, wanted), shown)

    @operation("GET", "/ui/distributions/{run}", DistributionSummary, Role.READER)
    async def run_page(self, request: Request) -> Response:
        """The console's page of one distribution, also long after it."""
        found = self._found(principal_of(request), request.path_params["run"])
        return answer(request, lambda: run_html(self._visits.of(request), found, self._history.now()), found)

    @operation("GET", "/ui/live/distributions/{run}", None, Role.READER)
    async def run_live(self, request: Request) -> Response:
        """One distribution again and again, as server-sent events."""
        run, sender = request.path_params["run"], principal_of(request)

        async def part() -> str:
            return run_part(self._found(sender, run), self._history.now())

        return await self._feeds.answer(
            request, f"run {run}", part, lambda: (self._history.state(run), self._history.now() // CURVE_SECS)
        )

    def _found(self, sender: Principal, run: str) -> DistributionSummary:
        found = self._history.summary(run)
        if found is None or not may_read(sender, found.bundle):
            raise TorrentdistError("not_found", what=f"the distribution {run[:200]!r}; the last ones are kept")
        return found


def list_html(visit: Visit, found: Sequence[DistributionSummary], wanted: str) -> str:
    following = m.next_page(visit, found[-1].run, {"q": wanted}) if len(found) == ROWS else m.NOTHING
    return m.page(
        visit,
        "Distributions",
        m.filter_form((m.Field("q", "Bundle contains", wanted),)),
        history_table(found, "No distribution matches."),
        following,
        m.command("torrentdist bundle history"),
    )


def history_table(found: Sequence[DistributionSummary], none: str) -> Markup:
    rows = [
        (
            m.link(m.address("distributions", one.run), one.bundle),
            m.moment(one.began_at),
            _state(one),
            m.text(f"{one.done:,} of {one.hosts:,}"),
            _secs(one.half_secs),
            _secs(one.most_secs),
            _secs(one.all_secs),
            sources_strip(one.sources, one.size * one.hosts),
            m.text(f"{one.copies_from_masters:.2f}"),
        )
        for one in found
    ]
    heads = ("Bundle", "Began", "State", "Hosts", "50 %", "90 %", "100 %", "Bytes by source", "Copies from masters")
    return m.table("Distributions", heads, rows, none)


def _state(one: DistributionSummary) -> Markup:
    if one.ended_at is None:
        return m.badge("running")
    if one.cancelled:
        return m.badge("cancelled", "warn")
    return m.badge("complete", "good") if one.hosts and one.done == one.hosts else m.badge("incomplete", "bad")


def _secs(value: float | None) -> Markup:
    return m.text("–") if value is None else m.duration(value)


def sources_strip(sources: Sources, whole: int, done: int = 0) -> Markup:
    """Returns a strip that shows how many bytes came from each source. `done`: the bytes that have
    arrived, shown if their sources are not known."""
    parts = (sources.local, sources.masters, sources.peers, sources.plugin)
    told = ", ".join(f"{m.bytes_of(value)} {name}" for name, value in zip(SOURCES, parts, strict=True) if value)
    return Markup(strip(parts if any(parts) else (done, 0, 0, 0), whole, told or "no bytes", COLOURS))


def run_html(visit: Visit, one: DistributionSummary, now: float) -> str:
    part, runs = run_part(one, now), one.ended_at is None
    possible = {"repeat", "distribute", "cancel"} if runs else {"repeat", "distribute"}
    return m.page(
        visit,
        f"Distribution of {one.bundle}",
        action_links(visit, "bundles", one.bundle, possible, one.bundle),
        m.live(m.address("live/distributions", one.run), part) if runs else part,
        m.command(f"torrentdist bundle history {one.bundle}"),
    )


def run_part(one: DistributionSummary, now: float) -> Markup:
    """Returns the part of a distribution's page that changes while the distribution runs."""
    ended = m.text("it runs") if one.ended_at is None else m.moment(one.ended_at)
    tone = "good" if one.done == one.hosts else "" if one.ended_at is None else "bad"
    figures = m.tiles(
        [
            ("Hosts that have it", m.text(f"{one.done:,} of {one.hosts:,}"), tone),
            ("Half of them after", _secs(one.half_secs), ""),
            ("90 % after", _secs(one.most_secs), ""),
            ("All after", _secs(one.all_secs), ""),
            ("From masters", m.bytes_of(one.sources.masters), ""),
            ("From hosts", m.bytes_of(one.sources.peers), ""),
            ("Was there", m.bytes_of(one.sources.local), ""),
            ("Copies from masters", m.text(f"{one.copies_from_masters:.2f}"), ""),
        ]
    )
    known = m.facts(
        [
            ("Bundle", m.join([m.to("bundles", one.bundle), m.text(f", {m.bytes_of(one.size)}")])),
            ("Began", m.moment(one.began_at)),
            ("Ended", ended),
            ("Told to stop", m.text(counted(one.left, "host"))),
        ]
    )
    late = "Hosts without it, and the last ones" if one.done < one.hosts else "The last hosts"
    return m.join(
        [
            known,
            figures,
            m.section("Hosts over time", _curve(one, now)),
            m.section(late, Markup(legend(SOURCES, COLOURS)), _late_table(one)),
        ]
    )


def _curve(one: DistributionSummary, now: float) -> Markup:
    """Returns the curve up to now, or to the end: a stall is a line that stays level."""
    end = (now if one.ended_at is None else one.ended_at) - one.began_at
    share = one.done / one.hosts if one.hosts else 0.0
    points = [*one.reached, (max(end, *(at for at, _ in one.reached), 0.0, 0.0), share)]
    title = f"Share of {one.hosts} hosts that had {one.bundle}, over time"
    curve = Curve(str(one.bundle), points)
    return Markup(step_plot([curve], x_label="time since the begin", y_label="hosts", title=title))


def _late_table(one: DistributionSummary) -> Markup:
    heads = ("Host", "State", "Bytes by source", "Done", "After", "Why")
    return m.table("The last hosts", heads, [_late_row(host, one.size) for host in one.late])


def _late_row(host: HostArrival, size: int) -> tuple[Markup, ...]:
    return (
        m.to("hosts", host.supervisor),
        m.badge(host.state, TONES.get(host.state, "")),
        sources_strip(host.sources, size, host.done),
        m.share(host.done, size),
        _secs(host.seconds),
        m.text(host.reason),
    )
