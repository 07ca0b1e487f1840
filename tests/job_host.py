"""A real supervisor process with a ZooKeeper; the test plays the masters.

Always: after the test none of its processes is left, neither supervisor nor guardian nor worker.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from forked_programs import ForkedProgram, begin_daemon
from quick_callbacks import WATCHED, quick_daemons
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from worker_oracle import Oracle, make_worker_bundle
from zookeeper_fixtures import Connect, eventually

from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.store.store import Store
from torrentdist.cluster import paths
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper
from torrentdist.host.http.uvicorn_adapter import WebServer
from torrentdist.host.http.web import json_response, on_torrentdist_error
from torrentdist.host.process.listening_sockets import bind_socket
from torrentdist.launcher import bare_program
from torrentdist.launcher.process_tree import birth_of
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, JobId, MasterId, StoreId, SupervisorId
from torrentdist.model.jobs.job import JobSpec
from torrentdist.model.records import AssignmentRecord, JobStatus, MasterRecord, WorkerAssignment, encode
from torrentdist.model.wire.ha_views import OutageView
from torrentdist.model.wire.job_messages import HeartbeatAnswer, HeartbeatBody, JobView, WorkerReport
from torrentdist.supervisor.process.guardian_processes import left_of

BUNDLE = BundleId("work-1")
SESSION_SECS = 4.0
RESTART_SESSION_SECS = 16.0
"""Long, because a supervisor takes seconds to start on a machine that is busy with other tests."""
START_SECS = 20.0


DaemonProcess = ForkedProgram | subprocess.Popen[bytes]


class Masters:
    """The masters as a supervisor sees them: jobs, heartbeats, and whether they see ZooKeeper."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobView] = {}
        self.heard: list[HeartbeatBody] = []
        self.answer = HeartbeatAnswer(interval=0.2)
        self.blind = False
        """Other masters that they name."""
        self.newest: int | None = 0
        """The generation of the newest assignment that they know."""
        self.leader: str | None = None
        """Another master that leads; None: this one leads."""
        self.url = ""

    async def open(self) -> None:
        routes = [
            Route("/v1/jobs/{job}", self._job),
            Route("/v1/heartbeat", self._heartbeat, methods=["POST"]),
            Route("/v1/sight", self._outage_view),
        ]
        app = Starlette(routes=routes, exception_handlers={TorrentdistError: on_torrentdist_error})
        self._server = WebServer(app, bind_socket("127.0.0.1", 0, what="a test's master"))
        await self._server.start()
        self.url = f"http://127.0.0.1:{self._server.port}"

    async def close(self) -> None:
        await self._server.stop()

    async def _job(self, request: Request) -> Response:
        view = self.jobs.get(request.path_params["job"])
        if view is None:
            raise TorrentdistError("job_not_found", id=request.path_params["job"])
        return json_response(view)

    async def _heartbeat(self, request: Request) -> Response:
        if self.leader is not None:
            raise TorrentdistError("not_leader", extra={"leader": self.leader, "masters": []})
        self.heard.append(msgspec.json.decode(await request.body(), type=HeartbeatBody))
        return json_response(self.answer)

    async def _outage_view(self, _: Request) -> Response:
        return json_response(OutageView(sees=not self.blind, newest=self.newest, masters={}))

    def said(self, job: str, worker: int) -> WorkerReport | None:
        """Returns the last report about a worker."""
        reports = self.heard[-1].workers if self.heard else []
        return next((r for r in reports if (r.job, r.worker) == (job, worker)), None)


def publish_bundle(data: Path, source: Path, bundle: BundleId) -> None:
    """Publishes a bundle in the store of a supervisor that does not run."""
    meta = make_metafile(source)
    store = Store.open(data)
    home = store.begin(meta)
    shutil.copytree(source, home / "content", dirs_exist_ok=True)
    store.publish(meta.digest)
    store.bind(bundle, meta.digest)
    store.close()


class JobHost:
    session_secs = SESSION_SECS
    settings: Mapping[str, Mapping[str, Any]] = {}
    """Further configuration, by section."""

    def __init__(self, directory: Path, zk: ZooKeeper, servers: Sequence[str], chroot: str, name: str = "s1") -> None:
        self.id = SupervisorId(name)
        self.dir = directory / name
        self.data = self.dir / "data"
        self.zk = zk
        self.masters = Masters()
        self._servers, self._chroot = servers, chroot
        self._process: DaemonProcess | None = None
        self.launcher: subprocess.Popen[bytes] | None = None
        self._generation = 0
        self.oracle: Oracle

    async def open(self, oracle: Oracle | None = None) -> None:
        self.dir.mkdir(parents=True, exist_ok=True)
        self.oracle = oracle or Oracle(self.dir / "oracle")
        publish_bundle(self.data, make_worker_bundle(self.dir / "source"), BUNDLE)
        await self.masters.open()
        for parent in (paths.MASTERS, paths.SUPERVISORS, paths.ASSIGNMENTS):
            await self.zk.ensure(parent)
        record = MasterRecord(
            id=MasterId(f"m-{self.id}"), host="h", port=1, url=self.masters.url, swarm_port=1, store=StoreId("st"),
            version="0", started_at=0.0,
        )  # fmt: skip
        with contextlib.suppress(Exception):
            await self.zk.create(paths.master(record.id), encode(record))
        await self.start()

    async def close(self) -> None:
        started: list[DaemonProcess | None] = [self._process, self.launcher]
        for process in started:
            if process is None:
                continue
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        for status in self.statuses():
            if birth_of(status["guardian"]) == status["guardian_birth"]:
                os.kill(status["guardian"], signal.SIGKILL)
            for pid in left_of(status["run"]):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        await self.masters.close()

    # the launcher

    @property
    def launcher_socket(self) -> Path:
        return self.dir / "launcher.sock"

    async def start_launcher(self, *more: str, bubblewrap: bool = True) -> None:
        """From now on the supervisor's workers are started by it. Before `open`."""
        self.dir.mkdir(parents=True, exist_ok=True)
        words = ["--socket", str(self.launcher_socket), *more]
        command = bare_program.command("torrentdist.launcher.launcher_server", *words)
        path = os.environ["PATH"] if bubblewrap else str(self.dir / "nothing")
        self.launcher = self._run(["env", f"PATH={path}", *command], self.dir / "launcher.log")
        await eventually(self.launcher_socket.exists, START_SECS)

    # the supervisor

    async def start(self) -> None:
        config: dict[str, dict[str, Any]] = {
            "supervisor": {"ids_dir": ""}
            | {"id": self.id, "data_dir": str(self.data), "gateway_port": 0, **self._launched()},
            "client": {"masters": [self.masters.url]},
            "zookeeper": {
                "servers": list(self._servers),
                "chroot": self._chroot,
                "session_timeout_secs": self.session_secs,
                "operation_timeout_secs": 1.0,
            },
        }
        for section, values in self.settings.items():
            config[section] = {**config.get(section, {}), **values}
        path = self.dir / "supervisor.toml"
        lines = [
            f"[{name}]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in part.items())
            for name, part in config.items()
        ]
        path.write_text("\n".join(lines))
        (self.data / "daemon.json").unlink(missing_ok=True)
        self._process = self._spawn(path)
        await eventually(lambda: (self.data / "daemon.json").exists(), START_SECS)

    def _launched(self) -> dict[str, str]:
        return {} if self.launcher is None else {"launcher": str(self.launcher_socket)}

    def _spawn(self, config: Path) -> DaemonProcess:
        with (self.dir / "log").open("ab") as log:
            return begin_daemon(["--config", str(config), "supervisor"], os.environ | WATCHED, Path.cwd(), log)

    def _run(self, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as out:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    async def end(self, number: signal.Signals) -> None:
        """Sends a signal to the supervisor, and returns when it is gone."""
        self.send(number)
        assert self._process is not None
        process = self._process
        await eventually(lambda: process.poll() is not None, 15.0)

    def gateway(self, path: str) -> httpx.Response:
        url = msgspec.json.decode((self.data / "daemon.json").read_bytes())["url"]
        return httpx.get(url + path, timeout=10.0, trust_env=False)

    @property
    def log(self) -> str:
        return (self.dir / "log").read_text(errors="replace")

    # the leader's part

    def job(self, job: str, *command: str, **spec: Any) -> None:
        """Creates a job. Its command is the oracle's worker unless `command` is given."""
        fields = {"workers": 1, "env": {"ORACLE": str(self.oracle.directory)}, "stop_grace_secs": 5.0, **spec}
        self.masters.jobs[job] = JobView(
            id=JobId(job),
            name=job,
            status=JobStatus.ACTIVE,
            bundle=BUNDLE,
            dependencies=[],
            wanted=fields["workers"],
            workers=[],
            created_at=time.time(),
            spec=JobSpec(name=job, command=command or ("work.py",), **fields),
        )

    async def assign(self, *workers: tuple[str, int], inactive: Sequence[tuple[str, int]] = ()) -> None:
        self._generation += 1
        given = [WorkerAssignment(job=JobId(j), worker=k) for j, k in workers]
        given += [WorkerAssignment(job=JobId(j), worker=k, active=False) for j, k in inactive]
        data = encode(AssignmentRecord(generation=self._generation, workers=tuple(given)))
        path = paths.assignment(self.id)
        if await self.zk.exists(path) is None:
            await self.zk.create(path, data)
        else:
            await self.zk.set(path, data)

    # looking

    def statuses(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(path.read_bytes()) for path in self.data.glob("guard/*/*/status.json")]

    def alive(self, job: str, worker: int = 0) -> bool:
        """Whether a worker is at work."""
        return bool(self.oracle.stints(job, worker)) and self.oracle.holder(job, worker) != 0

    async def barrier_owner(self, job: str, worker: int = 0) -> int | None:
        stat = await self.zk.exists(paths.JOB_GROUP.barrier(paths.worker_resource(JobId(job), worker)))
        return None if stat is None else stat.ephemeral_owner

    async def running(self, job: str, worker: int = 0, timeout: float = 10.0) -> None:
        await eventually(lambda: self.alive(job, worker), timeout)

    async def ended(self, job: str, worker: int = 0, timeout: float = 10.0) -> None:
        await eventually(lambda: not self.alive(job, worker), timeout)


NewHost = Callable[..., Awaitable[JobHost]]


@pytest.fixture
async def new_host(
    tmp_path: Path, zookeeper: EmbeddedZooKeeper, chroot: str, connect: Connect
) -> AsyncIterator[NewHost]:
    hosts: list[JobHost] = []

    async def make(
        name: str = "s1",
        oracle: Oracle | None = None,
        session_secs: float = SESSION_SECS,
        *,
        launcher: bool = False,
        bubblewrap: bool = True,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> JobHost:
        host = JobHost(tmp_path, await connect(), zookeeper.addresses, chroot, name)
        host.session_secs = session_secs
        host.settings = settings or {}
        hosts.append(host)
        if launcher:
            await host.start_launcher(bubblewrap=bubblewrap)
        await host.open(oracle)
        return host

    with quick_daemons(lambda: [host.dir / "log" for host in hosts]):
        yield make
        for host in hosts:
            await host.close()


@pytest.fixture
async def host(new_host: NewHost) -> JobHost:
    return await new_host()
