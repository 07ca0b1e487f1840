"""The ports of a supervisor: the loopback gateway for the programs of this host, the port for other
hosts, and the gateway for pods where an address is configured.

Always: all are bound before anything else of the daemon starts, and answer once all rooms are
built.
"""

import os
import socket
from collections.abc import Callable, Iterable
from typing import Final

from torrentdist.host.certificates.revocations import Revocations
from torrentdist.host.http.operation import Router
from torrentdist.host.process.health_api import HealthApi
from torrentdist.host.process.host_daemon import HostDaemon
from torrentdist.host.process.listening_sockets import bind_socket, inherited_socket
from torrentdist.host.process.room import Loop, Room
from torrentdist.host.telemetry.audit_log import AuditLog
from torrentdist.log import get_logger
from torrentdist.model.configuration.config import Config
from torrentdist.model.errors import TorrentdistError
from torrentdist.security.authorization import Role
from torrentdist.supervisor.gateway.callers import JobCallers, readers_of
from torrentdist.supervisor.gateway.gateway import error_answer, gateway_app
from torrentdist.supervisor.gateway.known_url_trust import KnownUrlTrust
from torrentdist.supervisor.gateway.peer_api import PeerApi, outside_app
from torrentdist.supervisor.gateway.pod_door import pod_app
from torrentdist.supervisor.place.znode_watch import ZnodeWatch

log = get_logger()

PODS: Final = 2
"""The place of the port for pods among a supervisor's ports."""


def bind_doors(config: Config) -> list[socket.socket]:
    """Binds the gateway's port, the port for other hosts, and the port for pods if there is one."""
    own = config.supervisor
    if own.pod_tls and config.tls.mode == "off":
        detail = 'supervisor.pod_tls takes the host\'s certificate, and tls.mode is "off"'
        raise TorrentdistError("config_invalid", origin="the configuration", detail=detail)
    gateway = inherited_socket(os.environ, what="the gateway") or bind_socket(
        "127.0.0.1", config.supervisor.gateway_port, what="the gateway"
    )
    bound = [gateway]
    try:
        bound.append(bind_socket(config.api.listen, own.port, what="other hosts"))
        if own.pod_listen:
            bound.append(bind_socket(own.pod_listen, own.pod_port, what="pods"))
    except TorrentdistError:
        for sock in bound:
            sock.close()
        raise
    return bound


def gateway_url(host: HostDaemon) -> str:
    return f"http://127.0.0.1:{host.sockets[0].getsockname()[1]}"


def outside_url(host: HostDaemon) -> str:
    """Returns the URL at which other hosts reach this supervisor."""
    return host.guard.url(host.identity.address, host.sockets[1].getsockname()[1])


class Doors:
    def __init__(self, host: HostDaemon, watch: ZnodeWatch) -> None:
        self._host = host
        self._is_admitted = watch.is_admitted
        self._audit = AuditLog(host.runtime.events.emit)
        self._revocations = Revocations(host.http, watch.master_urls)
        self._urls = KnownUrlTrust(host.http, watch.master_urls, host.runtime.store.data_dir)

    def loops(self) -> Iterable[Loop]:
        yield Loop("audit", self._audit.run)
        if self._host.guard.tls is not None:
            yield Loop("revocations", self._revocations.follow)
        if self._serves_pods:
            yield Loop("URLs for pods", self._urls.follow)

    async def open(self, rooms: Iterable[Room], jobs: JobCallers, failing: Callable[[], dict[str, str]]) -> None:
        """Serves what the rooms offer. `failing` returns the checks that fail now."""
        host, readers = self._host, readers_of(self._host.config.supervisor.gateway_users)
        gateway, outside, *for_pods = host.sockets
        inner: list[Router] = [HealthApi(failing, host.metrics, Role.ANYONE)]
        inner += [router for room in rooms for router in room.routers]
        app = gateway_app(inner, readers, jobs, lambda client: web.cut(client), self._audit)
        web = await host.serve(app, gateway, self._audit, told=error_answer)
        fetches = host.runtime.fetches
        outer: list[Router] = [HealthApi(failing, host.metrics)]
        outer += [PeerApi(fetches.raw_metafile, fetches.raw_recipe, fetches.updates.raw)]
        outer += [router for room in rooms for router in room.outside]
        app = outside_app(outer, host.guard, self._is_admitted, self._revocations.covers, self._audit)
        await host.serve(app, outside, self._audit, host.guard.tls)
        for sock in for_pods:
            await self._serve_pods(rooms, sock)

    @property
    def _serves_pods(self) -> bool:
        return len(self._host.sockets) > PODS

    async def _serve_pods(self, rooms: Iterable[Room], sock: socket.socket) -> None:
        host, tls = self._host, self._host.guard.tls if self._host.config.supervisor.pod_tls else None
        await self._urls.load()
        app = pod_app(
            [router for room in rooms for router in room.routers],
            self._urls.verified,
            lambda client: web.cut(client),
            self._audit,
        )
        web = await host.serve_anywhere(app, sock, tls)
        address, port = sock.getsockname()[:2]
        log.info("gateway for pods started", address=address, port=port, tls=tls is not None)
