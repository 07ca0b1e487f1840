"""A real Spark application on a real API server, in cluster and in client mode: executors, and a
driver in a pod, have their environment as a CSI volume, and nothing of it passes through the
driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest
import yaml
from kubernetes.control_plane import SERVER
from kubernetes.kubernetes_site import TEAM, KubernetesSite
from kubernetes.lab_nodes import NODES
from kubernetes.ring import INSIDE_LAB
from kubernetes.user_pods import upload

from bench.lab.namespaces import BRIDGE, ROOT, Host, received
from torrentdist.testing.sample_trees import some_bytes, write_tree

pytestmark = pytest.mark.skipif(INSIDE_LAB not in os.environ, reason="the nodes are in a lab: make kubernetes-nodes")

SPARK_SECS = 420.0
BUNDLE = "env-spark"
BIG = 16_000_000
PYTHON = b'#!/bin/sh\nexport PYTHONPATH="$(cd "${0%/*}/../site" && pwd):${PYTHONPATH:-}"\nexec python3 "$@"\n'
IDS_DIR = "/var/lib/torrentdist/ids"
MODULE = b"def word(number):\n    return 'odd' if number % 2 else 'even'\n"
DRIVER = b"""
import json, socket
from pyspark.sql import SparkSession
def one(number):
    import env_words
    return socket.gethostname(), env_words.word(number), env_words.__file__
spark = SparkSession.builder.getOrCreate()
context = spark.sparkContext
found = context.parallelize(range(30), 6).map(one).collect()
print("FOUND", json.dumps(found))
spark.stop()
"""
MAIN = b"import env_words\n" + DRIVER
EDGE = "edge"
"""A host of the lab that is no node, where a driver runs in client mode."""


def template(role: str) -> str:
    """Returns the example's pod with the bundle of this test. A node has one executor."""
    pod = yaml.safe_load((ROOT / "examples/kubernetes/spark-pod.yaml").read_text())
    pod["spec"]["volumes"][0]["csi"]["volumeAttributes"]["bundle"] = BUNDLE
    apart = {"labelSelector": {"matchLabels": {"spark-role": "executor"}}, "topologyKey": "kubernetes.io/hostname"}
    if role == "executor":
        pod["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    return str(yaml.safe_dump(pod))


@pytest.fixture(scope="module")
def token(site: KubernetesSite) -> str:
    """A bundle with an environment, and the token of an account that may start pods."""
    files = {"site/env_words.py": MODULE, "app/main.py": MAIN, "big.bin": some_bytes(BIG, 7)}
    write_tree(site.home / "spark", files | dict.fromkeys(("bin/python", "bin/python3"), PYTHON))
    for name in ("python", "python3"):
        (site.home / "spark/bin" / name).chmod(0o755)
    upload(site, site.home / "spark", BUNDLE)
    site.shell(f"""
kubectl create serviceaccount spark --namespace={TEAM}
kubectl create rolebinding spark --clusterrole=edit --serviceaccount={TEAM}:spark --namespace={TEAM}
""")
    return site.shell(f"kubectl create token spark --namespace={TEAM} --duration=1h").strip()


def test_executors_have_their_environment_as_a_volume(site: KubernetesSite, token: str) -> None:
    """If this fails, Spark on Kubernetes cannot use bundles as the page says, or the driver serves
    them to its executors. It starts five JVMs, so it takes long: minutes."""
    for role in ("driver", "executor"):
        (site.home / f"{role}.yaml").write_text(template(role))
    own = {
        "kubernetes.driver.podTemplateFile": str(site.home / "driver.yaml"),
        "kubernetes.executor.podTemplateFile": str(site.home / "executor.yaml"),
        "pyspark.python": "/env/bin/python",
    }
    before = received(site.nodes.hosts.values())
    found = words_of(site, submit(site, token, ["spark-submit"], own, "local:///env/app/main.py"))
    came = {name: after - before[name] for name, after in received(site.nodes.hosts.values()).items()}

    assert {"/env/site/env_words.py"} == {file for _, _, file in found}
    assert len(NODES) == len({host for host, _, _ in found}), "each executor took part"
    assert all(size < 1.6 * BIG for size in came.values()), f"a node got it more than once: {came}"


def test_one_command_gives_pods_their_environment(site: KubernetesSite, token: str) -> None:
    """If this fails, `torrentdist spark-submit` starts pods without their bundles, or with rights
    that operators forbid. It starts five JVMs, so it takes long: minutes."""
    command = ["torrentdist", "spark-submit", "--env", BUNDLE]
    found = words_of(site, submit(site, token, command, {}, f"local://{IDS_DIR}/{BUNDLE}/app/main.py"))

    assert {f"{IDS_DIR}/{BUNDLE}/site/env_words.py"} == {file for _, _, file in found}


def test_a_driver_on_a_host_sends_its_executors_no_environment(site: KubernetesSite, token: str) -> None:
    """If this fails, client mode starts pods without their bundles, or the driver serves them to
    its executors. It starts four JVMs, so it takes long: minutes."""
    edge = site.nodes.add_outsider(EDGE)
    (site.home / "driver.py").write_bytes(DRIVER)
    own = {
        "kubernetes.authenticate.oauthToken": token,
        "kubernetes.authenticate.caCertFile": str(site.plane.keys.ca),
        "driver.host": edge.address,
        # The driver's own, which has no module of the environment.
        "pyspark.driver.python": f"{sys.prefix}/bin/python",
    }
    before = edge.sent()
    command = ["torrentdist", "spark-submit", "--env", BUNDLE]
    ended = submit(site, token, command, own, str(site.home / "driver.py"), host=edge)
    sent = edge.sent() - before

    assert 0 == ended.returncode, ended.stderr[-4000:]
    found = words_in(ended.stdout)
    assert {f"{IDS_DIR}/{BUNDLE}/site/env_words.py"} == {file for _, _, file in found}
    assert 3 == len({host for host, _, _ in found}), "each executor took part"
    assert sent < BIG / 4, f"the driver sent {sent} bytes"


def words_of(site: KubernetesSite, ended: subprocess.CompletedProcess[str]) -> list[tuple[str, str, str]]:
    """Returns what a driver in a pod printed. Removes the driver."""
    pods = site.plane.api.items(f"/api/v1/namespaces/{TEAM}/pods", labelSelector="spark-role=driver")
    shown = ended.stderr[-4000:]
    assert (0, ["Succeeded"]) == (ended.returncode, [pod["status"]["phase"] for pod in pods]), shown
    name = pods[0]["metadata"]["name"]
    output = site.output(name, container="spark")
    site.delete(name)
    return words_in(output)


def words_in(output: str) -> list[tuple[str, str, str]]:
    """Returns what a driver printed: executors, words, and where their module lies."""
    (line,) = (line for line in output.splitlines() if line.startswith("FOUND"))
    found = [(host, word, file) for host, word, file in json.loads(line.removeprefix("FOUND"))]
    assert ["even", "odd"] * 15 == [word for _, word, _ in found]
    return found


def submit(
    site: KubernetesSite,
    token: str,
    command: Sequence[str],
    own: Mapping[str, str],
    application: str,
    host: Host | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs an application as the operator, to its end. `host`: where its driver runs; None: in a
    pod."""
    settings = {
        "kubernetes.namespace": TEAM,
        "kubernetes.container.image": "spark:4.3.0",
        "kubernetes.authenticate.driver.serviceAccountName": "spark",
        "kubernetes.authenticate.submission.oauthToken": token,
        "kubernetes.authenticate.submission.caCertFile": str(site.plane.keys.ca),
        "executor.instances": "3",
        "executor.memory": "512m",
        "driver.memory": "512m",
        "scheduler.minRegisteredResourcesRatio": "1.0",
        "scheduler.maxRegisteredResourcesWaitingTime": "180s",
        **own,
    }
    options = [part for key, value in settings.items() for part in ("--conf", f"spark.{key}={value}")]
    (site.home / "token").chmod(0o600)
    masters = [f"https://torrentdist-master-{number}.torrentdist-masters:7060" for number in range(3)]
    env = site.environment() | {
        "SPARK_LOCAL_IP": host.address if host else BRIDGE,
        "TORRENTDIST_MASTERS": ",".join(masters),
        "TORRENTDIST_CLIENT_CA_FILE": str(site.home / "ca/ca.pem"),
        "TORRENTDIST_CLIENT_TOKEN_FILE": str(site.home / "token"),
    }
    within = site.lab.entering(host) if host else []
    # The token says who submits: without a kubeconfig, nobody else does.
    del env["KUBECONFIG"]
    where = ["--master", f"k8s://{SERVER}", "--deploy-mode", "client" if host else "cluster", "--name", "words"]
    return subprocess.run(
        [*within, f"{sys.prefix}/bin/{command[0]}", *command[1:], *where, *options, application],
        capture_output=True,
        text=True,
        cwd=site.home,
        env=env,
        timeout=SPARK_SECS,
    )
