"""A stand-in for the kubelet: `python -m kubernetes.kubelet SETTINGS.json`, in the network of its
node.

It registers the node, runs the pods that are bound to it, finds CSI drivers by their sockets, and
renews the node's lease and hands out logs. Beyond that it has nothing of a kubelet: no images, no
limits and no exec over the API.

Always: it has no rights but those of its node's certificate.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

from kubernetes.api_client import ApiError, KubernetesApi, Resource, namespaced
from kubernetes.cluster_keys import Identity
from kubernetes.kubelet_csi import DriverRefused, driver_of
from kubernetes.kubelet_logs import PORT, LogServer
from kubernetes.node_places import KUBELET, NodeSettings
from kubernetes.pod_networks import PodNetworks
from kubernetes.pod_status import moment
from kubernetes.pod_worker import PodWorker

LEASE_SECS = 4.0
DRIVERS_SECS = 1.0
AGAIN_SECS = 1.0
NODES = "/api/v1/nodes"
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"
LEASES = "kube-node-lease"
ROOM = {"cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "200Gi"}


class Kubelet:
    def __init__(self, node: NodeSettings) -> None:
        self._node = node
        identity = Identity(Path(node.certificate), Path(node.key), Path(node.ca))
        self._api = KubernetesApi.of(node.server, identity)
        self._networks = PodNetworks(node.name, node.number)
        self._workers: dict[str, PodWorker] = {}
        self._drivers: dict[str, Path] = {}

    def run(self) -> None:
        self._register()
        threading.Thread(target=LogServer(self._node).serve_forever, daemon=True).start()
        for act, seconds in ((self._renew, LEASE_SECS), (self._find_drivers, DRIVERS_SECS)):
            threading.Thread(target=_again, args=(act, seconds), daemon=True).start()
        _again(self._follow_pods, AGAIN_SECS)

    def _register(self) -> None:
        name = self._node.name
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
        body = {"metadata": {"name": name, "labels": labels}, "status": self._status()}
        self._made(NODES, {"apiVersion": "v1", "kind": "Node", **body})
        owner = {
            "apiVersion": "v1",
            "kind": "Node",
            "name": name,
            "uid": self._api.get(f"{NODES}/{name}")["metadata"]["uid"],
        }
        meta = {"name": name, "ownerReferences": [owner]}
        self._made(
            CSI_NODES, {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": meta, "spec": {"drivers": []}}
        )
        lease = {"metadata": {"name": name, "namespace": LEASES}, "spec": self._lease()}
        path = namespaced(LEASES, "leases", group="coordination.k8s.io/v1")
        self._made(path, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **lease})

    def _made(self, path: str, body: Resource) -> None:
        try:
            self._api.create(path, body)
        except ApiError as exc:
            if exc.code != 409:
                raise

    def _status(self) -> dict[str, Any]:
        kinds = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
        return {
            "addresses": [
                {"type": "InternalIP", "address": self._node.address},
                {"type": "Hostname", "address": self._node.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": PORT}},
            "capacity": ROOM,
            "allocatable": ROOM,
            "conditions": [
                {"type": kind, "status": value, "reason": "Lab", "message": "", "lastHeartbeatTime": moment()}
                for kind, value in kinds.items()
            ],
            "nodeInfo": {
                **dict.fromkeys(INFO, ""),
                "kubeletVersion": "v1.36.3",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        }

    def _lease(self) -> dict[str, Any]:
        now = moment().replace("Z", ".000000Z")
        return {"holderIdentity": self._node.name, "leaseDurationSeconds": 40, "renewTime": now}

    def _renew(self) -> None:
        name = self._node.name
        self._api.patch(namespaced(LEASES, "leases", name, "coordination.k8s.io/v1"), {"spec": self._lease()})
        self._api.patch(f"{NODES}/{name}/status", {"status": self._status()})

    def _find_drivers(self) -> None:
        found = {}
        for socket in self._node.on_disk(f"{KUBELET}/plugins").glob("*/csi.sock"):
            try:
                name, node = driver_of(socket)
            except DriverRefused:
                continue
            found[name] = (socket, node)
        if {name: socket for name, (socket, _) in found.items()} == self._drivers:
            return
        drivers = [{"name": name, "nodeID": node, "topologyKeys": []} for name, (_, node) in sorted(found.items())]
        self._api.patch(f"{CSI_NODES}/{self._node.name}", {"spec": {"drivers": drivers}})
        self._drivers = {name: socket for name, (socket, _) in found.items()}

    def _follow_pods(self) -> None:
        mine = {"fieldSelector": f"spec.nodeName={self._node.name}"}
        listed = self._api.get("/api/v1/pods", **mine)
        for pod in listed["items"]:
            self._take(pod)
        present = {pod["metadata"]["uid"] for pod in listed["items"]}
        for gone in set(self._workers) - present:
            self._forget(gone)
        for change in self._api.watch("/api/v1/pods", listed["metadata"]["resourceVersion"], **mine):
            if change["type"] == "ERROR":
                return
            if change["type"] == "DELETED":
                self._forget(change["object"]["metadata"]["uid"])
            else:
                self._take(change["object"])

    def _take(self, pod: Resource) -> None:
        uid = pod["metadata"]["uid"]
        if (worker := self._workers.get(uid)) is not None:
            worker.pod = pod
            return
        if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return
        self._workers[uid] = PodWorker(self._node, self._api, self._networks, pod, self._driver)
        self._workers[uid].start()

    def _driver(self, name: str) -> Path | None:
        return self._drivers.get(name)

    def _forget(self, uid: str) -> None:
        """Ends a pod that the API server has no more, such as one that was deleted by force."""
        if worker := self._workers.pop(uid, None):
            meta = {**worker.pod["metadata"], "deletionTimestamp": moment(), "deletionGracePeriodSeconds": 0}
            worker.pod = {**worker.pod, "metadata": meta}


INFO = (
    "machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeProxyVersion",
)  # fmt: skip


def _again(act: Callable[[], None], seconds: float) -> None:
    while True:
        try:
            act()
        except (ApiError, OSError, HTTPException, ValueError) as exc:
            print(f"{act.__name__}: {exc}", flush=True)
        time.sleep(seconds)


if __name__ == "__main__":
    Kubelet(NodeSettings.load(Path(sys.argv[1]))).run()
