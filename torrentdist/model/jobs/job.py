"""What a job is: the `job.toml` of a bundle, as values. Strict: an unknown key, a wrong type or a bad value is an
error that names the place. Must not do: look into the bundle for the files that it names; that is the caller's.
"""

from __future__ import annotations

import math
import shlex
from enum import StrEnum
from typing import Any

import msgspec

from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.jobs.spark_job import SparkSpec, spark_problems

FILE_NAME = "job.toml"
MAX_WORKERS = 10_000
NO_WAIT = "must be a number of seconds, or -1 for no limit"


class JobKind(StrEnum):
    PROCESS = "process"
    SPARK = "spark"


class RestartPolicy(StrEnum):
    ALWAYS = "always"
    ON_FAILURE = "on-failure"
    NEVER = "never"


class OnIsolation(StrEnum):
    """What a worker does when its host can no longer prove that nobody else runs it."""

    STOP = "stop"
    RUN = "run"


class JobTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Restart(JobTable, frozen=True, kw_only=True):
    policy: RestartPolicy = RestartPolicy.ON_FAILURE
    backoff_secs: float = 1.0
    max_backoff_secs: float = 60.0
    limit: int = 10
    """How often in a row a worker that ends within max_backoff_secs is started again; -1: without end."""


class Resources(JobTable, frozen=True, kw_only=True):
    memory_bytes: int = 0
    """0: no limit."""


class Replication(JobTable, frozen=True, kw_only=True):
    """Before it runs; what is not given is the cluster's."""

    min_count: int = 0
    """Masters that must hold each of its bundles; 0: as many as the bundle was uploaded for."""
    max_wait_secs: float | None = None
    """How long to wait for that; 0: no wait, -1: for ever."""


class JobSpec(JobTable, frozen=True, kw_only=True):
    name: str
    kind: JobKind = JobKind.PROCESS
    command: tuple[str, ...] = ()
    """The program and its arguments; the program may be a path in the bundle, which is the working directory's
    `bundle` link."""
    workers: int = 1
    restart: Restart = Restart()
    stop_grace_secs: float = 10.0
    on_isolation: OnIsolation = OnIsolation.STOP
    heartbeat_secs: float = 0.0
    """A worker that doesn't touch the file TORRENTDIST_HEARTBEAT_FILE for so long is restarted; 0: it need not."""
    heartbeat_start_secs: float = 60.0
    """How long it may take after its start until it does so first, if that is longer."""
    env: dict[str, str] = {}
    dependencies: tuple[BundleId, ...] = ()
    resources: Resources = Resources()
    replication: Replication = Replication()
    spark: SparkSpec = SparkSpec()
    """Of a job of kind spark, whose command is its main file and the arguments."""
    kill_wait_secs: float = 30.0
    """How long a killed job stays, deactivated, before it is removed; `job kill -w` overrides it."""


def parse_job(text: str, *, origin: str) -> JobSpec:
    """The job in `text`; `job_invalid` names `origin`, the key and, where it can be found, the line."""
    try:
        spec = msgspec.convert(spelled_out(msgspec.toml.decode(text)), JobSpec)
    except msgspec.ValidationError as exc:
        raise _invalid(text, origin, str(exc)) from None
    except msgspec.DecodeError as exc:
        raise TorrentdistError("job_invalid", origin=origin, detail=str(exc)) from None
    problems = problems_of(spec)
    if problems:
        key, detail = problems[0]
        raise TorrentdistError("job_invalid", origin=place_in(text, origin, key), detail=f"{key}: {detail}")
    return spec


def spelled_out(job: dict[str, Any]) -> dict[str, Any]:
    """With the short forms in full: `restart = "never"`, and a command as one line."""
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
    """(key, what is wrong) for every value that no job can have."""
    max_wait = spec.replication.max_wait_secs or 0.0
    checks = [
        ("command", not spec.command and spec.kind is JobKind.PROCESS, "a job of kind process needs one"),
        ("workers", not 1 <= spec.workers <= MAX_WORKERS, f"must be 1 to {MAX_WORKERS}"),
        *((key, not 0 <= secs < math.inf, "must be a number of seconds, 0 or more") for key, secs in _times(spec)),
        ("max_backoff_secs", spec.restart.max_backoff_secs < spec.restart.backoff_secs, "is less than backoff_secs"),
        ("limit", spec.restart.limit < -1, "must be -1 or more"),
        ("memory_bytes", not 0 <= spec.resources.memory_bytes < 2**63, "must be 0 or more, and less than 2^63"),
        ("min_count", spec.replication.min_count < 0, "must be 0 or more"),
        ("max_wait_secs", not (max_wait == -1 or 0 <= max_wait < math.inf), NO_WAIT),
        ("command", any("\0" in part for part in spec.command), "must not hold a NUL character"),
        ("command", spec.command[:1] == ("",), "begins with the name of a program"),
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
    """TOML has numbers that are none, and infinite ones."""
    return [
        ("stop_grace_secs", spec.stop_grace_secs),
        ("heartbeat_secs", spec.heartbeat_secs),
        ("heartbeat_start_secs", spec.heartbeat_start_secs),
        ("kill_wait_secs", spec.kill_wait_secs),
        ("backoff_secs", spec.restart.backoff_secs),
        ("max_backoff_secs", spec.restart.max_backoff_secs),
    ]


def _invalid(text: str, origin: str, detail: str) -> TorrentdistError:
    """msgspec says `... unknown field `x` - at `$.restart``: the last name that stands in the file is where to look."""
    quoted = [part.strip("$.[]") for part in detail.split("`")[1::2]]
    path = quoted[0] if "unknown field" in detail else quoted[-1] if quoted else ""
    places = (place_in(text, origin, key) for key in reversed(path.split(".")))
    place = next((place for place in places if place != origin), origin)
    return TorrentdistError("job_invalid", origin=place, detail=with_choices(detail))


def with_choices(detail: str) -> str:
    """What msgspec says of a word that a key can't have, and which ones it can."""
    key = detail.rstrip("`").rpartition(".")[2]
    known = "Invalid enum value" in detail and key in _CHOICES
    return f"{detail} (one of {', '.join(_CHOICES[key])})" if known else detail


_CHOICES: dict[str, list[str]] = {"kind": [*JobKind], "policy": [*RestartPolicy], "on_isolation": [*OnIsolation]}


def place_in(text: str, origin: str, key: str) -> str:
    """`origin` with the line of the key, where that can be found."""
    for number, line in enumerate(text.splitlines(), 1):
        if key and line.strip().lstrip("[").startswith(key):
            return f"{origin}:{number}"
    return origin
