"""The console's page of retention rules: what each keeps, what it removes next, and its forms."""

import asyncio
from collections.abc import Iterator, Sequence
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.operation import Operation
from torrentdist.master.console import console_markup as m
from torrentdist.master.console.console_markup import Markup, Visit
from torrentdist.master.console.console_sight import ConsoleSight
from torrentdist.master.console.forms.action_forms import action_links, allowed
from torrentdist.master.console.visits import Visits, answer
from torrentdist.master.http.mutation_requests import records_for
from torrentdist.master.policies.retention_operations import rule_views
from torrentdist.model.policies.policy_messages import RetentionView
from torrentdist.security.principal import Role

MOST_NAMED = 5
"""Bundles that a row names of those that go next."""


class RetentionPages:
    def __init__(self, visits: Visits, sight: ConsoleSight) -> None:
        self._visits = visits
        self._sight = sight

    def operations(self) -> Iterator[Operation]:
        summary = "the console's retention rules, and what each removes next"
        yield Operation("GET", "/ui/retention", self.rules_page, list[RetentionView], summary, Role.READER)

    async def rules_page(self, request: Request) -> Response:
        seen, now = records_for(request, self._sight.records), self._sight.records.server_now()
        views = await asyncio.to_thread(rule_views, seen, now)
        return answer(request, lambda: rules_html(self._visits.of(request), views), views)


def rules_html(visit: Visit, views: Sequence[RetentionView]) -> str:
    rows = [
        (
            Markup(f"<code>{m.text(view.pattern)}</code>"),
            m.text(f"{view.keep:,}"),
            m.duration(view.for_secs) if view.for_secs else m.NOTHING,
            m.text(f"{view.bundles:,}"),
            _going(view),
            m.text(view.created_by),
            _links(visit, view),
        )
        for view in views
    ]
    heads = ("Bundles that match", "Keeps the newest", "And those younger than", "Bundles", "Go next", "By", "Change")
    new = m.NOTHING
    if allowed(visit, "retention", {"set"}):
        new = Markup(f"<p>{m.link(m.address('retention', '*') + '/set', 'A new rule')}</p>")
    listed = m.table("Retention rules", heads, rows, "There is no rule: every bundle stays until it is removed.")
    return m.page(visit, "Retention", new, listed, m.command("torrentdist bundle retention"))


def _going(view: RetentionView) -> Markup:
    named = [m.to("bundles", bundle) for bundle in list(view.goes)[:MOST_NAMED]]
    more = len(view.goes) - len(named)
    return m.join([m.join(named, ", "), m.text(f" and {more:,} more" if more > 0 else "" if named else "none")])


def _links(visit: Visit, view: RetentionView) -> Markup:
    if not allowed(visit, "retention", {"set"}):
        return m.NOTHING
    given = urlencode({"pattern": view.pattern, "keep": view.keep, "for": f"{view.for_secs:g}"})
    change = m.link(f"{m.address('retention', view.pattern)}/set?{given}", "set")
    return m.join([change, action_links(visit, "retention", view.pattern, {"end"})], " ")
