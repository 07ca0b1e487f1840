"""A whole cluster on this machine, each member a real process, described by one directory.

Always: `state.json` holds a random mark before the first process starts, and every process carries
it in its environment. So `down` stops exactly these, even where `up` was killed before it could
note a pid. One command at a time starts or stops processes of a directory. Never: guess a port.
Daemons take free ones and report them. Longer than most files: starting, stopping and describing
the members share one state.
"""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Protocol

import httpx
import msgspec

from torrentdist.client.client_access import read_token
from torrentdist.dev.dev_certificates import DevCertificates
from torrentdist.dev.dev_processes import (
    DevState,
    StartedProcess,
    birth_of,
    has_state,
    is_alive,
    living,
    locked,
    read_state,
    save_state,
    send,
    variable_of,
    wait_gone,
)
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper
from torrentdist.host.process.daemon_address import NAME, read_address
from torrentdist.launcher import bare_program
from torrentdist.launcher.job_users import BadJobUsers, job_users
from torrentdist.model.configuration.config import JobsConfig, ZooKeeperConfig
from torrentdist.model.configuration.settings import environ_layer
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wording import counted
from torrentdist.security.private_files import write_private

READY_SECS = 60.0
STOP_SECS = 15.0
LAUNCHER = "launcher-1"
SIMULATION = "simulation-1"
SIMULATION_PROGRAM = "torrentdist.dev.simulated_hosts"
TOKEN = "token"
DEV_TRUST: dict[str, object] = {"cluster": "dev"}
"""Lets `upload --sign` work without a configuration of one's own."""
LAUNCHER_PROGRAM = "torrentdist.launcher.launcher_server"
GRACE_SECS = 3.0
"""Seconds that workers get when the cluster goes down."""
STOP_ATTEMPTS = 3
STOP_ORDER = ("supervisor", "master", "zookeeper")


class DevSpec(msgspec.Struct, frozen=True, kw_only=True):
    dir: Path
    masters: int = 3
    supervisors: int = 2
    zookeepers: int = 1
    zookeeper: str = ""
    """HOST:PORT[,HOST:PORT] of a running ZooKeeper; then none is started."""
    session_secs: float = 4.0
    first_port: int = 0
    """First port of the masters; gateways listen 10 above. 0: free ports."""
    settings: dict[str, dict[str, object]] = {}
    """Further configuration for every daemon, by section."""
    simulate: int = 0
    """Number of simulated hosts (simulated_hosts.py)."""
    zones: tuple[str, ...] = ()
    """The zones of the supervisors, in turn; none: they have no label `zone`."""
    tls: bool = False
    """Whether the daemons prove themselves to each other by certificates of a CA of their own."""


def default_dir() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(base) / "torrentdist" / "dev"


def users_of_jobs(spec: DevSpec, environ: Mapping[str, str]) -> str:
    """Returns jobs.user as the supervisors will read it: a variable goes before their file."""
    given = environ_layer(environ).values.get("jobs.user") or spec.settings.get("jobs", {}).get("user")
    return str(given or JobsConfig().user)


class ChildProcess(Protocol):
    """What a cluster needs of a Popen."""

    pid: int

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


class DevCluster:
    def __init__(self, spec: DevSpec) -> None:
        self.spec = msgspec.structs.replace(spec, dir=spec.dir.absolute())
        self.dir = self.spec.dir
        self.state = DevState(dir=str(self.dir), zookeeper=spec.zookeeper, processes=[])
        self._children: dict[int, ChildProcess] = {}
        self._zookeeper: EmbeddedZooKeeper | None = None
        self._made: DevCertificates | None = None

    # life

    def up(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Starts every member and waits until all are ready. After a failure nothing is left
        running."""
        self.dir.mkdir(parents=True, exist_ok=True)
        with locked(self.dir, 0.0):
            self._claim_dir()
            try:
                self._start_all(say)
            except BaseException:
                self._stop_all()
                raise

    def _claim_dir(self) -> None:
        """Claims the directory, so that `down` finds everything that is started from now on."""
        running = read_state(self.dir).processes if has_state(self.dir) else []
        if running:
            raise TorrentdistError("dev_running", dir=str(self.dir), detail=f"{len(running)} of its processes run")
        self.state.mark = secrets.token_hex(16)
        save_state(self.state)
        own = self.dir / TOKEN
        if self.token_file == own and not own.exists():
            write_private(own, secrets.token_urlsafe(32).encode())

    def _start_all(self, say: Callable[[str], None]) -> None:
        self._start_zookeeper()
        say(f"ZooKeeper at {self.state.zookeeper}")
        self._found_cluster()
        masters = [f"master-{n + 1}" for n in range(self.spec.masters)]
        for n, name in enumerate(masters):
            self.write_config(name, port=self.spec.first_port + n if self.spec.first_port else 0)
            self.start(name)
        for name in masters:
            self.wait_started(name)
        self._write_client_config()
        self.start(LAUNCHER)
        supervisors = [f"supervisor-{n + 1}" for n in range(self.spec.supervisors)]
        for n, name in enumerate(supervisors):
            self.write_config(name, port=self.spec.first_port + 10 + n if self.spec.first_port else 0)
            self.start(name)
        for name in supervisors:
            self.wait_started(name)
        self._write_client_config()
        self.wait_ready()
        if self.spec.simulate:
            words = ["--config", str(self.dir / "client.toml"), "--hosts", str(self.spec.simulate)]
            self.start_process(SIMULATION, [sys.executable, "-m", SIMULATION_PROGRAM, *words])
            say(f"{counted(self.spec.simulate, 'simulated host')} register")
        say(f"{counted(len(masters), 'master')} and {counted(len(supervisors), 'supervisor')} are ready")

    def _start_zookeeper(self) -> None:
        if self.spec.zookeeper:
            return
        self._zookeeper = zookeeper = EmbeddedZooKeeper(
            self.dir / "zookeeper",
            servers=self.spec.zookeepers,
            within=("env", variable_of(self.state.mark, "zookeeper")),
            secure=None if self._certificates is None else self._certificates.zookeeper_port(),
        )
        zookeeper.start(READY_SECS)
        self.state.zookeeper = ",".join(zookeeper.addresses)
        for n in range(len(zookeeper.servers)):
            self._remember_server(n + 1)

    def _remember_server(self, number: int) -> None:
        assert self._zookeeper is not None
        server = self._zookeeper.servers[number - 1]
        assert server.pid is not None
        self._remember("zookeeper", f"zookeeper-{number}", server.pid, server.address, server.log_file)

    def _found_cluster(self) -> None:
        """Founds the cluster, as an operator does once with `ha init`."""
        from torrentdist.cluster.session.founding import found_at  # needs what only servers need

        secure = {} if self._certificates is None else self._certificates.founder_section()
        config = {**secure, **self.spec.settings.get("zookeeper", {}), **self._zookeeper_section()}
        with ThreadPoolExecutor(1) as thread:  # the caller may have an event loop of its own
            thread.submit(asyncio.run, found_at(msgspec.convert(config, ZooKeeperConfig), READY_SECS)).result()

    def down(self) -> int:
        """Stops the cluster's processes and returns their number. Data stays."""
        if not has_state(self.dir):
            return 0
        with locked(self.dir, READY_SECS):
            found = read_state(self.dir)
            if found.mark != self.state.mark:  # Another `dev up` owns this directory now, or did before.
                self._reap()
                return 0
            self.state.processes = found.processes
            return self._stop_all()

    def _stop_all(self) -> int:
        """Stops supervisors first and ZooKeeper last, and looks again until no process is left."""
        stopped: set[int] = set()
        for _ in range(STOP_ATTEMPTS):
            members = living(self.state)
            if not members:
                break
            stopped |= {member.pid for member in members}
            self._stop(members)
        if self._zookeeper is not None:
            self._zookeeper.kill()  # Its first thread has ended; wait for the others too.
        self._reap()
        self.state.processes = living(self.state)
        save_state(self.state)
        return len(stopped)

    def _stop(self, members: list[StartedProcess]) -> None:
        others = {member.role for member in members} - set(STOP_ORDER)
        for role in (*others, *STOP_ORDER):
            chosen = [member for member in members if member.role == role]
            for member in chosen:
                send(member, signal.SIGCONT)
                send(member, signal.SIGTERM)
            for member in wait_gone(chosen, STOP_SECS):
                send(member, signal.SIGKILL)
            wait_gone(chosen, 5.0)
            if role == "supervisor":
                self._end_workers()

    def _end_workers(self) -> None:
        """Ends the workers, which supervisors leave running for their successors."""
        guardians = [g for path in self.dir.glob("*/guard/*/*/status.json") if (g := _guardian(path)) is not None]
        for guardian in guardians:
            send(guardian, signal.SIGTERM)
        for guardian in wait_gone(guardians, GRACE_SECS):
            send(guardian, signal.SIGUSR1)
        for guardian in wait_gone(guardians, 5.0):
            send(guardian, signal.SIGKILL)  # The guardian's run ends with it.

    # members

    def start(self, name: str) -> None:
        """Starts a member by its name, for example again after a kill."""
        role, _, number = name.partition("-")
        if role == "zookeeper":
            assert self._zookeeper is not None
            server = self._zookeeper.servers[int(number) - 1]
            server.kill()  # If its process has ended, it is not reaped yet.
            server.spawn()
            self._remember_server(int(number))
            return
        if name == LAUNCHER:
            self.launcher_socket.unlink(missing_ok=True)
            words = ["--socket", str(self.launcher_socket), *self._job_users()]
            self.start_process(name, bare_program.command(LAUNCHER_PROGRAM, *words))
            self._wait_launcher()
            return
        (self.dir / name / NAME).unlink(missing_ok=True)
        self.start_process(name, self.command(name))

    def start_process(self, name: str, command: list[str]) -> None:
        """Starts and records a member process. Its role is the part of `name` before the dash."""
        log = self.dir / f"{name}.log"
        mark, _, value = variable_of(self.state.mark, name).partition("=")
        with log.open("ab") as out:
            child = self.spawn(command, {**os.environ, mark: value}, out)
        self._children[child.pid] = child
        self._remember(name.partition("-")[0], name, child.pid, "", log)

    def spawn(self, command: list[str], env: dict[str, str], log: IO[bytes]) -> ChildProcess:
        """Starts a process in a session of its own, with both outputs in `log`."""
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=self.dir,
            env=env,
            start_new_session=True,
        )

    def command(self, name: str) -> list[str]:
        """Returns the command line of a member."""
        return [sys.executable, "-m", "torrentdist_cli", name.partition("-")[0], "--config", str(self.config_of(name))]

    @property
    def launcher_socket(self) -> Path:
        return self.dir / "launcher.sock"

    def _job_users(self) -> list[str]:
        """Returns the launcher's words that allow it the users of jobs, if there are any and root
        starts it."""
        try:
            users = job_users(users_of_jobs(self.spec, os.environ))
        except BadJobUsers:  # jobs run as root here, and the doctor says why
            return []
        return ["--job-users", str(users)] if os.geteuid() == 0 else []

    def _wait_launcher(self) -> None:
        deadline = time.monotonic() + READY_SECS
        while not self.launcher_socket.exists():
            self._require_alive(LAUNCHER)
            if time.monotonic() > deadline:
                raise TorrentdistError("timed_out", what=f"starting {LAUNCHER}", seconds=READY_SECS)
            time.sleep(0.02)

    def wait_started(self, name: str, timeout: float = READY_SECS) -> None:
        """Waits until a member has reported its address. Its configuration keeps that port from
        then on."""
        deadline = time.monotonic() + timeout
        while (address := read_address(self.dir / name)) is None or address.pid != self.member(name).pid:
            self._require_alive(name)
            if time.monotonic() > deadline:
                raise TorrentdistError("timed_out", what=f"starting {name}", seconds=timeout)
            time.sleep(0.02)
        port = int(address.url.rpartition(":")[2])
        self.write_config(name, port=port)
        found = self.member(name)
        gateway = address.url if found.role == "supervisor" else ""
        self._replace(msgspec.structs.replace(found, url=address.url, gateway=gateway))

    def wait_ready(self, timeout: float = READY_SECS) -> None:
        """Waits until every member is ready and one master leads."""
        deadline = time.monotonic() + timeout
        masters = [p for p in self.state.processes if p.role == "master"]
        waiting = {p.id: f"{p.url}/readyz" for p in self.state.processes if p.url and p.role != "zookeeper"}
        with httpx.Client(trust_env=False, timeout=2.0, headers=self.headers(), verify=self.trust()) as http:
            while waiting or not any(_answers_ok(http, f"{m.url}/leaderz") for m in masters):
                waiting = {name: url for name, url in waiting.items() if not _answers_ok(http, url)}
                for name in waiting:
                    self._require_alive(name)
                if time.monotonic() > deadline:
                    missing = ", ".join(waiting) or "a leader"
                    raise TorrentdistError("timed_out", what=f"waiting for {missing}", seconds=timeout)
                time.sleep(0.02)

    def headers(self) -> dict[str, str]:
        """Returns the headers that a request to a daemon needs."""
        return {"Authorization": f"Bearer {read_token(str(self.token_file))}"}

    def trust(self) -> ssl.SSLContext | bool:
        """Returns what a request to a daemon has to trust, for httpx."""
        return False if self._certificates is None else self._certificates.context()

    @property
    def _certificates(self) -> DevCertificates | None:
        if self.spec.tls and self._made is None:
            self._made = DevCertificates(self.dir)
        return self._made

    def _zookeeper_section(self, *member: str) -> dict[str, object]:
        """Returns how a member or a command reaches ZooKeeper: over TLS, if it listens with it."""
        secure = [] if self._zookeeper is None else self._zookeeper.secure_addresses
        if secure and self._certificates is not None:
            return {"servers": secure, **self._certificates.zookeeper_section(*member)}
        return {"servers": self.state.zookeeper.split(",")}

    @property
    def token_file(self) -> Path:
        """The token of an operator: without it, other users of this machine could submit jobs."""
        return Path(str(self.spec.settings.get("api", {}).get("token_file", self.dir / TOKEN)))

    def member(self, name: str) -> StartedProcess:
        return next(p for p in self.state.processes if p.id == name)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Sends a signal to a member. After SIGKILL or SIGTERM, waits until it is gone."""
        member = self.member(name)
        send(member, number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            wait_gone([member], STOP_SECS)
            self._reap()

    def _require_alive(self, name: str) -> None:
        member = self.member(name)
        if not is_alive(member):
            self._reap()
            raise TorrentdistError("config_invalid", origin=name, detail=f"it ended at once: {_last_line(member.log)}")

    def _reap(self) -> None:
        for child in list(self._children.values()):  # Other threads may start members meanwhile.
            # Its first thread has ended, and the others will soon.
            if child.poll() is None and birth_of(child.pid) is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(5.0)

    def _remember(self, role: str, name: str, pid: int, url: str, log: Path) -> None:
        birth = birth_of(pid)
        started = StartedProcess(role=role, id=name, pid=pid, birth=birth or 0, url=url, log=str(log))
        self._replace(started)

    def _replace(self, process: StartedProcess) -> None:
        names = [p.id for p in self.state.processes]
        if process.id in names:
            self.state.processes[names.index(process.id)] = process
        else:
            self.state.processes.append(process)
        save_state(self.state)

    # configuration files

    def config_of(self, name: str) -> Path:
        return self.dir / f"{name}.toml"

    def masters(self) -> list[str]:
        return [p.url for p in self.state.processes if p.role == "master" and p.url]

    def write_config(self, name: str, *, port: int) -> None:
        role = name.partition("-")[0]
        sections: dict[str, dict[str, object]] = {
            "zookeeper": {"session_timeout_secs": self.spec.session_secs, **self._zookeeper_section(name)},
            "api": {"listen": "127.0.0.1", "token_file": str(self.token_file)},
            "trust": dict(DEV_TRUST),
            role: {"id": name, "data_dir": str(self.dir / name)},
        }
        if role == "master":
            sections["api"]["port"] = port
        else:
            own: dict[str, object] = {
                "gateway_port": port,
                "launcher": str(self.launcher_socket),
                "ids_dir": str(self.dir / f"{name}-ids"),
            }
            if zones := self.spec.zones:
                own["labels"] = {"zone": zones[int(name.rpartition("-")[2]) % len(zones)]}
            sections["supervisor"] |= own
            sections["client"] = {"masters": self.masters()}
        secure = {} if self._certificates is None else self._certificates.daemon_sections(name)
        for section, values in [*secure.items(), *self.spec.settings.items()]:
            sections[section] = {**sections.get(section, {}), **values}
        _write_toml(self.config_of(name), sections)

    def _write_client_config(self) -> None:
        gateways = [p.gateway for p in self.state.processes if p.gateway]
        client: dict[str, object] = {"masters": self.masters(), "supervisor": gateways[0] if gateways else ""}
        client["token_file"] = str(self.token_file)
        client["token_in_the_clear"] = bool(self.spec.settings.get("api", {}).get("insecure_listen", False))
        if self._certificates is not None:
            client |= self._certificates.client_section()
        # The groups' commands and the doctor ask ZooKeeper itself.
        zookeeper = {**self.spec.settings.get("zookeeper", {}), **self._zookeeper_section()}
        trust = {**DEV_TRUST, **self.spec.settings.get("trust", {})}
        _write_toml(self.dir / "client.toml", {"client": client, "zookeeper": zookeeper, "trust": trust})


def _guardian(path: Path) -> StartedProcess | None:
    """Returns the guardian of a worker, if its last status can be read."""
    try:
        said = json.loads(path.read_bytes())
        return StartedProcess(
            role="worker", id=path.parent.name, pid=said["guardian"], birth=said["guardian_birth"], url=""
        )
    except (OSError, ValueError, KeyError):
        return None


def stop(directory: Path) -> int:
    """Stops the cluster of this directory, whoever started it. Returns the number of processes."""
    cluster = DevCluster(DevSpec(dir=directory))
    read_state(cluster.dir)
    with locked(cluster.dir, READY_SECS):
        cluster.state = read_state(cluster.dir)
        return cluster._stop_all()


def _answers_ok(http: httpx.Client, url: str) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return http.get(url).status_code == 200
    return False


def _last_line(log: str) -> str:
    lines = Path(log).read_text(errors="replace").strip().splitlines()
    errors = [line for line in lines if line.startswith("error[")]
    return (errors or lines or ["it printed nothing"])[-1]


def _write_toml(path: Path, sections: dict[str, dict[str, object]]) -> None:
    lines: list[str] = []
    for section, values in sections.items():
        lines += [f"[{section}]", *(f"{key} = {_toml(value)}" for key, value in values.items()), ""]
    path.write_text("\n".join(lines))


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(inner)}" for key, inner in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)  # a TOML string, number, boolean or array is spelt as in JSON
