"""Completes a job.toml with the defaults of `jobs.defaults`.

Always: a key that the file sets stays as it is.
Pure: no I/O and no clock.
"""

import tomllib
from collections.abc import Mapping
from typing import Any

import msgspec

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.jobs.job import JobSpec, parse_job, problems_of, spelled_out

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
