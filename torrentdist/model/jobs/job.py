"""Jobs as values: the `job.toml` of a bundle.

Always: an unknown key, a wrong type or a bad value is an error that names the place.
Never: check the bundle for the files that it names; the caller does.
"""

import math
import re
import shlex
from enum import StrEnum
from typing import Any

import msgspec

from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.jobs.spark_job import DeployMode, SparkSpec, spark_problems
from torrentdist.model.wording import toml_complaint

FILE_NAME = "job.toml"
MAX_JOB_CHARS = 256 * 1024
"""Longest job.toml. A real one has a few hundred characters."""
MAX_DOTS = 200
"""Most dots of one line outside of strings. The time to parse a dotted key grows with the square of
their number."""
_STRINGS = re.compile(r"""\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*'""")
MAX_WORKERS = 10_000
_NO_COMMAND = "a job of kind process needs one"
NO_WAIT = "must be a number of seconds, or -1 for no limit"


class JobKind(StrEnum):
    PROCESS = "process"
    SPARK = "spark"


class RestartPolicy(StrEnum):
    ALWAYS = "always"
    ON_FAILURE = "on-failure"
    NEVER = "never"


class OnIsolation(StrEnum):
    """What happens to a worker when its host can no longer prove that the worker runs nowhere
    else."""

    STOP = "stop"
    RUN = "run"


class JobTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Restart(JobTable, frozen=True, kw_only=True):
    policy: RestartPolicy = RestartPolicy.ON_FAILURE
    backoff_secs: float = 1.0
    max_backoff_secs: float = 60.0
    limit: int = 10
    """Consecutive restarts of a worker that ends within max_backoff_secs; -1: no limit."""


class Resources(JobTable, frozen=True, kw_only=True, omit_defaults=True):
    memory_bytes: int = 0
    """Address space of each process. 0: no limit."""
    processes: int = 0
    """Processes and threads of the job's user on a host. 0: no limit of its own."""
    open_files: int = 0
    """Open files of each process. 0: no limit of its own."""


class Replication(JobTable, frozen=True, kw_only=True):
    """Replication that a job needs before it runs. Missing values are those of the cluster."""

    min_count: int = 0
    """Masters that must hold each bundle; 0: as many as the bundle was uploaded for."""
    max_wait_secs: float | None = None
    """Seconds to wait for that; 0: no wait, -1: forever."""


class JobSpec(JobTable, frozen=True, kw_only=True):
    name: str
    kind: JobKind = JobKind.PROCESS
    command: tuple[str, ...] = ()
    """The program and its arguments. The program may be a path in the bundle, which is the working
    directory's `bundle` link."""
    workers: int = 1
    restart: Restart = Restart()
    stop_grace_secs: float = 10.0
    on_isolation: OnIsolation = OnIsolation.STOP
    heartbeat_secs: float = 0.0
    """A worker that does not touch TORRENTDIST_HEARTBEAT_FILE for this many seconds is restarted;
    0: off."""
    heartbeat_start_secs: float = 60.0
    """Seconds until the first heartbeat, if that is longer."""
    env: dict[str, str] = {}
    dependencies: tuple[BundleId, ...] = ()
    resources: Resources = Resources()
    replication: Replication = Replication()
    spark: SparkSpec = SparkSpec()
    """The Spark table of a job of kind spark, whose command is its main file and arguments."""
    kill_wait_secs: float = 30.0
    """Seconds for which a killed job stays deactivated before it is removed. `job kill -w`
    overrides it."""

    @property
    def drives_here(self) -> bool:
        """Whether its worker is the driver of a Spark application."""
        return self.kind is JobKind.SPARK and self.spark.deploy_mode is DeployMode.CLIENT

    @property
    def drives_in_yarn(self) -> bool:
        """Whether its worker submits a driver to YARN."""
        return self.kind is JobKind.SPARK and self.spark.deploy_mode is DeployMode.CLUSTER


def parse_job(text: str, *, origin: str) -> JobSpec:
    """Parses a job. The error `job_invalid` names `origin`, the key and, if possible, the line."""
    if len(text) > MAX_JOB_CHARS:
        raise TorrentdistError("job_invalid", origin=origin, detail=f"it is longer than {MAX_JOB_CHARS} characters")
    if any(line.count(".") > MAX_DOTS for line in _STRINGS.sub("", text).splitlines()):
        raise TorrentdistError("job_invalid", origin=origin, detail=f"a line has a key of more than {MAX_DOTS} parts")
    try:
        job = spelled_out(msgspec.toml.decode(text))
        _expect_texts(text, origin, job.get("env"))
        spec = msgspec.convert(job, JobSpec)
    except msgspec.ValidationError as exc:
        raise _invalid(text, origin, str(exc)) from None
    except msgspec.DecodeError as exc:
        line, detail = toml_complaint(text, str(exc))
        raise TorrentdistError("job_invalid", origin=f"{origin}:{line}" if line else origin, detail=detail) from None
    except RecursionError:
        raise TorrentdistError("job_invalid", origin=origin, detail="it is nested too deeply") from None
    except ValueError as exc:  # a number of thousands of digits
        raise TorrentdistError("job_invalid", origin=origin, detail=str(exc)) from None
    problems = problems_of(spec)
    if problems:
        key, detail = problems[0]
        raise TorrentdistError("job_invalid", origin=place_in(text, origin, key), detail=f"{key}: {detail}")
    return spec


def _expect_texts(text: str, origin: str, env: object) -> None:
    """Raises `job_invalid` for a value of [env] that is no text, most often a key of the job that
    was written below it."""
    for key, value in env.items() if isinstance(env, dict) else ():
        if not isinstance(value, str):
            detail = f"{key}: stands in [env], whose values are text"
            if key in JobSpec.__struct_fields__:
                detail += "; keys of the job stand before the first [table]"
            raise TorrentdistError("job_invalid", origin=place_in(text, origin, key), detail=detail)


def spelled_out(job: dict[str, Any]) -> dict[str, Any]:
    """Expands short forms: `restart = "never"`, and a command as one line."""
    match job.get("restart"):
        case str(policy):
            job = {**job, "restart": {"policy": policy}}
    match job.get("command"):
        case str(line):
            try:
                job = {**job, "command": shlex.split(line)}
            except ValueError as exc:
                raise msgspec.ValidationError(f"{exc} - at `$.command`") from None
    return job


def problems_of(spec: JobSpec) -> list[tuple[str, str]]:
    """Returns (key, problem) for every invalid value."""
    max_wait = spec.replication.max_wait_secs or 0.0
    in_env = "; this one stands in [env]" if "command" in spec.env else ""
    checks = [
        ("command", not spec.command and spec.kind is JobKind.PROCESS, _NO_COMMAND + in_env),
        ("workers", not 1 <= spec.workers <= MAX_WORKERS, f"must be 1 to {MAX_WORKERS}"),
        *((key, not 0 <= secs < math.inf, "must be a number of seconds, 0 or more") for key, secs in _times(spec)),
        ("max_backoff_secs", spec.restart.max_backoff_secs < spec.restart.backoff_secs, "is less than backoff_secs"),
        ("limit", spec.restart.limit < -1, "must be -1 or more"),
        ("memory_bytes", not 0 <= spec.resources.memory_bytes < 2**63, "must be 0 or more, and less than 2^63"),
        ("processes", not 0 <= spec.resources.processes < 2**31, "must be 0 or more, and less than 2^31"),
        ("open_files", not 0 <= spec.resources.open_files < 2**31, "must be 0 or more, and less than 2^31"),
        ("min_count", spec.replication.min_count < 0, "must be 0 or more"),
        ("max_wait_secs", not (max_wait == -1 or 0 <= max_wait < math.inf), NO_WAIT),
        ("command", any("\0" in part for part in spec.command), "must not hold a NUL character"),
        ("command", spec.command[:1] == ("",), "begins with the name of a program"),
        ("heartbeat_secs", spec.drives_in_yarn and spec.heartbeat_secs > 0, "a driver in YARN has no file to touch"),
        *((name or "env", not name or "=" in name, f"{name!r} cannot be the name of a variable") for name in spec.env),
        *((name, "\0" in name + value, "must not hold a NUL character") for name, value in spec.env.items()),
    ]
    found = [(key, detail) for key, bad, detail in checks if bad]
    if spec.kind is JobKind.SPARK:
        found += spark_problems(spec.command, spec.workers, spec.resources.memory_bytes, spec.spark)
    elif spec.spark != SparkSpec():
        found.append(("spark", 'is for jobs with kind = "spark"'))
    for key, check, texts in (("name", ids.job_id, (spec.name,)), ("dependencies", ids.bundle_id, spec.dependencies)):
        for text in texts:
            try:
                check(text)
            except TorrentdistError as error:
                found.append((key, error.message))
    return found


def _times(spec: JobSpec) -> list[tuple[str, float]]:
    """Returns the times of a job, to be checked because TOML has infinity and NaN."""
    return [
        ("stop_grace_secs", spec.stop_grace_secs),
        ("heartbeat_secs", spec.heartbeat_secs),
        ("heartbeat_start_secs", spec.heartbeat_start_secs),
        ("kill_wait_secs", spec.kill_wait_secs),
        ("backoff_secs", spec.restart.backoff_secs),
        ("max_backoff_secs", spec.restart.max_backoff_secs),
    ]


def _invalid(text: str, origin: str, detail: str) -> TorrentdistError:
    """Returns the error for msgspec's message. msgspec says `... unknown field `x` - at
    `$.restart``: the last name that occurs in the file is the place to show."""
    quoted = [part.strip("$.[]") for part in detail.split("`")[1::2]]
    path = quoted[0] if "unknown field" in detail else quoted[-1] if quoted else ""
    places = (place_in(text, origin, key) for key in reversed(path.split(".")))
    place = next((place for place in places if place != origin), origin)
    return TorrentdistError("job_invalid", origin=place, detail=with_choices(detail))


def with_choices(detail: str) -> str:
    """Adds the permitted words to msgspec's message about a wrong one."""
    key = detail.rstrip("`").rpartition(".")[2]
    known = "Invalid enum value" in detail and key in _CHOICES
    return f"{detail} (one of {', '.join(_CHOICES[key])})" if known else detail


_CHOICES: dict[str, list[str]] = {
    "kind": [*JobKind],
    "policy": [*RestartPolicy],
    "on_isolation": [*OnIsolation],
    "deploy_mode": [*DeployMode],
}


def place_in(text: str, origin: str, key: str) -> str:
    """Returns `origin` with the line of the key, if it can be found."""
    for number, line in enumerate(text.splitlines(), 1):
        if key and line.strip().lstrip("[").startswith(key):
            return f"{origin}:{number}"
    return origin
