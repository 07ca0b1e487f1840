"""Hosts that an engine can't tell from machines: each has a network, a name and a disk of its own.

A host is a network namespace of the lab, and a process that holds the host's mount and UTS
namespaces. `/srv` is its own disk; `/mnt` is what an operator installed on all hosts.

Always: names are resolved by /etc/hosts, on the hosts and in this process. Never: write to the
machine's own /etc, /srv, /mnt or /tmp.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.lab.namespaces import BRIDGE, ROOT, Host, Lab, environment, line_of, received

ENDS_SECS = 900.0
OWN_DISK = {"XDG_CACHE_HOME": "/srv/cache", "TMPDIR": "/tmp"}
"""What a host's programs write lies on its disk. Hosts of other labs had the same addresses, so
what commands remember of them is wrong here."""
HOLD = """
hostname "$1" && mount --bind "$2/srv" /srv && mount --bind "$2/tmp" /tmp && echo ready && exec sleep infinity
"""


class EngineLab(Lab):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self.shared = directory / "shared"
        self.shared.mkdir()
        self._names = directory / "hosts"
        self._names.write_text(f"127.0.0.1 localhost\n{BRIDGE} bridge {socket.gethostname()}\n")
        subprocess.run(["mount", "--bind", str(self._names), "/etc/hosts"], check=True)
        subprocess.run(["mount", "--bind", str(self.shared), "/mnt"], check=True)

    def add(self, names: Sequence[str]) -> list[Host]:
        made = super().add(names)
        with self._names.open("a") as file:
            file.writelines(f"{host.address} {host.name}\n" for host in made)
        for host in made:
            self._hold(host)
        return made

    def _hold(self, host: Host) -> None:
        disk = self.dir / "disks" / host.name
        for part in ("srv", "tmp"):
            (disk / part).mkdir(parents=True)
        held = ["unshare", "--mount", "--uts", "sh", "-c", HOLD, "sh", host.name, str(disk)]
        command = ["ip", "netns", "exec", host.name, *held]
        holder = self._holders[host.name] = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert holder.stdout is not None
        with holder.stdout as said:
            if line_of(said) != "ready":
                raise RuntimeError(f"the host {host.name} did not start")

    def named(self, name: str) -> Host:
        return next(host for host in self._hosts if host.name == name)

    def end_all(self) -> None:
        """Kills every process of every host."""
        for name in list(self._processes):
            self.kill(name)
        for holder in self._holders.values():
            holder.kill()
            holder.wait()

    def entering(self, host: Host) -> list[str]:
        holder = self._holders[host.name].pid
        return ["nsenter", "-t", str(holder), "--net", "--mount", "--uts", f"--wdns={ROOT}"]

    def srv(self, host: Host) -> Path:
        """Returns the host's disk as this process sees it."""
        return self.dir / "disks" / host.name / "srv"

    def call(
        self, host: Host, command: Sequence[str], *, variables: Mapping[str, str] | None = None, secs: float = ENDS_SECS
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command on a host to its end."""
        return subprocess.run(
            [*self.entering(host), *command],
            capture_output=True,
            text=True,
            env={**environment(), **OWN_DISK, **(variables or {})},
            timeout=secs,
            check=False,
        )

    def start(self, host: Host, command: Sequence[str], *, name: str, variables: Mapping[str, str]) -> None:
        """Starts a daemon on a host. Its log is NAME.log."""
        self.spawn(
            host, ["env", *(f"{key}={value}" for key, value in {**OWN_DISK, **variables}.items()), *command], name=name
        )

    def end(self, name: str) -> str:
        """Kills a daemon, and returns the end of its log."""
        self.kill(name)
        return self.log_of(name)[-2000:]

    def pause(self, name: str) -> None:
        self._processes[name].send_signal(19)

    def resume(self, name: str) -> None:
        self._processes[name].send_signal(18)


class LinkCount:
    """Bytes that came down the links of hosts, and went up, since this was made."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self._hosts = hosts
        self._down = received(hosts)
        self._up = {host.name: host.sent() for host in hosts}

    def down(self) -> dict[str, int]:
        now = received(self._hosts)
        return {name: now[name] - before for name, before in self._down.items()}

    def up(self) -> dict[str, int]:
        return {host.name: host.sent() - self._up[host.name] for host in self._hosts}


@contextmanager
def shaped(lab: Lab, hosts: Sequence[Host], mbit: float) -> Iterator[None]:
    """Limits links for a while."""
    for host in hosts:
        lab.shape(host, mbit)
    try:
        yield
    finally:
        for host in hosts:
            lab.unshape(host)


def java_home() -> str:
    found = subprocess.run(["sh", "-c", "readlink -f $(command -v java)"], capture_output=True, text=True, check=True)
    return os.path.dirname(os.path.dirname(found.stdout.strip()))
