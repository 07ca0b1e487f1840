"""NetworkPolicies on the nodes of a lab, enforced by the real kube-network-policies.

It decides about the first packet of each connection of a pod. A rule of iptables hands these
packets to it, because not every kernel's nftables can, as its own rule wants.

Always: where it does not run, nothing is closed.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

from kubernetes.api_client import ApiError, KubernetesApi, Resource, namespaced
from kubernetes.control_plane import FIRST_SERVICE, PODS
from kubernetes.lab_nodes import NODES, LabNodes, is_ready

from bench.lab.namespaces import wait_until

PROGRAM = "kube-network-policies"
SPACE = "kube-system"
PLACE = f"/opt/{PROGRAM}"
QUEUE = "98"
START_SECS = 120.0
RULES = "/apis/rbac.authorization.k8s.io/v1"
START = f"""
iptables -t mangle -S policies >/dev/null 2>&1 || {{
  iptables -t mangle -N policies
  iptables -t mangle -A policies -m owner --uid-owner 0 -j RETURN
  iptables -t mangle -A policies -m conntrack --ctstate ESTABLISHED,RELATED -j RETURN
  iptables -t mangle -A policies -s {PODS} -j NFQUEUE --queue-num {QUEUE} --queue-bypass
  iptables -t mangle -A policies -d {PODS} -j NFQUEUE --queue-num {QUEUE} --queue-bypass
  iptables -t mangle -A POSTROUTING -j policies
}}
exec {PLACE} --hostname-override="$NODE" --nfqueue-id={QUEUE} --fail-open --metrics-bind-address=127.0.0.1:9080 --v=2
"""
"""As the program's own rules: probes by root of the node and what is established pass."""


def why_not() -> str:
    """Returns why this kernel hands no packets to a program; empty if it does."""
    rule = f"iptables -A FORWARD -j NFQUEUE --queue-num {QUEUE} --queue-bypass"
    return subprocess.run(["unshare", "--net", "sh", "-c", rule], capture_output=True, text=True).stderr.strip()


def enforce(nodes: LabNodes, api: KubernetesApi, program: str) -> None:
    """Starts it on each node, as its own manifest does, and returns when it runs everywhere."""
    for settings in nodes.settings.values():
        place = settings.on_disk(PLACE)
        place.parent.mkdir(exist_ok=True)
        shutil.copy2(program, place)
    for path, body in _objects():
        api.create(path, body)
    wait_until(lambda: _runs(api), PROGRAM, START_SECS)


def _runs(api: KubernetesApi) -> bool:
    try:
        pods = api.items(namespaced(SPACE, "pods"), labelSelector=f"app={PROGRAM}")
    except (ApiError, OSError):
        return False
    return {pod["spec"].get("nodeName") for pod in pods if is_ready(pod)} == set(NODES)


def _objects() -> list[tuple[str, Resource]]:
    meta = {"name": PROGRAM}
    reads = [
        {"apiGroups": [""], "resources": ["pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["list", "watch"]},
    ]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": meta, "rules": reads}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": PROGRAM},
        "subjects": [{"kind": "ServiceAccount", "name": PROGRAM, "namespace": SPACE}],
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
    return [
        (f"{RULES}/clusterroles", role),
        (f"{RULES}/clusterrolebindings", binding),
        (namespaced(SPACE, "serviceaccounts"), account),
        (namespaced(SPACE, "daemonsets", group="apps/v1"), _daemons()),
    ]


def _daemons() -> dict[str, Any]:
    labels = {"app": PROGRAM}
    container = {
        "name": "main",
        "image": f"{PROGRAM}:v0.8.0",
        "command": ["sh", "-euc", START],
        "env": [
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            # What a kubelet adds.
            {"name": "KUBERNETES_SERVICE_HOST", "value": FIRST_SERVICE},
            {"name": "KUBERNETES_SERVICE_PORT", "value": "443"},
        ],
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": "program", "mountPath": PLACE, "readOnly": True}],
    }
    spec = {
        "hostNetwork": True,
        "serviceAccountName": PROGRAM,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [{"name": "program", "hostPath": {"path": PLACE}}],
    }
    template = {"metadata": {"labels": labels}, "spec": spec}
    body = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": PROGRAM}, "spec": body}
