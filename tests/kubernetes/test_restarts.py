"""What pods notice when parts of torrentdist, or a node, end under them."""

from __future__ import annotations

import os
from typing import Any

import pytest
from kubernetes.api_client import namespaced
from kubernetes.kubernetes_site import COMMANDS, PAGE, SPACE, TEAM, KubernetesSite, blocks
from kubernetes.lab_nodes import NODES, is_ready
from kubernetes.ring import INSIDE_LAB
from kubernetes.user_pods import BUNDLE, daemon_images, reading_pod

from bench.lab.namespaces import wait_until

pytestmark = pytest.mark.skipif(INSIDE_LAB not in os.environ, reason="the nodes are in a lab: make kubernetes-nodes")

SETTLES_SECS = 180.0
READS_ON = "i=0; while [ ! -e /tmp/end ]; do cmp /env/app/main.py /env/app/main.py || exit 1; sleep 0.2; done"


def daemon_on(site: KubernetesSite, node: str, component: str) -> dict[str, Any]:
    """Returns the pod of a DaemonSet on a node."""
    found = site.plane.api.items(namespaced(SPACE, "pods"), labelSelector=f"app.kubernetes.io/component={component}")
    return next(
        pod for pod in found if pod["spec"].get("nodeName") == node and "deletionTimestamp" not in pod["metadata"]
    )


def job(name: str, pods: int, command: str, **attributes: str) -> dict[str, Any]:
    """Returns a Job whose pods have a bundle."""
    spec = reading_pod(name, command=command, **attributes)["spec"]
    body = {"completions": pods, "parallelism": 3, "backoffLimit": 6, "template": {"spec": spec}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": TEAM}, "spec": body}


def test_a_supervisor_is_restarted_under_a_pod(site: KubernetesSite) -> None:
    """If this fails, a crash of a supervisor takes files from running pods. It starts daemons, so
    it takes long: half a minute."""
    site.create(reading_pod("reads-on", command=READS_ON, node=NODES[0], bundle=BUNDLE))
    wait_until(lambda: site.pod("reads-on")["status"].get("phase") == "Running", "the pod", 60.0)
    for component in ("supervisor", "csi"):
        before = daemon_on(site, NODES[0], component)["metadata"]
        site.plane.kubectl("delete", "pod", before["name"], "--wait=false", namespace=SPACE)
        wait_until(lambda: _follows(site, component, before["uid"]), f"the next {component}", SETTLES_SECS)  # noqa: B023
    site.create(reading_pod("after", node=NODES[0], bundle=BUNDLE))

    assert "Succeeded" == site.ended("after")
    assert "Running" == site.pod("reads-on")["status"]["phase"]
    assert "" == site.output("reads-on")
    for name in ("reads-on", "after"):
        site.delete(name)


def _follows(site: KubernetesSite, component: str, uid: str) -> bool:
    try:
        pod = daemon_on(site, NODES[0], component)
    except StopIteration:
        return False
    return pod["metadata"]["uid"] != uid and is_ready(pod)


def test_a_release_comes_and_goes_while_pods_start(site: KubernetesSite) -> None:
    """If this fails, an upgrade of torrentdist as the page says it, or the way back, fails the jobs
    that start meanwhile. It restarts all daemons twice, so it takes long: some minutes."""
    jobs = f"/apis/batch/v1/namespaces/{TEAM}/jobs"
    steps = [block for block in blocks(PAGE.read_text(), "## Upgrade, and go back") if block.startswith(COMMANDS)]
    before, seen = daemon_images(site), []
    for number, step in enumerate(steps):
        site.plane.api.create(jobs, job(f"during-{number}", 12, "cat /env/app/main.py && sleep 2", bundle=BUNDLE))
        site.shell(step, 2 * SETTLES_SECS)
        seen.append(daemon_images(site))
        wait_until(lambda: _succeeded(site, f"during-{number}") == 12, "the job", SETTLES_SECS)  # noqa: B023
    failed = [site.plane.api.get(f"{jobs}/during-{n}")["status"].get("failed", 0) for n in range(len(steps))]

    assert [{"torrentdist:0.1.1"}, before] == seen
    assert [0, 0] == failed
    for number in range(len(steps)):
        site.plane.kubectl("delete", "job", f"during-{number}", namespace=TEAM)


def _succeeded(site: KubernetesSite, name: str) -> int:
    return int(site.plane.api.get(f"/apis/batch/v1/namespaces/{TEAM}/jobs/{name}")["status"].get("succeeded", 0))


def test_a_node_dies_and_its_pods_start_elsewhere(site: KubernetesSite) -> None:
    """If this fails, the loss of one node fails a job, or keeps its bundle from the others. It
    waits until the control plane gives the node up, so it takes long: a minute."""
    jobs = f"/apis/batch/v1/namespaces/{TEAM}/jobs"
    site.plane.api.create(jobs, job("survives", 6, "sleep 8 && cat /env/app/main.py", bundle=BUNDLE))
    wait_until(lambda: NODES[2] in _nodes_of(site, "survives"), "a pod on the node", 60.0)
    site.nodes.crash(NODES[2])
    wait_until(lambda: _succeeded(site, "survives") == 6, "the job", SETTLES_SECS)

    assert {NODES[0], NODES[1]} == site.nodes.ready()
    site.plane.kubectl("delete", "job", "survives", "--cascade=orphan", namespace=TEAM)


def _nodes_of(site: KubernetesSite, name: str) -> set[str]:
    pods = site.plane.api.items(namespaced(TEAM, "pods"), labelSelector=f"job-name={name}")
    return {pod["spec"]["nodeName"] for pod in pods if pod["status"].get("phase") == "Running"}
