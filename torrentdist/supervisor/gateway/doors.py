"""The two ports of a supervisor: the loopback gateway for the programs of this host, and the port
for other hosts.

Always: both are bound before anything else of the daemon starts, and answer once all rooms are
built.
"""

import os
import socket
from collections.abc import Callable, Iterable

from torrentdist.host.certificates.revocations import Revocations
from torrentdist.host.http.health_api import HealthApi
from torrentdist.host.http.operation import Router
from torrentdist.host.http.web import bind_socket, inherited_socket
from torrentdist.host.process.host_daemon import HostDaemon
from torrentdist.host.process.room import Loop, Room
from torrentdist.host.telemetry.audit_log import AuditLog
from torrentdist.model.configuration.config import Config
from torrentdist.model.errors import TorrentdistError
from torrentdist.security.authorization import Role
from torrentdist.supervisor.gateway.callers import JobCallers, readers_of
from torrentdist.supervisor.gateway.gateway import gateway_app
from torrentdist.supervisor.gateway.peer_api import PeerApi, outside_app
from torrentdist.supervisor.place.znode_watch import ZnodeWatch


def bind_doors(config: Config) -> list[socket.socket]:
    """Binds the gateway's port, and the port for other hosts."""
    gateway = inherited_socket(os.environ, what="the gateway") or bind_socket(
        "127.0.0.1", config.supervisor.gateway_port, what="the gateway"
    )
    try:
        outside = bind_socket(config.api.listen, config.supervisor.port, what="other hosts")
    except TorrentdistError:
        gateway.close()
        raise
    return [gateway, outside]


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

    def loops(self) -> Iterable[Loop]:
        yield Loop("audit", self._audit.run)
        if self._host.guard.tls is not None:
            yield Loop("revocations", self._revocations.follow)

    async def open(self, rooms: Iterable[Room], jobs: JobCallers, failing: Callable[[], dict[str, str]]) -> None:
        """Serves what the rooms offer. `failing` returns the checks that fail now."""
        host, readers = self._host, readers_of(self._host.config.supervisor.gateway_users)
        gateway, outside = host.sockets
        inner: list[Router] = [HealthApi(failing, host.metrics, Role.ANYONE)]
        inner += [router for room in rooms for router in room.routers]
        web = await host.serve(
            gateway_app(inner, readers, jobs, lambda client: web.cut(client), self._audit), gateway, self._audit
        )
        fetches = host.runtime.fetches
        outer: list[Router] = [HealthApi(failing, host.metrics)]
        outer += [PeerApi(fetches.raw_metafile, fetches.raw_recipe, fetches.updates.raw)]
        outer += [router for room in rooms for router in room.outside]
        app = outside_app(outer, host.guard, self._is_admitted, self._revocations.covers, self._audit)
        await host.serve(app, outside, self._audit, host.guard.tls)
