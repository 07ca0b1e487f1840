"""Pods of a real Kubernetes, whose kubelets are stood in for, name bundles and start with them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from kubernetes.api_client import namespaced
from kubernetes.foreign_kinds import DEFINITIONS, loose_definition
from kubernetes.kubernetes_site import OTHER_TEAM, PAGE, SPACE, TEAM, KubernetesSite, blocks
from kubernetes.ring import INSIDE_LAB
from kubernetes.user_pods import BUNDLE, reading_pod

from bench.lab.namespaces import ROOT, wait_until

pytestmark = pytest.mark.skipif(INSIDE_LAB not in os.environ, reason="the nodes are in a lab: make kubernetes-nodes")


def test_a_pod_starts_with_the_bundle_that_it_names(site: KubernetesSite) -> None:
    """If this fails, nobody can use torrentdist on Kubernetes as the page says. It installs a whole
    cluster, so it takes long: some minutes."""
    site.create(reading_pod("reads", bundle=BUNDLE))

    assert "hello from a bundle" == site.said["## Bundles as volumes"].splitlines()[-1]
    assert "Succeeded" == site.ended("reads")
    assert ['print("hello from a bundle")', "read-only"] == site.output("reads").splitlines()
    site.delete("reads")


def test_a_pod_of_another_namespace_gets_nothing(site: KubernetesSite) -> None:
    """If this fails, a pod gets bundles that its namespace may not have, and the real API server's
    token of it is believed."""
    site.create(reading_pod("other", namespace=OTHER_TEAM, bundle=BUNDLE))
    wait_until(lambda: any("may not have" in text for text in site.events("other", OTHER_TEAM)), "a refusal", 60.0)

    assert "Pending" == site.pod("other", OTHER_TEAM)["status"]["phase"]
    site.delete("other", OTHER_TEAM)


def test_a_claim_of_a_volume_that_was_written_by_hand_works(site: KubernetesSite) -> None:
    """If this fails, the volume of the page is refused by the API server or the driver, or a claim
    gets what the pod's namespace may not have."""
    (text,) = (block for block in blocks(PAGE.read_text(), "## Bundles as volumes") if "PersistentVolume" in block)
    (site.home / "static.yaml").write_text(text)
    (site.home / "others.yaml").write_text(text.replace("env-43", "model-7"))
    site.shell("kubectl apply -f static.yaml -f others.yaml")
    for claim in ("env-43", "model-7"):
        pod = reading_pod(f"claims-{claim}", bundle=BUNDLE)
        pod["spec"]["volumes"][0] = {
            "name": "env",
            "persistentVolumeClaim": {"claimName": claim, "readOnly": True},
        }
        site.create(pod)

    assert "Succeeded" == site.ended("claims-env-43")
    assert ['print("hello from a bundle")', "read-only"] == site.output("claims-env-43").splitlines()
    wait_until(lambda: any("may not have" in text for text in site.events("claims-model-7")), "a refusal", 60.0)
    for claim in ("env-43", "model-7"):
        site.delete(f"claims-{claim}")
    site.shell("kubectl delete -f static.yaml -f others.yaml")


def test_every_manifest_is_taken(site: KubernetesSite) -> None:
    """If this fails, the API server refuses a file of deploy/kubernetes, or changes it so that
    applying it again is a change."""
    again = site.shell("kubectl diff -f deploy/kubernetes || [ $? = 1 ]")

    assert SPACE in site.shell("kubectl config view --minify")
    assert "" == again


def pod_templates(thing: Any) -> Iterator[dict[str, Any]]:
    """Yields the templates of pods that an object holds."""
    if isinstance(thing, dict):
        if "containers" in thing.get("spec", {}):
            yield thing
        for value in thing.values():
            yield from pod_templates(value)
    elif isinstance(thing, list):
        for value in thing:
            yield from pod_templates(value)


def test_every_example_is_taken(site: KubernetesSite) -> None:
    """If this fails, an example that users copy is refused by the API server, or its pods are where
    Pod Security admission holds. What operators of Spark and Ray check themselves is not shown."""
    for each in (("sparkoperator.k8s.io", "v1beta2", "SparkApplication"), ("ray.io", "v1", "RayCluster")):
        site.plane.api.create(DEFINITIONS, loose_definition(*each))
    site.shell("kubectl wait --for=condition=established customresourcedefinition --all --timeout=1m")
    files = sorted((ROOT / "examples/kubernetes").glob("*.yaml"))
    taken = []
    for file in files:
        if file.stem != "spark-pod":  # Spark fills in the rest
            site.shell(f"kubectl apply --dry-run=server --namespace={TEAM} -f {file} --validate=strict")
        for template in pod_templates(yaml.safe_load(file.read_text())):
            spec = template["spec"]
            for container in spec["containers"]:
                container.setdefault("image", "spark")
            name = f"dry-{file.stem}"
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
            site.plane.api.create(namespaced(TEAM, "pods"), pod, dryRun="All", fieldValidation="Strict")
            taken.append(file.stem)

    assert {file.stem for file in files} == set(taken)
