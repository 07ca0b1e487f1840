"""Pods read bundles by URL from the supervisor of their own node, over a Service that the real
kube-proxy carries."""

from __future__ import annotations

import os

import pytest
from kubernetes.kubernetes_site import PAGE, TEAM, KubernetesSite, commands
from kubernetes.lab_nodes import NODES
from kubernetes.ring import INSIDE_LAB
from kubernetes.user_pods import reading_pod, upload

from bench.lab.namespaces import received
from torrentdist.testing.sample_trees import some_bytes, write_tree

pytestmark = pytest.mark.skipif(INSIDE_LAB not in os.environ, reason="the nodes are in a lab: make kubernetes-nodes")

BIG = 16_000_000
READ = "import sys, urllib.request; print(len(urllib.request.urlopen(sys.argv[1], timeout=60).read()))"
GATEWAY = "http://torrentdist-gateway.torrentdist.svc:7073"


def test_a_pod_reads_by_the_url_of_the_page(site: KubernetesSite) -> None:
    """If this fails, a pod that cannot have a volume has no bundle, though the page says so."""
    said = site.shell(commands(PAGE.read_text(), "## A URL for pods"))

    assert "hello from a bundle" == said.splitlines()[-1]
    site.delete("etl-by-url")


def test_the_service_leads_each_pod_to_its_own_node(site: KubernetesSite) -> None:
    """If this fails, what pods read crosses the network each time, and one node may serve all."""
    write_tree(site.home / "big", {"big.bin": some_bytes(BIG, 43)})
    upload(site, site.home / "big", "env-big")
    master = "kubectl exec torrentdist-master-0 -- torrentdist --config /etc/torrentdist/master.toml"
    site.shell(f"{master} bundle distribute env-big --wait 1")
    url = site.shell(f"{master} url env-big --path big.bin --gateway {GATEWAY} -q").strip()
    before = received(site.nodes.hosts.values())
    for node in NODES:
        pod = reading_pod(f"by-url-{node}", node=node, bundle="env-big")
        pod["spec"]["containers"][0]["command"] = ["python3", "-c", READ, url]
        site.create(pod)
    phases = [site.ended(f"by-url-{node}") for node in NODES]
    came = {name: after - before[name] for name, after in received(site.nodes.hosts.values()).items()}
    read = [site.output(f"by-url-{node}").strip() for node in NODES]

    assert (["Succeeded"] * 3, [str(BIG)] * 3) == (phases, read)
    assert all(size < BIG / 4 for size in came.values()), f"a node read from another one: {came}"
    assert url not in "".join(
        path.read_text() for path in site.lab.dir.rglob("torrentdist_torrentdist-supervisor*/*.log")
    )
    for node in NODES:
        site.delete(f"by-url-{node}", TEAM)
