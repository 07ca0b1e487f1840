"""A Kubernetes with torrentdist on it, installed by the commands of docs/kubernetes.md.

Always: what the page says is what runs, in the page's order. Stood in for are the volumes that a
cluster would provide, `kubectl exec`, and what the monitoring operator defines.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubernetes import policy_enforcement
from kubernetes.api_client import ApiError, namespaced
from kubernetes.control_plane import ControlPlane
from kubernetes.foreign_kinds import DEFINITIONS, monitors_definition, rules_definition
from kubernetes.lab_nodes import NODES, KubernetesLab, LabNodes

from bench.lab.namespaces import BRIDGE, ROOT, wait_until
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper

PAGE = ROOT / "docs/kubernetes.md"
SPACE = "torrentdist"
TEAM = "team-a"
"""The namespace of the page's users. It may have bundles called env-*."""
OTHER_TEAM = "team-b"
STEP_SECS = 400.0
SETTLES_SECS = 120.0
LEVEL = "pod-security.kubernetes.io/enforce"
SECTIONS = (
    "# Kubernetes",
    "## The masters' secrets",
    "## Start the masters",
    "## The nodes join by invitation",
    "## Bundles as volumes",
)
COMMANDS = ("kubectl", "torrentdist", "namespace=", "release=", "set ", "mkdir", "for ", "python3", "sed ", "tar ")
"""How a block of the page begins that a shell runs."""


def blocks(page: str, heading: str) -> list[str]:
    """Returns the indented blocks of a section of a page, up to the next heading."""
    text = f"\n{page}".partition(f"\n{heading}\n")[2]
    assert text, f"the page has no section {heading}"
    found: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.startswith("#"):
            break
        if line.startswith("    ") or (not line and found[-1]):
            found[-1].append(line[4:])
        elif found[-1]:
            found.append([])
    return ["\n".join(lines).strip() + "\n" for lines in found if lines]


def commands(page: str, heading: str) -> str:
    """Returns what a shell runs of a section."""
    return "".join(block for block in blocks(page, heading) if block.startswith(COMMANDS))


class KubernetesSite:
    def __init__(self, directory: Path) -> None:
        self.lab = KubernetesLab(directory)
        self.plane = ControlPlane(self.lab)
        self.nodes = LabNodes(self.lab, self.plane, [SPACE, TEAM, OTHER_TEAM, "default"])
        self.home = directory / "operator"
        self.said: dict[str, str] = {}
        """What the commands of each section of the page have printed."""
        self._zookeeper = EmbeddedZooKeeper(directory / "zookeeper", config=["clientPortAddress=0.0.0.0"])

    def up(self) -> None:
        """Starts the cluster, and installs torrentdist as the page says."""
        self._zookeeper.start(SETTLES_SECS)
        self.plane.start()
        self.nodes.start()
        if not policy_enforcement.why_not():
            policy_enforcement.enforce(self.nodes, self.plane.api, self.plane.program(policy_enforcement.PROGRAM))
        self._prepare_operator()
        self.plane.kubectl("create", "namespace", OTHER_TEAM)
        self.plane.kubectl("label", "namespace", OTHER_TEAM, f"{LEVEL}=restricted")
        wait_until(self._has_account, "an account", SETTLES_SECS)
        self._provide_volumes()
        for definition in (monitors_definition(), rules_definition()):
            self.plane.api.create(DEFINITIONS, definition)

    def _has_account(self) -> bool:
        return bool(self.plane.api.items(namespaced(OTHER_TEAM, "serviceaccounts")))

    def install(self) -> None:
        for heading in SECTIONS:
            self.said[heading] = self.shell(commands(PAGE.read_text(), heading))
        wait_until(lambda: self.drivers() == set(NODES), "the driver on each node", SETTLES_SECS)

    def drivers(self) -> set[str]:
        """Returns the nodes that have a CSI driver."""
        nodes = self.plane.api.items("/apis/storage.k8s.io/v1/csinodes")
        return {node["metadata"]["name"] for node in nodes if node["spec"].get("drivers")}

    @property
    def zookeeper(self) -> str:
        """Returns the server of ZooKeeper, HOST:PORT."""
        return f"{BRIDGE}:{self._zookeeper.servers[0].port}"

    def _prepare_operator(self) -> None:
        """Gives the operator the files of the page, with the servers of ZooKeeper filled in, and
        programs of these names."""
        self.home.mkdir(exist_ok=True)
        subprocess.run(["cp", "-r", str(ROOT / "deploy"), str(ROOT / "examples"), str(self.home)], check=True)
        for name in ("masters", "supervisors"):
            path = self.home / f"deploy/kubernetes/{name}.yaml"
            three = '["zookeeper-0.zookeeper:2181","zookeeper-1.zookeeper:2181","zookeeper-2.zookeeper:2181"]'
            text = path.read_text()
            assert three in text
            path.write_text(text.replace(three, json.dumps([self.zookeeper])))
        real = self.plane.program("kubectl")
        programs = self.home / "bin"
        programs.mkdir()
        stand_in = f'{sys.executable} -m kubernetes.pod_exec {self.lab.dir}/disks {real} "$@"'
        script = f'#!/bin/sh\nfor word in "$@"; do [ "$word" != exec ] || exec {stand_in}; done\nexec {real} "$@"\n'
        (programs / "kubectl").write_text(script)
        (programs / "kubectl").chmod(0o755)
        subprocess.run(
            ["mount", "--bind", str(self.nodes.settings[NODES[0]].names_of(SPACE)), "/etc/hosts"], check=True
        )

    def _provide_volumes(self) -> None:
        """Makes the volumes that the storage of a cluster would make for the claims."""
        for node in NODES:
            self._provide(f"master-{node}", "200Gi", node)
        self._provide("backup", "5Gi", NODES[0])

    def _provide(self, name: str, size: str, node: str) -> None:
        matching = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        spec: dict[str, Any] = {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "local": {"path": f"/var/lib/volumes/{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [matching]}]}},
        }
        body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
        self.plane.api.create("/api/v1/persistentvolumes", body)

    def environment(self) -> dict[str, str]:
        path = f"{self.home}/bin:{sys.prefix}/bin:{os.environ['PATH']}"
        found = {"PATH": path, "HOME": str(self.home), "KUBECONFIG": str(self.plane.kubeconfig)}
        return {**found, "PYTHONPATH": f"{ROOT}/tests:{ROOT}"}

    def shell(self, script: str, seconds: float = STEP_SECS) -> str:
        """Runs commands as the operator, and returns what they print."""
        ended = subprocess.run(
            ["sh", "-euxc", script],
            capture_output=True,
            text=True,
            cwd=self.home,
            env=self.environment(),
            timeout=seconds,
        )
        if ended.returncode:
            raise RuntimeError(f"{ended.stdout}{ended.stderr[-4000:]}")
        return ended.stdout

    def down(self) -> None:
        self.nodes.dns.stop()
        self.lab.stop_all()
        self._zookeeper.kill()

    # pods

    def create(self, pod: Mapping[str, Any]) -> None:
        self.plane.api.create(namespaced(pod["metadata"]["namespace"], "pods"), pod)

    def pod(self, name: str, namespace: str = TEAM) -> dict[str, Any]:
        return self.plane.api.get(namespaced(namespace, "pods", name))

    def ended(self, name: str, namespace: str = TEAM, seconds: float = SETTLES_SECS) -> str:
        """Waits for a pod's end, and returns its phase."""
        wait_until(lambda: self.pod(name, namespace)["status"].get("phase") in ("Succeeded", "Failed"), name, seconds)
        return str(self.pod(name, namespace)["status"]["phase"])

    def delete(self, name: str, namespace: str = TEAM) -> None:
        """Deletes a pod, and returns when it is gone."""
        self.plane.api.delete(namespaced(namespace, "pods", name))
        wait_until(lambda: self._is_gone(name, namespace), f"the end of {name}", SETTLES_SECS)

    def _is_gone(self, name: str, namespace: str) -> bool:
        try:
            self.pod(name, namespace)
        except ApiError as exc:
            return exc.code == 404
        return False

    def output(self, name: str, namespace: str = TEAM, container: str = "main") -> str:
        """Returns what a container has printed."""
        node = self.pod(name, namespace)["spec"]["nodeName"]
        return self.nodes.settings[node].log(namespace, name, container).read_text(errors="replace")

    def events(self, name: str, namespace: str = TEAM) -> list[str]:
        about = {"fieldSelector": f"involvedObject.name={name}"}
        return [event["message"] for event in self.plane.api.items(namespaced(namespace, "events"), **about)]
