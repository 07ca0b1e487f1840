"""The real helm lints and renders the chart. HELM names it; scripts/helm builds it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from torrentdist.model.configuration.settings import combine, toml_layer

ROOT = Path(__file__).parent.parent.parent
CHART = str(ROOT / "deploy/helm/torrentdist")
HELM = os.environ.get("HELM", "")
KUBERNETES = "1.29"
MONITORING = ("PrometheusRule", "ServiceMonitor")
"""Kinds of the Prometheus operator."""
pytestmark = pytest.mark.skipif(not HELM, reason="HELM names no helm")


def helm(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([HELM, *args], capture_output=True, text=True, timeout=120, check=False)


def template(*settings: str) -> list[dict[str, Any]]:
    """Returns the objects that the chart makes with these settings."""
    pairs = [text for setting in settings for text in ("--set-json", setting)]
    made = helm("template", "torrentdist", CHART, "--kube-version", "1.29.0", *pairs)
    assert 0 == made.returncode, made.stderr
    return [document for document in yaml.safe_load_all(made.stdout) if document]


def config(objects: list[dict[str, Any]], key: str) -> Any:
    """Returns a daemon's configuration, as the daemon reads it."""
    (text,) = (o["data"][key] for o in objects if o["kind"] == "ConfigMap" and key in o["data"])
    return combine([toml_layer(tomllib.loads(text), key)]).config


def test_helm_finds_nothing_to_complain_of() -> None:
    """If this fails, helm refuses the chart, or it breaks a rule of charts."""
    checked = helm("lint", "--strict", CHART)

    assert 0 == checked.returncode, checked.stdout + checked.stderr


def test_the_plain_manifests_are_what_helm_makes() -> None:
    """If this fails, kubectl and helm install different things: run scripts/manifests.py."""
    command = [sys.executable, str(ROOT / "scripts/manifests.py"), "--check"]
    checked = subprocess.run(command, env={**os.environ, "HELM": HELM}, capture_output=True, text=True, check=False)

    assert (0, "") == (checked.returncode, checked.stderr)


CHANGES = (
    "masters.replicas=5",
    'image={"repository":"registry.example:5000/td","tag":"1.2.3","pullSecrets":[{"name":"registry"}]}',
    'masters.storage={"size":"1Ti","className":"fast"}',
    'masters.nodeSelector={"pool":"masters"}',
    'masters.tolerations=[{"operator":"Exists"}]',
    'masters.moreConfig="[events]\\nenabled = false\\n"',
    'supervisors.moreConfig="[events]\\nenabled = false\\n"',
    'csi.namespaces={"team-a":"etl-*","ml/trainer":["model-*","env-*"],"*":"public-*"}',
    'csi.kubeletDir="/data/kubelet"',
    'csi.keys=""',
    'networkPolicy.mastersFrom=[{"ipBlock":{"cidr":"10.0.0.0/8"}}]',
    "serviceMonitor.enabled=true",
    "serviceMonitor.rules=true",
    'serviceMonitor.labels={"release":"prometheus"}',
    "backup.keep=3",
    'supervisors.readableBy="everyone"',
)


def test_the_values_reach_the_daemons_and_the_api_takes_the_objects() -> None:
    """If this fails, a value changes nothing, or makes an object that Kubernetes refuses."""
    objects = template(*CHANGES)
    for each in objects:
        if each["kind"] not in MONITORING:
            kubernetes_validate.validate(each, KUBERNETES, strict=True)
    (masters,) = (o["spec"] for o in objects if o["kind"] == "StatefulSet")
    pods = [o["spec"]["template"]["spec"] for o in objects if o["kind"] in ("StatefulSet", "DaemonSet")]
    kubernetes = config(objects, "csi.toml").kubernetes

    assert 5 == masters["replicas"] == len(config(objects, "supervisor.toml").client.masters)
    assert (False, False) == tuple(config(objects, f"{role}.toml").events.enabled for role in ("master", "supervisor"))
    assert "registry.example:5000/td:1.2.3" == masters["template"]["spec"]["containers"][0]["image"]
    assert all([{"name": "registry"}] == pod["imagePullSecrets"] for pod in pods)
    assert ("/data/kubelet/pods", "") == (kubernetes.kubelet_dir, kubernetes.keys)
    assert {"team-a": "etl-*", "ml/trainer": ["model-*", "env-*"], "*": "public-*"} == kubernetes.namespaces
    assert "everyone" == config(objects, "supervisor.toml").store.readable_by
    watching = [o for o in objects if o["kind"] in MONITORING]
    assert ["PrometheusRule", "ServiceMonitor", "ServiceMonitor"] == sorted(o["kind"] for o in watching)
    assert {"prometheus"} == {o["metadata"]["labels"]["release"] for o in watching}
    claim = masters["volumeClaimTemplates"][0]["spec"]
    assert ("fast", "1Ti") == (claim["storageClassName"], claim["resources"]["requests"]["storage"])
    policies = {o["metadata"]["name"]: o["spec"] for o in objects if o["kind"] == "NetworkPolicy"}
    assert [{"ipBlock": {"cidr": "10.0.0.0/8"}}] == policies["torrentdist-master"]["ingress"][0]["from"]


@pytest.mark.parametrize(("version", "expected"), [("1.29.0", None), ("1.36.3", True)])
def test_tokens_travel_where_nobody_logs_them_if_kubernetes_can(version: str, expected: bool | None) -> None:
    """If this fails, a new Kubernetes may log tokens, or an older one refuses the chart."""
    made = helm("template", "torrentdist", CHART, "--kube-version", version, "--show-only", "templates/csi.yaml")
    (driver,) = (o for o in yaml.safe_load_all(made.stdout) if o and o["kind"] == "CSIDriver")

    assert expected is driver["spec"].get("serviceAccountTokenInSecrets")


def test_what_is_turned_off_is_not_made() -> None:
    """If this fails, an operator cannot leave out what the cluster has in another way."""
    kinds = {o["kind"] for o in template("csi.enabled=false", "backup.enabled=false", "networkPolicy.enabled=false")}

    assert {"ConfigMap", "Service", "StatefulSet", "DaemonSet", "PodDisruptionBudget"} == kinds


def test_helm_refuses_what_the_schema_refuses() -> None:
    """If this fails, a typing error is found out in a cluster."""
    made = helm("template", "torrentdist", CHART, "--kube-version", "1.29.0", "--set", "image.tag=latest")

    assert 0 != made.returncode
    assert "image" in made.stderr
