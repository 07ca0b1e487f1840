"""The process of the driver: serves both services on a unix socket until it is told to stop.

Always: it needs no state of its own. What is mounted is in the kernel's table, and what is held is
with the supervisor. It refuses to start where mounts would not reach the pods.
"""

import asyncio
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

import grpc.aio

from torrentdist.csi.csi_services import IdentityService, NodeService, handlers_of
from torrentdist.csi.host_gateway import HostGateway
from torrentdist.csi.mount_table import surrounding
from torrentdist.csi.mounting import read_mounts
from torrentdist.csi.namespace_rights import check_rights
from torrentdist.csi.pod_proofs import PodProofs
from torrentdist.csi.volume_keeper import VolumeKeeper
from torrentdist.csi.volume_request import WantedVolume
from torrentdist.host.process.daemon_process import run_daemon
from torrentdist.host.process.logs import configure_logs
from torrentdist.http.connection_pool import Http
from torrentdist.log import get_logger
from torrentdist.model import ids
from torrentdist.model.configuration.config import Config
from torrentdist.model.errors import TorrentdistError

log = get_logger()

GRACE_SECS = 5.0
MOST_CALL_BYTES = 1024 * 1024
UNIX = "unix://"
UNPROVEN = (
    "no kubernetes.keys: pods prove nothing. A CSIDriver object without podInfoOnMount lets a pod name any namespace"
)


class CsiDriver:
    def __init__(self, config: Config, endpoint: str) -> None:
        self._config = config
        self._socket = socket_path(endpoint)
        self._node = config.supervisor.id or f"supervisor-{socket.gethostname()}"
        self._http = Http()
        data_dir = config.supervisor.data_dir
        self._gateway = HostGateway(self._http, config.client.supervisor, data_dir)
        self._volumes = VolumeKeeper(self._gateway, Path(data_dir).resolve())
        self._proofs = PodProofs(config.kubernetes)
        self._order: asyncio.Task[None] | None = None
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        await asyncio.to_thread(check_propagation, self._config.kubernetes.kubelet_dir)
        await asyncio.to_thread(make_way, self._socket)
        server = self._server = grpc.aio.server(options=[("grpc.max_receive_message_length", MOST_CALL_BYTES)])
        kubelet_dir = self._config.kubernetes.kubelet_dir
        node = NodeService(ids.supervisor_id(self._node), self._volumes, self._admit, kubelet_dir)
        server.add_generic_rpc_handlers(tuple(handlers_of(IdentityService(self._gateway), node)))
        server.add_insecure_port(f"{UNIX}{self._socket}")
        await server.start()
        await asyncio.to_thread(os.chmod, self._socket, 0o600)
        self._order = asyncio.create_task(self._volumes.keep_order(), name="keep order")
        if not self._config.kubernetes.keys:
            log.warning(UNPROVEN)
        log.info("csi driver started", endpoint=str(self._socket), supervisor=self._config.client.supervisor)

    async def _admit(self, wanted: WantedVolume) -> None:
        await self._proofs.check(wanted)
        check_rights(self._config.kubernetes.namespaces, wanted)

    async def failed(self) -> None:
        assert self._order is not None
        await self._order

    async def stop(self) -> None:
        if self._order is not None:
            self._order.cancel()
            await asyncio.gather(self._order, return_exceptions=True)
        if self._server is not None:
            await self._server.stop(GRACE_SECS)
        await self._http.aclose()
        log.info("csi driver stopped")


def socket_path(endpoint: str) -> Path:
    """Returns the path of `unix:///PATH`, `unix:/PATH` or `/PATH`."""
    path = Path(endpoint.removeprefix(UNIX).removeprefix("unix:"))
    if not path.is_absolute():
        raise TorrentdistError("config_invalid", origin="--endpoint", detail="it must be an absolute path of a socket")
    return path


def make_way(path: Path) -> None:
    """Removes the socket of a driver that has ended, and makes its directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise TorrentdistError("config_invalid", origin="--endpoint", detail=f"{path} is no socket")
        path.unlink()


def check_propagation(kubelet_dir: str) -> None:
    """Raises an error where a mount below the kubelet's directory would be seen by nobody else."""
    around = surrounding(read_mounts(), os.path.realpath(kubelet_dir))
    if around is None or not around.shared:
        detail = f"mounts below {kubelet_dir} would not reach pods: the container needs mountPropagation: Bidirectional"
        raise TorrentdistError("config_invalid", origin="kubernetes.kubelet_dir", detail=detail)


def run(config: Config, *, endpoint: str) -> None:
    configure_logs(config.log, role="csi", id=config.supervisor.id or socket.gethostname())
    run_daemon(lambda: CsiDriver(config, endpoint), shutdown_secs=config.api.shutdown_secs)
