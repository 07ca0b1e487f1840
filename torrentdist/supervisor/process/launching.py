"""What a worker finds when it starts: its directory over the bundle, its environment, and its guardian's orders.

Always holds: the worker's directory holds nothing of ours but links, so that it can spoil only its own things; what the
worker made stays, unless it is in the way of `bundle` or `deps`; orders are on disk before the guardian starts. Must
not do: decide. It blocks: use threads.

    <data>/workers/<job>/<k>/   the working directory: `bundle`, `deps/<bundle-id>`, a link to each top-level entry of
                                the bundle, and whatever the worker makes
    <data>/guard/<job>/<k>/     spec.json, status.json, lock, guardian.log, stdout.<offset>, stderr.<offset>
    <data>/guard/<job>/peers.json, <data>/guard/lease.json
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from torrentdist.bundle.files.durability import write_durably
from torrentdist.host.http.file_answers import confined_file
from torrentdist.launcher.run.run_files import GUARDIAN_LOG, LOCK, RUN_MARK, SPEC, STATUS, write_whole
from torrentdist.launcher.run.run_lease import clock
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, JobId, new_random_id
from torrentdist.model.jobs.job import JobKind, JobSpec, OnIsolation
from torrentdist.model.wording import os_sentence
from torrentdist.supervisor.jobs.local_state import JobFacts, RunRecord, WorkerPlace
from torrentdist.supervisor.process.guardian_processes import close_door
from torrentdist.supervisor.process.spark_submit import GATEWAY, find_submit, spark_command, spark_environment
from torrentdist.supervisor.worker.heartbeat_files import FILE as HEARTBEAT
from torrentdist.supervisor.worker.worker_types import Key

LOG_BYTES = 10 * 1024 * 1024
"""A file of output is followed by the next one when it has this size."""
LOG_FILES = 5
"""So many are kept of each stream."""
OURS = "TORRENTDIST_"
BUNDLE, DEPENDENCIES = "bundle", "deps"
"""Names in the working directory that an entry of the bundle cannot have there."""


@dataclass(frozen=True)
class Program:
    """What a worker runs, and over what."""

    place: WorkerPlace
    spec: JobSpec
    workers: int
    content: Path
    dependencies: Mapping[BundleId, Path]
    bundle: BundleId | None = None
    """That `content` is of."""
    gateway: str = ""
    """The URL of this host's."""


def program_of(place: WorkerPlace, facts: JobFacts, contents: Mapping[BundleId, Path], gateway: str) -> Program:
    dependencies = {bundle: contents[bundle] for bundle in facts.dependencies}
    return Program(
        place, facts.spec, place.of or facts.workers, contents[facts.bundle], dependencies, facts.bundle, gateway
    )


def new_run(facts: JobFacts, session: int) -> RunRecord:
    """A start of now; its fencing number is still to be had."""
    return RunRecord(
        id=new_random_id("run"),
        incarnation=facts.incarnation,
        session=session,
        fencing=0,
        grace_secs=facts.spec.stop_grace_secs,
        lenient=facts.spec.on_isolation is OnIsolation.RUN,
        started_at=clock(),
        since=time.time(),
        needs=tuple(sorted(facts.needs)),
    )


@dataclass(frozen=True)
class Homes:
    """Where things of workers are below the data directory."""

    data_dir: Path

    def work(self, key: Key) -> Path:
        return self.data_dir / "workers" / key[0] / str(key[1])

    def guard(self, key: Key) -> Path:
        return self.data_dir / "guard" / key[0] / str(key[1])

    def peers(self, job: JobId) -> Path:
        return self.data_dir / "guard" / job / "peers.json"

    @property
    def lease(self) -> Path:
        return self.data_dir / "guard" / "lease.json"

    def guards(self, job: str = "*") -> Iterator[tuple[Key, Path]]:
        """Of every worker that was ever here and isn't cleaned up."""
        for path in sorted((self.data_dir / "guard").glob(f"{job}/*/")):
            if path.name.isdigit():
                yield (JobId(path.parent.name), int(path.name)), path


def prepare(homes: Homes, program: Program, run: RunRecord) -> Path:
    """Directory, links and orders; returns the guardian's home."""
    key = program.place.key
    home, work = homes.guard(key), homes.work(key)
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o750)
        work.mkdir(parents=True, exist_ok=True, mode=0o750)
        _link(work / BUNDLE, program.content)
        _clear(work / DEPENDENCIES)
        (work / DEPENDENCIES).mkdir()
        for bundle, content in program.dependencies.items():
            (work / DEPENDENCIES / bundle).symlink_to(content)
        _link_entries(work, program.content)
        (home / STATUS).unlink(missing_ok=True)
        (home / HEARTBEAT).unlink(missing_ok=True)
        write_whole(str(home / SPEC), msgspec.json.encode(_orders(homes, program, run)))
    except OSError as exc:
        raise TorrentdistError("disk_error", path=str(exc.filename or work), detail=os_sentence(exc)) from exc
    return home


def _orders(homes: Homes, program: Program, run: RunRecord) -> dict[str, object]:
    work = homes.work(program.place.key)
    env = environment(os.environ, homes, program, run)
    return {
        "run": run.id,
        "lease_file": str(homes.lease),
        "argv": _argv(program, work, env),
        "cwd": str(work),
        "env": env,
        "read_only": [str(homes.data_dir / "objects")],
        "memory_bytes": program.spec.resources.memory_bytes,
        "grace": run.grace_secs,
        "log_bytes": LOG_BYTES,
        "log_files": LOG_FILES,
    }


def _argv(program: Program, work: Path, env: Mapping[str, str]) -> list[str]:
    if program.spec.kind is JobKind.SPARK and program.bundle is not None:
        return spark_command(program.spec, program.bundle, work / BUNDLE, program.gateway, find_submit(env))
    return command_of(program.spec, program.content, work)


def command_of(spec: JobSpec, content: Path, work: Path) -> list[str]:
    """A program that is a file of the bundle is that file; any other is found as a shell in `work` would."""
    program, *arguments = spec.command
    if ".." not in Path(program).parts and confined_file(content, program) is not None:
        return [str(work / BUNDLE / program), *arguments]
    return [program, *arguments]


def environment(base: Mapping[str, str], homes: Homes, program: Program, run: RunRecord) -> dict[str, str]:
    """The supervisor's own without its settings, the job's over it, and ours over both."""
    work, place = homes.work(program.place.key), program.place
    spark = program.spec.kind is JobKind.SPARK
    chosen = {**base, **program.spec.env}
    return {
        **(spark_environment(chosen, find_submit(chosen)) if spark else {}),
        **{name: value for name, value in base.items() if not name.startswith(OURS)},
        **program.spec.env,
        "PWD": str(work),
        "TORRENTDIST_JOB": place.job,
        "TORRENTDIST_WORKER": str(place.worker),
        "TORRENTDIST_WORKERS": str(program.workers),
        "TORRENTDIST_SLOT": str(place.slot),
        "TORRENTDIST_FENCING": str(run.fencing),
        "TORRENTDIST_BUNDLE": str(work / BUNDLE),
        "TORRENTDIST_DEPENDENCIES": str(work / DEPENDENCIES),
        GATEWAY: program.gateway,
        "TORRENTDIST_PEERS_FILE": str(homes.peers(place.job)),
        "TORRENTDIST_HEARTBEAT_FILE": str(homes.guard(place.key) / HEARTBEAT),
        RUN_MARK: run.id,
        # Python would write `__pycache__` beside the bundle's modules, into the store.
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _link(path: Path, target: Path) -> None:
    if path.is_symlink() and path.readlink() == target:
        return
    _clear(path)
    path.symlink_to(target)


def _link_entries(work: Path, content: Path) -> None:
    """Makes the bundle's top-level entries visible in `work`, so that relative paths work as in the bundle itself.

    Removes links of an older bundle. What the worker made under a name of the bundle stays as it is."""
    wanted = {name: f"{BUNDLE}/{name}" for name in os.listdir(content) if name not in (BUNDLE, DEPENDENCIES)}
    there = set()
    for entry in list(os.scandir(work)):
        stale = entry.name not in wanted and entry.is_symlink() and os.readlink(entry.path) == f"{BUNDLE}/{entry.name}"
        if stale:
            os.unlink(entry.path)
        else:
            there.add(entry.name)
    for name in wanted.keys() - there:
        os.symlink(wanted[name], work / name)


def _clear(path: Path) -> None:
    """Whatever the worker has put there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_peers(homes: Homes, job: JobId, hosts: Mapping[str, str]) -> None:
    """Where the job's workers are, as far as the leader knows."""
    data = msgspec.json.encode({"job": job, "workers": dict(sorted(hosts.items()))})
    path = homes.peers(job)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
    if not path.exists() or path.read_bytes() != data:
        write_durably(path, data)


def clean_up(homes: Homes, key: Key) -> None:
    """The worker has left this host; its output stays for a while."""
    work, home = homes.work(key), homes.guard(key)
    shutil.rmtree(work, ignore_errors=True)
    _remove_if_empty(work.parent)
    for name in (SPEC, STATUS, LOCK, GUARDIAN_LOG, HEARTBEAT):
        (home / name).unlink(missing_ok=True)
    if home.is_dir():
        os.utime(home)


def drop_old_output(homes: Homes, places: Collection[Key], keep_secs: float) -> None:
    """Of workers that left this host long ago, and of jobs that have none here any more."""
    for key, home in homes.guards():
        if key not in places and time.time() - home.stat().st_mtime > keep_secs:
            shutil.rmtree(home, ignore_errors=True)
    jobs = {key[0] for key in places}
    for folder in (homes.data_dir / "guard").glob("*/"):
        if folder.name not in jobs and not any(folder.glob("*/")):
            (folder / "peers.json").unlink(missing_ok=True)
            _remove_if_empty(folder)


def drop_orphans(homes: Homes, places: Collection[Key]) -> None:
    """Working directories of workers that this host does not know of: a crash came before they were cleaned up."""
    for work in (homes.data_dir / "workers").glob("*/*/"):
        key = JobId(work.parent.name), int(work.name) if work.name.isdigit() else -1
        if key not in places and close_door(homes.guard(key)):
            clean_up(homes, key)
            shutil.rmtree(work, ignore_errors=True)


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return
