"""Three nodes of a Kubernetes in a lab: each has a network, a disk, a kubelet's stand-in and the
real kube-proxy. The control plane and the operator are on the bridge.

Always: whatever runs ends with the lab.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from kubernetes.api_client import Resource
from kubernetes.cluster_names import ClusterNames
from kubernetes.control_plane import PODS, SERVER, ControlPlane
from kubernetes.node_places import KUBELET, NodeSettings
from kubernetes.pod_networks import join_nodes, reach_pods
from kubernetes.pod_volumes import unmount_all

from bench.lab.namespaces import ROOT, Host, Lab, wait_until

NODES = ("node-1", "node-2", "node-3")
READY_SECS = 90.0
ETC = ("passwd", "group", "nsswitch.conf", "ld.so.cache", "ssl", "java-17-openjdk", "localtime", "alternatives")
USERS = """torrentdist:x:10001:10001::/var/lib/torrentdist:/usr/sbin/nologin
user:x:20001:20001::/tmp:/bin/sh
spark:x:185:185::/tmp:/bin/sh
"""
GROUPS = "torrentdist:x:10001:\ntorrentdist-readers:x:10002:torrentdist\n"
SUPERVISOR = "/var/lib/torrentdist/supervisor"


class KubernetesLab(Lab):
    def entering(self, host: Host) -> list[str]:
        """Returns the command that runs another one on a host, in the mount namespace of the lab:
        what a driver mounts has to reach the pods."""
        return ["nsenter", f"--net=/run/netns/{host.name}"]

    def stop_all(self) -> None:
        self.stop(list(self._processes))


class LabNodes:
    def __init__(self, lab: KubernetesLab, plane: ControlPlane, namespaces: Sequence[str]) -> None:
        self.lab = lab
        self._plane = plane
        self._names = lab.dir / "names"
        self._etc = lab.dir / "etc"
        self.hosts = {host.name: host for host in lab.add(NODES)}
        numbers = {name: (number, host.address) for number, (name, host) in enumerate(self.hosts.items(), 1)}
        join_nodes(numbers)
        self._prepare_files()
        self.settings = {name: self._settings(name, number) for name, (number, _) in numbers.items()}
        self.dns = ClusterNames(plane.api, self._names, namespaces)

    def _prepare_files(self) -> None:
        self._names.mkdir()
        self._etc.mkdir()
        for name in ETC:
            if (source := Path("/etc", name)).exists():
                subprocess.run(["cp", "-a", str(source), str(self._etc)], check=True)
        for name, lines in {"passwd": USERS, "group": GROUPS}.items():
            with (self._etc / name).open("a") as file:
                file.write(lines)
        (self._etc / "hosts").touch()

    def _settings(self, name: str, number: int) -> NodeSettings:
        disk = self.lab.dir / "disks" / name
        identity = self._plane.keys.issue(f"system:node:{name}", ["system:nodes"], [self.hosts[name].address])
        places = [f"{KUBELET}/{part}" for part in ("pods", "plugins", "plugins_registry")]
        for place in [*places, SUPERVISOR]:
            Path(f"{disk}{place}").mkdir(parents=True)
        shutil.chown(f"{disk}{SUPERVISOR}", 10001, 10001)
        kubelet = f"{disk}{KUBELET}"
        subprocess.run(["mount", "--bind", kubelet, kubelet], check=True)
        subprocess.run(["mount", "--make-shared", kubelet], check=True)
        made = NodeSettings(
            name=name,
            number=number,
            address=self.hosts[name].address,
            disk=str(disk),
            names=str(self._names),
            etc=str(self._etc),
            server=SERVER,
            certificate=str(identity.certificate),
            key=str(identity.key),
            ca=str(identity.ca),
        )
        made.save(self.lab.dir / f"{name}.json")
        return made

    def start(self) -> None:
        """Starts all nodes, and returns when they are ready."""
        self.dns.look()
        self.dns.start()
        for name in NODES:
            self.boot(name)
        wait_until(lambda: self.ready() == set(NODES), "nodes", READY_SECS)

    def boot(self, name: str) -> None:
        host = self.hosts[name]
        kubelet = [sys.executable, "-m", "kubernetes.kubelet", str(self.lab.dir / f"{name}.json")]
        self.lab.spawn(host, ["env", f"PYTHONPATH={ROOT / 'tests'}", *kubelet], name=f"kubelet-{name}")
        config = self._plane.keys.kubeconfig("system:kube-proxy")
        options = [f"--kubeconfig={config}", f"--hostname-override={name}", f"--cluster-cidr={PODS}"]
        options += ["--proxy-mode=iptables", "--conntrack-max-per-core=0"]
        options += ["--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0"]
        options += ["--healthz-bind-address=127.0.0.1:10256", "--metrics-bind-address=127.0.0.1:10249"]
        self.lab.spawn(host, [self._plane.program("kube-proxy"), *options], name=f"proxy-{name}")

    def add_outsider(self, name: str) -> Host:
        """Adds a host that is no node, and reaches pods."""
        (host,) = self.lab.add([name])
        reach_pods(name, {node: (settings.number, settings.address) for node, settings in self.settings.items()})
        return host

    def crash(self, name: str) -> None:
        """Ends a node at once, with everything that runs on it. Its disk stays."""
        for process in (f"kubelet-{name}", f"proxy-{name}"):
            self.lab.kill(process)
        self.lab.cut(self.hosts[name])
        unmount_all(Path(f"{self.settings[name].disk}{KUBELET}"))

    def ready(self) -> set[str]:
        return {node["metadata"]["name"] for node in self._plane.api.items("/api/v1/nodes") if is_ready(node)}


def is_ready(thing: Resource) -> bool:
    """Whether a node, or a pod, says that it is ready."""
    conditions = thing.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
