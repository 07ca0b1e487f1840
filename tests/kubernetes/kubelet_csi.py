"""The calls that a kubelet makes of a CSI driver, over the driver's socket on the node's disk.

Always: a volume's id, its target and its context are those of the real kubelet.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from torrentdist.csi import csi_pb2 as csi

INFO = "csi.storage.k8s.io/"
CALL_SECS = 120.0
"""The kubelet's own limit."""


class DriverRefused(Exception):
    """What the driver says, or that it does not answer."""


@dataclass(frozen=True)
class PodVolume:
    """A CSI volume of a pod. `directory`: where the node has it, as the driver sees the path."""

    handle: str
    directory: str
    attributes: Mapping[str, str]
    ephemeral: bool

    @property
    def target(self) -> str:
        return f"{self.directory}/mount"


def inline_handle(uid: str, name: str) -> str:
    return f"csi-{hashlib.sha256(f'{uid}{name}'.encode()).hexdigest()}"


def ask(socket: Path, service: str, method: str, request: Any, answer: Any, seconds: float = CALL_SECS) -> Any:
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        call = channel.unary_unary(
            f"/csi.v1.{service}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        try:
            return call(request, timeout=seconds)
        except grpc.RpcError as exc:
            raise DriverRefused(f"rpc error: code = {exc.code().name} desc = {exc.details()}") from exc


def driver_of(socket: Path) -> tuple[str, str]:
    """Returns a driver's name, and what it calls this node."""
    name = ask(socket, "Identity", "GetPluginInfo", csi.GetPluginInfoRequest(), csi.GetPluginInfoResponse, 5.0).name
    node = ask(socket, "Node", "NodeGetInfo", csi.NodeGetInfoRequest(), csi.NodeGetInfoResponse, 5.0).node_id
    return name, node


@dataclass(frozen=True)
class Given:
    """What the kubelet gives a driver for a volume."""

    context: Mapping[str, str]
    secrets: Mapping[str, str]


def given_for(pod: Mapping[str, Any], volume: PodVolume, driver: Mapping[str, Any], tokens: Any) -> Given:
    """Returns what the author of a volume wrote, and what the CSIDriver object asks for."""
    context = dict(volume.attributes)
    meta = pod["metadata"]
    if driver["spec"].get("podInfoOnMount"):
        context |= {
            f"{INFO}pod.name": meta["name"],
            f"{INFO}pod.namespace": meta["namespace"],
            f"{INFO}pod.uid": meta["uid"],
            f"{INFO}serviceAccount.name": pod["spec"]["serviceAccountName"],
            f"{INFO}ephemeral": str(volume.ephemeral).lower(),
        }
    proofs = {f"{INFO}serviceAccount.tokens": json.dumps(tokens)} if tokens else {}
    if driver["spec"].get("serviceAccountTokenInSecrets"):
        return Given(context, proofs)
    return Given(context | proofs, {})


def publish(socket: Path, volume: PodVolume, given: Given, read_only: bool) -> None:
    mode = csi.VolumeCapability.AccessMode
    capability = csi.VolumeCapability(mount=csi.VolumeCapability.MountVolume())
    capability.access_mode.mode = mode.SINGLE_NODE_WRITER if volume.ephemeral else mode.MULTI_NODE_READER_ONLY
    request = csi.NodePublishVolumeRequest(
        volume_id=volume.handle,
        target_path=volume.target,
        volume_capability=capability,
        readonly=read_only,
        volume_context=dict(given.context),
        secrets=dict(given.secrets),
    )
    ask(socket, "Node", "NodePublishVolume", request, csi.NodePublishVolumeResponse)


def unpublish(socket: Path, handle: str, target: str) -> None:
    request = csi.NodeUnpublishVolumeRequest(volume_id=handle, target_path=target)
    ask(socket, "Node", "NodeUnpublishVolume", request, csi.NodeUnpublishVolumeResponse)
