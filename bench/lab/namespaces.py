"""Hosts with their own links: a network namespace for each host, a veth to one bridge, and `tc tbf`
both ways.

Always: everything lives in a private network, mount and process namespace that one process holds.
When this process ends for any reason, the kernel ends all others and removes all interfaces, mounts
and files. Never: touch the network or the files of the machine outside.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

from bench.lab.warm_memory import WarmMemory

ROOT = Path(__file__).parent.parent.parent
INSIDE = "TORRENTDIST_LAB"
BRIDGE = "10.77.0.1"
BRIDGE_MAC = "02:00:00:00:ff:ff"
NETWORK = 16
NOBODY = "02:00:00:00:00:01"
"""A hardware address that no host has."""
BURST_BYTES = 32 * 1024
LATENCY_MS = 100
"""Longest delay in the queue of a shaped link. Packets beyond it are dropped, as a switch would
do."""
PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR", "JAVA_HOME", "PYTHONPATH", "LD_LIBRARY_PATH")
"""Variables that the lab passes on. Others would measure the shell that started the lab: with
`SSL_CERT_FILE` set, each libtorrent session takes 12 ms more of a processor."""
_UNSHARE = ("unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
STOP_SECS = 10.0
T = TypeVar("T")
PR_SET_PDEATHSIG = 1
CLONE_NEWNET = 0x40000000


def why_not() -> str:
    """Returns why this machine cannot have a lab; empty if it can."""
    if os.geteuid() != 0:
        return "it takes root to make namespaces and links; try it with sudo"
    missing = [tool for tool in ("unshare", "ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} missing (Debian: util-linux, iproute2)"
    script = (
        "ip link add one0 type veth peer name two0 && tc qdisc add dev one0 root tbf rate 1mbit burst 32k latency 100ms"
    )
    tried = subprocess.run([*_UNSHARE, "sh", "-c", script], capture_output=True, text=True)
    return tried.stderr.strip()


def environment() -> dict[str, str]:
    """Returns the environment of all measured processes."""
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ}


def enter(module: str, arguments: Sequence[str]) -> None:
    """Returns if we are inside the private namespaces. Outside of them, runs the same program
    inside and exits with its code."""
    if os.environ.pop(INSIDE, None):
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    command = [*_UNSHARE, sys.executable, "-m", module, *arguments]
    inside = subprocess.Popen(command, env={**os.environ, INSIDE: "1"}, preexec_fn=_die_with_parent)
    try:
        sys.exit(inside.wait())
    finally:
        inside.kill()  # unshare ignores SIGTERM; when it is killed, the kernel kills everything inside
        inside.wait()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


_TX_BYTES = 8
"""The column of sent bytes in /proc/net/dev."""


@dataclass(frozen=True)
class Host:
    name: str
    address: str
    link: str
    """The bridge's end of the host's cable."""
    mac: str

    def sent(self) -> int:
        """Returns the bytes that the host has sent up its link, headers included."""
        return int(Path(f"/sys/class/net/{self.link}/statistics/rx_bytes").read_text())


def received(hosts: Iterable[Host]) -> dict[str, int]:
    """Returns the bytes that came down the link of each host. Reads one file for all, because one
    file of /sys for each host takes long on a busy machine."""
    rows = (line.partition(":") for line in Path("/proc/net/dev").read_text().splitlines()[2:])
    sent_by_bridge = {link.strip(): int(figures.split()[_TX_BYTES]) for link, _, figures in rows}
    return {host.name: sent_by_bridge[host.link] for host in hosts}


class Lab:
    """The hosts and their network. Create it inside the namespaces, once."""

    def __init__(self, directory: Path | None = None, rtt: float = 0.0) -> None:
        """`directory`: a disk for the hosts' files. By default the files are in memory, because 16
        hosts have 16 disks and this machine has one. `rtt`: seconds from any host to any other and
        back."""
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._made = 0
        self._hosts: list[Host] = []
        _run("mount", "-t", "tmpfs", "-o", "size=90%", "none", "/run")
        _run("mount", "-t", "sysfs", "none", "/sys")
        self._on_disk = directory is not None
        self._memory = WarmMemory()
        self.dir = directory or Path("/run/lab")
        self.dir.mkdir(exist_ok=True)
        made = f"link add br0 address {BRIDGE_MAC} type bridge"
        self._cables: subprocess.Popen[bytes] | None = None
        if rtt:
            command = [sys.executable, "-m", "bench.lab.cable_delay", str(rtt / 4)]
            self._cables = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
        _ip(["link set lo up", made, f"addr add {BRIDGE}/{NETWORK} dev br0", "link set br0 up"])
        for switch in Path("/proc/sys/net/bridge").glob("bridge-nf-call-*"):
            switch.write_text("0")  # a switch has no firewall, and this machine's processors carry every packet

    def warm(self, size: int) -> None:
        """Reserves `size` bytes of memory for the hosts' files and processes until the lab ends."""
        if not self._on_disk:
            self._memory.warm(size)

    def add_zone(self, zone: str) -> None:
        """Adds a bridge of its own for the hosts of a zone. One cable, its border, leads to the
        others."""
        _ip(
            [
                f"link add {zone} type bridge",
                f"link set {zone} up",
                f"link add in-{zone} type veth peer name out-{zone}",
                f"link set in-{zone} master {zone} up",
                f"link set out-{zone} master br0 up",
            ]
        )

    def shape_border(self, zone: str, mbit: float) -> None:
        """Limits the border of a zone to `mbit` each way."""
        rule = f"root tbf rate {round(mbit * 1000)}kbit burst {4 * BURST_BYTES} latency {LATENCY_MS}ms"
        for end in ("in", "out"):
            _run("tc", "qdisc", "replace", "dev", f"{end}-{zone}", *rule.split())

    def came_into(self, zone: str) -> int:
        """Returns the bytes that have crossed the border into a zone, headers included."""
        return int(Path(f"/sys/class/net/in-{zone}/statistics/rx_bytes").read_text())

    def remove_zone(self, zone: str) -> None:
        _ip([f"link del in-{zone}", f"link del {zone}"])

    def add(self, names: Sequence[str]) -> list[Host]:
        """Adds hosts. Their cables are as fast as this machine until they are shaped."""
        return self.add_in("br0", names)

    def add_in(self, zone: str, names: Sequence[str]) -> list[Host]:
        """Adds hosts in a zone."""
        made = []
        for name in names:
            self._made += 1
            number = self._made
            mac = f"02:00:00:00:{number // 256:02x}:{number % 256:02x}"
            host = Host(name, f"10.77.{1 + number // 250}.{1 + number % 250}", f"v{number}", mac)
            made.append(host)
            _ip([f"netns add {name}"])
            self._lay(host)
        _ip([f"link set {host.link} master {zone} up" for host in made])
        for host in made:
            _ip(
                [
                    f"link set eth0 address {host.mac}",
                    f"addr add {host.address}/{NETWORK} dev eth0",
                    "link set eth0 up",
                    "link set lo up",
                ],
                host.name,
            )
        self._introduce(made)
        return made

    def _lay(self, host: Host) -> None:
        if self._cables is None:
            _ip([f"link add {host.link} type veth peer name eth0 netns {host.name}"])
            return
        assert self._cables.stdin is not None
        self._cables.stdin.write(f"{host.name} {host.link}\n".encode())
        self._cables.stdin.flush()
        line_of(self._cables.stdout)

    def _introduce(self, new: Sequence[Host]) -> None:
        """Tells all hosts each other's MAC addresses. The namespaces of a machine share one table
        of 1024 neighbours, permanent entries not counted, and an ARP request over a full link may
        take seconds."""
        old = list(self._hosts)
        self._hosts += new
        _ip([_knows(host.address, host.mac, "br0") for host in new])
        for host in self._hosts:
            strangers = [other for other in (new if host in old else self._hosts) if other != host]
            known = [_knows(other.address, other.mac, "eth0") for other in strangers]
            _ip([*known, _knows(BRIDGE, BRIDGE_MAC, "eth0")], host.name)

    def hosts(self, names: Iterable[str]) -> list[Host]:
        known = {host.name: host for host in self._hosts}
        return [known[name] for name in names]

    def remove(self, hosts: Sequence[Host]) -> None:
        """Removes hosts whose processes have ended."""
        self._hosts = [host for host in self._hosts if host not in hosts]
        _ip([f"link del {host.link}" for host in hosts])
        _ip([f"netns del {host.name}" for host in hosts])

    def shape(self, host: Host, mbit: float) -> None:
        """Limits the host's link to `mbit` each way."""
        rule = f"root tbf rate {round(mbit * 1000)}kbit burst {BURST_BYTES} latency {LATENCY_MS}ms"
        _run("tc", "qdisc", "replace", "dev", host.link, *rule.split())
        _run("tc", "-n", host.name, "qdisc", "replace", "dev", "eth0", *rule.split())

    def unshape(self, host: Host) -> None:
        """Ends the effect of shape()."""
        _run("tc", "qdisc", "del", "dev", host.link, "root")
        _run("tc", "-n", host.name, "qdisc", "del", "dev", "eth0", "root")

    def cut(self, host: Host) -> None:
        """Pulls the host's cable."""
        _ip([f"link set {host.link} down"])

    def plug(self, host: Host) -> None:
        """Ends the effect of cut()."""
        _ip([f"link set {host.link} up"])

    def lose(self, sender: Host | None, receiver: Host | None) -> None:
        """Drops what `sender` sends to `receiver`, without an error to either. None stands for the
        bridge."""
        self._neighbour(f"replace {_address(receiver)} lladdr {NOBODY} nud permanent", sender)

    def carry(self, sender: Host | None, receiver: Host | None) -> None:
        """Ends the effect of lose()."""
        self._neighbour(f"del {_address(receiver)}", sender)

    def _neighbour(self, change: str, host: Host | None) -> None:
        _ip([f"neigh {change} dev {'eth0' if host else 'br0'}"], host.name if host else None)

    def spawn(
        self, host: Host | None, command: Sequence[str], *, name: str, stdin: int = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes]:
        """Starts a process on a host, or on the bridge (None), which has no rate limit. Its log is
        NAME.log."""
        within = self.entering(host) if host else []
        with (self.dir / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*within, *command],
                stdin=stdin,
                stdout=subprocess.PIPE if stdin == subprocess.PIPE else log,
                stderr=log,
                cwd=ROOT,  # so that `-m bench...` is found
                env=environment(),
            )
        self._processes[name] = process
        return process

    def entering(self, host: Host) -> list[str]:
        """Returns the command that runs another one on a host."""
        return ["ip", "netns", "exec", host.name]

    def stop(self, names: Sequence[str]) -> None:
        processes = [self._processes.pop(name) for name in names]
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            try:
                process.wait(STOP_SECS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def kill(self, name: str) -> None:
        self._processes[name].kill()
        self._processes.pop(name).wait()

    def listens(self, port: int) -> bool:
        """Whether something accepts connections on the bridge."""
        with socket.socket() as probe:
            return probe.connect_ex((BRIDGE, port)) == 0

    def runs(self, name: str) -> bool:
        """Whether the process was started and neither stopped nor killed."""
        return name in self._processes

    def cpu_secs(self, name: str) -> dict[str, float]:
        """Returns the processor seconds of a process so far: those of its first thread, and of all
        threads."""
        pid = self._processes[name].pid
        return {"first": _used(Path(f"/proc/{pid}/task/{pid}/stat")), "all": _used(Path(f"/proc/{pid}/stat"))}

    def log_of(self, name: str) -> str:
        return (self.dir / f"{name}.log").read_text(errors="replace")


def within(host: str, act: Callable[[], T]) -> T:
    """Calls `act` in the network of a host, as a process on that host would."""

    def enter_and_act() -> T:
        with open(f"/run/netns/{host}") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"setns to {host}")
        return act()

    with ThreadPoolExecutor(1) as alone:  # a network namespace belongs to a thread, and goes when the thread ends
        return alone.submit(enter_and_act).result()


def _used(stat: Path) -> float:
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _address(host: Host | None) -> str:
    return host.address if host else BRIDGE


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(0.02)


def line_of(stream: IO[bytes] | None) -> str:
    assert stream is not None
    return stream.readline().decode().strip()


def _knows(address: str, mac: str, device: str) -> str:
    return f"neigh replace {address} lladdr {mac} dev {device} nud permanent"


def _ip(commands: Sequence[str], host: str | None = None) -> None:
    where = ["-n", host] if host else []
    subprocess.run(["ip", *where, "-batch", "-"], input="\n".join(commands), text=True, check=True)


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
