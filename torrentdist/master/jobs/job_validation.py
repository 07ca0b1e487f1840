"""Checks a job before it is recorded: adds the cluster's defaults, then asks the validator plug-in.

Always: job.toml is first checked alone, so that an error names its place in that file. A plug-in
that fails or takes too long refuses the job. Defaults that no job could have stop the master's
start.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from torrentdist.model.configuration.config import JobsConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.jobs.job import JobSpec
from torrentdist.model.jobs.job_defaults import check_defaults, job_with_defaults

VALIDATE_SECS = 20.0


class JobValidator(Protocol):
    """The interface of the class that `jobs.validator` names. It is created without arguments."""

    def validate(self, job: Mapping[str, Any], bundle: str) -> Iterable[str]:
        """Returns what is wrong with the job; nothing if it may run. `job` is the completed
        job.toml, `bundle` the directory of its bundle. Several threads call it at once."""
        ...


class Validation:
    def __init__(self, config: JobsConfig) -> None:
        self._defaults = config.defaults
        self._name = config.validator
        self._validate = _load(config.validator) if config.validator else None
        check_defaults(config.defaults)

    def parse(self, text: str, origin: str) -> JobSpec:
        """Returns the job of a job.toml, with the cluster's defaults."""
        return job_with_defaults(text, self._defaults, origin=origin)

    async def check(self, spec: JobSpec, bundle: Path) -> None:
        """Raises `job_refused` unless the plug-in accepts the job."""
        if self._validate is None:
            return
        document = msgspec.to_builtins(spec)
        document["resources"] = msgspec.structs.asdict(spec.resources)  # records leave out what is not limited
        try:
            async with asyncio.timeout(VALIDATE_SECS):
                problems = await asyncio.to_thread(_ask, self._validate, document, str(bundle))
        except TimeoutError:
            problems = [f"{self._name} has said nothing for {VALIDATE_SECS:g} s"]
        except Exception as exc:
            problems = [f"{self._name} raised {type(exc).__name__}: {exc}"]
        if problems:
            raise TorrentdistError("job_refused", id=spec.name, detail="; ".join(problems))


def _ask(validate: Callable[..., Iterable[str]], document: Mapping[str, Any], bundle: str) -> list[str]:
    return [str(problem) for problem in validate(document, bundle) or ()]


def _load(name: str) -> Callable[..., Iterable[str]]:
    module, _, attribute = name.partition(":")
    try:
        validate = getattr(importlib.import_module(module), attribute)().validate
    except Exception as exc:
        raise TorrentdistError("validator_invalid", name=name, detail=f"{type(exc).__name__}: {exc}") from exc
    if not callable(validate):
        raise TorrentdistError("validator_invalid", name=name, detail="validate is no method")
    return validate  # type: ignore[no-any-return]
