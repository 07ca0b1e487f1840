"""Every certificate and the CA of a running cluster are replaced, by the steps of docs/security.md,
while requests go on."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from cluster_fixtures import Cluster, make_source, running_cluster, until
from rotation_steps import Rotation, shown_ports

pytestmark = pytest.mark.case("F7")


@pytest.fixture
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster({}, work=tmp_path_factory.mktemp("mutual"), masters=2, supervisors=1, tls=True) as cluster:
        cluster.http.close()
        cluster.http = httpx.Client(trust_env=False, timeout=10.0, headers=cluster.dev.headers(), verify=seen(cluster))
        yield cluster


def seen(cluster: Cluster) -> ssl.SSLContext:
    """What a client trusts that starts now."""
    return ssl.create_default_context(cafile=cluster.dir / "ca" / "ca.pem")


class Load:
    """Requests that go on: on kept connections, on new ones, and at the gateway."""

    def __init__(self, cluster: Cluster) -> None:
        self.failed: list[str] = []
        self.done = 0
        self._cluster = cluster
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._loop, args=(once,)) for once in (self._kept, self._new)]
        self._client = cluster.http
        self._urls = [cluster.url(name) for name in cluster.masters()]
        self._gateway = cluster.url(cluster.supervisors()[0])

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _loop(self, once: object) -> None:
        assert callable(once)
        while not self._ending.is_set():
            try:
                once()
                self.done += 1
            except Exception as exc:
                self.failed.append(f"{time.monotonic():.1f} {exc!r}")
            time.sleep(0.03)

    def _kept(self) -> None:
        for url in self._urls:
            self._client.get(f"{url}/v1/cluster").raise_for_status()

    def _new(self) -> None:
        headers = self._cluster.dev.headers()
        with httpx.Client(trust_env=False, timeout=10.0, headers=headers, verify=seen(self._cluster)) as http:
            for url in self._urls:
                http.get(f"{url}/v1/bundles").raise_for_status()
            http.get(f"{self._gateway}/readyz").raise_for_status()


def test_certificates_and_the_ca_are_replaced_under_load(mutual: Cluster, tmp_path: Path) -> None:
    """Each month, and when the CA's key is lost, uploads and jobs would be cut off. It takes long:
    a cluster with an authority is under load."""
    until(lambda: len(shown_ports(mutual.get(mutual.masters()[0], "/v1/cluster"))) == 3, "every member is registered")
    ports = shown_ports(mutual.get(mutual.masters()[0], "/v1/cluster"))
    rotation = Rotation(mutual.dir / "ca", tmp_path, ports)
    uploads: list[int] = []

    def upload(name: str) -> None:
        source = make_source(tmp_path / name, len(uploads), 20_000)
        uploads.append(mutual.run("upload", source, "--id", name, "--min-replicas", 2).code)

    with Load(mutual) as load:
        upload("before")
        rotation.replace_leaves()
        upload("leaves")
        rotation.trust_both()
        upload("both")
        rotation.replace_leaves()
        rotation.trust_only_new()
        upload("after")

    assert [] == load.failed
    assert [0, 0, 0, 0] == uploads
    assert load.done > 20
