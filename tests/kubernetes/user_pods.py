"""What users do: pods at the Pod Security level `restricted`, with a bundle as a volume, and
uploads; and which release serves them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubernetes.api_client import namespaced
from kubernetes.kubernetes_site import SPACE, TEAM, KubernetesSite

BUNDLE = "env-43"
"""The bundle that the page uploads."""
RESTRICTED: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 20001,
    "seccompProfile": {"type": "RuntimeDefault"},
}
SAYS = "cat /env/app/main.py; touch /env/new 2>/dev/null || echo read-only"


def reading_pod(
    name: str, *, namespace: str = TEAM, command: str = SAYS, node: str = "", **attributes: str
) -> dict[str, Any]:
    """Returns a pod that has a bundle at /env. `node`: the one that it has to run on."""
    container = {
        "name": "main",
        "image": "python:3.11-slim",
        "command": ["sh", "-c", command],
        "securityContext": dict(RESTRICTED),
        "volumeMounts": [{"name": "env", "mountPath": "/env"}],
    }
    volume = {"name": "env", "csi": {"driver": "torrentdist", "readOnly": True, "volumeAttributes": attributes}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "nodeSelector": {"kubernetes.io/hostname": node} if node else {},
            "securityContext": {"supplementalGroups": [10002]},
            "containers": [container],
            "volumes": [volume],
        },
    }


def upload(site: KubernetesSite, directory: Path, bundle: str) -> None:
    """Uploads a directory from a pod of a master, as the page does."""
    site.shell(f"""
tar -C {directory} -cz . | kubectl exec -i torrentdist-master-0 -- sh -euc '
  mkdir /tmp/{bundle} && tar -C /tmp/{bundle} -xz
  torrentdist --config /etc/torrentdist/master.toml upload /tmp/{bundle} --id {bundle}
  rm -r /tmp/{bundle}'
""")


def daemon_images(site: KubernetesSite) -> set[str]:
    """Returns the images of torrentdist that masters and daemons run."""
    pods = site.plane.api.items(namespaced(SPACE, "pods"))
    alive = [pod for pod in pods if pod["status"].get("phase") == "Running"]
    found = {status["image"] for pod in alive for status in pod["status"].get("containerStatuses", [])}
    return {image for image in found if image.startswith("torrentdist:")}
