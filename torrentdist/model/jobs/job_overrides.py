"""Completes a job.toml: with the defaults of `jobs.defaults` under it, and with flags over it,
in the same way in the client before the upload and in the leader.

Always: the result is a job that could have been written as job.toml. A key that the file sets
wins over a default.
Never: I/O, or a clock.
"""

import tomllib
from collections.abc import Mapping
from typing import Any

import msgspec

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.jobs.job import JobSpec, parse_job, problems_of, spelled_out, with_choices


def with_overrides(spec: JobSpec, name: str | None, workers: int | None, conf: Mapping[str, str]) -> JobSpec:
    """Applies flags. The keys of `conf` are dotted keys of job.toml: `restart.policy=never`,
    `env.LEVEL=debug`."""
    document: dict[str, Any] = msgspec.to_builtins(spec)
    if name is not None:
        document["name"] = name
    if workers is not None:
        document["workers"] = workers
    for key, text in conf.items():
        *tables, last = key.split(".", 2 if key.startswith("spark.conf.") else -1)  # Spark's keys have dots themselves
        table = document
        for part in tables:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise TorrentdistError("job_invalid", origin=f"--conf {key}", detail=f"{part} has no keys")
        table[last] = text
    try:
        changed = msgspec.convert(spelled_out(document), JobSpec, strict=False)  # not strict: flags are texts
    except msgspec.ValidationError as exc:
        raise TorrentdistError("job_invalid", origin="--conf", detail=with_choices(str(exc))) from None
    problems = problems_of(changed)
    if problems:
        raise TorrentdistError("job_invalid", origin=problems[0][0], detail=problems[0][1])
    return changed


DEFAULTS_ORIGIN = "jobs.defaults"


def check_defaults(defaults: Mapping[str, Any]) -> None:
    """Raises `config_invalid` for defaults that no job could have."""
    if defaults:
        _completed({"name": "a-job", "command": ["true"]}, spelled_out(dict(defaults)))


def job_with_defaults(text: str, defaults: Mapping[str, Any], *, origin: str) -> JobSpec:
    """Returns the job of a job.toml. An error of the file itself names `origin`."""
    spec = parse_job(text, origin=origin)
    return _completed(spelled_out(tomllib.loads(text)), spelled_out(dict(defaults))) if defaults else spec


def _completed(document: Mapping[str, Any], defaults: Mapping[str, Any]) -> JobSpec:
    try:
        spec = msgspec.convert(_over(defaults, document), JobSpec)
    except msgspec.ValidationError as exc:
        raise TorrentdistError("config_invalid", origin=DEFAULTS_ORIGIN, detail=str(exc)) from None
    for key, detail in problems_of(spec):
        raise TorrentdistError("config_invalid", origin=DEFAULTS_ORIGIN, detail=f"{key}: {detail}")
    return spec


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merges key by key, also within tables."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = _over(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return merged
