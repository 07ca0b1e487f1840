"""A container as a process: in namespaces of its own, with a root that has this machine's programs,
the sources of torrentdist in place of its image, and the volumes of the pod.

Always: it ends with the process that started it, and so does every process that it started. What
it writes outside of its volumes is in memory, and goes with it.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.lab.namespaces import ROOT

PATH = f"{ROOT}/docker:{sys.prefix}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
"""`torrentdist`, `python` and `healthcheck` are found as in the image."""
SAME = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
COMMON = "chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+net_bind_service"
"""Some of what a container runtime leaves to root."""
POLL_SECS = 0.05


@dataclass(frozen=True)
class BoundVolume:
    source: Path
    target: str
    read_only: bool = False
    propagation: str = "None"


@dataclass(frozen=True)
class ContainerPlan:
    name: str
    command: Sequence[str]
    env: Mapping[str, str]
    volumes: Sequence[BoundVolume]
    network: Path
    """A network namespace."""
    hostname: str
    log: Path
    etc: Path
    workdir: str = "/"
    user: int = 0
    group: int = 0
    groups: Sequence[int] = ()
    read_only: bool = False
    privileged: bool = False
    drops_all: bool = False

    def as_user(self) -> list[str]:
        """Returns the command that runs another one with the container's rights and environment."""
        pairs = [f"{key}={value}" for key, value in {"PATH": PATH, "HOME": "/tmp", **self.env}.items()]
        groups = [f"--groups={','.join(map(str, self.groups))}"] if self.groups else ["--clear-groups"]
        rights = [f"--reuid={self.user}", f"--regid={self.group}", *groups]
        if not self.privileged:
            bounds = "-all" if self.drops_all or self.user else f"-all,+{COMMON}"
            rights += [f"--bounding-set={bounds}", "--inh-caps=-all"]
            rights += ["--no-new-privs"] if self.drops_all else []
        return ["setpriv", *rights, "env", "-i", *pairs]

    def script(self, root: Path) -> str:
        """Returns what a shell does in new namespaces to become the container."""
        quoted, place = shlex.quote, shlex.quote(str(root))
        lines = [f"mount -t tmpfs -o mode=755 none {place}", f"cd {place}"]
        lines += ["mkdir -m 755 usr proc sys dev run var var/lib etc old", "mkdir -m 1777 tmp var/tmp"]
        lines += [f"[ ! -L /{name} ] || cp -a /{name} {name}" for name in SAME]
        for source in {"/usr", str(ROOT), sys.prefix, sys.base_prefix}:
            lines += _bound(BoundVolume(Path(source), source, read_only=True), make=source != "/usr")
        lines += ["mount -t proc proc proc", "mount -t sysfs -o ro sysfs sys", "mount -t tmpfs -o mode=755 none dev"]
        lines += [f"touch dev/{device}; mount --bind /dev/{device} dev/{device}" for device in DEVICES]
        lines += ["mkdir -m 1777 dev/shm; ln -s /proc/self/fd dev/fd", f"cp -a {quoted(str(self.etc))}/. etc"]
        for volume in sorted(self.volumes, key=lambda one: one.target.count("/")):
            lines += _bound(volume, make=True)
        # As container runtimes do it: what goes with the old root is not unmounted elsewhere.
        lines += ["pivot_root . old", "cd /", "mount --make-rslave old", "umount -l old", "rmdir old"]
        lines += ["mount -o remount,bind,ro /"] if self.read_only else []
        lines += [f"hostname {quoted(self.hostname)}", f"cd {quoted(self.workdir)}"]
        return "\n".join([*lines, f"exec {shlex.join([*self.as_user(), *self.command])}"])


def _bound(volume: BoundVolume, *, make: bool) -> list[str]:
    source, target = shlex.quote(str(volume.source)), shlex.quote(f".{volume.target}")
    lines = []
    if make and volume.source.is_dir():
        lines.append(f"mkdir -p {target}")
    elif make:
        lines.append(f"mkdir -p {shlex.quote(os.path.dirname(f'.{volume.target}'))}; touch {target}")
    # Before it is mounted here, nothing of ours reaches the node by it.
    lines.append(f"mount --rbind {source} {target}")
    if volume.propagation != "Bidirectional":
        kind = "rslave" if volume.propagation == "HostToContainer" else "rprivate"
        lines.append(f"mount --make-{kind} {target}")
    if volume.read_only:
        lines.append(f"mount -o remount,bind,ro {target}")
    return lines


class RunningContainer:
    def __init__(self, plan: ContainerPlan, root: Path) -> None:
        self.plan = plan
        self._init = 0
        root.mkdir(parents=True, exist_ok=True)
        plan.log.parent.mkdir(parents=True, exist_ok=True)
        command = ["setpriv", "--pdeathsig=KILL", "nsenter", f"--net={plan.network}"]
        command += ["unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child"]
        command += ["--propagation=unchanged", "sh", "-euc", plan.script(root)]
        with plan.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")
        # For `kubectl exec`, which another process runs.
        about = {"pid": self._process.pid, "as_user": plan.as_user()}
        root.with_suffix(".json").write_text(json.dumps(about))

    def exit_code(self) -> int | None:
        """Returns how it ended; None while it runs."""
        code = self._process.poll()
        return code if code is None or code >= 0 else 128 - code

    def init(self) -> int:
        """Returns the process id of its first process; 0 if there is none."""
        self._init = self._init or child_of(self._process.pid)
        return self._init

    def run(self, command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
        """Runs a command in the container, as `kubectl exec` does."""
        within = entering(self.init())
        return subprocess.run(
            [*within, *self.plan.as_user(), *command], capture_output=True, text=True, timeout=seconds, check=False
        )

    def stop(self, grace: float) -> None:
        """Asks it to end, and kills it when it takes longer."""
        deadline = time.monotonic() + grace
        if (pid := self.init()) and self.exit_code() is None:
            os.kill(pid, signal.SIGTERM)
        while self.exit_code() is None and time.monotonic() < deadline:
            time.sleep(POLL_SECS)
        self._process.kill()
        self._process.wait()


def child_of(pid: int) -> int:
    """Returns the child of a process that has one thread; 0 if it has none."""
    try:
        return int((Path(f"/proc/{pid}/task/{pid}/children").read_text().split() or ["0"])[0])
    except OSError:
        return 0


def entering(pid: int) -> list[str]:
    return ["nsenter", f"--target={pid}", "--mount", "--pid", "--net", "--uts", "--ipc", "--"]
