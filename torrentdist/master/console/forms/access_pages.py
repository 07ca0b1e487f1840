"""The console's pages of what is allowed and kept: tokens with their quotas, hosts'
certificates, and retention rules with what each removes next.

Always: a secret is made by a command, never by a page. What a sender may not see of others'
tokens is not shown.
"""

import asyncio
import time
from collections.abc import Sequence
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.authentication import principal_of
from torrentdist.master.access.host_operations import host_views
from torrentdist.master.access.token_api import visible_tokens
from torrentdist.master.access.token_operations import quota_view
from torrentdist.master.console import console_markup as m
from torrentdist.master.console.console_markup import Markup, Visit
from torrentdist.master.console.console_sight import ConsoleSight
from torrentdist.master.console.forms.action_forms import action_links, allowed
from torrentdist.master.console.visits import Visits, answer
from torrentdist.master.http.routes import Routes, operation, records_for
from torrentdist.master.policies.retention_operations import rule_views
from torrentdist.master.reads.paging import Page
from torrentdist.model.access.host_messages import HostView, MembershipState
from torrentdist.model.access.token_messages import QuotaView, TokenState, TokenView
from torrentdist.model.policies.policy_messages import RetentionView
from torrentdist.model.wire.view import View
from torrentdist.security.authorization import Role

ROWS = 100


class TokenLineView(View, frozen=True, kw_only=True):
    token: TokenView
    quota: QuotaView | None
    """Null: it has none, or the sender may not see it."""


class AccessPages(Routes):
    def __init__(self, visits: Visits, sight: ConsoleSight) -> None:
        self._visits = visits
        self._records = sight.records
        self._now = sight.attention.now

    @operation("GET", "/ui/tokens", list[TokenLineView], Role.READER)
    async def tokens_page(self, request: Request) -> Response:
        """The console's tokens, and what their holders may use and use."""
        tokens = {view.name: view for view in visible_tokens(self._records, principal_of(request))}
        shown, snapshot = Page(request.query_params.get("after", ""), ROWS).of(tokens), self._records.snapshot()

        def lines() -> list[TokenLineView]:
            return [
                TokenLineView(token=tokens[name], quota=quota_view(snapshot, name) if tokens[name].has_quota else None)
                for name in shown
            ]

        views = await asyncio.to_thread(lines)
        return answer(request, lambda: tokens_html(self._visits.of(request), views), views)

    @operation("GET", "/ui/certificates", list[HostView], Role.READER)
    async def certificates_page(self, request: Request) -> Response:
        """The console's hosts with certificates, and open invitations."""
        wanted, after = request.query_params.get("q", ""), request.query_params.get("after", "")
        every = host_views(records_for(request, self._records), time.time(), self._now())
        shown = [view for view in every if wanted in view.id and view.id > after][:ROWS]
        return answer(request, lambda: certificates_html(self._visits.of(request), shown, wanted), shown)


def tokens_html(visit: Visit, views: Sequence[TokenLineView]) -> str:
    rows = [_token_row(visit, view.token, view.quota) for view in views]
    heads = ("Name", "Role", "Bundles", "Reads", "State", "Ends", "Bytes", "Distributions", "By", "Change")
    following = m.next_page(visit, views[-1].token.name, {}) if len(views) == ROWS else m.NOTHING
    new = m.section("A new token", m.command("torrentdist token create NAME --role reader --ttl 90d"))
    return m.page(visit, "Tokens", m.table("Tokens", heads, rows), following, new)


def _token_row(visit: Visit, token: TokenView, quota: QuotaView | None) -> tuple[Markup, ...]:
    usable = token.state is TokenState.USABLE
    used = running = m.NOTHING
    if quota is not None:
        allowed = m.bytes_of(quota.max_bytes) if quota.max_bytes else "any number"
        used = m.text(f"{m.bytes_of(quota.bytes)} of {allowed}")
        running = m.text(f"{quota.distributions} of {quota.max_distributions or 'any number'}")
    return (
        m.text(token.name),
        m.text(token.role),
        m.text(token.bundles),
        m.text("everything" if token.reads is None else token.reads),
        m.badge(token.state, "good" if usable else ""),
        m.text("never") if token.expires_at is None else m.moment(token.expires_at),
        used,
        running,
        m.text(token.created_by),
        action_links(visit, "tokens", token.name, {"quota", "revoke"} if usable else ()),
    )


def certificates_html(visit: Visit, views: Sequence[HostView], wanted: str) -> str:
    tones = {MembershipState.LIVE: "good", MembershipState.EXPIRED: "bad", MembershipState.REVOKED: "bad"}
    rows = [
        (
            m.text(view.id),
            m.text(view.role),
            m.badge(view.state, tones.get(view.state, "")),
            Markup(f"<code>{m.text(view.serial)}</code>"),
            m.moment(view.expires_at),
            m.text(", ".join(view.addresses)),
            m.text(view.bundles or "what is assigned to it"),
            action_links(visit, "certificates", view.id, () if view.state is MembershipState.REVOKED else {"revoke"}),
        )
        for view in views
    ]
    heads = ("Host", "Role", "State", "Serial", "Ends", "Addresses", "May have", "Change")
    following = m.next_page(visit, views[-1].id, {"q": wanted}) if len(views) == ROWS else m.NOTHING
    none = "No certificate was issued by this cluster, or none matches."
    return m.page(
        visit,
        "Certificates",
        m.filter_form((m.Field("q", "Host contains", wanted),)),
        m.table("Certificates", heads, rows, none),
        following,
        m.section("A new host", m.command("torrentdist host invite ID --role supervisor --address ADDRESS")),
    )


MOST_NAMED = 5
"""Bundles that a row names of those that go next."""


class RetentionPages(Routes):
    def __init__(self, visits: Visits, sight: ConsoleSight) -> None:
        self._visits = visits
        self._sight = sight

    @operation("GET", "/ui/retention", list[RetentionView], Role.READER)
    async def rules_page(self, request: Request) -> Response:
        """The console's retention rules, and what each removes next."""
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
