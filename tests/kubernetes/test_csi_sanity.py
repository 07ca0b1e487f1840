"""The real csi-sanity of the Kubernetes CSI project against the driver.

`scripts/csi-sanity` builds it and prints its path, and `make kubernetes` sets CSI_SANITY to that.
"""

from __future__ import annotations

import itertools
import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest
from cluster_fixtures import NewCluster, make_source
from kubernetes.csi_node import csi_node

SANITY = os.environ.get("CSI_SANITY", "")
RUN_SECS = 120.0


SKIPPED = "Controller Server"
"""The specifications of a service that this driver does not have."""
POD = {"pod.name": "p1", "pod.namespace": "team-a", "pod.uid": "u1", "serviceAccount.name": "default"}
CONTEXT = {"bundle": "env-43"} | {f"csi.storage.k8s.io/{key}": value for key, value in POD.items()}


def field(number: int, value: bytes | str | int) -> bytes:
    """Encodes a field of a message, whose length is below 128."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    content = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 | 2, *varint(len(content))]) + content


def varint(number: int) -> list[int]:
    return [number] if number < 128 else [number & 127 | 128, *varint(number >> 7)]


class PersonWithVolumes:
    """The person who writes persistent volumes, as a Controller service: csi-sanity asks one for
    its volumes. Each has the attributes that the kubelet passes on. Questions about the plug-in go
    on to the driver."""

    def __init__(self, driver: Path) -> None:
        self._numbers = itertools.count()
        self._server = grpc.server(ThreadPoolExecutor(2))
        calls = {
            # CREATE_DELETE_VOLUME
            "ControllerGetCapabilities": lambda: field(1, field(1, field(1, 1))),
            "CreateVolume": lambda: field(1, self._volume()),
            "DeleteVolume": lambda: b"",
        }
        methods = {name: grpc.unary_unary_rpc_method_handler(lambda _, __, c=call: c()) for name, call in calls.items()}
        self._driver = grpc.insecure_channel(f"unix:{driver}")
        asked = {name: self._passed_on(name) for name in ("GetPluginInfo", "GetPluginCapabilities", "Probe")}
        services = {"csi.v1.Controller": methods, "csi.v1.Identity": asked}
        handlers = [grpc.method_handlers_generic_handler(name, calls) for name, calls in services.items()]
        self._server.add_generic_rpc_handlers(tuple(handlers))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def _passed_on(self, name: str) -> Any:
        call = self._driver.unary_unary(f"/csi.v1.Identity/{name}")
        return grpc.unary_unary_rpc_method_handler(lambda request, _: call(request, timeout=10.0))

    def _volume(self) -> bytes:
        context = [field(3, field(1, key) + field(2, value)) for key, value in CONTEXT.items()]
        return field(1, 1) + field(2, f"volume-{next(self._numbers)}") + b"".join(context)

    def close(self) -> None:
        self._server.stop(0).wait()
        self._driver.close()


@pytest.mark.skipif(not SANITY or os.geteuid() != 0, reason="CSI_SANITY names no csi-sanity, or nobody may mount")
def test_csi_sanity_finds_nothing(new_cluster: NewCluster, tmp_path: Path) -> None:
    """If this fails, the driver breaks a rule of CSI that kubelets rely on."""
    cluster = new_cluster(masters=1, supervisors=1)
    cluster.upload(make_source(tmp_path / "env", 43), "env-43", replicas=1)
    host = cluster.supervisors()[0]
    settings: dict[str, dict[str, object]] = {
        "client": {"supervisor": str(cluster.dev.member(host).gateway)},
        "supervisor": {"id": "node-1", "data_dir": str(cluster.store(host))},
        "kubernetes": {"namespaces": {"*": "*"}},
    }
    with csi_node(tmp_path, settings) as node, closing(PersonWithVolumes(node.socket)) as person:
        mounts = node.kubelet / "sanity"
        options = [f"-csi.endpoint=unix://{node.socket}", f"-csi.mountdir={mounts}/target"]
        options += [f"-csi.stagingdir={mounts}/staging", f"-csi.controllerendpoint={person.address}"]
        options += ["-ginkgo.no-color", f"-ginkgo.skip={SKIPPED}"]
        mounts.mkdir()
        ran = node.inside(SANITY, *options, seconds=RUN_SECS)
        left = node.mounts()
    said = ran.stdout.decode(errors="replace")
    found = re.search(r"(\d+) Passed \| (\d+) Failed \| \d+ Pending \| (\d+) Skipped", said)

    assert found is not None, said[-3000:]
    assert (0, "0") == (ran.returncode, found[2]), said[-5000:]
    assert ("15", []) == (found[1], left), said[-3000:]
