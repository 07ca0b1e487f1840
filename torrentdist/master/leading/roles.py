"""The roles of all masters: each is asked over HTTP for its state, its epoch, and what it still
lacks.

Always: a dead or slow master delays the answer by one short deadline, however many there are.
Never: keep an answer. Every call asks anew.
"""

import asyncio
from collections.abc import Callable, Container

import msgspec

from torrentdist.cluster.election.term import ElectionPhase
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.http.connection_pool import Http
from torrentdist.http.http_values import HttpError
from torrentdist.model.ids import Digest, MasterId
from torrentdist.model.records import BundleState, MasterRecord
from torrentdist.model.wire.ha_views import DialView, MasterState, RoleView
from torrentdist.model.wire.view import decode_json
from torrentdist.model.wording import cause_text

ANSWER_SECS = 1.0

_STATES = {
    ElectionPhase.OUT: MasterState.OUT,
    ElectionPhase.QUEUED: MasterState.STANDBY,
    ElectionPhase.ELECTED: MasterState.ELECTED,
    ElectionPhase.LEADING: MasterState.STANDBY,  # its lease is over, whatever it will be next
    ElectionPhase.PAUSED: MasterState.PAUSED,
}


def state_of(phase: ElectionPhase, leads: bool) -> MasterState:
    return MasterState.LEADER if leads else _STATES[phase]


def lag(snapshot: ClusterSnapshot, published: Container[Digest]) -> int:
    """Returns the number of available bundles that a master has not published."""
    wanted = {e.record.digest for e in snapshot.bundles.values() if e.record.state is BundleState.AVAILABLE}
    return sum(digest not in published for digest in wanted)


class Roles:
    """The roles of all registered masters; `own` returns this master's."""

    def __init__(self, http: Http, snapshot: Callable[[], ClusterSnapshot], own: Callable[[], RoleView]) -> None:
        self._http = http
        self._snapshot = snapshot
        self.own = own

    async def all(self) -> list[RoleView]:
        """Returns the role of every registered master, and of this one."""
        own = self.own()
        others = [m for id_, m in sorted(self._snapshot().masters.items()) if id_ != own.id]
        views = [own, *await asyncio.gather(*(self.ask(master) for master in others))]
        return sorted(views, key=lambda view: view.id)

    async def ask(self, master: MasterRecord) -> RoleView:
        try:
            async with asyncio.timeout(ANSWER_SECS):
                response = await self._http.get(f"{master.url}/v1/role")
            if response.status_code == 200:
                view = decode_json(response.content, RoleView)
                if view.id == master.id:
                    return view
            return _unreachable(master, f"it answered {response.status_code}")
        except (HttpError, TimeoutError, msgspec.MsgspecError) as exc:
            return _unreachable(master, cause_text(exc) or f"no answer within {ANSWER_SECS:g} s")


async def dial(host: str, port: int) -> DialView:
    """Returns whether this host can connect to that port."""
    try:
        async with asyncio.timeout(ANSWER_SECS):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError) as exc:
        detail = cause_text(exc) or f"no connection within {ANSWER_SECS:g} s"
        return DialView(host=host, port=port, reachable=False, detail=detail)
    writer.close()
    return DialView(host=host, port=port, reachable=True)


def _unreachable(master: MasterRecord, why: str) -> RoleView:
    return RoleView(
        id=MasterId(master.id),
        url=master.url,
        state=MasterState.UNREACHABLE,
        version=master.version,
        failing={"reachable": why},
    )
