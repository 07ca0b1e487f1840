"""Every certificate and the CA of a running cluster are replaced, by the steps of docs/security.md,
while requests go on."""

from __future__ import annotations

import contextlib
import os
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from cluster_fixtures import Cluster, make_source, running_cluster, until

from torrentdist.security.authority.authority_files import init_authority, issue_files
from torrentdist.security.certificate_identity import CertificateRole

pytestmark = pytest.mark.case("F7")

ADDRESS = "127.0.0.1"


@pytest.fixture
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster({}, work=tmp_path_factory.mktemp("mutual"), masters=2, supervisors=1, tls=True) as cluster:
        cluster.http.close()
        cluster.http = httpx.Client(trust_env=False, timeout=10.0, headers=cluster.dev.headers(), verify=seen(cluster))
        yield cluster


def seen(cluster: Cluster) -> ssl.SSLContext:
    """What a client trusts that starts now."""
    return ssl.create_default_context(cafile=cluster.dir / "ca" / "ca.pem")


def members(cluster: Cluster) -> dict[str, CertificateRole]:
    masters = dict.fromkeys(cluster.masters(), CertificateRole.MASTER)
    return masters | dict.fromkeys(cluster.supervisors(), CertificateRole.SUPERVISOR)


def put(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Replaces a file by rename."""
    fresh = path.with_name(f".{path.name}.new")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(fd, "wb") as out:
        out.write(data)
    fresh.rename(path)


def ca_files(cluster: Cluster) -> list[Path]:
    return [cluster.dir / "ca" / "ca.pem", *(cluster.dir / "ca" / "hosts").glob("*/ca.pem")]


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

    def _kept(self) -> None:
        for url in self._urls:
            self._client.get(f"{url}/v1/cluster").raise_for_status()

    def _new(self) -> None:
        headers = self._cluster.dev.headers()
        with httpx.Client(trust_env=False, timeout=10.0, headers=headers, verify=seen(self._cluster)) as http:
            for url in self._urls:
                http.get(f"{url}/v1/bundles").raise_for_status()
            http.get(f"{self._gateway}/readyz").raise_for_status()


def ports(cluster: Cluster) -> dict[str, int]:
    """The port of each member at which it shows its certificate."""
    view = cluster.get(cluster.masters()[0], "/v1/cluster")
    return {each["id"]: int(each["url"].rpartition(":")[2]) for each in (*view["masters"], *view["supervisors"])}


def shows(port: int, certificate: bytes) -> bool:
    with contextlib.suppress(OSError):
        return ssl.get_server_certificate((ADDRESS, port), timeout=5.0).strip() == certificate.decode().strip()
    return False


def is_trusted(port: int, ca: Path, person: Path) -> bool:
    """Whether the port takes a certificate of the CA that `person` is from."""
    context = ssl.create_default_context(cafile=ca)
    context.load_cert_chain(person / "certificate.pem", person / "key.pem")
    with contextlib.suppress(httpx.HTTPError), httpx.Client(trust_env=False, timeout=5.0, verify=context) as http:
        http.get(f"https://{ADDRESS}:{port}/livez")
        return True
    return False


def test_certificates_and_the_ca_are_replaced_under_load(mutual: Cluster, tmp_path: Path) -> None:
    """Each month, and when the CA's key is lost, uploads and jobs would be cut off."""
    authority, new = mutual.dir / "ca", tmp_path / "new"
    until(lambda: len(ports(mutual)) == 3, "every member is registered")
    where = ports(mutual)
    uploads: list[int] = []

    def upload(name: str) -> None:
        source = make_source(tmp_path / name, len(uploads), 20_000)
        uploads.append(mutual.run("upload", source, "--id", name, "--min-replicas", 2).code)

    with Load(mutual) as load:
        upload("before")
        fresh = {}
        for name, role in members(mutual).items():
            path = authority / "hosts" / name / "certificate.pem"
            made = issue_files(authority, role, name, [ADDRESS], tmp_path / f"leaf-{name}", time.time())
            put(path.with_name("key.pem"), Path(made.key_file).read_bytes(), 0o600)
            put(path, Path(made.certificate_file).read_bytes())
            fresh[name] = path.read_bytes()
        for name, certificate in fresh.items():
            until(lambda c=certificate, p=where[name]: shows(p, c), f"{name} shows its new certificate")  # type: ignore[misc]
        upload("leaves")
        old_person = tmp_path / "old-ann"
        issue_files(authority, CertificateRole.PERSON, "ann", [], old_person, time.time())
        init_authority(new, "dev", time.time() - 3600)
        old_ca, new_ca = (authority / "ca.pem").read_bytes(), (new / "ca.pem").read_bytes()
        for path in ca_files(mutual):
            put(path, old_ca + new_ca)
        issue_files(new, CertificateRole.PERSON, "ann", [], tmp_path / "ann", time.time())
        for name, port in where.items():
            until(lambda p=port: is_trusted(p, authority / "ca.pem", tmp_path / "ann"), f"{name} trusts both CAs")  # type: ignore[misc]
        upload("both")
        for name, role in members(mutual).items():
            path = authority / "hosts" / name / "certificate.pem"
            made = issue_files(new, role, name, [ADDRESS], tmp_path / f"new-{name}", time.time())
            put(path.with_name("key.pem"), Path(made.key_file).read_bytes(), 0o600)
            put(path, Path(made.certificate_file).read_bytes())
            fresh[name] = path.read_bytes()
        for name, certificate in fresh.items():
            until(lambda c=certificate, p=where[name]: shows(p, c), f"{name} is of the new CA")  # type: ignore[misc]
        for path in ca_files(mutual):
            put(path, new_ca)
        until(
            lambda: not any(is_trusted(port, new / "ca.pem", old_person) for port in where.values()),
            "nobody trusts the old CA",
        )
        upload("after")

    assert [] == load.failed
    assert [0, 0, 0, 0] == uploads
    assert load.done > 20
