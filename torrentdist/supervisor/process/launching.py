"""Prepares what a worker starts with: its working directory, its environment, and its guardian's
orders.

Always: the working directory contains only links and the worker's own files, so that a worker can
damage nothing else. The worker's files stay, unless they are in the way of `bundle` or `deps`.
Orders are on disk before the guardian starts.
Never: decide what starts. All functions block: call them in threads.
"""

import os
import secrets
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from torrentdist.host.http.file_answers import confined_file
from torrentdist.installed_spark import find_submit, spark_environment
from torrentdist.launcher.job_users import name_of
from torrentdist.launcher.run.run_files import RUN_MARK, SPEC, STATUS, write_whole
from torrentdist.launcher.run.run_lease import clock
from torrentdist.model.configuration.config import SupervisorConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, new_random_id
from torrentdist.model.jobs.job import JobKind, JobSpec, OnIsolation
from torrentdist.model.wording import os_sentence
from torrentdist.supervisor.jobs.local_state import JobFacts, RunRecord, WorkerPlace
from torrentdist.supervisor.process.job_isolation import passed_on
from torrentdist.supervisor.process.spark_submit import GATEWAY, cluster_driver, spark_command
from torrentdist.supervisor.process.worker_homes import Homes, make_told, remove
from torrentdist.supervisor.worker.heartbeat_files import FILE as HEARTBEAT
from torrentdist.supervisor.yarn.yarn_site import yarn_place

OURS = "TORRENTDIST_"
"""Prefix of the environment variables that configure the supervisor."""
BUNDLE, DEPENDENCIES = "bundle", "deps"
"""Links in the working directory. They hide a top-level entry of the bundle with the same name."""


class Surroundings(msgspec.Struct, frozen=True):
    """What the host gives to a worker, and what it hides from it."""

    pass_env: tuple[str, ...] = ("*",)
    """Patterns of the supervisor's variables that the worker gets."""
    hidden: tuple[str, ...] = ()
    """Files that it may not read, besides those of the data directory."""
    uid: int | None = None
    """Its user; None: the supervisor's own."""
    token: str = ""
    """The token that proves its job; empty: there is none."""
    log_bytes: int = SupervisorConfig().log_bytes
    log_files: int = SupervisorConfig().log_files


class Program(msgspec.Struct, frozen=True):
    """What a worker runs, where, and the bundles that it uses."""

    place: WorkerPlace
    spec: JobSpec
    workers: int
    content: Path
    dependencies: Mapping[BundleId, Path]
    bundle: BundleId | None = None
    """The bundle that `content` belongs to."""
    gateway: str = ""
    """URL of this host's gateway."""
    surroundings: Surroundings = Surroundings()
    shown: tuple[Path, ...] = ()
    """Directories of the bundles, by every path at which the worker finds them."""


def program_of(place: WorkerPlace, facts: JobFacts, contents: Mapping[BundleId, Path], gateway: str) -> Program:
    dependencies = {bundle: contents[bundle] for bundle in facts.dependencies}
    return Program(
        place, facts.spec, place.of or facts.workers, contents[facts.bundle], dependencies, facts.bundle, gateway
    )


def new_run(facts: JobFacts, session: int) -> RunRecord:
    """Returns the record of a run that starts now, without its fencing number."""
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


def with_yarn(homes: Homes, program: Program, run: RunRecord, cluster: str) -> RunRecord:
    """Returns the run of a driver in YARN, and where its application is found. Raises an error if
    Hadoop's configuration does not say it."""
    env = environment(os.environ, homes, program, run)
    uid = os.geteuid() if program.surroundings.uid is None else program.surroundings.uid
    place = yarn_place(env, cluster, program.place.job, env.get("USER") or name_of(uid))
    return msgspec.structs.replace(run, yarn=place)


def prepare(homes: Homes, program: Program, run: RunRecord) -> Path:
    """Creates the worker's directory, its links and the orders. Returns the guardian's
    directory."""
    program = _at_real_places(program)
    key = program.place.key
    home, work = homes.guard(key), homes.work(key)
    uid = os.geteuid() if program.surroundings.uid is None else program.surroundings.uid
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o750)
        make_told(homes, key[0], program.surroundings.token)
        _make_for(homes, homes.sign(key), uid)
        _make_for(homes, work, uid)
        _link(work / BUNDLE, program.content)
        _clear(work / DEPENDENCIES)
        (work / DEPENDENCIES).mkdir()
        for bundle, content in program.dependencies.items():
            (work / DEPENDENCIES / bundle).symlink_to(content)
        _link_entries(work, program.content)
        (home / STATUS).unlink(missing_ok=True)
        for old in (home / HEARTBEAT, homes.sign(key) / HEARTBEAT):
            old.unlink(missing_ok=True)
        write_whole(str(home / SPEC), msgspec.json.encode(_orders(homes, program, run)))
    except OSError as exc:
        raise TorrentdistError("disk_error", path=str(exc.filename or work), detail=os_sentence(exc)) from exc
    return home


def _at_real_places(program: Program) -> Program:
    """Returns the program with its bundles' own directories. A worker sees them there, and where
    the gateway says that they are, but not the links of the store that lead from here to there."""
    dependencies = {bundle: content.resolve() for bundle, content in program.dependencies.items()}
    content, published = program.content.resolve(), [program.content, *program.dependencies.values()]
    shown = tuple(dict.fromkeys([content, *dependencies.values(), *published]))
    return replace(program, content=content, dependencies=dependencies, shown=shown)


def _make_for(homes: Homes, folder: Path, uid: int) -> None:
    """Makes a directory that a worker of this user writes into. One that another user has worked in
    is made anew."""
    if folder.exists() and folder.stat().st_uid != uid:
        remove(homes, folder)
    folder.mkdir(parents=True, exist_ok=True, mode=0o750)


def _orders(homes: Homes, program: Program, run: RunRecord) -> dict[str, object]:
    work = homes.work(program.place.key)
    env = environment(os.environ, homes, program, run)
    return {
        "run": run.id,
        "uid": program.surroundings.uid,
        "lease_file": str(homes.lease),
        "argv": _argv(program, work, env, run),
        "cwd": str(work),
        "env": env,
        **_view(homes, program),
        "memory_bytes": program.spec.resources.memory_bytes,
        "processes": program.spec.resources.processes,
        "open_files": program.spec.resources.open_files,
        "grace": run.grace_secs,
        "log_bytes": program.surroundings.log_bytes,
        "log_files": program.surroundings.log_files,
    }


def _view(homes: Homes, program: Program) -> dict[str, list[str]]:
    """Returns what the worker sees of the host's files, as the orders name it. A worker of the
    supervisor's own user sees all of them: it could get at them anyway."""
    key, surroundings = program.place.key, program.surroundings
    if surroundings.uid is None:
        return {"read_only": [str(homes.data_dir / "objects")]}
    return {
        "hidden": [str(homes.data_dir), *surroundings.hidden],
        "read_only": [*map(str, program.shown), str(homes.told(key[0]))],
        "writable": [str(homes.work(key)), str(homes.sign(key))],
    }


def _argv(program: Program, work: Path, env: Mapping[str, str], run: RunRecord) -> list[str]:
    if program.spec.kind is JobKind.SPARK and program.bundle is not None:
        content, driver = work / BUNDLE, cluster_driver(run.yarn, run.fencing, env)
        return spark_command(program.spec, program.bundle, content, program.gateway, find_submit(env), run.id, driver)
    return command_of(program.spec, program.content, work)


def command_of(spec: JobSpec, content: Path, work: Path) -> list[str]:
    """Returns the command as a list. A program that is a file of the bundle is given by its path
    there."""
    program, *arguments = spec.command
    if ".." not in Path(program).parts and confined_file(content, program) is not None:
        return [str(work / BUNDLE / program), *arguments]
    return [program, *arguments]


def environment(base: Mapping[str, str], homes: Homes, program: Program, run: RunRecord) -> dict[str, str]:
    """Returns the supervisor's environment without its settings, overridden by the job's, and that
    by ours."""
    work, place = homes.work(program.place.key), program.place
    spark = program.spec.kind is JobKind.SPARK
    base = passed_on(base, program.surroundings.pass_env)
    chosen = {**base, **program.spec.env}
    return {
        **(spark_environment(chosen, find_submit(chosen)) if spark else {}),
        **{name: value for name, value in base.items() if not name.startswith(OURS)},
        **({} if program.surroundings.uid is None else _personal(program.surroundings.uid, work)),
        **program.spec.env,
        "PWD": str(work),
        "TORRENTDIST_JOB": place.job,
        "TORRENTDIST_WORKER": str(place.worker),
        "TORRENTDIST_WORKERS": str(program.workers),
        "TORRENTDIST_SLOT": str(place.slot),
        "TORRENTDIST_FENCING": str(run.fencing),
        "TORRENTDIST_BUNDLE": str(work / BUNDLE),
        "TORRENTDIST_DEPENDENCIES": str(work / DEPENDENCIES),
        **({"TORRENTDIST_JOB_TOKEN_FILE": str(homes.token(place.job))} if program.surroundings.token else {}),
        GATEWAY: program.gateway,
        "TORRENTDIST_PEERS_FILE": str(homes.peers(place.job)),
        "TORRENTDIST_HEARTBEAT_FILE": str(homes.sign(place.key) / HEARTBEAT),
        RUN_MARK: run.id,
        # Otherwise Python writes `__pycache__` next to the bundle's modules, into the store.
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _personal(uid: int, work: Path) -> dict[str, str]:
    """Returns the variables that tell who a worker is."""
    name = name_of(uid)
    return {"HOME": str(work), "USER": name, "LOGNAME": name}


def _link(path: Path, target: Path) -> None:
    if path.is_symlink() and path.readlink() == target:
        return
    _clear(path)
    path.symlink_to(target)


def _link_entries(work: Path, content: Path) -> None:
    """Links the bundle's top-level entries into `work`, so that relative paths work as in the
    bundle.

    Removes links of an older bundle. A worker's own file keeps its place, even if the bundle has an
    entry of that name.
    """
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
    """Removes whatever the worker has put at `path`."""
    if path.is_dir() and not path.is_symlink():
        try:
            shutil.rmtree(path)
        except PermissionError:  # a user of jobs has made it; it goes with the whole directory
            path.rename(path.with_name(f"{path.name}.{secrets.token_hex(4)}"))
    else:
        path.unlink(missing_ok=True)
