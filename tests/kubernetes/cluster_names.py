"""The names of the cluster's DNS, stood in for by files: one for each namespace, which its pods
have as /etc/hosts, and which follows Services and their endpoints.

Always: a name leads where the cluster's DNS would lead it, a second later at most.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from kubernetes.api_client import ApiError, KubernetesApi, Resource

LOOK_SECS = 1.0
DOMAIN = "svc.cluster.local"


class ClusterNames(threading.Thread):
    def __init__(self, api: KubernetesApi, directory: Path, namespaces: Sequence[str]) -> None:
        super().__init__(name="names", daemon=True)
        self._api = api
        self._dir = directory
        self._namespaces = namespaces
        self._ends = threading.Event()

    def run(self) -> None:
        while not self._ends.is_set():
            with contextlib.suppress(ApiError, OSError):
                self.look()
            time.sleep(LOOK_SECS)

    def stop(self) -> None:
        self._ends.set()

    def look(self) -> None:
        services = self._api.items("/api/v1/services")
        slices = self._api.items("/apis/discovery.k8s.io/v1/endpointslices")
        found = sorted(set(records(services, slices)))
        for namespace in self._namespaces:
            write_in_place(self._dir / namespace, hosts_file(found, namespace))


class PodNames:
    """The /etc/hosts of one pod: what its namespace knows, and its own name."""

    def __init__(self, known: Path, path: Path) -> None:
        self._known = known
        self._own = ""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def follow(self, address: str, name: str) -> None:
        """Sets the pod's own address and name."""
        self._own = f"{address} {name}\n"
        self.look()

    def look(self) -> None:
        write_in_place(self.path, self._known.read_text() + self._own)


def records(services: Sequence[Resource], slices: Sequence[Resource]) -> Iterator[tuple[str, str, str]]:
    """Yields addresses with the name and the namespace that they answer to."""
    for service in services:
        meta, address = service["metadata"], service["spec"].get("clusterIP", "")
        if address not in ("", "None"):
            yield address, meta["name"], meta["namespace"]
    headless = {
        (service["metadata"]["namespace"], service["metadata"]["name"])
        for service in services
        if service["spec"].get("clusterIP") == "None"
    }
    for piece in slices:
        space = piece["metadata"]["namespace"]
        name = piece["metadata"].get("labels", {}).get("kubernetes.io/service-name", "")
        if (space, name) in headless:
            for endpoint in piece.get("endpoints") or []:
                if endpoint.get("conditions", {}).get("ready", True):
                    for address in endpoint["addresses"]:
                        yield address, name, space
                        if host := endpoint.get("hostname"):
                            yield address, f"{host}.{name}", space


def hosts_file(found: Sequence[tuple[str, str, str]], namespace: str) -> str:
    lines = ["127.0.0.1 localhost"]
    for address, name, space in found:
        long = [f"{name}.{space}.{DOMAIN}", f"{name}.{space}.svc", f"{name}.{space}"]
        lines.append(" ".join([address, *long, *([name] if space == namespace else [])]))
    return "\n".join(lines) + "\n"


def write_in_place(path: Path, text: str) -> None:
    """Writes a file that is mounted in containers, where a new file would not be seen."""
    if not path.exists() or path.read_text() != text:
        with path.open("r+b" if path.exists() else "wb") as file:
            file.write(text.encode())
            file.truncate()
