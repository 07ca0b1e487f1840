"""The servers that the gateway's doors are compared with: docker-registry and nginx, from Debian.

Always: each has the settings that its package ships, apart from addresses, paths and logs. A server
ends with its block.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.lab.namespaces import wait_until
from torrentdist.host.process.listening_sockets import free_ports

PROGRAMS = {"docker-registry": "docker-registry", "nginx": "nginx", "skopeo": "skopeo"}
"""Programs that are compared or that pull, with Debian's packages."""


def lacking(programs: Sequence[str]) -> list[str]:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    return [PROGRAMS[program] for program in programs if shutil.which(program, path=path) is None]


def registry_config(directory: Path, address: str) -> Path:
    """Writes a configuration of docker-registry, and returns its path."""
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "registry.yml"
    config.write_text(f"""
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{cache: {{blobdescriptor: inmemory}}, filesystem: {{rootdirectory: "{directory}/data"}}}}
http: {{addr: "{address}"}}
""")
    return config


@contextmanager
def docker_registry(directory: Path) -> Iterator[str]:
    """Runs docker-registry on loopback, and yields its host and port."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with _running(["docker-registry", "serve", str(registry_config(directory, address))], directory, address):
        yield address


@contextmanager
def nginx(directory: Path, root: Path) -> Iterator[str]:
    """Runs nginx on loopback with the files of `root`, and yields its URL."""
    directory.mkdir()
    address = f"127.0.0.1:{free_ports(1)[0]}"
    config = directory / "nginx.conf"
    config.write_text(f"""
daemon off; worker_processes auto; pid {directory}/nginx.pid; error_log stderr;
{"user root;" if os.geteuid() == 0 else ""}
events {{ worker_connections 4096; }}
http {{ access_log off; sendfile on; tcp_nopush on; client_body_temp_path {directory}/body;
  server {{ listen {address}; root {root}; }} }}
""")
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or "nginx"
    with _running([program, "-c", str(config)], directory, address):
        yield f"http://{address}"


@contextmanager
def _running(command: Sequence[str], directory: Path, address: str) -> Iterator[None]:
    host, _, port = address.partition(":")

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    with (directory / "server.log").open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_until(listens, command[0])
        yield
    finally:
        process.terminate()
        process.wait(30)
