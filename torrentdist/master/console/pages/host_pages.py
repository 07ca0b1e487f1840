"""The console's pages of hosts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.charts.matrix import Tile, mosaic
from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.web import number_parameter
from torrentdist.master.console import console_markup as m
from torrentdist.master.console.console_markup import Markup, Visit
from torrentdist.master.console.console_sight import ConsoleSight
from torrentdist.master.console.console_views import HostPageView
from torrentdist.master.console.forms.action_forms import action_links
from torrentdist.master.console.host_asking import HostAsking
from torrentdist.master.console.pages.master_pages import gone_html, gone_table
from torrentdist.master.console.pages.room_growth import growth_of, growth_words
from torrentdist.master.console.visits import Visits, answer
from torrentdist.master.http.routes import Routes, operation, records_for
from torrentdist.master.policies.room_outlook import RoomOutlook
from torrentdist.master.presence.attention import SILENT_SECS
from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.cluster_messages import GoneView, HostStateView, SupervisorView
from torrentdist.model.wire.job_messages import WorkerState
from torrentdist.model.wording import counted
from torrentdist.security.authorization import Principal, Role, may_read, reads_everything

ROWS = 100
MOSAIC_FROM = 100
"""With more hosts, a mosaic of all of them comes first."""
TILES = {
    "up": Tile("up", 2, "/ui/hosts?state=up"),
    "draining": Tile("draining", 4, "/ui/hosts?state=draining"),
    "full": Tile("full", 1, "/ui/hosts?state=full"),
    "silent": Tile("silent", 3, "/ui/hosts?state=silent"),
    "gone": Tile("gone", 6),
}
SORTS: Mapping[str, Callable[[SupervisorView], Any]] = {
    "bundles": lambda host: -(host.bundles or 0),
    "size": lambda host: -(host.bytes or 0),
    "own": lambda host: -(host.own_bytes or 0),
    "free": lambda host: (host.free_bytes is None, host.free_bytes or 0),
    "rate": lambda host: -(host.rate or 0.0),
    "slots": lambda host: -host.slots_used,
    "up": lambda host: host.uptime_secs,
    "trouble": lambda host: (not (host.full or host.problem), host.id),
}
"""The columns by which the hosts can be sorted, the largest first, or the least room."""
MOST_BUNDLES = 200


class HostsPage(msgspec.Struct, frozen=True):
    """What the page of hosts shows."""

    hosts: Sequence[SupervisorView]
    gone: Sequence[GoneView]
    total: int
    states: Sequence[str]
    """The states of all hosts of the cluster, for the mosaic."""
    query: Mapping[str, str]
    number: int
    """The page of the list, from 1."""


class HostPages(Routes):
    def __init__(self, visits: Visits, sight: ConsoleSight, asking: HostAsking, room: RoomOutlook) -> None:
        self._room = room
        self._asking = asking
        self._visits = visits
        self._sight = sight

    @operation("GET", "/ui/hosts", list[SupervisorView], Role.READER)
    async def hosts_page(self, request: Request) -> Response:
        """The console's list of hosts."""
        query = {name: request.query_params.get(name, "") for name in ("q", "state", "sort", "page")}
        wanted, seen = query["q"], records_for(request, self._sight.records)
        missed = self._sight.gone(seen, "supervisor")
        states = self._sight.states(seen)
        listed = [
            id_
            for id_, host in sorted(seen.supervisors.items())
            if query["state"] in ("", states[id_])
            and (wanted in id_ or wanted in host.host or wanted in _labels(host.labels))
        ]
        number = int(number_parameter(request, "page", 1, low=1, high=10_000))
        key = SORTS.get(query["sort"])
        part, sender = slice((number - 1) * ROWS, number * ROWS), principal_of(request)
        shown = self._sight.hosts(listed if key else listed[part], sender)
        if key:
            shown = sorted(shown, key=key)[part]
        all_states = [*states.values(), *("gone" for _ in missed)]
        gone = [view for view in missed if wanted in f"{view.id} {view.host}"] if number == 1 else []
        page = HostsPage(shown, gone, len(listed), all_states, query, number)
        return answer(request, lambda: hosts_html(self._visits.of(request), page), shown)

    @operation("GET", "/ui/hosts/{supervisor}", HostPageView, Role.READER)
    async def host_page(self, request: Request) -> Response:
        """The console's page of one host."""
        id_ = ids.supervisor_id(request.path_params["supervisor"])
        snapshot = records_for(request, self._sight.records)
        host = next(iter(self._sight.hosts([id_], principal_of(request))), None)
        missed = next((view for view in self._sight.gone(snapshot, "supervisor") if view.id == id_), None)
        if host is None and missed is None:
            raise TorrentdistError("not_found", what=f"supervisor {id_!r}")
        assignment, known = snapshot.assignments.get(id_), snapshot.hosts.get(id_)
        kept = [] if assignment is None else sorted(assignment.record.bundles)
        state = _readable_state(principal_of(request), await self._asking.state(id_))
        view = HostPageView(
            host=host,
            gone=missed,
            bundles=kept[:MOST_BUNDLES],
            workers=self._sight.workers(snapshot, id_),
            state=state,
            growth=await growth_of(self._sight, self._room, principal_of(request), host, kept),
            certificate_serial="" if known is None else known.record.serial,
            certificate_expires_at=None if known is None else known.record.expires_at,
            revoked=known is not None and known.record.is_revoked,
        )
        if missed is not None:
            return answer(request, lambda: gone_html(self._visits.of(request), missed, view.bundles), view)
        return answer(request, lambda: host_html(self._visits.of(request), view), view)


def _readable_state(sender: Principal, state: HostStateView | None) -> HostStateView | None:
    """Returns what a host says, without the errors of bundles that the sender may not read."""
    if state is None or reads_everything(sender):
        return state
    errors = {bundle: why for bundle, why in state.errors.items() if may_read(sender, bundle)}
    return replace(state, errors=errors)


def _labels(labels: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(labels.items()))


def _state(host: SupervisorView) -> Markup:
    if host.silent_secs is not None and host.silent_secs > SILENT_SECS:
        return m.badge(f"silent for {host.silent_secs:.0f} s", "bad")
    if host.draining:
        return m.badge("draining", "warn")
    return m.badge("full", "warn") if host.full else m.badge("up", "good")


def hosts_html(visit: Visit, page: HostsPage) -> str:
    rows = [
        (
            m.to("hosts", host.id),
            _state(host),
            m.text(host.host),
            m.UNKNOWN if host.bundles is None else m.text(host.bundles),
            m.UNKNOWN if host.bytes is None else m.bytes_of(host.bytes),
            m.UNKNOWN if host.own_bytes is None else m.bytes_of(host.own_bytes),
            m.UNKNOWN if host.free_bytes is None else m.bytes_of(host.free_bytes),
            m.text(f"{m.bytes_of(host.rate)}/s" if host.rate else ""),
            m.text(f"{host.slots_used} of {host.slots}"),
            m.text(_labels(host.labels)),
            m.text(host.version),
            m.duration(host.uptime_secs),
            m.text(host.full or host.problem),
        )
        for host in page.hosts
    ]
    heads = ("Host", "State", "Address", "Bundles", "Size", "Own", "Free", "Rate", "Slots", "Labels", "Version", "Up")
    kept = {name: value for name, value in page.query.items() if value and name != "page"}
    more = page.number * ROWS < page.total
    following = m.numbered_page(visit, page.number + 1, kept) if more else m.NOTHING
    count = Markup(f"<p>{counted(page.total, 'host')}{f', and {len(page.gone):,} gone' if page.gone else ''}.</p>")
    filters = m.filter_form(
        (
            m.Field("q", "Name, address or label contains", page.query["q"]),
            m.Field("state", "State", page.query["state"], tuple(TILES)[:-1]),
            m.Field("sort", "Sort by", page.query["sort"], tuple(SORTS)),
        )
    )
    picture = Markup(mosaic(page.states, TILES, "Hosts")) if len(page.states) > MOSAIC_FROM else m.NOTHING
    listed = m.table("Hosts", (*heads, "Trouble"), rows, "No host matches.")
    shown = (picture, filters, count, gone_table(page.gone, "hosts"), listed, following)
    return m.page(visit, "Hosts", *shown, m.command("torrentdist supervisor ls"))


def host_html(visit: Visit, view: HostPageView) -> str:
    host = view.host
    assert host is not None
    ends = m.text("none issued by the cluster")
    if view.certificate_expires_at is not None:
        ends = m.join([m.text(f"{view.certificate_serial}, ends "), m.moment(view.certificate_expires_at)])
    known = m.facts(
        [
            ("State", _state(host)),
            ("Address", m.text(host.host)),
            ("Gateway", m.text(host.gateway)),
            ("Slots", m.text(f"{host.slots_used} of {host.slots} taken")),
            ("Labels", m.text(_labels(host.labels) or "none")),
            ("Version", m.text(host.version)),
            ("Up", m.duration(host.uptime_secs)),
            ("Certificate", m.badge("revoked", "bad") if view.revoked else ends),
        ]
    )
    bundles = [(m.to("bundles", bundle),) for bundle in view.bundles]
    growing = m.NOTHING if view.growth is None else Markup(f"<p>{m.text(growth_words(view.growth))}</p>")
    if view.workers is None:
        workers = Markup('<p class="soft">Unknown: only the leader hears what workers do.</p>')
    else:
        rows = [
            (
                m.to("jobs", worker.job),
                m.text(worker.worker),
                m.badge(worker.state, "good" if worker.state is WorkerState.RUNNING else ""),
                m.text(worker.pid or ""),
                m.text(worker.restarts),
                m.text(worker.detail),
            )
            for worker in view.workers
        ]
        workers = m.table("Workers", ("Job", "Worker", "State", "Process", "Restarts", "Detail"), rows)
    return m.page(
        visit,
        host.id,
        known,
        action_links(visit, "hosts", host.id, {"undrain" if host.draining else "drain"}),
        m.section("Room and traffic", _state_part(view.state), growing),
        m.section("Workers", workers),
        m.section("Bundles that it keeps", m.table("Bundles that it keeps", ("Bundle",), bundles)),
        m.command("torrentdist supervisor ls"),
    )


def _state_part(state: HostStateView | None) -> Markup:
    if state is None:
        return Markup('<p class="soft">Unknown: the host does not answer this master.</p>')
    limit = m.text(f"of {m.bytes_of(state.limit_bytes)} at most" if state.limit_bytes else "without a limit")
    is_full = state.free_bytes <= state.reserve_bytes
    figures = m.tiles(
        [
            ("Its bundles", m.bytes_of(state.published_bytes), ""),
            ("Reserved for arriving ones", m.bytes_of(state.arriving_bytes), ""),
            ("Free on its disk", m.bytes_of(state.free_bytes), "bad" if is_full else ""),
            ("Receives", m.text(f"{m.bytes_of(state.download_rate)}/s"), ""),
            ("Sends", m.text(f"{m.bytes_of(state.upload_rate)}/s"), ""),
            ("Peers", m.text(f"{state.peers:,}"), ""),
        ]
    )
    note = Markup(f"<p>Bundles {limit}; {m.bytes_of(state.reserve_bytes)} of the disk stay free.</p>")
    errors = [(m.to("bundles", bundle), m.text(why)) for bundle, why in sorted(state.errors.items())]
    last = m.table("Last errors", ("Bundle", "Error"), errors, "No fetch has failed.")
    return m.join([figures, note, Markup("<h3>Last errors</h3>"), last])
