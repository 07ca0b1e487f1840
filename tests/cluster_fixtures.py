"""A whole cluster for tests: real ZooKeeper, real masters and supervisors, and the real command
line.

Always: every process that a test starts is gone after the test, also after a failure. `new_cluster`
belongs to one test; those that tests share are in shared_clusters.py. A cluster has a root of its
own in the ZooKeeper that all tests of a worker share, unless a test asks for a server that it may
harm.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx
import msgspec
import pytest
from forked_programs import PROGRAM, ForkedProgram, begin, begin_daemon
from patience import patient
from quick_callbacks import WATCHED, quick_daemons
from zookeeper_fixtures import new_root, shared_zookeeper

from torrentdist.dev.dev_cluster import ChildProcess, DevCluster, DevSpec
from torrentdist.dev.dev_processes import is_alive
from torrentdist.model.configuration.config import ZooKeeperConfig
from torrentdist.model.wire.headers import CLIENT
from torrentdist.testing.sample_trees import some_bytes, write_tree

Settings = Mapping[str, Mapping[str, object]]
NewCluster = Callable[..., "Cluster"]

SLOW_SYNC: dict[str, object] = {"sync_secs": 86_400.0}
"""Turns off the periodic sync, so that no test passes only because of it."""
NO_COURTESY: dict[str, object] = {"nice": 0}
"""Turns off lower priorities: with many tests on few processors, a process that yields to all
others never runs."""


def until(condition: Callable[[], object], what: str = "the condition holds", seconds: float = 20.0) -> None:
    """Return soon after the condition holds; fail the test at the deadline. Looks ever less often,
    and waits longer than a look takes: some conditions are commands."""
    began = looked = time.monotonic()
    while not condition():
        now = time.monotonic()
        waited = now - began
        if waited > patient(seconds):
            pytest.fail(f"not within {waited:g} s: {what}")
        time.sleep(max(min(0.2, 0.02 + waited / 50), min(1.0, 2 * (now - looked))))
        looked = time.monotonic()


def throughout(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition held at every look for `seconds`. Use it for what must not happen,
    never for what will."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not condition():
            return False
        time.sleep(0.02)
    return True


def make_source(path: Path, seed: int, size: int = 200_000) -> Path:
    """Writes two files to upload; the same seed and size give the same bytes."""
    write_tree(path, {"data.bin": some_bytes(size, seed), "sub/other.bin": some_bytes(size // 3, seed + 1)})
    return path


def picture(top: Path) -> dict[str, tuple[str, bytes, bool]]:
    """Returns kind, bytes or target, and executable bit of everything below `top`, or of the file
    itself."""
    if top.is_file():
        return {"": ("file", top.read_bytes(), bool(top.stat().st_mode & stat.S_IXUSR))}
    found: dict[str, tuple[str, bytes, bool]] = {}
    for directory, names, files in os.walk(top):
        for name in (*names, *files):
            path = Path(directory, name)
            key = str(path.relative_to(top))
            if path.is_symlink():
                found[key] = ("link", os.readlink(path).encode(), False)
            elif path.is_dir():
                found[key] = ("directory", b"", False)
            else:
                found[key] = ("file", path.read_bytes(), bool(path.stat().st_mode & stat.S_IXUSR))
    return found


def files_of_daemons(top: Path) -> dict[Path, bytes]:
    """Returns every file below `top` with its bytes, without the content of bundles. Daemons rename
    files while this reads: a file that has gone makes it read all of them again."""
    while True:
        with contextlib.suppress(FileNotFoundError):
            paths = [path for path in top.rglob("*") if path.is_file() and "objects" not in path.parts]
            return {path: path.read_bytes() for path in paths}


def part_bytes(parent: Path) -> int:
    """Returns the bytes on disk of an unfinished download in this directory."""
    files = [path for part in parent.glob(".*part") for path in part.rglob("*.bin")]
    return sum(path.stat().st_blocks * 512 for path in files)


def disk_bytes(top: Path) -> int:
    """Returns the bytes that the files below `top` take on disk. Holes take none."""
    return sum(path.stat().st_blocks * 512 for path in top.rglob("*") if path.is_file())


@dataclass(frozen=True)
class Ran:
    """The result of a command that has ended."""

    code: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.stdout)

    def ok(self) -> Any:
        """Returns what the command printed. Fails the test if the command failed."""
        if self.code != 0:
            pytest.fail(f"exit {self.code}: {self.stderr}")
        return self.json


class Running:
    """A command that is running. It is killed with its cluster at the latest."""

    def __init__(self, process: ForkedProgram) -> None:
        self.process = process
        self._began = time.monotonic()

    def end(self, timeout: float = 60.0) -> Ran:
        try:
            stdout, stderr = self.process.communicate(timeout=patient(timeout))
        except subprocess.TimeoutExpired:
            self.kill()
            pytest.fail(f"still running after {patient(timeout):g} s: {self.process.args!r}")
        return Ran(self.process.wait(), stdout, stderr, time.monotonic() - self._began)

    def running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


class ProgramCluster(DevCluster):
    """A DevCluster whose members may run other programs than `torrentdist`: files of this
    directory, by member. Members that run `torrentdist` start as forks."""

    def __init__(self, spec: DevSpec) -> None:
        super().__init__(spec)
        self.programs: dict[str, str] = {}

    def command(self, name: str) -> list[str]:
        python, _, _, *rest = command = super().command(name)
        program = self.programs.get(name)
        return [python, str(Path(__file__).with_name(program)), *rest] if program else command

    def spawn(self, command: list[str], env: dict[str, str], log: IO[bytes]) -> ChildProcess:
        python, option, program, *arguments = command
        if (python, option, program) == (sys.executable, "-m", PROGRAM):
            return begin_daemon(arguments, env | WATCHED, self.dir, log)
        return super().spawn(command, env, log)


class Cluster:
    """A DevCluster with the actions that tests need."""

    def __init__(self, dev: ProgramCluster, work: Path) -> None:
        self.dev = dev
        self.dir = dev.dir
        self._work = work
        self._commands: list[Running] = []
        self.http = httpx.Client(trust_env=False, timeout=patient(10.0), headers={CLIENT: "1"}, auth=self._with_token)

    def close(self) -> None:
        for command in self._commands:
            command.kill()
        self.http.close()
        self.dev.down()

    def _with_token(self, request: httpx.Request) -> httpx.Request:
        """Adds the token that `dev up` made, unless the request says something else."""
        for name, value in self.dev.headers().items():
            request.headers.setdefault(name, value)
        return request

    # the command line

    def begin(self, *args: object, **settings: object) -> Running:
        """Starts a command. `settings` are configuration keys, section first:
        swarm__upload_limit=9."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("TORRENTDIST_", "XDG_"))}
        env |= {"XDG_CACHE_HOME": str(self._work / "cache"), "XDG_CONFIG_HOME": str(self._work / "config")}
        settings = {**{f"swarm__{key}": value for key, value in NO_COURTESY.items()}, **settings}
        env |= {f"TORRENTDIST_{key.replace('__', '_').upper()}": str(value) for key, value in settings.items()}
        command = ["--config", self.dir / "client.toml", *args, "-o", "json"]
        running = Running(begin([str(part) for part in command], env))
        self._commands.append(running)
        return running

    def run(self, *args: object, **settings: object) -> Ran:
        return self.begin(*args, **settings).end()

    def upload(self, path: Path, bundle: str, replicas: int = 3) -> Any:
        return self.run("upload", path, "--id", bundle, "--min-replicas", replicas).ok()

    # members

    @property
    def root(self) -> str:
        """The root of the cluster's tree."""
        return str(self.dev.spec.settings.get("zookeeper", {}).get("chroot", ZooKeeperConfig().chroot))

    @property
    def tree(self) -> str:
        """Where a client finds the cluster's tree: the address of ZooKeeper, and the root."""
        return self.dev.state.zookeeper + self.root

    def masters(self) -> list[str]:
        return [p.id for p in self.dev.state.processes if p.role == "master"]

    def supervisors(self) -> list[str]:
        return [p.id for p in self.dev.state.processes if p.role == "supervisor"]

    def url(self, name: str) -> str:
        return self.dev.member(name).url

    def alive(self, name: str) -> bool:
        return is_alive(self.dev.member(name))

    def kill(self, *names: str) -> None:
        for name in names:
            self.dev.signal(name, signal.SIGKILL)

    def start(self, *names: str) -> None:
        """Starts killed members again, and returns when they serve."""
        for name in names:
            self.dev.start(name)
        for name in names:
            self.dev.wait_started(name)

    def reconfigure(self, name: str, settings: Settings) -> None:
        """Stops a member and starts it with further settings."""
        self.dev.signal(name, signal.SIGTERM)
        self.reconfigure_stopped(name, settings)

    def reconfigure_stopped(self, name: str, settings: Settings) -> None:
        """Starts a stopped member with further settings. Its next start is without them."""
        self.write_settings(name, settings)
        self.dev.start(name)
        self.dev.wait_started(name)

    def write_settings(self, name: str, settings: Settings) -> None:
        spec = self.dev.spec
        url = self.url(name) if any(p.id == name for p in self.dev.state.processes) else ""
        try:
            self.dev.spec = _with(spec, settings)
            self.dev.write_config(name, port=int(url.rpartition(":")[2] or 0))
        finally:
            self.dev.spec = spec

    def leader(self) -> str:
        """Waits for a leader and returns its name."""
        found: list[str] = []

        def look() -> bool:
            found[:] = [name for name in self.masters() if self.alive(name) and self.status(name, "/leaderz") == 200]
            return bool(found)

        until(look, "a leader")
        return found[0]

    def standbys(self) -> list[str]:
        leader = self.leader()
        return [name for name in self.masters() if name != leader]

    # answers of members

    def status(self, name: str, path: str) -> int:
        with contextlib.suppress(httpx.HTTPError):
            return self.http.get(self.url(name) + path, timeout=2.0).status_code
        return 0

    def get(self, name: str, path: str) -> Any:
        """Returns the JSON that a member answers with; None after any failure."""
        with contextlib.suppress(httpx.HTTPError):
            response = self.http.get(self.url(name) + path)
            if response.status_code == 200:
                return response.json()
        return None

    def holders(self, bundle: str, *, at: str) -> list[str]:
        view = self.get(at, f"/v1/bundles/{bundle}")
        return view["holders"] if view else []

    def registered(self, name: str, *, at: str) -> bool:
        view = self.get(at, "/v1/cluster")
        return view is not None and name in [m["id"] for m in (*view["masters"], *view["supervisors"])]

    # members' disks

    def store(self, name: str) -> Path:
        return self.dir / name

    def published(self, name: str, digest: str) -> bool:
        return (self.store(name) / "bundles" / digest).exists()

    def content(self, name: str, digest: str) -> Path:
        return self.store(name) / "objects" / digest / "content"

    # repair

    def heal(self) -> None:
        """Undoes whatever a test did: every member runs and is ready again."""
        for command in self._commands:
            command.kill()
        self._commands.clear()
        for process in list(self.dev.state.processes):
            if is_alive(process):
                os.kill(process.pid, signal.SIGCONT)
        dead = [p.id for p in self.dev.state.processes if not is_alive(p)]
        self.start(*dead)
        self.dev.wait_ready()


def _with(spec: DevSpec, settings: Settings) -> DevSpec:
    merged = {section: dict(values) for section, values in spec.settings.items()}
    for section, values in settings.items():
        merged[section] = {**merged.get(section, {}), **values}
    return msgspec.structs.replace(spec, settings=merged)


@contextlib.contextmanager
def running_cluster(
    settings: Settings | None = None, *, work: Path | None = None, own_zookeeper: bool = False, **spec: Any
) -> Iterator[Cluster]:
    """Yields a cluster in `work`, or in a directory of its own, and removes it afterwards.

    `own_zookeeper`: a test stops or pauses its ZooKeeper. A cluster with TLS has its own too.
    """
    work = work or Path(tempfile.mkdtemp(prefix="torrentdist-test-"))
    merged = {"replication": SLOW_SYNC, **{k: dict(v) for k, v in (settings or {}).items()}}
    if not (own_zookeeper or spec.get("tls") or "zookeeper" in spec):
        spec["zookeeper"] = shared_zookeeper().addresses[0]
        merged["zookeeper"] = {"chroot": new_root(), **merged.get("zookeeper", {})}
    merged["replication"] = {**SLOW_SYNC, **merged["replication"]}
    merged["swarm"] = {**NO_COURTESY, **merged.get("swarm", {})}
    dev = ProgramCluster(DevSpec(dir=work / "cluster", settings=merged, **spec))
    cluster = Cluster(dev, work)
    try:
        with quick_daemons(lambda: cluster.dir.glob("*.log")):
            try:
                dev.up()
                yield cluster
            finally:
                cluster.close()
    finally:
        shutil.rmtree(work, ignore_errors=True)


@pytest.fixture
def new_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewCluster]:
    """Makes clusters for one test: new_cluster(settings, masters=1, supervisors=0)."""
    with contextlib.ExitStack() as stack:

        def make(settings: Settings | None = None, **spec: Any) -> Cluster:
            return stack.enter_context(running_cluster(settings, work=tmp_path_factory.mktemp("own-cluster"), **spec))

        yield make
