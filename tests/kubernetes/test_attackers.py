"""What a hostile pod of a node can reach, and what a stolen identity of a node can."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Callable, Iterator
from http.client import HTTPSConnection
from typing import Any

import pytest
from kubernetes.api_client import ApiError, KubernetesApi, namespaced
from kubernetes.control_plane import SERVER
from kubernetes.kubelet_csi import INFO, DriverRefused, PodVolume, given_for, publish
from kubernetes.kubernetes_site import OTHER_TEAM, SPACE, TEAM, KubernetesSite
from kubernetes.lab_nodes import NODES, SUPERVISOR
from kubernetes.node_places import KUBELET
from kubernetes.ring import INSIDE_LAB
from kubernetes.user_pods import BUNDLE, reading_pod

from bench.lab.namespaces import wait_until
from torrentdist.security.tls_contexts import TlsFiles, client_context

pytestmark = pytest.mark.skipif(INSIDE_LAB not in os.environ, reason="the nodes are in a lab: make kubernetes-nodes")

NODE = NODES[0]
FORBIDDEN = (
    ("GET", "/v1/backup"),
    ("DELETE", f"/v1/bundles/{BUNDLE}"),
    ("POST", "/v1/tokens"),
    ("POST", "/v1/urls"),
    ("POST", "/v1/urls/key"),
    ("POST", "/v1/invitations"),
    ("POST", "/v1/jobs"),
    ("DELETE", f"/v1/hosts/{NODES[2]}"),
)
"""What no node may ask of a master."""
ELSEWHERE = 421
"""The answer of a master that does not lead."""
TRIES = textwrap.dedent(
    """
    import http.client, json, os, socket, ssl, sys
    node, master = sys.argv[1:]
    blind = ssl._create_unverified_context()

    def asked(address, port, path, tls, token=""):
        kind = http.client.HTTPSConnection if tls else http.client.HTTPConnection
        more = {"context": blind} if tls else {}
        try:
            connection = kind(address, port, timeout=5, **more)
            connection.request("GET", path, headers={"Authorization": "Bearer " + token} if token else {})
            return connection.getresponse().status
        except OSError as error:
            return type(error).__name__

    account = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    token = open(account).read()
    api = "/api/v1/namespaces/torrentdist/secrets"
    print(json.dumps({
        "loopback gateway": asked("127.0.0.1", 7070, "/v1/host/holds", False),
        "gateway at the node": asked(node, 7070, "/v1/host/holds", False),
        "gateway for pods": asked(node, 7073, "/bundles/env-43/env-43.tar.gz", False),
        "supervisor": asked(node, 7072, "/v1/host/holds", True),
        "master": asked(master, 7060, "/v1/bundles", True),
        "whether a master is ready": asked(master, 7060, "/readyz", True),
        "master with the pod's token": asked(master, 7060, "/v1/bundles", True, token),
        "secrets": asked("kubernetes.default.svc", 443, api, True, token),
        "sockets": [path for path in ("/csi", "/var/lib/kubelet", "/var/lib/torrentdist") if os.path.exists(path)],
    }))
    """
)


def refusal(call: Callable[[], object]) -> int:
    """Returns the status with which the API server refuses a call."""
    try:
        call()
    except ApiError as exc:
        return exc.code
    return 200


@pytest.fixture
def reading(site: KubernetesSite) -> Iterator[dict[str, Any]]:
    """A pod of team-a on the first node that has the bundle, and stays."""
    site.create(reading_pod("stays", command="exec sleep 600", node=NODE, bundle=BUNDLE))
    wait_until(lambda: site.pod("stays")["status"].get("phase") == "Running", "the pod", 60.0)
    yield site.pod("stays")
    site.delete("stays")


def test_a_hostile_pod_reaches_nothing(site: KubernetesSite) -> None:
    """If this fails, whoever may start a pod reads bundles, or what the masters know."""
    pod = reading_pod("hostile", node=NODE, bundle=BUNDLE)
    master = site.pod("torrentdist-master-0", SPACE)["status"]["podIP"]
    arguments = [site.nodes.settings[NODE].address, master]
    pod["spec"]["containers"][0]["command"] = ["python3", "-c", TRIES, *arguments]
    site.create(pod)

    assert "Succeeded" == site.ended("hostile"), site.output("hostile")
    found = json.loads(site.output("hostile").splitlines()[-1])
    assert "ConnectionRefusedError" == found.pop("loopback gateway")
    assert "ConnectionRefusedError" == found.pop("gateway at the node")
    assert [] == found.pop("sockets")
    assert 200 == found.pop("whether a master is ready"), "the probes of its pod have no proof either"
    assert {"secrets": 403} == {key: code for key, code in found.items() if code != 401}, "all others want a proof"
    site.delete("hostile")


def test_pod_security_admission_forbids_the_ways_around(site: KubernetesSite) -> None:
    """If this fails, a user's pod gets onto the node's network or disk, where the gateway is."""
    changes: list[dict[str, Any]] = [
        {"hostNetwork": True},
        {"hostPID": True},
        {"volumes": [{"name": "env", "hostPath": {"path": "/var/lib/torrentdist"}}]},
        {"securityContext": {"runAsUser": 0}},
    ]
    pods = [reading_pod(f"bad-{number}", bundle=BUNDLE) for number in range(len(changes))]
    for pod, change in zip(pods, changes, strict=True):
        pod["spec"] |= change
    pods[3]["spec"]["containers"][0]["securityContext"].pop("runAsUser")

    assert [403] * len(pods) == [refusal(lambda pod=pod: site.create(pod)) for pod in pods]  # type: ignore[misc]


def test_a_pod_cannot_say_that_it_is_another(site: KubernetesSite) -> None:
    """If this fails, a pod gets another team's bundles by writing its name into a volume."""
    lie = {f"{INFO}pod.namespace": TEAM, f"{INFO}serviceAccount.name": "default"}
    site.create(reading_pod("lies", namespace=OTHER_TEAM, bundle=BUNDLE, **lie))
    wait_until(lambda: any("may not have" in text for text in site.events("lies", OTHER_TEAM)), "a refusal", 60.0)

    assert "Pending" == site.pod("lies", OTHER_TEAM)["status"]["phase"]
    site.delete("lies", OTHER_TEAM)


def test_a_token_proves_one_pod_to_one_audience(site: KubernetesSite, reading: dict[str, Any]) -> None:
    """If this fails, a token that was stolen from a pod mounts bundles for another one."""
    socket = site.nodes.settings[NODE].on_disk(f"{KUBELET}/plugins/torrentdist/csi.sock")
    driver = site.plane.api.get("/apis/storage.k8s.io/v1/csidrivers/torrentdist")
    volume = PodVolume("csi-stolen", f"{KUBELET}/pods/stolen/volumes/kubernetes.io~csi/env", {"bundle": BUNDLE}, True)

    def said(pod: dict[str, Any], audience: str, seconds: int = 600) -> str:
        token = minted(site.plane.api, reading, audience, seconds)
        try:
            publish(socket, volume, given_for(pod, volume, driver, {"torrentdist": {"token": token}}), read_only=True)
        except DriverRefused as exc:
            return str(exc)
        return "mounted"

    another = {**reading, "metadata": {**reading["metadata"], "uid": "another"}}
    assert "belongs to another pod" in said(another, "torrentdist")
    assert "token is refused" in said(reading, "https://kubernetes.default.svc")


def minted(api: KubernetesApi, pod: dict[str, Any], audience: str, seconds: int = 600) -> str:
    """Returns a token of a pod's account, which the API server signs."""
    meta = pod["metadata"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}
    spec = {"audiences": [audience], "expirationSeconds": seconds, "boundObjectRef": bound}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    account = namespaced(meta["namespace"], "serviceaccounts", pod["spec"]["serviceAccountName"])
    return str(api.create(f"{account}/token", body)["status"]["token"])


def test_a_stolen_node_speaks_only_for_its_own_pods(site: KubernetesSite, reading: dict[str, Any]) -> None:
    """If this fails, whoever takes over one node gets the bundles of pods of all nodes, or the
    masters' secrets on a node that has no master."""
    thief, own, bare = (
        KubernetesApi.of(SERVER, site.plane.keys.issue(f"system:node:{name}", ["system:nodes"]))
        for name in (NODES[1], NODE, "node-9")
    )
    secret = namespaced(SPACE, "secrets", "torrentdist-masters")

    assert 403 == refusal(lambda: minted(thief, reading, "torrentdist"))
    assert 403 == refusal(lambda: minted(own, reading, "another-audience"))
    assert 200 == refusal(lambda: minted(own, reading, "torrentdist"))
    assert 403 == refusal(lambda: bare.get(secret)), "no master runs there"
    assert 200 == refusal(lambda: own.get(secret)), "a master runs there: the page says where masters belong"
    assert 403 == refusal(lambda: thief.delete(namespaced(TEAM, "pods", "stays")))
    assert 403 == refusal(lambda: thief.items(namespaced(SPACE, "secrets")))


def test_a_stolen_certificate_of_a_node_changes_nothing(site: KubernetesSite) -> None:
    """If this fails, whoever takes over one node uploads, opens or removes bundles, lets others in,
    or gets every record."""
    tls = site.nodes.settings[NODES[1]].on_disk(f"{SUPERVISOR}/tls")
    context = client_context(TlsFiles(tls / "ca.pem", tls / "certificate.pem", tls / "key.pem"))
    masters = [f"torrentdist-master-{number}.torrentdist-masters" for number in range(3)]

    def asked(method: str, path: str) -> set[int]:
        """Returns the statuses with which all masters answer."""
        found = set()
        for master in masters:
            connection = HTTPSConnection(master, 7060, timeout=20, context=context)
            body = json.dumps({"bundles": BUNDLE, "path": "", "ttl_secs": 60})
            connection.request(method, path, body, {"Content-Type": "application/json", "X-Torrentdist": "1"})
            found.add(connection.getresponse().status)
            connection.close()
        return found

    assert {200} == asked("GET", f"/v1/bundles/{BUNDLE}")
    for method, path in FORBIDDEN:
        assert {403} == asked(method, path) - {ELSEWHERE}, f"{method} {path}"
