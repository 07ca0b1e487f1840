"""A cluster's own rules for jobs: defaults, and a plug-in that refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from torrentdist.master.jobs.job_requests import Validation
from torrentdist.model.configuration.config import JobsConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.jobs.job import JobSpec, RestartPolicy

JOB = 'name = "etl"\ncommand = ["true"]\n[restart]\nlimit = 3\n'


class Frugal:
    """Refuses jobs without a memory limit, and fails on a job of one particular name."""

    def validate(self, job: Mapping[str, Any], bundle: str) -> Iterable[str]:
        if job["name"] == "breaks":
            raise RuntimeError(bundle)
        return [] if job["resources"]["memory_bytes"] else ["it has no memory limit", "and no excuse"]


class Lame:
    validate = "soon"


def refused(config: JobsConfig, spec: JobSpec) -> str:
    with pytest.raises(TorrentdistError) as caught:
        asyncio.run(Validation(config).check(spec, Path("/bundle")))
    assert "job_refused" == caught.value.code
    return caught.value.message


def test_defaults_hold_where_the_job_says_nothing() -> None:
    """If this fails, a cluster's defaults are ignored, or replace what a job's author wrote."""
    validation = Validation(JobsConfig(defaults={"stop_grace_secs": 33.0, "restart": {"policy": "never", "limit": 9}}))
    spec = validation.parse(JOB, "job.toml")

    assert (33.0, RestartPolicy.NEVER, 3) == (spec.stop_grace_secs, spec.restart.policy, spec.restart.limit)


def test_short_forms_hold_on_both_sides() -> None:
    """If this fails, a cluster with defaults refuses a job that one without them accepts."""
    spec = Validation(JobsConfig(defaults={"restart": "never"})).parse(
        'name = "etl"\ncommand = "sleep 5"\n', "job.toml"
    )

    assert (("sleep", "5"), RestartPolicy.NEVER) == (spec.command, spec.restart.policy)


@pytest.mark.parametrize("defaults", [{"stop_grace": 1.0}, {"workers": 0}, {"restart": {"policy": "maybe"}}])
def test_defaults_that_no_job_can_have_are_found_at_the_start(defaults: dict[str, Any]) -> None:
    """If this fails, every submit fails, and its user looks for the error in the wrong file."""
    with pytest.raises(TorrentdistError) as caught:
        Validation(JobsConfig(defaults=defaults))

    assert ("config_invalid", "jobs.defaults") == (caught.value.code, caught.value.fields["origin"])


def test_an_error_names_its_line_whatever_the_defaults() -> None:
    """If this fails, nobody finds what is wrong with a long job.toml."""
    with pytest.raises(TorrentdistError) as caught:
        Validation(JobsConfig(defaults={"workers": 2})).parse(JOB + 'policy = "sometimes"\n', "b/job.toml")

    assert "b/job.toml:5" == caught.value.fields["origin"]


def test_the_plug_in_refuses_and_its_failure_does_too() -> None:
    """If this fails, an operator's rule has no effect."""
    config = JobsConfig(validator=f"{__name__}:Frugal")
    asyncio.run(Validation(JobsConfig()).check(JobSpec(name="etl"), Path("/bundle")))
    said = refused(config, JobSpec(name="etl"))

    assert "job 'etl' is refused: it has no memory limit; and no excuse" == said
    assert f"{__name__}:Frugal raised RuntimeError: /bundle" in refused(config, JobSpec(name="breaks"))


@pytest.mark.parametrize("name", ["no.such.module:X", f"{__name__}:Nobody", f"{__name__}:Lame"])
def test_a_plug_in_that_cannot_be_used_is_found_at_the_start(name: str) -> None:
    """If this fails, a mistyped plug-in lets every job pass, or refuses all of them one by one."""
    with pytest.raises(TorrentdistError) as caught:
        Validation(JobsConfig(validator=name))

    assert "validator_invalid" == caught.value.code
