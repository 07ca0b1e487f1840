"""A node for tests of the CSI driver: a mount namespace of its own with a kubelet's directory, in
which the real driver runs, and a caller that asks it as a kubelet does.

Always: whatever is mounted ends with the namespace. Needs root.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from cluster_fixtures import until

from torrentdist.csi import csi_pb2 as csi

CALL_SECS = 30.0
START_SECS = 90.0
"""A bound for a busy machine; a driver starts within two seconds."""
INFO = "csi.storage.k8s.io/"


class CallFailed(Exception):
    def __init__(self, code: str, details: str) -> None:
        super().__init__(f"{code}: {details}")
        self.code = code
        self.details = details


@dataclass
class CsiNode:
    """`settings` are sections of the driver's configuration."""

    work: Path
    settings: Mapping[str, Mapping[str, object]]
    _namespace: subprocess.Popen[bytes] | None = None
    _driver: subprocess.Popen[bytes] | None = None
    _channel: Any = field(default=None, repr=False)

    @property
    def kubelet(self) -> Path:
        """The kubelet's directory of pods."""
        return self.work / "kubelet"

    @property
    def socket(self) -> Path:
        return self.work / "csi.sock"

    def boot(self) -> None:
        """Begins a mount namespace, in which nothing is mounted below the kubelet's directory."""
        self.kubelet.mkdir(parents=True, exist_ok=True)
        ready = self.work / "booted"
        ready.unlink(missing_ok=True)
        script = f'mount --bind "{self.kubelet}" "{self.kubelet}" && mount --make-shared "{self.kubelet}"'
        shell = f'{script} && touch "{ready}" && exec sleep 3600'
        self._namespace = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh", "-ec", shell])
        until(ready.exists, "the node's namespace")

    def start(self) -> None:
        """Starts the driver, and returns when it answers."""
        assert self._namespace is not None
        config = self.work / "csi.toml"
        sections = {name: dict(values) for name, values in self.settings.items()}
        sections["kubernetes"] = {"kubelet_dir": str(self.kubelet), **sections.get("kubernetes", {})}
        config.write_text("".join(f"[{name}]\n{_toml(values)}" for name, values in sections.items()))
        env = {key: value for key, value in os.environ.items() if not key.startswith("TORRENTDIST_")}
        command = ["nsenter", f"--target={self._namespace.pid}", "--mount", f"--wd={self.work}"]
        command += [sys.executable, "-m", "torrentdist_cli", "--config", str(config), "csi", "--endpoint"]
        with (self.work / "csi.log").open("ab") as log:
            self._driver = subprocess.Popen([*command, f"unix://{self.socket}"], env=env, stderr=log)
        self._channel = grpc.insecure_channel(f"unix:{self.socket}")
        until(self.is_up, "the driver answers", START_SECS)

    def is_up(self) -> bool:
        try:
            self.call("Identity", "GetPluginInfo", csi.GetPluginInfoRequest(), csi.GetPluginInfoResponse, 2.0)
        except CallFailed:
            assert self._driver is not None
            assert self._driver.poll() is None, (self.work / "csi.log").read_text()[-2000:]
            return False
        return True

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Ends the driver. What it has mounted stays."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._driver is not None:
            self._driver.send_signal(how)
            self._driver.wait(20.0)
            self._driver = None

    def shut_down(self) -> None:
        """Ends the driver and the namespace, as a reboot does."""
        self.end()
        if self._namespace is not None:
            self._namespace.kill()
            self._namespace.wait(10.0)
            self._namespace = None

    # calls of the kubelet

    def call(self, service: str, method: str, request: Any, answer: Any, timeout: float = CALL_SECS) -> Any:
        call = self._channel.unary_unary(
            f"/csi.v1.{service}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        try:
            return call(request, timeout=timeout)
        except grpc.RpcError as exc:
            raise CallFailed(exc.code().name, exc.details()) from exc

    def target(self, pod: str) -> Path:
        return self.kubelet / pod / "volumes" / "kubernetes.io~csi" / "env" / "mount"

    def publish(
        self,
        pod: str,
        attributes: Mapping[str, str],
        *,
        namespace: str = "team-a",
        timeout: float = CALL_SECS,
        **changes: Any,
    ) -> None:
        """Mounts a volume for a pod, as an inline one. `changes`: fields of the request."""
        target = self.target(pod)
        target.parent.mkdir(parents=True, exist_ok=True)
        info = {"pod.name": pod, "pod.namespace": namespace, "pod.uid": f"uid-{pod}", "serviceAccount.name": "default"}
        context = {f"{INFO}{key}": value for key, value in info.items()} | {f"{INFO}ephemeral": "true"}
        capability = csi.VolumeCapability(mount=csi.VolumeCapability.MountVolume())
        given: dict[str, Any] = {
            "volume_id": f"csi-{pod}",
            "target_path": str(target),
            "volume_capability": capability,
            "readonly": True,
            "volume_context": context | dict(attributes),
        }
        request = csi.NodePublishVolumeRequest(**(given | changes))
        self.call("Node", "NodePublishVolume", request, csi.NodePublishVolumeResponse, timeout)

    def unpublish(self, pod: str) -> None:
        request = csi.NodeUnpublishVolumeRequest(volume_id=f"csi-{pod}", target_path=str(self.target(pod)))
        self.call("Node", "NodeUnpublishVolume", request, csi.NodeUnpublishVolumeResponse)

    def stats(self, pod: str) -> Any:
        request = csi.NodeGetVolumeStatsRequest(volume_id=f"csi-{pod}", volume_path=str(self.target(pod)))
        return self.call("Node", "NodeGetVolumeStats", request, csi.NodeGetVolumeStatsResponse)

    # what pods see

    def seen(self, path: Path) -> Path:
        """Returns where this process finds a path of the node's namespace."""
        assert self._namespace is not None
        return Path(f"/proc/{self._namespace.pid}/root{path}")

    def mounts(self) -> list[str]:
        """Returns the mount points below the kubelet's directory, one for each mount."""
        assert self._namespace is not None
        lines = Path(f"/proc/{self._namespace.pid}/mountinfo").read_text().splitlines()
        return sorted(place for line in lines if (place := line.split()[4]).startswith(f"{self.kubelet}/"))

    def inside(self, *command: str, seconds: float = 20.0) -> subprocess.CompletedProcess[bytes]:
        """Runs a command in the node's namespace."""
        assert self._namespace is not None
        entered = ["nsenter", f"--target={self._namespace.pid}", "--mount", *command]
        return subprocess.run(entered, capture_output=True, timeout=seconds)


def _toml(values: Mapping[str, object]) -> str:
    return "".join(f"{key} = {_value(value)}\n" for key, value in values.items())


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_value(inner)}" for key, inner in value.items()) + " }"
    return json.dumps(value)


@contextmanager
def csi_node(work: Path, settings: Mapping[str, Mapping[str, object]]) -> Iterator[CsiNode]:
    node = CsiNode(work, settings)
    try:
        node.boot()
        node.start()
        yield node
    finally:
        node.shut_down()


def refused(call: Callable[[], object]) -> tuple[str, str]:
    """Returns the status and the sentence with which a call is refused."""
    try:
        call()
    except CallFailed as failed:
        return failed.code, failed.details
    raise AssertionError("the call succeeded")
