"""The console's pages of hosts and of masters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import Operation
from torrentdist.master.bundles import bundle_views
from torrentdist.master.console import console_markup as m
from torrentdist.master.console.console_markup import Markup, Visit
from torrentdist.master.console.console_sight import ConsoleSight
from torrentdist.master.console.console_views import HostPageView, MastersPageView
from torrentdist.master.console.host_asking import HostAsking
from torrentdist.master.console.overview_views import SILENT_SECS
from torrentdist.master.console.pages.action_pages import action_links
from torrentdist.master.console.visits import Visits, answer
from torrentdist.master.http.mutation_requests import records_for
from torrentdist.master.leading.roles import Roles
from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.cluster_messages import HostStateView, SupervisorView
from torrentdist.model.wire.ha_views import MasterState, RoleView
from torrentdist.model.wire.job_messages import WorkerState
from torrentdist.security.authorization import may_read, reads_everything
from torrentdist.security.principal import Principal, Role

ROWS = 100
MOST_BUNDLES = 200
FAILOVERS = 20
_STATES = {MasterState.LEADER: "good", MasterState.UNREACHABLE: "bad", MasterState.OUT: "warn"}


class HostPages:
    def __init__(self, visits: Visits, sight: ConsoleSight, roles: Roles, asking: HostAsking) -> None:
        self._asking = asking
        self._visits = visits
        self._sight = sight
        self._roles = roles

    def operations(self) -> Iterator[Operation]:
        summary = "the console's list of hosts"
        yield Operation("GET", "/ui/hosts", self.hosts_page, list[SupervisorView], summary, Role.READER)
        summary = "the console's page of one host"
        yield Operation("GET", "/ui/hosts/{supervisor}", self.host_page, HostPageView, summary, Role.READER)
        summary = "the console's page of masters and failovers"
        yield Operation("GET", "/ui/masters", self.masters_page, MastersPageView, summary, Role.READER)
        summary = "the console's page of one master"
        yield Operation("GET", "/ui/masters/{master}", self.master_page, RoleView, summary, Role.READER)

    async def hosts_page(self, request: Request) -> Response:
        query = request.query_params
        wanted, after = query.get("q", ""), query.get("after", "")
        known = sorted(self._sight.snapshot().supervisors.items())
        listed = [id_ for id_, host in known if wanted in id_ or wanted in host.host or wanted in _labels(host.labels)]
        shown = self._sight.hosts([id_ for id_ in listed if id_ > after][:ROWS])
        return answer(request, lambda: hosts_html(self._visits.of(request), shown, len(listed), wanted), shown)

    async def host_page(self, request: Request) -> Response:
        id_ = ids.supervisor_id(request.path_params["supervisor"])
        snapshot = records_for(request, self._sight.records)
        host = next(iter(self._sight.hosts([id_])), None)
        if host is None:
            raise TorrentdistError("not_found", what=f"supervisor {id_!r}")
        assignment, known = snapshot.assignments.get(id_), snapshot.hosts.get(id_)
        view = HostPageView(
            host=host,
            bundles=[] if assignment is None else sorted(assignment.record.bundles)[:MOST_BUNDLES],
            workers=self._sight.workers(snapshot, id_),
            state=_readable_state(principal_of(request), await self._asking.state(id_)),
            certificate_serial="" if known is None else known.record.serial,
            certificate_expires_at=None if known is None else known.record.expires_at,
            revoked=known is not None and known.record.is_revoked,
        )
        return answer(request, lambda: host_html(self._visits.of(request), view), view)

    async def masters_page(self, request: Request) -> Response:
        roles, failovers = await asyncio.gather(self._roles.all(), self._sight.failovers(FAILOVERS))
        past = None if failovers is None else [bundle_views.failover_view(record) for record in failovers]
        view = MastersPageView(masters=roles, failovers=past)
        return answer(request, lambda: masters_html(self._visits.of(request), view), view)

    async def master_page(self, request: Request) -> Response:
        id_ = ids.master_id(request.path_params["master"])
        record = self._sight.snapshot().masters.get(id_)
        if record is None:
            raise TorrentdistError("not_found", what=f"master {id_!r}")
        own = self._roles.own()
        view = own if own.id == id_ else await self._roles.ask(record)
        return answer(request, lambda: master_html(self._visits.of(request), view), view)


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


def hosts_html(visit: Visit, hosts: Sequence[SupervisorView], total: int, wanted: str) -> str:
    rows = [
        (
            m.to("hosts", host.id),
            _state(host),
            m.text(host.host),
            m.UNKNOWN if host.bundles is None else m.text(host.bundles),
            m.text(f"{host.slots_used} of {host.slots}"),
            m.text(_labels(host.labels)),
            m.text(host.version),
            m.duration(host.uptime_secs),
        )
        for host in hosts
    ]
    heads = ("Host", "State", "Address", "Bundles", "Slots", "Labels", "Version", "Up")
    following = m.next_page(visit, hosts[-1].id, {"q": wanted}) if len(hosts) == ROWS else m.NOTHING
    count = Markup(f"<p>{total:,} hosts.</p>")
    filters = m.filter_form((m.Field("q", "Name, address or label contains", wanted),))
    listed = m.table("Hosts", heads, rows, "No host matches.")
    return m.page(visit, "Hosts", filters, count, listed, following, m.command("torrentdist supervisor ls"))


def host_html(visit: Visit, view: HostPageView) -> str:
    host = view.host
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
        m.section("Room and traffic", _state_part(view.state)),
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
        m.section("Failovers", past, m.command("torrentdist ha failovers")),
    )


def _millis(secs: float | None) -> Markup:
    return m.UNKNOWN if secs is None else m.text(f"{secs * 1000:,.1f} ms")


def master_html(visit: Visit, role: RoleView) -> str:
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
        action_links(visit, "masters", role.id, {"transfer"} if role.state is MasterState.STANDBY else ()),
        m.command("torrentdist ha roles"),
    )
