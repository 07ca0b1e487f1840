"""What keeps strangers and second daemons out: tokens, addresses, ports, stores."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
from cluster_fixtures import Cluster, NewCluster, picture, until

from torrentdist.testing.sample_trees import SMALL, write_tree


def daemon(role: str, config: Path, work: Path) -> tuple[int, str, str]:
    """Returns exit code, error and message of a daemon that must not start."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TORRENTDIST_", "XDG_"))}
    env["XDG_CONFIG_HOME"] = str(work / "config")
    command = [sys.executable, "-m", "torrentdist_cli", role, "--config", str(config)]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=False)
    found = re.findall(r"error\[(\w+)\]", ended.stderr)
    return ended.returncode, found[0] if found else "", ended.stderr


def write_config(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_wrong_token_is_refused(new_cluster: NewCluster, tmp_path: Path) -> None:
    """Without this, everyone who reaches a master could remove every bundle."""
    cluster = new_cluster(masters=1, supervisors=0)
    token, wrong = tmp_path / "token", tmp_path / "wrong"
    for path, text in ((token, "right-token"), (wrong, "wrong-token")):
        path.write_text(text + "\n")
        path.chmod(0o600)
    cluster.reconfigure("master-1", {"api": {"token_file": str(token)}})
    base = cluster.url("master-1")
    right = {"Authorization": "Bearer right-token"}
    until(lambda: cluster.http.get(f"{base}/leaderz", headers=right).status_code == 200, "it leads")
    source = tmp_path / "source"
    write_tree(source, SMALL)

    anonymous = cluster.run("upload", source, "--id", "x")
    impostor = cluster.run("upload", source, "--id", "x", client__token_file=wrong)
    statuses = {
        path: httpx.get(base + path, trust_env=False, timeout=60.0).status_code
        for path in ("/v1/bundles", "/v1/cluster", "/metrics", "/openapi.json", "/v1/bundles/x/files/job.py", "/livez")
    }
    stranger = {"peer": "p", "role": "client", "port": 1}
    swarm = httpx.post(f"{base}/v1/swarm", json=stranger, trust_env=False, timeout=60.0).status_code
    cluster.run("upload", source, "--id", "x", "--min-replicas", 1, client__token_file=token).ok()
    cluster.run("download", "x", tmp_path / "dest", "--no-supervisor", client__token_file=token).ok()

    assert [(4, True), (4, True)] == [(ran.code, "[unauthorized]" in ran.stderr) for ran in (anonymous, impostor)]
    assert {200} == {statuses.pop("/livez")}
    assert {401} == {*statuses.values(), swarm}
    assert picture(source) == picture(tmp_path / "dest")
    log = (cluster.dir / "master-1.log").read_text()
    assert "right-token" not in log
    assert "right-token" not in anonymous.stderr + impostor.stderr


def test_listening_beyond_loopback_needs_a_token(tmp_path: Path) -> None:
    """Without this, one line of configuration would open the cluster to the network. Ray's job API
    listens without authentication."""
    for address in ("0.0.0.0", "::", "192.0.2.1"):
        config = write_config(
            tmp_path / "m.toml", f'[api]\nlisten = "{address}"\nport = 0\n[master]\ndata_dir = "{tmp_path / "data"}"\n'
        )

        code, error, _ = daemon("master", config, tmp_path)

        assert (2, "insecure_listen") == (code, error)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("role", ["master", "supervisor"])
def test_a_port_that_is_taken_is_named(tmp_path: Path, role: str) -> None:
    """Without this, an operator would have to guess why a daemon does not come up."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        key = f"[api]\nport = {port}" if role == "master" else f"[supervisor]\ngateway_port = {port}"
        data = f'data_dir = "{tmp_path / "data"}"'
        text = f"{key}\n[master]\n{data}\n" if role == "master" else f"{key}\n{data}\n"

        code, error, said = daemon(role, write_config(tmp_path / "d.toml", text), tmp_path)

    assert (2, "port_in_use") == (code, error)
    assert str(port) in said


@pytest.mark.parametrize("role", ["master", "supervisor"])
def test_a_bad_configuration_is_told_whole(tmp_path: Path, role: str) -> None:
    """Without this, mistakes would come up one at a time, or in the middle of the night."""
    text = '[api]\nprot = 1\nport = 70000\n[zookeeper]\nservers = []\n[swarm]\nupload_limit = "much"\n'

    code, error, said = daemon(role, write_config(tmp_path / "d.toml", text), tmp_path)

    assert (2, "config_invalid") == (code, error)
    assert all(word in said for word in ("api.prot", "api.port", "zookeeper.servers", "swarm.upload_limit"))


def test_a_store_has_one_daemon(cluster: Cluster, tmp_path: Path) -> None:
    """Without this, two daemons would write into one store."""
    config = cluster.dev.config_of("master-1").read_text()
    other = re.sub(r"port = \d+", "port = 0", config).replace('"master-1"', '"master-other"')

    code, error, said = daemon("master", write_config(tmp_path / "d.toml", other), tmp_path)

    assert (9, "store_locked") == (code, error)
    assert str(cluster.dev.member("master-1").pid) in said
    assert 200 == cluster.status("master-1", "/readyz")


@pytest.mark.parametrize("role", ["master", "supervisor"])
def test_an_id_has_one_daemon(cluster: Cluster, tmp_path: Path, role: str) -> None:
    """D13: without this, two daemons would take turns in being one."""
    name = f"{role}-1"
    config = cluster.dev.config_of(name).read_text()
    other = re.sub(r"port = \d+", "port = 0", config).replace(str(cluster.store(name)), str(tmp_path / "data"))

    code, error, _ = daemon(role, write_config(tmp_path / "d.toml", other), tmp_path)

    assert (9, "id_taken") == (code, error)
    assert 200 == cluster.status(name, "/readyz")
    assert cluster.registered(name, at="master-2")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/bundles/..%2F..%2Fetc",
        "/v1/bundles/a%2Fb",
        "/v1/bundles/" + "x" * 129,
        "/v1/bundles/x%00y",
        "/v1/bundles/-x",
        "/v1/metafiles/..%2F..%2Fetc%2Fpasswd",
        "/v1/metafiles/" + "g" * 64,
        "/v1/uploads/" + "A" * 64,
    ],
)
def test_names_from_outside_are_checked(cluster: Cluster, path: str) -> None:
    """Without this, an id from a request could name any file or znode."""
    statuses = [cluster.http.get(cluster.url(name) + path).status_code for name in (cluster.leader(), "master-2")]

    assert set(statuses) <= {400, 404, 421}


def test_files_are_served_from_the_bundle_only(cluster: Cluster, tmp_path: Path) -> None:
    """Without this, a master or a gateway would hand out any file of its host."""
    source = tmp_path / "source"
    write_tree(source, SMALL)
    (source / "link").symlink_to("job.py")
    cluster.upload(source, "only-its-files")
    cluster.run("download", "only-its-files", tmp_path / "dest").ok()
    ways = ("../metafile", "..%2Fmetafile", "%2Fetc%2Fpasswd", "lib/../../metafile", "lib", "nothing", ".", "job.py%00")
    bases = (
        f"{cluster.url('master-1')}/v1/bundles/only-its-files/files/",
        f"{cluster.url('supervisor-1')}/bundles/only-its-files/files/",
    )

    for base in bases:
        good = cluster.http.get(base + "job.py")
        assert (200, SMALL["job.py"]) == (good.status_code, good.content)
        for way in ways:
            assert raw_get(base + way, cluster.dev.headers()) in (400, 403, 404), way


def raw_get(url: str, headers: Mapping[str, str]) -> int:
    """Returns the status of a request whose path no client library has normalised."""
    parts = httpx.URL(url)
    path = url.partition(f":{parts.port}")[2]
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\n{lines_of(headers)}Connection: close\r\n\r\n"
    return status_of(parts.host, parts.port or 80, head)


def lines_of(headers: Mapping[str, str]) -> str:
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())


def status_of(host: str, port: int, request: str) -> int:
    with contextlib.closing(socket.create_connection((host, port), timeout=5)) as sock:
        sock.sendall(request.encode())
        return int(sock.recv(64).split()[1])


@pytest.mark.parametrize("path", ["POST /v1/bundles/big", "PUT /v1/uploads/" + "0" * 64, "POST /v1/swarm"])
def test_a_request_that_is_too_large_is_refused_unread(cluster: Cluster, path: str) -> None:
    """Without this, one client could take all of a master's memory."""
    url = httpx.URL(cluster.url(cluster.leader()))
    port = url.port or 80
    proof = lines_of(cluster.dev.headers())

    announced = status_of(url.host, port, f"{path} HTTP/1.1\r\nHost: x\r\n{proof}Content-Length: 99999999999\r\n\r\n")

    assert 413 == announced


def test_a_metafile_that_is_none_is_refused(cluster: Cluster) -> None:
    """Without this, random bytes in a request would be an internal error in the log, or a
    bundle."""
    base = cluster.url(cluster.leader())

    answers = [
        cluster.http.post(f"{base}/v1/bundles/junk", content=body)
        for body in (b"", b"\0" * 1000, b"d4:infod4:name1:xee")
    ]

    assert [(400, "invalid_metafile")] * 3 == [(answer.status_code, answer.json()["error"]) for answer in answers]
