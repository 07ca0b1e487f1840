"""Derives what a worker runs from its signed bundle, so that no host has to believe the job's
record.

Always: the result comes from the job.toml of the verified bundle, the host's own defaults, and the
overrides that a known key has signed. A record that says anything else is refused, except for the
number of workers: masters decide how many run, where and when.
Pure: no I/O and no clock.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from torrentdist.model.access.envelope import Envelope
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest, JobId
from torrentdist.model.jobs.job import FILE_NAME, JobSpec, parse_job
from torrentdist.model.jobs.job_overrides import job_with_defaults, with_overrides
from torrentdist.security.signing.signatures import JobStatement, SignedContent, check_job, verified
from torrentdist.security.signing.trust import BundleTrust


class JobClaim(msgspec.Struct, frozen=True):
    """What the record of a job says, and the signature that came with it."""

    job: JobId
    bundle: BundleId
    dependencies: tuple[BundleId, ...]
    spec: JobSpec
    signature: Envelope | None


class HostRules(msgspec.Struct, frozen=True):
    """What a host's own configuration says about the jobs of one bundle."""

    trust: BundleTrust
    cluster: str
    defaults: Mapping[str, Any]


def spec_to_run(claim: JobClaim, text: str | None, digests: Mapping[BundleId, Digest], rules: HostRules) -> JobSpec:
    """Returns the specification to run.

    `text` is the job.toml of the job's bundle. `digests` are those of the bundles on this host,
    whose signatures were verified. Raises `unknown_key`, `bad_signature` or `job_not_signed`.
    """
    if text is None:
        raise TorrentdistError("job_not_signed", id=claim.job, detail=f"{claim.bundle} has no {FILE_NAME}")
    spec = job_with_defaults(text, rules.defaults, origin=f"{claim.bundle}/{FILE_NAME}")
    if claim.signature is not None:
        said = _statement(claim, claim.signature, text, digests, rules)
        spec = with_overrides(spec, said.name, said.workers, said.conf)
    differing = sorted(_differing(claim, spec))
    if differing:
        detail = f"its record has another {', '.join(differing)} than what was signed"
        raise TorrentdistError("job_not_signed", id=claim.job, detail=detail)
    return spec


def _statement(
    claim: JobClaim, signature: Envelope, text: str, digests: Mapping[BundleId, Digest], rules: HostRules
) -> JobStatement:
    what = f"job {claim.job!r}"
    _, said = verified(signature, JobStatement, rules.trust.keys, what)
    bundle = SignedContent(claim.bundle, digests[claim.bundle])
    detail = check_job(said, claim.job, bundle, digests, rules.cluster)
    if not detail:
        plain = with_overrides(parse_job(text, origin=FILE_NAME), said.name, said.workers, said.conf)
        detail = "" if plain == said.spec else f"its specification is not that of the bundle's {FILE_NAME}"
    if detail:
        raise TorrentdistError("bad_signature", what=what, detail=detail)
    return said


def _differing(claim: JobClaim, spec: JobSpec) -> Iterator[str]:
    """Yields the keys of job.toml that the record has otherwise."""
    if set(claim.dependencies) != set(spec.dependencies):
        yield "dependencies"
    told, derived = (msgspec.structs.asdict(each) for each in (claim.spec, spec))
    for key in told.keys() - {"workers"}:
        one, other = told[key], derived[key]
        if isinstance(one, dict):
            yield from (f"{key}.{name}" for name in one.keys() | other.keys() if one.get(name) != other.get(name))
        elif one != other and key != "dependencies":
            yield key
