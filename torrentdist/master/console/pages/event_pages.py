"""The console's page of what happened and who did it: events and audit in one list, filtered by
who, what and when."""

from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from torrentdist.host.http.web import flag_parameter, json_response
from torrentdist.master.console import console_markup as m
from torrentdist.master.console.console_markup import Markup, Visit
from torrentdist.master.console.event_lines import (
    EventFilter,
    EventLine,
    moment_of,
    newest,
)
from torrentdist.master.console.noted_events import Happenings
from torrentdist.master.console.visits import Visits, answer
from torrentdist.master.http.routes import Routes, operation
from torrentdist.master.presence.presence_api import asked_for
from torrentdist.security.authorization import Role

ROWS = 100
MOST_OWN = 500
FILTERS = (
    ("who", "Who"),
    ("what", "What or result"),
    ("about", "About"),
    ("since", "From (UTC)"),
    ("until", "To (UTC)"),
)
_GOOD = ("ok", "")


class EventPages(Routes):
    def __init__(self, visits: Visits, happenings: Happenings) -> None:
        self._visits = visits
        self._happenings = happenings

    @operation("GET", "/ui/events", list[EventLine], Role.READER)
    async def events_page(self, request: Request) -> Response:
        """The console's page of events and audit, the newest first."""
        kept = {name: request.query_params.get(name, "")[:200] for name, _ in FILTERS}
        wanted = EventFilter(
            who=kept["who"],
            what=kept["what"],
            about=kept["about"],
            since=moment_of(kept["since"], 0.0),
            until=moment_of(kept["until"], float("inf")),
        )
        sender = asked_for(request)
        if flag_parameter(request, "own"):
            return json_response(newest(self._happenings.own(sender), wanted, MOST_OWN))
        lines, silent = await self._happenings.everywhere(sender, kept)
        lines = newest(lines, wanted, ROWS)
        return answer(request, lambda: events_html(self._visits.of(request), lines, kept, silent), lines)

    @operation("GET", "/ui/audit", None, Role.READER)
    async def old_page(self, request: Request) -> Response:
        """The console's page of events and audit, under its old address."""
        query = request.url.query
        return RedirectResponse(f"/ui/events{'?' if query else ''}{query}", 307)


def events_html(visit: Visit, lines: Sequence[EventLine], kept: dict[str, str], silent: Sequence[str] = ()) -> str:
    rows = [
        (
            m.moment(line.at),
            m.text(line.who),
            m.text(line.what),
            m.to(line.page, line.about) if line.page and line.about else m.text(line.about),
            m.badge(line.result, "" if line.result in _GOOD else "bad"),
            m.text(line.detail),
        )
        for line in lines
    ]
    note = Markup(
        "<p>What every master was asked to change and refused, their own events, leaders, and distributions. "
        "<code>torrentdist report</code> has the distant past.</p>"
    )
    if silent:
        missing = f"No answer from {', '.join(silent)}: what only they know is missing here."
        note = m.join([note, Markup(f'<p class="notice warn" role="status">{m.text(missing)}</p>')])
    heads = ("When", "Who", "What", "About", "Result", "Detail")
    return m.page(
        visit,
        "Events and audit",
        note,
        m.filter_form([m.Field(name, label, kept[name]) for name, label in FILTERS]),
        m.table("Events and audit", heads, rows, "Nothing matches."),
        _older(visit, lines, kept),
        m.command("torrentdist audit"),
    )


def _older(visit: Visit, lines: Sequence[EventLine], kept: dict[str, str]) -> Markup:
    if len(lines) < ROWS:
        return m.NOTHING
    until = datetime.fromtimestamp(lines[-1].at, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    query = urlencode({**{name: value for name, value in kept.items() if value}, "until": until})
    return Markup(f'<p><a rel="next" href="{m.text(visit.path)}?{m.text(query)}">Older ones</a></p>')
