"""The CSI driver over its real socket, with a real supervisor and real mounts: what pods see, and
what is left after each part has been killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from cluster_fixtures import Cluster, picture, running_cluster, throughout, until
from kubernetes.csi_node import CallFailed, CsiNode, csi_node, refused

from torrentdist.csi import publish_plan
from torrentdist.testing.sample_trees import some_bytes, write_tree

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")

ENV = {"bundle": "env-43"}


def made(directory: Path, tree: Mapping[str, bytes]) -> Path:
    write_tree(directory, dict(tree))
    return directory


@pytest.fixture(scope="module")
def nodes_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One master and one supervisor, which has nothing yet of the bundle `env-43`."""
    work = tmp_path_factory.mktemp("csi-cluster")
    settings = {"swarm": {"seeding_secs": 2.0}}
    with running_cluster(settings, work=work, masters=1, supervisors=1, own_zookeeper=True) as cluster:
        tree = {
            "lib/big.bin": some_bytes(300_000, 43),
            "lib/sub/a.py": b"print(1)\n",
            "bin/run": b"#!/bin/sh\necho ran\n",
        }
        source = made(work / "env", tree)
        (source / "bin/run").chmod(0o755)
        (source / "latest").symlink_to("lib/sub")
        cluster.upload(source, "env-43", replicas=1)
        yield cluster


@pytest.fixture
def node(nodes_cluster: Cluster, tmp_path: Path) -> Iterator[CsiNode]:
    with csi_node(tmp_path, settings_of(nodes_cluster)) as node:
        yield node


def host_of(cluster: Cluster) -> str:
    return cluster.supervisors()[0]


def gateway(cluster: Cluster) -> str:
    return str(cluster.dev.member(host_of(cluster)).gateway)


def settings_of(cluster: Cluster) -> dict[str, dict[str, object]]:
    return {
        "client": {"supervisor": gateway(cluster)},
        "supervisor": {"id": "node-1", "data_dir": str(cluster.store(host_of(cluster)))},
        "kubernetes": {"namespaces": {"team-a": "env-*", "team-b/trainer": ["model-*"]}},
    }


def holds(cluster: Cluster) -> list[dict[str, Any]]:
    return list(cluster.http.get(f"{gateway(cluster)}/v1/host/holds").raise_for_status().json())


def test_a_pod_sees_the_bundle_and_cannot_change_it(nodes_cluster: Cluster, node: CsiNode) -> None:
    """If this fails, a pod starts without its files, or changes those of all pods of the node."""
    node.publish("p1", ENV)
    node.publish("p1", ENV)  # the kubelet asks twice after a lost answer
    target = node.target("p1")
    seen = node.seen(target)

    assert picture(nodes_cluster._work / "env") == picture(seen)
    assert [str(target)] == node.mounts(), "once, although it was asked for twice"
    with pytest.raises(OSError, match="Read-only"):
        (seen / "new").write_text("x")
    assert b"ran\n" == node.inside(f"{target}/bin/run").stdout
    assert [("env-43", "team-a/p1", str(target))] == [
        (h["bundle"], h["user"], h["target"]) for h in holds(nodes_cluster)
    ]
    node.unpublish("p1")
    node.unpublish("p1")
    assert ([], [], False) == (node.mounts(), holds(nodes_cluster), node.seen(target).exists())


def test_two_pods_share_it_and_one_can_have_a_part(nodes_cluster: Cluster, node: CsiNode) -> None:
    """If this fails, the end of one pod takes the files of another, or `path` shows all of it."""
    digest = nodes_cluster.run("bundle", "show", "env-43").ok()["digest"]
    node.publish("p1", ENV | {"path": "lib/sub/"})
    node.publish("p2", ENV | {"path": "latest", "digest": digest})

    assert [["a.py"]] * 2 == [os.listdir(node.seen(node.target(pod))) for pod in ("p1", "p2")]
    node.unpublish("p1")
    assert b"print(1)\n" == (node.seen(node.target("p2")) / "a.py").read_bytes()
    node.unpublish("p2")


def test_stats_say_what_is_mounted(nodes_cluster: Cluster, node: CsiNode) -> None:
    """If this fails, the kubelet's metrics and events say nothing of a volume, or wrong things."""
    node.publish("p1", ENV)
    stats = node.stats("p1")

    assert [(300_028, 300_028), (3, 3)] == [(usage.total, usage.used) for usage in stats.usage]
    assert (False, "mounted") == (stats.volume_condition.abnormal, stats.volume_condition.message)
    assert "NOT_FOUND" == refused(lambda: node.stats("p2"))[0]
    node.unpublish("p1")


@pytest.mark.parametrize(
    ("attributes", "code", "words"),
    [
        ({"bundle": "env-none"}, "NOT_FOUND", "env-none"),
        ({"bundle": "../env"}, "INVALID_ARGUMENT", "not valid"),
        (ENV | {"path": "lib/../.."}, "INVALID_ARGUMENT", "not a path inside"),
        (ENV | {"path": "/etc"}, "INVALID_ARGUMENT", "not a path inside"),
        (ENV | {"path": "none"}, "INVALID_ARGUMENT", "no directory"),
        (ENV | {"path": "bin/run"}, "INVALID_ARGUMENT", "no directory"),
        (ENV | {"digest": "0" * 64}, "FAILED_PRECONDITION", "has the digest"),
        (ENV | {"digest": "x"}, "INVALID_ARGUMENT", "not a digest"),
        (ENV | {"pth": "lib"}, "INVALID_ARGUMENT", "'pth' is unknown"),
        ({}, "INVALID_ARGUMENT", "'bundle' is missing"),
        ({"bundle": "model-1"}, "PERMISSION_DENIED", "may not have"),
    ],
)  # fmt: skip
def test_what_cannot_be_mounted_is_refused_and_leaves_nothing(
    nodes_cluster: Cluster, node: CsiNode, attributes: dict[str, str], code: str, words: str
) -> None:
    """If this fails, a pod gets what it must not, or waits for ever without a word why."""
    said = refused(lambda: node.publish("p1", attributes))

    assert code == said[0], said
    assert words in said[1]
    assert ([], []) == (node.mounts(), holds(nodes_cluster))
    assert not node.seen(node.target("p1")).exists()


def test_other_capabilities_and_targets_are_refused(node: CsiNode) -> None:
    """If this fails, a pod that wants a block device or a writable volume gets something else."""
    from torrentdist.csi import csi_pb2 as csi

    capability = csi.VolumeCapability
    block = capability(block=capability.BlockVolume())
    writable = capability(mount=capability.MountVolume(mount_flags=["rw"]))
    changes = [{"volume_capability": block}, {"volume_capability": writable}, {"target_path": "pods/../x"}]
    codes = {refused(lambda change=change: node.publish("p1", ENV, **change))[0] for change in changes}  # type: ignore[misc]

    assert {"INVALID_ARGUMENT"} == codes


@pytest.mark.parametrize("target", ["/etc", "{kubelet}", "{kubelet}2/pod", "{work}/elsewhere"])
def test_nothing_outside_the_pods_is_touched(node: CsiNode, target: str) -> None:
    """If this fails, a caller mounts over the node's own files, or unmounts them."""
    from torrentdist.csi import csi_pb2 as csi

    path = target.format(kubelet=node.kubelet, work=node.work)
    request = csi.NodeUnpublishVolumeRequest(volume_id="csi-p1", target_path=path)
    published = refused(lambda: node.publish("p1", ENV, target_path=path))[0]
    with pytest.raises(CallFailed) as unpublished:
        node.call("Node", "NodeUnpublishVolume", request, csi.NodeUnpublishVolumeResponse)

    assert ["INVALID_ARGUMENT"] * 2 == [published, unpublished.value.code]
    assert not (node.work / "elsewhere").exists()


def test_the_probe_of_the_container_asks_the_driver(node: CsiNode, tmp_path: Path) -> None:
    """If this fails, the kubelet restarts a driver that works, or none that hangs."""
    probe = str(Path(__file__).parent.parent.parent / "docker/healthcheck")
    asked = [node.inside(sys.executable, probe, f"unix://{socket}") for socket in (node.socket, tmp_path / "none")]

    assert [0, 1] == [ran.returncode for ran in asked], asked


def test_another_volume_at_the_same_target_is_a_conflict(node: CsiNode) -> None:
    """If this fails, a pod reads other files than its spec says."""
    node.publish("p1", ENV)

    assert "ALREADY_EXISTS" == refused(lambda: node.publish("p1", ENV | {"path": "lib"}))[0]
    node.unpublish("p1")


def test_the_driver_can_be_killed_between_any_two_calls(nodes_cluster: Cluster, node: CsiNode) -> None:
    """If this fails, an upgrade of the driver takes volumes from pods, or leaves some for ever."""
    node.publish("p1", ENV)
    node.end(signal.SIGKILL)
    assert (node.seen(node.target("p1")) / "lib/sub/a.py").exists()
    node.start()
    node.publish("p1", ENV)
    assert not node.stats("p1").volume_condition.abnormal
    node.end(signal.SIGTERM)
    node.start()
    node.unpublish("p1")

    assert ([], []) == (node.mounts(), holds(nodes_cluster))


def test_a_volume_that_was_half_mounted_can_be_unmounted(nodes_cluster: Cluster, node: CsiNode) -> None:
    """If this fails, a pod that was deleted while its volume was mounted never ends."""
    node.publish("p1", ENV)
    target = node.target("p1")
    assert 0 == node.inside("umount", str(target)).returncode, "as if the driver had died before the mount"
    node.publish("p1", ENV)
    assert 0 == node.inside("mount", "--bind", str(target), str(target)).returncode, "and one too many"
    node.unpublish("p1")

    assert ([], []) == (node.mounts(), holds(nodes_cluster))
    target.mkdir(parents=True)
    node.unpublish("p1")
    assert not target.exists()


def test_a_busy_volume_stays_until_nobody_uses_it(nodes_cluster: Cluster, node: CsiNode) -> None:
    """If this fails, a process that still reads loses its files."""
    node.publish("p1", ENV)
    reader = os.open(node.seen(node.target("p1")) / "lib/big.bin", os.O_RDONLY)
    try:
        said = refused(lambda: node.unpublish("p1"))
        assert ("INTERNAL", 1) == (said[0], len(holds(nodes_cluster))), said
    finally:
        os.close(reader)
    node.unpublish("p1")
    assert [] == holds(nodes_cluster)


def test_without_the_supervisor_volumes_stay_and_pods_can_end(nodes_cluster: Cluster, node: CsiNode) -> None:
    """If this fails, an upgrade of the supervisor stops the pods of its node, or lets their bundles
    go."""
    node.publish("p1", ENV)
    node.publish("p2", ENV)
    nodes_cluster.kill(host_of(nodes_cluster))
    assert "UNAVAILABLE" == refused(lambda: node.publish("p3", ENV))[0]
    assert (node.seen(node.target("p1")) / "lib/sub/a.py").exists()
    node.unpublish("p2")
    assert [str(node.target("p1"))] == node.mounts()
    nodes_cluster.start(host_of(nodes_cluster))

    assert {"team-a/p1", "team-a/p2"} == {one["user"] for one in holds(nodes_cluster)}, "they outlive the supervisor"
    node.unpublish("p1")
    node.unpublish("p2")  # as the next look would do, a minute later
    assert [] == holds(nodes_cluster)


def test_a_lost_hold_is_taken_again(nodes_cluster: Cluster, node: CsiNode) -> None:
    """If this fails, a supervisor that lost its records evicts what pods have mounted. It waits for
    the driver's look, so it takes long: 5 s."""
    node.publish("p1", ENV)
    (hold,) = holds(nodes_cluster)
    nodes_cluster.http.delete(f"{gateway(nodes_cluster)}/v1/host/holds/{hold['name']}").raise_for_status()
    assert node.stats("p1").volume_condition.abnormal
    node.end()
    node.start()  # it looks at once

    until(lambda: [one["target"] for one in holds(nodes_cluster)] == [str(node.target("p1"))], "it is held again")
    node.unpublish("p1")


STRANGER = """
import http.server, os
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"[]")
server = http.server.HTTPServer(("127.0.0.1", 0), Answers)
print(server.server_port, flush=True)
server.serve_forever()
"""


def test_nothing_is_believed_of_a_stranger_on_the_gateways_port(nodes_cluster: Cluster, tmp_path: Path) -> None:
    """If this fails, a process of the node names what is mounted while the supervisor is away."""
    nobody = subprocess.Popen(["setpriv", "--reuid=65533", "--clear-groups", sys.executable, "-c", STRANGER], stdout=-1)
    try:
        assert nobody.stdout is not None
        port = int(nobody.stdout.readline())
        settings = settings_of(nodes_cluster) | {"client": {"supervisor": f"http://127.0.0.1:{port}"}}
        with csi_node(tmp_path, settings) as node:
            code, words = refused(lambda: node.publish("p1", ENV))
    finally:
        nobody.kill()
        nobody.communicate()

    assert ("UNAVAILABLE", True) == (code, "runs neither as root nor as the owner" in words), words


def test_what_is_mounted_outlives_its_removal(nodes_cluster: Cluster, node: CsiNode, tmp_path: Path) -> None:
    """If this fails, `bundle rm` takes files from running pods, or leaves them on the node."""
    source = made(tmp_path / "old", {"a": b"1" * 1000})
    digest = nodes_cluster.upload(source, "env-old", replicas=1)["digest"]
    node.publish("p1", {"bundle": "env-old"})
    host = host_of(nodes_cluster)
    until(lambda: nodes_cluster.run("bundle", "show", "env-old").ok()["used_by"], "the cluster names the pod")
    removed = nodes_cluster.run("bundle", "rm", "env-old").ok()
    until(lambda: holds(nodes_cluster)[0]["removed"], "the host heard of it")

    assert {host: ["team-a/p1"]} == removed["used_by"]
    assert throughout(lambda: (node.seen(node.target("p1")) / "a").read_bytes() == b"1" * 1000, 1.0)
    assert "NOT_FOUND" == refused(lambda: node.publish("p2", {"bundle": "env-old"}))[0]
    node.publish("p1", {"bundle": "env-old"})  # a kubelet that was restarted asks again
    node.unpublish("p1")
    until(lambda: not nodes_cluster.content(host, digest).exists(), "its content is gone")


def test_a_reboot_leaves_nothing_held(nodes_cluster: Cluster, node: CsiNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, each reboot of a node keeps bundles on its disk for ever."""
    node.publish("p1", ENV)
    node.shut_down()
    node.boot()
    node.start()
    node.publish("p1", ENV)  # the pod starts again

    assert [str(node.target("p1"))] == node.mounts()
    assert 1 == len(holds(nodes_cluster))
    assert publish_plan.UNMOUNTED_SECS == 60.0, "tests/property/test_publish_plan.py shows the rest"
    node.unpublish("p1")


def test_a_bundle_that_is_not_here_in_time_says_how_far_it_is(nodes_cluster: Cluster, node: CsiNode) -> None:
    """If this fails, a pod that waits for a large bundle shows no reason, or is given up."""
    source = made(nodes_cluster._work / "large", {"a.bin": some_bytes(4_000_000, 44)})
    nodes_cluster.upload(source, "env-large", replicas=1)
    host = host_of(nodes_cluster)
    nodes_cluster.reconfigure(host, {"swarm": {"download_limit": 400_000}})
    try:
        code, words = refused(lambda: node.publish("p1", {"bundle": "env-large"}, timeout=7.5))
        assert ("UNAVAILABLE", True) == (code, "is being fetched" in words), words

        def arrived() -> bool:
            with contextlib.suppress(CallFailed):
                node.publish("p1", {"bundle": "env-large"})
                return True
            return False

        until(arrived, "it is mounted", 40.0)
        node.unpublish("p1")
    finally:
        nodes_cluster.reconfigure(host, {})
