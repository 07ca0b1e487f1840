"""The console's pages of masters, and of masters and hosts that are gone."""

import asyncio
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.authentication import principal_of
from torrentdist.master.bundles import bundle_views
from torrentdist.master.console import console_markup as m
from torrentdist.master.console.console_markup import Markup, Visit
from torrentdist.master.console.console_sight import ConsoleSight
from torrentdist.master.console.console_views import GrowthView, MastersPageView
from torrentdist.master.console.forms.action_forms import action_links
from torrentdist.master.console.pages.room_growth import growth_of, growth_words
from torrentdist.master.console.visits import Visits, answer
from torrentdist.master.http.routes import Routes, operation, records_for
from torrentdist.master.leading.roles import Roles
from torrentdist.master.policies.room_outlook import RoomOutlook
from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.wire.cluster_messages import GoneView
from torrentdist.model.wire.ha_views import MasterState, RoleView
from torrentdist.model.wording import counted
from torrentdist.security.authorization import Role

FAILOVERS = 20
_STATES = {MasterState.LEADER: "good", MasterState.UNREACHABLE: "bad", MasterState.OUT: "warn"}


class MasterPages(Routes):
    def __init__(self, visits: Visits, sight: ConsoleSight, roles: Roles, room: RoomOutlook) -> None:
        self._room = room
        self._visits = visits
        self._sight = sight
        self._roles = roles

    @operation("GET", "/ui/masters", MastersPageView, Role.READER)
    async def masters_page(self, request: Request) -> Response:
        """The console's page of masters and failovers."""
        roles, failovers = await asyncio.gather(self._roles.all(), self._sight.failovers(FAILOVERS))
        past = None if failovers is None else [bundle_views.failover_view(record) for record in failovers]
        missed = self._sight.gone(records_for(request, self._sight.records), "master")
        view = MastersPageView(masters=roles, gone=missed, failovers=past)
        return answer(request, lambda: masters_html(self._visits.of(request), view), view)

    @operation("GET", "/ui/masters/{master}", RoleView, Role.READER)
    async def master_page(self, request: Request) -> Response:
        """The console's page of one master."""
        id_ = ids.master_id(request.path_params["master"])
        seen = records_for(request, self._sight.records)
        record = seen.masters.get(id_)
        missed = next((view for view in self._sight.gone(seen, "master") if view.id == id_), None)
        if record is None and missed is not None:
            return answer(request, lambda: gone_html(self._visits.of(request), missed, []), missed)
        if record is None:
            raise TorrentdistError("not_found", what=f"master {id_!r}")
        own = self._roles.own()
        view = own if own.id == id_ else await self._roles.ask(record)
        store = next((one for one in self._sight.attention.outline(seen).masters if one.id == id_), None)
        kept = [bundle for bundle, entry in seen.bundles.items() if id_ in entry.replicas]
        growing = await growth_of(self._sight, self._room, principal_of(request), store, kept)
        return answer(request, lambda: master_html(self._visits.of(request), view, growing), view)


def gone_table(gone: Sequence[GoneView], kind: str) -> Markup:
    """Returns the table of those that are gone; nothing if none is."""
    if not gone:
        return m.NOTHING
    rows = [
        (
            m.to(kind, view.id),
            m.badge("gone", "bad"),
            m.text(view.host),
            m.moment(view.since),
            m.text(view.bundles),
            m.join([m.to("jobs", job) for job in view.jobs], ", "),
        )
        for view in gone
    ]
    return m.section("Gone", m.table("Gone", ("Name", "State", "Address", "Since", "Should keep", "Ran"), rows))


def gone_html(visit: Visit, view: GoneView, bundles: Sequence[BundleId]) -> str:
    known = m.facts(
        [
            ("State", m.badge("gone", "bad")),
            ("Since", m.moment(view.since)),
            ("Last address", m.text(view.host)),
            ("Should keep", m.text(counted(view.bundles, "bundle"))),
            ("Ran", m.join([m.to("jobs", job) for job in view.jobs], ", ") or m.text("nothing")),
        ]
    )
    kept = m.table("Bundles that it should keep", ("Bundle",), [(m.to("bundles", id_),) for id_ in bundles])
    note = "It left without a clean stop or a drain. It stays here until it returns, or is forgotten."
    kind = "masters" if view.role == "master" else "hosts"
    return m.page(
        visit,
        view.id,
        Markup(f'<p class="notice bad">{note}</p>'),
        known,
        action_links(visit, kind, view.id, {"forget"}),
        m.section("Bundles that it should keep", kept) if bundles else m.NOTHING,
        m.command(f"torrentdist host forget {view.id}"),
    )


def masters_html(visit: Visit, view: MastersPageView) -> str:
    rows = [
        (
            m.to("masters", role.id),
            m.badge(role.state, _STATES.get(role.state, "")),
            m.UNKNOWN if role.epoch is None else m.text(role.epoch),
            m.UNKNOWN if role.lag is None else m.text(role.lag),
            m.duration(role.granted_secs),
            _millis(role.write_secs),
            m.text(role.version),
            m.text("; ".join(f"{name}: {why}" for name, why in role.failing.items())),
        )
        for role in view.masters
    ]
    heads = ("Master", "State", "Epoch", "Bundles it lacks", "Session", "ZooKeeper's last write", "Version", "Failing")
    past = m.UNKNOWN
    if view.failovers is not None:
        lines = [
            (m.moment(f.at), m.text(f.previous or "nobody"), m.text(f.current), m.text(f.reason))
            for f in view.failovers
        ]
        past = m.table("Failovers", ("When", "From", "To", "Why"), lines)
    return m.page(
        visit,
        "Masters",
        m.table("Masters", heads, rows),
        m.command("torrentdist ha roles"),
        gone_table(view.gone, "masters"),
        m.section("Failovers", past, m.command("torrentdist ha failovers")),
    )


def _millis(secs: float | None) -> Markup:
    return m.UNKNOWN if secs is None else m.text(f"{secs * 1000:,.1f} ms")


def master_html(visit: Visit, role: RoleView, growing: GrowthView | None) -> str:
    known = m.facts(
        [
            ("State", m.badge(role.state, _STATES.get(role.state, ""))),
            ("URL", m.text(role.url)),
            ("Epoch", m.UNKNOWN if role.epoch is None else m.text(role.epoch)),
            ("Bundles it lacks", m.UNKNOWN if role.lag is None else m.text(role.lag)),
            ("ZooKeeper session", m.duration(role.granted_secs)),
            ("ZooKeeper's last write", _millis(role.write_secs)),
            ("Version", m.text(role.version)),
            ("Failing", m.text("; ".join(f"{name}: {why}" for name, why in role.failing.items()) or "nothing")),
        ]
    )
    return m.page(
        visit,
        role.id,
        known,
        m.NOTHING if growing is None else m.section("Room", Markup(f"<p>{m.text(growth_words(growing))}</p>")),
        action_links(visit, "masters", role.id, {"transfer"} if role.state is MasterState.STANDBY else ()),
        m.command("torrentdist ha roles"),
    )
