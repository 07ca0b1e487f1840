"""The hosts' part of docs/deployment.md on loopback: its commands, its three files, and its
ZooKeeper."""

from __future__ import annotations

import contextlib
import grp
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_fixtures import make_source, until
from deployment_site import PAGE, block_with

from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper
from torrentdist.host.process.daemon_address import read_address
from torrentdist.host.process.listening_sockets import free_ports

FILES = ("torrentdist.toml", "master.toml", "supervisor.toml")


class MutualSite:
    """One master and one supervisor, with the page's files. Only paths, addresses and ports are
    replaced, and the launcher is left out."""

    def __init__(self, home: Path, zookeeper: str) -> None:
        self.home = home
        ports = {str(port): str(free_ports(1)[0]) for port in (7060, 7061, 7071, 7072)}
        self._replacements = [
            (r'"10\.0\.0\.1:2281".*?\]', f'"{zookeeper}"]'),
            (r"10\.0\.[01]\.\d+", "127.0.0.1"),
            (r"/etc/torrentdist", str(home / "etc")),
            (r"/var/lib/torrentdist", str(home / "lib")),
            (r"(?m)^launcher = .*$", 'gateway_port = 0\nids_dir = ""'),
            (r"torrentdist-readers", grp.getgrgid(os.getgid()).gr_name),
            *((rf"\b{port}\b", other) for port, other in ports.items()),
        ]
        (home / "etc").mkdir()
        for name, text in zip(FILES, re.findall(r"(?s)```toml\n(.*?)```", PAGE), strict=True):
            assert f"# /etc/torrentdist/{name}\n" in text
            (home / "etc" / name).write_text(self.here(text))
        # Each command reads torrentdist.toml; that of a host without the token lacks its line.
        shared = (home / "etc" / "torrentdist.toml").read_text()
        (home / "torrentdist.toml").write_text(shared)
        (home / "host").mkdir()
        (home / "host" / "torrentdist.toml").write_text(re.sub(r"(?m)^token_file = .*# leave.*\n", "", shared))

    def here(self, text: str) -> str:
        for was, now in self._replacements:
            text = re.sub(was, now, text)
        return text

    def command(self, line: str) -> list[str]:
        words = shlex.split(self.here(line.replace("sudo -u torrentdist ", "")))
        assert "torrentdist" == words.pop(0)
        return [sys.executable, "-m", "torrentdist_cli", *words]

    def environment(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith("TORRENTDIST_")}
        return own | {"HOME": str(self.home)}

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(line), env=self.environment(), cwd=self.home, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip

    def start(self, role: str) -> subprocess.Popen[bytes]:
        with (self.home / f"{role}.log").open("wb") as log:
            command = self.command(f"torrentdist {role} --config /etc/torrentdist/{role}.toml")
            place = self.home / "host" if role == "supervisor" else self.home
            return subprocess.Popen(command, env=self.environment(), cwd=place, stdout=log, stderr=log)

    def install(self, host: str, role: str, *more: str) -> None:
        """What the page's `install` lines do."""
        place = self.home / "lib" / role / "tls"
        place.mkdir(mode=0o700, parents=True)
        for file in [
            *(self.home / "td-ca" / "hosts" / host).glob("*.pem"),
            self.home / "td-ca" / "hosts" / host / "zookeeper.auth",
            *(self.home / "td-ca" / name for name in more),
        ]:
            shutil.copy(file, place)
            (place / file.name).chmod(0o600)


@pytest.fixture
def port() -> int:
    """The secure port of ZooKeeper."""
    return free_ports(1)[0]


@pytest.fixture
def site(tmp_path: Path, port: int) -> MutualSite:
    return MutualSite(tmp_path, f"127.0.0.1:{port}")


@contextlib.contextmanager
def secure_zookeeper(site: MutualSite, port: int) -> Iterator[None]:
    """A server with the page's settings, and with the certificate that the page issues."""
    files, place = site.home / "td-ca" / "hosts" / "zk-1", site.home / "zk-etc"
    place.mkdir()
    (place / "keystore.pem").write_bytes((files / "key.pem").read_bytes() + (files / "certificate.pem").read_bytes())
    shutil.copy(files / "ca.pem", place)
    (settings,) = re.findall(r"(?s)```\n(tickTime.*?)```", PAGE)
    mine = [line for line in settings.splitlines() if line.startswith(("server", "secure", "ssl"))]
    lines = [line.replace("/etc/zookeeper", str(place)).replace("2281", str(port)) for line in mine]
    server = EmbeddedZooKeeper(site.home / "zk", config=[*lines, "secureClientPortAddress=127.0.0.1"])
    server.start()
    try:
        yield
    finally:
        server.kill()


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in reversed(processes):
        process.terminate()
    for process in processes:
        process.wait(30)


def test_the_page_leads_to_a_mutual_cluster(
    site: MutualSite, port: int, started: list[subprocess.Popen[bytes]]
) -> None:
    """An operator who follows the page would have daemons that refuse each other, or a host that
    holds what opens the whole cluster. It takes long: each command of the page is a process."""
    (site.home / "etc" / "token").write_text("a-token-of-an-operator-of-32-chars\n")
    (site.home / "etc" / "token").chmod(0o600)
    made = [site.run(line) for line in block_with("torrentdist ca init")]
    site.install("master-1", "master", "ca.key")
    site.install("host-17", "supervisor")
    shutil.copy(site.home / "td-ca" / "ca.pem", site.home / "etc" / "ca.pem")
    with secure_zookeeper(site, port):
        founded = site.run(block_with("sudo -u torrentdist torrentdist ha init")[0])
        started += [site.start("master"), site.start("supervisor")]
        places = [site.home / "lib" / role for role in ("master", "supervisor")]
        # A command that looks is a program of its own, so none looks before both are there.
        until(lambda: all(map(read_address, places)), "both daemons serve", 60)
        until(lambda: '"host-17"' in site.run("torrentdist cluster -o json").stdout, "both daemons take part", 60)
        make_source(site.home / "my-job", 93)
        lines = block_with("sudo -u torrentdist torrentdist upload")
        ran = [site.run(line) for line in lines if "my-job" in line]
        token = site.run(block_with("sudo -u torrentdist torrentdist token create")[0])
        view = site.run("torrentdist cluster -o json")
        doctor = site.run("torrentdist doctor --config /etc/torrentdist/master.toml -o json")
        findings = json.loads(doctor.stdout)["findings"]
        kept = [path for path in (site.home / "lib" / "supervisor").rglob("*") if path.is_file()]

    assert [0] * 9 == [done.returncode for done in (*made, founded, *ran, token, view)], [
        done.stderr for done in (*made, founded, *ran, token)
    ]
    assert {"https"} == {master["url"].partition(":")[0] for master in json.loads(view.stdout)["masters"]}
    assert "no TLS" not in view.stderr
    assert [] == [finding for finding in findings if finding["verdict"] == "fail"]
    assert {"certificate", "zookeeper"} <= {finding["check"].partition(" ")[0] for finding in findings}
    masters_password = (site.home / "td-ca" / "zookeeper.auth").read_text().strip()
    assert [] == [path for path in kept if masters_password.encode() in path.read_bytes()]
