"""Runs the very commands of docker/ and docs/deployment.md on this machine, with other places and
addresses.

Always: a test reads what it runs from these files, so that a wrong file fails. Only paths,
addresses, ports and the user are replaced.
"""

from __future__ import annotations

import grp
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from torrentdist.host.process.listening_sockets import free_ports

ROOT = Path(__file__).parent.parent
DOCKER = ROOT / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose" / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
PAGE = (ROOT / "docs" / "deployment.md").read_text()
SPARK_CLASS = "/usr/local/lib/python3.11/site-packages/pyspark/bin/spark-class"

IMAGE = """#!/bin/sh
while [ "$1" != torrentdist ]; do shift; done
shift
for word; do
    shift
    case $word in /secrets*) word={secrets}${{word#/secrets}} ;; esac
    set -- "$@" "$word"
done
exec {python} -m torrentdist_cli "$@"
"""
"""Stands in for `docker run OPTIONS torrentdist WORDS`, with the volume /secrets."""


def shell_blocks() -> list[str]:
    """Returns the indented blocks of the page, which a reader types."""
    return [re.sub(r"(?m)^ {4}", "", block) for block in re.findall(r"(?m)(?:^ {4}.+\n)+", PAGE)]


def block_with(text: str) -> list[str]:
    (found,) = (block for block in shell_blocks() if text in block)
    return found.splitlines()


def instructions() -> dict[str, list[str]]:
    """Returns the arguments of each instruction of the Dockerfile, in order."""
    text = re.sub(r"(?m)^\s*#.*\n", "", (DOCKER / "Dockerfile").read_text()).replace("\\\n", " ")
    found: dict[str, list[str]] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, rest = line.partition(" ")
        found.setdefault(name, []).append(" ".join(rest.split()))
    return found


def in_container(line: str) -> tuple[str, list[str]]:
    """Returns the service and the command of ours that runs in it: `exec SERVICE torrentdist WORDS`
    or `run OPTIONS SERVICE WORDS`."""
    kind, *words = shlex.split(line.removeprefix("docker compose "))
    service = next(n for n, word in enumerate(words) if word in SERVICES)
    if kind == "exec":
        assert "torrentdist" == words.pop(service + 1)
    return words[service], words[service + 1 :]


class Site:
    """One service of each kind on loopback, with the files that compose would mount."""

    def __init__(self, home: Path, zookeeper: str) -> None:
        self.home = home
        ports = {str(port): str(free_ports(1)[0]) for port in (7060, 7061, 7070, 7071, 7077, 8080)}
        self._ports = re.compile(r"(?<![\d.])(7060|7061|7070|7071|7077|8080)(?!\d)"), ports
        self._texts = [
            (re.compile(r"10\.77\.0\.1[123]:2181"), zookeeper),
            (re.compile(r"10\.77\.0\.\d+|0\.0\.0\.0"), "127.0.0.1"),
            (re.compile(r"/etc/torrentdist"), str(home / "etc")),
            (re.compile(r"/run/secrets/ca"), str(home / "secrets" / "ca" / "ca.pem")),
            (re.compile(r"/run/secrets"), str(home / "secrets")),
            (re.compile(r"/var/lib/torrentdist"), str(home / "lib")),
            (re.compile(r"/my-job\b"), str(home / "my-job")),
            (re.compile(r"torrentdist-readers"), grp.getgrgid(os.getgid()).gr_name),
        ]
        (home / "etc").mkdir()
        (home / "lib" / "spark").mkdir(parents=True)
        for name in ("master.toml", "supervisor.toml", "torrentdist.toml"):
            (home / "etc" / name).write_text(self.here((DOCKER / "compose" / name).read_text()))
        # A test may not write to /etc/torrentdist; this file is read in the same way.
        (home / "torrentdist.toml").symlink_to(home / "etc" / "torrentdist.toml")

    def here(self, text: str) -> str:
        pattern, ports = self._ports
        text = pattern.sub(lambda found: ports[found[0]], text)
        for was, now in self._texts:
            text = was.sub(now, text)
        return text

    def make_secrets(self) -> None:
        """Makes the secrets with the page's own script, and mounts those of the first services."""
        assert ["cd docker/compose", "sudo ./make-secrets"] == block_with("make-secrets")
        script = (DOCKER / "compose" / "make-secrets").read_text()
        script = self.here(script).replace("10001:10001", f"{os.getuid()}:{os.getgid()}")
        (self.home / "make-secrets").write_text(script)
        (self.home / "docker").write_text(IMAGE.format(python=sys.executable, secrets=self.home / "secrets"))
        (self.home / "docker").chmod(0o755)
        path = f"{self.home}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "HOME": str(self.home)}
        subprocess.run(["sh", "make-secrets"], cwd=self.home, env=environment, check=True, timeout=60)

    def mount(self, service: str) -> None:
        """Puts the volumes with a certificate where `service` finds them."""
        for volume in SERVICES[service].get("volumes", []):
            source, target, *_ = volume.split(":")
            if source.startswith("./secrets/"):
                place = Path(self.here(target))
                place.parent.mkdir(exist_ok=True)
                place.unlink(missing_ok=True)
                place.symlink_to(self.home / source)

    def environment(self, service: str) -> dict[str, str]:
        given = SERVICES[service].get("environment", {})
        own = {name: value for name, value in os.environ.items() if not name.startswith("TORRENTDIST_")}
        return own | {name: self.here(value) for name, value in given.items()} | {"HOME": str(self.home)}

    def start(self, service: str) -> subprocess.Popen[bytes]:
        spec = SERVICES[service]
        self.mount(service)
        program = [sys.executable, "-m", "torrentdist_cli"]
        if "entrypoint" in spec:
            import pyspark

            assert [SPARK_CLASS] == spec["entrypoint"]
            program = [str(Path(pyspark.__file__).parent / "bin" / "spark-class")]
        environment = self.environment(service) | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
        environment["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # it lives for seconds
        environment["SPARK_WORKER_DIR"] = str(self.home / "lib" / "spark")
        with (self.home / f"{service}.log").open("wb") as log:
            command = [*program, *(self.here(word) for word in spec["command"])]
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=self.home)

    def healthy(self, service: str) -> bool:
        kind, program, *arguments = SERVICES[service]["healthcheck"]["test"]
        assert ("CMD", "healthcheck") == (kind, program)
        command = [sys.executable, str(DOCKER / "healthcheck"), *map(self.here, arguments)]
        return subprocess.run(command, capture_output=True, timeout=10, check=False).returncode == 0

    def execute(self, line: str) -> subprocess.CompletedProcess[str]:
        """Runs a command as the page runs it in a container."""
        service, words = in_container(line)
        return self.run(service, words)

    def run(self, service: str, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "torrentdist_cli", *map(self.here, words)]
        environment = self.environment(service)
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=False, cwd=self.home
        )
