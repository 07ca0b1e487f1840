"""CSI's Identity and Node services: requests of the kubelet become calls of volume_keeper.py.

Always: a call ends before the kubelet's deadline, with a status and a sentence of its own. A
failure that nobody has foreseen is told without its details, which the log has.
"""

from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, Protocol, TypeVar

import grpc
import grpc.aio
import msgspec
from google.protobuf.wrappers_pb2 import BoolValue

import torrentdist
from torrentdist.csi import csi_pb2 as csi
from torrentdist.csi.host_gateway import HostGateway
from torrentdist.csi.volume_keeper import VolumeKeeper
from torrentdist.csi.volume_request import (
    Refusal,
    VolumeRefused,
    WantedVolume,
    check_below,
    check_capability,
    check_id,
    checked_target,
    invalid,
    wanted_volume,
)
from torrentdist.log import get_logger

log = get_logger()

DRIVER = "torrentdist"
WAIT_SECS = 60.0
"""How long a call waits for a bundle whose caller names no deadline."""
SPARE_SECS = 5.0
"""The time of a call that is left for mounting and for the answer."""
STATUSES = {
    Refusal.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Refusal.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Refusal.DENIED: grpc.StatusCode.PERMISSION_DENIED,
    Refusal.CONFLICT: grpc.StatusCode.ALREADY_EXISTS,
    Refusal.PRECONDITION: grpc.StatusCode.FAILED_PRECONDITION,
    Refusal.NO_ROOM: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Refusal.NOT_YET: grpc.StatusCode.UNAVAILABLE,
    Refusal.BROKEN: grpc.StatusCode.INTERNAL,
}


class KubeletCall(Protocol):
    """What gRPC says of a call, and lets it do."""

    def time_remaining(self) -> float | None: ...

    async def abort(self, code: Any, details: str) -> NoReturn: ...


R = TypeVar("R")
A = TypeVar("A")
Admit = Callable[[WantedVolume], Awaitable[None]]
"""Raises VolumeRefused unless the pod may have the bundle."""


def refusing(call: Callable[[R, KubeletCall], Awaitable[A]]) -> Callable[[R, KubeletCall], Awaitable[A]]:
    """Makes a call whose refusals become statuses of gRPC."""

    async def answer(request: R, context: KubeletCall) -> A:
        try:
            return await call(request, context)
        except VolumeRefused as refused:
            log.info("call refused", call=type(request).__name__, why=refused.why, reason=refused.message)
            await context.abort(STATUSES[refused.why], refused.message)
        except grpc.aio.BaseError:
            raise
        except Exception as exc:
            log.error("a call failed", call=type(request).__name__, exc_info=exc)
            await context.abort(grpc.StatusCode.INTERNAL, "something unexpected happened; the driver's log names it")

    return answer


class IdentityService(msgspec.Struct, frozen=True):
    gateway: HostGateway

    async def info(self, request: csi.GetPluginInfoRequest, _: KubeletCall) -> csi.GetPluginInfoResponse:
        return csi.GetPluginInfoResponse(name=DRIVER, vendor_version=torrentdist.__version__)

    async def capabilities(
        self, request: csi.GetPluginCapabilitiesRequest, _: KubeletCall
    ) -> csi.GetPluginCapabilitiesResponse:
        """Names none: volumes are made by pods and by people, never by a controller."""
        return csi.GetPluginCapabilitiesResponse()

    async def probe(self, request: csi.ProbeRequest, _: KubeletCall) -> csi.ProbeResponse:
        """Says whether the node's supervisor answers. A restart of this driver would not help."""
        return csi.ProbeResponse(ready=BoolValue(value=await self.gateway.is_alive()))


class NodeService(msgspec.Struct, frozen=True):
    node: str
    volumes: VolumeKeeper
    admit: Admit
    kubelet_dir: str
    """Nothing is mounted or unmounted but below it."""

    async def publish(self, request: csi.NodePublishVolumeRequest, call: KubeletCall) -> csi.NodePublishVolumeResponse:
        check_id(request.volume_id)
        self._checked_target(request.target_path)
        if not request.HasField("volume_capability"):
            raise invalid("the request has no volume capability")
        capability = request.volume_capability
        check_capability(is_mount=capability.HasField("mount"), options=capability.mount.mount_flags)
        context, secrets = dict(request.volume_context), dict(request.secrets)
        wanted = wanted_volume(request.volume_id, request.target_path, context, secrets)
        await self.admit(wanted)
        left = call.time_remaining()
        await self.volumes.publish(wanted, WAIT_SECS if left is None else max(0.0, left - SPARE_SECS))
        return csi.NodePublishVolumeResponse()

    async def unpublish(
        self, request: csi.NodeUnpublishVolumeRequest, _: KubeletCall
    ) -> csi.NodeUnpublishVolumeResponse:
        check_id(request.volume_id)
        await self.volumes.unpublish(self._checked_target(request.target_path))
        return csi.NodeUnpublishVolumeResponse()

    def _checked_target(self, target: str) -> str:
        checked = checked_target(target)
        check_below(checked, self.kubelet_dir)
        return checked

    async def stats(self, request: csi.NodeGetVolumeStatsRequest, _: KubeletCall) -> csi.NodeGetVolumeStatsResponse:
        """All of a bundle's bytes are used, and none are free."""
        check_id(request.volume_id)
        if not request.volume_path:
            raise invalid("the request has no volume path")
        found = await self.volumes.stats(request.volume_path.rstrip("/"))
        usage = csi.VolumeUsage
        return csi.NodeGetVolumeStatsResponse(
            usage=[
                usage(unit=usage.BYTES, total=found.size, used=found.size),
                usage(unit=usage.INODES, total=found.files, used=found.files),
            ],
            volume_condition=csi.VolumeCondition(abnormal=bool(found.wrong), message=found.wrong or "mounted"),
        )

    async def capabilities(
        self, request: csi.NodeGetCapabilitiesRequest, _: KubeletCall
    ) -> csi.NodeGetCapabilitiesResponse:
        kinds = (csi.NodeServiceCapability.RPC.GET_VOLUME_STATS, csi.NodeServiceCapability.RPC.VOLUME_CONDITION)
        rpc = csi.NodeServiceCapability.RPC
        named = [csi.NodeServiceCapability(rpc=rpc(type=kind)) for kind in kinds]
        return csi.NodeGetCapabilitiesResponse(capabilities=named)

    async def info(self, request: csi.NodeGetInfoRequest, _: KubeletCall) -> csi.NodeGetInfoResponse:
        return csi.NodeGetInfoResponse(node_id=self.node)


def handlers_of(identity: IdentityService, node: NodeService) -> list[Any]:
    """Returns the handlers of both services, for a server of gRPC."""
    return [
        _handler(
            "csi.v1.Identity",
            {
                "GetPluginInfo": (identity.info, csi.GetPluginInfoRequest),
                "GetPluginCapabilities": (identity.capabilities, csi.GetPluginCapabilitiesRequest),
                "Probe": (identity.probe, csi.ProbeRequest),
            },
        ),
        _handler(
            "csi.v1.Node",
            {
                "NodePublishVolume": (node.publish, csi.NodePublishVolumeRequest),
                "NodeUnpublishVolume": (node.unpublish, csi.NodeUnpublishVolumeRequest),
                "NodeGetVolumeStats": (node.stats, csi.NodeGetVolumeStatsRequest),
                "NodeGetCapabilities": (node.capabilities, csi.NodeGetCapabilitiesRequest),
                "NodeGetInfo": (node.info, csi.NodeGetInfoRequest),
            },
        ),
    ]


def _handler(service: str, calls: dict[str, tuple[Any, Any]]) -> Any:
    methods = {
        name: grpc.unary_unary_rpc_method_handler(
            refusing(call),
            request_deserializer=kind.FromString,
            response_serializer=lambda answer: answer.SerializeToString(),
        )
        for name, (call, kind) in calls.items()
    }
    return grpc.method_handlers_generic_handler(service, methods)
