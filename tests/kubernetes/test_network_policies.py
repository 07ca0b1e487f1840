"""The NetworkPolicies of the manifests, enforced by the real kube-network-policies."""

from __future__ import annotations

import json
import os
import shlex
import socket
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from kubernetes import policy_enforcement
from kubernetes.control_plane import PORT
from kubernetes.kubernetes_site import SPACE, TEAM, KubernetesSite
from kubernetes.lab_nodes import NODES
from kubernetes.ring import INSIDE_LAB
from kubernetes.user_pods import reading_pod

from bench.lab.namespaces import BRIDGE, wait_until, within

pytestmark = [
    pytest.mark.skipif(INSIDE_LAB not in os.environ, reason="the nodes are in a lab: make kubernetes-nodes"),
    pytest.mark.skipif(bool(policy_enforcement.why_not()), reason="this kernel hands no packets to a program"),
]

OTHER_PORT = 9999
"""A port that no policy opens."""
LISTEN = ["python3", "-c", f"import socket, time; one = socket.create_server(('', {OTHER_PORT})); time.sleep(600)"]
DIAL = """
import json, socket, sys
def answers(host, port):
    try:
        socket.create_connection((host, int(port)), 6).close()
        return True
    except TimeoutError:
        return False
print(json.dumps({name: answers(*at.split(":")) for name, at in json.loads(sys.argv[1]).items()}))
"""
BACKUP = {"app.kubernetes.io/name": "torrentdist", "app.kubernetes.io/component": "backup"}


def bare_pod(name: str, namespace: str, command: list[str], labels: Mapping[str, str], node: str) -> dict[str, Any]:
    """Returns a pod without a bundle."""
    pod = reading_pod(name, namespace=namespace, node=node)
    pod["metadata"]["labels"] = dict(labels)
    del pod["spec"]["volumes"], pod["spec"]["containers"][0]["volumeMounts"]
    pod["spec"]["containers"][0]["command"] = command
    return pod


def answering(
    site: KubernetesSite, namespace: str, targets: Mapping[str, str], labels: Mapping[str, str] = MappingProxyType({})
) -> set[str]:
    """Returns the targets, HOST:PORT by name, that a pod reaches. Others give no sign at all."""
    command = ["python3", "-c", DIAL, json.dumps(dict(targets))]
    site.create(bare_pod("dials", namespace, command, labels, NODES[0]))
    assert "Succeeded" == site.ended("dials", namespace), site.output("dials", namespace)
    found = json.loads(site.output("dials", namespace).splitlines()[-1])
    site.delete("dials", namespace)
    return {name for name, answers in found.items() if answers}


def listens(pod: Mapping[str, Any]) -> bool:
    """Whether the pod listens at that port: root of its own node passes all policies."""

    def dial() -> bool:
        with socket.socket() as probe:
            probe.settimeout(2.0)
            return probe.connect_ex((pod["status"]["podIP"], OTHER_PORT)) == 0

    return within(pod["spec"]["nodeName"], dial)


@pytest.fixture
def listening(site: KubernetesSite) -> Iterator[dict[str, str]]:
    """What listens at a port that no policy opens: a user's pod, a pod that is labelled as a
    backup, and a process in a master's pod."""
    made: dict[str, tuple[str, str, dict[str, str]]] = {
        "user": ("listens", TEAM, {}),
        "backup": ("backs-up", SPACE, BACKUP),
    }
    for name, namespace, labels in made.values():
        site.create(bare_pod(name, namespace, LISTEN, labels, NODES[1]))
    in_master = shlex.join(["kubectl", "exec", "torrentdist-master-0", "--", *LISTEN])
    site.shell(f"{in_master} >/dev/null 2>&1 &")
    places = {kind: (name, namespace) for kind, (name, namespace, _) in made.items()}
    places["master"] = ("torrentdist-master-0", SPACE)
    for place in places.values():
        wait_until(lambda: site.pod(*place)["status"].get("phase") == "Running", place[0], 60.0)  # noqa: B023
        wait_until(lambda: listens(site.pod(*place)), place[0], 60.0)  # noqa: B023
    yield {kind: f"{site.pod(*place)['status']['podIP']}:{OTHER_PORT}" for kind, place in places.items()}
    for name, namespace, _ in made.values():
        site.delete(name, namespace)


def test_the_policies_close_what_nobody_has_to_reach(site: KubernetesSite, listening: dict[str, str]) -> None:
    """If this fails, every pod of the cluster reaches all ports of masters and backups, and a
    backup, which has an operator's token, may send its records anywhere."""
    master = site.pod("torrentdist-master-0", SPACE)["status"]["podIP"]
    targets = {**listening, "api of a master": f"{master}:7060", "swarm of a master": f"{master}:7061"}
    targets["api server"] = f"{BRIDGE}:{PORT}"

    assert {"user", "api of a master", "swarm of a master", "api server"} == answering(site, TEAM, targets)
    assert {"api of a master"} == answering(site, SPACE, targets, BACKUP)


def test_the_backup_of_the_page_was_made(site: KubernetesSite) -> None:
    """If this fails, the policies close what backups need, and the first restore finds none."""
    (backup,) = site.nodes.settings[NODES[0]].on_disk("/var/lib/volumes/backup").glob("*.backup")

    assert 0 < backup.stat().st_size
