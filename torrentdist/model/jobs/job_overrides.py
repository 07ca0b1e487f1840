"""Applies flags over job.toml, in the same way in the client before the upload and in the leader.

Always: the result is a job that could have been written as job.toml.
Pure: no I/O and no clock.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.jobs.job import JobSpec, problems_of, spelled_out, with_choices


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
