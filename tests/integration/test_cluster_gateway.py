"""The gateway of a host serves bundles that still arrive, as files and as archives."""

from __future__ import annotations

import io
import os
import socket
import tarfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from cluster_fixtures import Cluster, running_cluster, until

MiB = 1024 * 1024
SIZE = 6 * MiB
LIMIT = 3 * MiB
"""Bytes per second that the only master sends, so that an arrival takes long enough to observe."""


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(
        {"swarm": {"upload_limit": LIMIT, "seeding_secs": 2.0}},
        work=tmp_path_factory.mktemp("slow"), masters=1, supervisors=2,
    ) as cluster:  # fmt: skip
        yield cluster


class Made:
    def __init__(self, cluster: Cluster, work: Path, name: str) -> None:
        self.name = name
        source = work / name
        source.mkdir()
        self.data = os.urandom(SIZE)
        (source / "data.bin").write_bytes(self.data)
        (source / "small.txt").write_text("last")
        (source / "link").symlink_to("small.txt")
        self.digest = cluster.upload(source, name, replicas=1)["digest"]


def gateway(cluster: Cluster, name: str = "supervisor-1") -> str:
    return f"{cluster.url(name)}/bundles"


def fetch(url: str, **headers: str) -> httpx.Response:
    return httpx.get(url, trust_env=False, timeout=60.0, headers=headers)


def test_one_arrival_serves_all_who_ask(slow: Cluster, tmp_path: Path) -> None:
    """If this failed, each executor of a host would fetch the bundle itself, or wait without any
    bytes until the end."""
    made = Made(slow, tmp_path, "asked")
    url = f"{gateway(slow)}/asked"
    first_seen_arriving = threading.Event()

    def ask(path: str) -> bytes:
        with httpx.stream("GET", f"{url}/{path}", trust_env=False, timeout=60.0) as response:
            assert 200 == response.status_code
            parts = response.iter_raw()
            data = next(parts)
            if not slow.published("supervisor-1", made.digest):
                first_seen_arriving.set()
            return data + b"".join(parts)

    paths = ["files/data.bin", "archive.tar.gz", "archive.tar.gz", "asked.tar", "files/small.txt"]
    with ThreadPoolExecutor(len(paths)) as pool:
        data, archive, again, tar, small = pool.map(ask, paths)

    assert (made.data, b"last", archive) == (data, small, again)
    with tarfile.open(fileobj=io.BytesIO(tar)) as opened:
        assert made.data == opened.extractfile("data.bin").read()  # type: ignore[union-attr]
    assert first_seen_arriving.is_set()
    until(lambda: slow.published("supervisor-1", made.digest), "published")
    view = fetch(url).json()
    assert made.digest == view["digest"]
    assert view["transfer"]["sources"]["masters"] + view["transfer"]["sources"]["peers"] <= SIZE + 4


def test_published_and_arriving_answer_alike(slow: Cluster, tmp_path: Path) -> None:
    """If this failed, what a client learned while the bundle arrived would be wrong afterwards. A
    symlink has to be asked for again; it would be missing otherwise."""
    made = Made(slow, tmp_path, "alike")
    url = f"{gateway(slow)}/alike"

    def answers() -> list[tuple[int, str | None, str | None, bytes]]:
        parts = [
            httpx.head(f"{url}/files/data.bin", trust_env=False, timeout=60.0, headers={"range": "bytes=0-9"}),
            httpx.head(f"{url}/archive.tar", trust_env=False, timeout=60.0),
            fetch(f"{url}/files/data.bin", range="bytes=5242000-5242009"),
            fetch(f"{url}/files/small.txt", range="bytes=-2"),
            fetch(f"{url}/files/small.txt", range="bytes=99-"),
            fetch(f"{url}/files/data.bin", **{"if-none-match": f'"{made.digest}"'}),
            fetch(f"{url}/archive.tar.gz", **{"if-none-match": f'"{made.digest}.tar.gz"'}),
            fetch(f"{url}/files/none", **{"if-none-match": "*"}),
            fetch(f"{url}/files/small.txt", range="lines=1-2"),
            fetch(f"{url}/files/small.txt", range="bytes=0-1,3-3"),
            fetch(f"{url}/files/small.txt", **{"if-match": '"other"'}),
        ]
        return [
            (r.status_code, r.headers.get("etag"), r.headers.get("content-length"), r.content)
            if r.status_code < 400
            else (r.status_code, None, None, b"")
            for r in parts
        ]

    link = fetch(f"{url}/files/link").json()["error"]
    arriving = answers()
    until(lambda: slow.published("supervisor-1", made.digest), "published", 60)

    assert [200, 200, 206, 206, 416, 304, 304, 404, 200, 200, 412] == [status for status, *_ in arriving]
    assert (str(SIZE), made.data[5242000:5242010]) == (arriving[0][2], arriving[2][3])
    assert arriving == answers()
    assert ("not_ready", b"last") == (link, fetch(f"{url}/files/link").content)
    unchanged = fetch(f"{url}/files/small.txt")
    since = {"if-modified-since": unchanged.headers["last-modified"]}
    assert [304, 304] == [fetch(f"{url}/{path}", **since).status_code for path in ("files/small.txt", "archive.tar")]


def test_what_does_not_exist_is_said_at_once(slow: Cluster, tmp_path: Path) -> None:
    """If this failed, a wrong URL would look like a slow download, and Spark's log would not
    explain it."""
    Made(slow, tmp_path, "there")
    url = gateway(slow)
    java = {"user-agent": "Java/17.0.1"}

    assert 404 == fetch(f"{url}/nope/archive.tar.gz").status_code
    assert "there is no bundle 'nope'" in fetch(f"{url}/nope/files/a").json()["message"]
    assert (
        "/error/bundle_not_found/there_is_no_bundle_'nope'"
        in fetch(f"{url}/nope/archive.zip", **java).headers["location"]
    )
    told = httpx.get(f"{url}/nope/archive.zip", headers=java, follow_redirects=True, trust_env=False, timeout=60.0)
    assert (404, True) == (told.status_code, "there is no bundle 'nope'" in told.json()["message"])
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "python3").write_text("some content")
    (linked / "python").symlink_to("python3")
    slow.run("upload", str(linked), "--id", "linked").ok()
    assert (
        "/error/archive_unsuitable/bundle_'linked'_is_not_given_as_.zip:_Spark_loses_links_of_a_zip,_such_as_python._"
        "Use_archive.tar.gz" in fetch(f"{url}/linked/archive.zip", **java).headers["location"]
    )
    assert [200, 200] == [
        fetch(f"{url}/linked/archive.zip").status_code,
        fetch(f"{url}/linked/archive.tar.gz", **java).status_code,
    ]
    for path in (
        "files/..%2fmetafile",
        "files/../metafile",
        "files//etc/passwd",
        "files/none",
        "archive.rar",
        "files/",
    ):
        assert 404 == fetch(f"{url}/there/{path}").status_code


def read_to_end(client: socket.socket) -> None:
    while client.recv(1 << 20):
        pass


@pytest.mark.alone
def test_what_was_removed_is_answered_nowhere_a_second_later(slow: Cluster, tmp_path: Path) -> None:
    """If this failed, hosts would go on giving out what somebody has just removed: until their next
    announce, which is rarer the more hosts there are."""
    took = []
    for number in range(3):
        name = f"removed-{number}"
        source = tmp_path / name
        source.mkdir()
        (source / "small.txt").write_text(name)
        slow.upload(source, name, replicas=1)
        urls = [f"{gateway(slow, host)}/{name}/files/small.txt" for host in ("supervisor-1", "supervisor-2")]
        assert [name] * 2 == [fetch(url).text for url in urls]
        slow.run("bundle", "rm", name).ok()
        said = time.monotonic()
        until(lambda: {fetch(url).status_code for url in urls} == {404}, "no gateway answers it")  # noqa: B023
        took.append(time.monotonic() - said)
        slow.upload(source, name, replicas=1)
        assert [name] * 2 == [fetch(url).text for url in urls], "it can come back"

    assert max(took) < 1.0, took


def test_a_fetch_that_fails_cuts_the_answer_off(slow: Cluster, tmp_path: Path) -> None:
    """If this failed, an executor would take half an archive for a whole one, because Java does not
    check the length."""
    made = Made(slow, tmp_path, "cut")
    host, _, port = slow.url("supervisor-1").removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), 60) as client:
        client.sendall(b"GET /bundles/cut/archive.tar HTTP/1.1\r\nHost: x\r\n\r\n")

        assert client.recv(100).startswith(b"HTTP/1.1 200")
        assert not slow.published("supervisor-1", made.digest)
        slow.run("bundle", "rm", "cut").ok()
        with pytest.raises(ConnectionResetError):
            read_to_end(client)


def test_a_fetch_without_holders_ends_before_spark_gives_up_and_says_why(tmp_path: Path) -> None:
    """If this fails, a Spark application ends with a bare "Read timed out" that does not say what
    is lacking."""
    settings = {"swarm": {"upload_limit": LIMIT, "seeding_secs": 2.0}, "supervisor": {"read_stall_secs": 3.0}}
    with running_cluster(settings, work=tmp_path / "c", masters=1, supervisors=1) as cluster:
        Made(cluster, tmp_path, "lost")
        host, _, port = cluster.url("supervisor-1").removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), 40) as client:
            client.sendall(b"GET /bundles/lost/archive.tar HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 200")
            cluster.kill("master-1")
            with pytest.raises(ConnectionResetError):
                read_to_end(client)

        def problems() -> list[tuple[str, str]]:
            found = fetch(f"{cluster.url('supervisor-1')}/v1/host/problems").json()
            return [(problem["bundle"], problem["reason"]) for problem in found]

        until(lambda: problems() == [("lost", "no peers")], "the host says what is lacking")
        told = fetch(f"{gateway(cluster)}/lost/files/data.bin", range=f"bytes={SIZE - 1}-").json()
        events = (cluster.store("supervisor-1") / "events").glob("*")
        stalls = [line for path in events for line in path.read_text().splitlines() if '"read_stalled"' in line]
        found = cluster.run("doctor", client__supervisor=cluster.url("supervisor-1"))

    assert ("read_stalled", True) == (told["error"], "no peers" in told["message"])
    assert 1 <= len(stalls)
    assert "bundle lost does not arrive: no peers" in [finding["detail"] for finding in found.json["findings"]]
