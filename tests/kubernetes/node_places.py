"""Where a node of the lab has its files, and what its kubelet is told at its start."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

KUBELET = "/var/lib/kubelet"
"""The kubelet's directory, as pods and drivers name it."""


@dataclass(frozen=True)
class NodeSettings:
    name: str
    """The name of the node, and of its network namespace."""
    number: int
    address: str
    disk: str
    """The directory in which the node's paths begin."""
    names: str
    """A directory with a file of names and addresses for each namespace."""
    etc: str
    """What each container has in /etc."""
    server: str
    certificate: str
    key: str
    ca: str

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> NodeSettings:
        return cls(**json.loads(path.read_text()))

    def on_disk(self, path: str) -> Path:
        """Returns where the lab finds a path of the node."""
        return Path(f"{self.disk}{path}")

    def pod(self, uid: str) -> str:
        return f"{KUBELET}/pods/{uid}"

    def volume(self, uid: str, kind: str, name: str) -> str:
        return f"{self.pod(uid)}/volumes/kubernetes.io~{kind}/{name}"

    def log(self, namespace: str, pod: str, container: str) -> Path:
        return self.on_disk(f"/var/log/pods/{namespace}_{pod}/{container}.log")

    def names_of(self, namespace: str) -> Path:
        """Returns the names that pods of a namespace know. The file is there from then on."""
        path = Path(self.names, namespace)
        if not path.exists():
            path.write_text("127.0.0.1 localhost\n")
        return path
