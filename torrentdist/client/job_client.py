"""Submits, reads and changes jobs, for commands.

Always: job.toml is checked before anything is uploaded, and an error names its place in the file.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from torrentdist.bundle.job_files import file_problem, job_text
from torrentdist.client.bundles.signed_content import signed_body
from torrentdist.client.bundles.transfer_progress import UploadProgress
from torrentdist.client.bundles.upload import UploadWanted, preview_upload, upload
from torrentdist.client.masters.list_pages import all_pages
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.http.api_calls import Request
from torrentdist.model.access.token_messages import HostPassesView
from torrentdist.model.configuration.config import SwarmConfig, TrustConfig
from torrentdist.model.errors import TorrentdistError, required
from torrentdist.model.ids import BundleId, JobId, SupervisorId
from torrentdist.model.jobs.job import FILE_NAME, JobSpec, parse_job, place_in
from torrentdist.model.jobs.job_overrides import with_overrides
from torrentdist.model.records import ENDED, BundleState, JobStatus
from torrentdist.model.wire.bundle_messages import BundleView
from torrentdist.model.wire.job_messages import JobView, SubmitBody
from torrentdist.security.signing.signing_keys import Signer

SUBMIT_SECS = 30.0


def read_job(directory: Path) -> JobSpec:
    """Returns the job of a directory. The file, its values and the program to run are checked."""
    path = directory / FILE_NAME
    text = required(job_text(directory, str(path)), "job_file_missing", what=str(directory))
    spec = parse_job(text, origin=str(path))
    problem = file_problem(directory, spec)
    if problem is not None:
        key, detail = problem
        raise TorrentdistError("job_invalid", origin=place_in(text, str(path), key), detail=f"{key}: {detail}")
    return spec


def job_in(what: str) -> JobSpec | None:
    """Returns the checked job of a directory, or None if `what` is a bundle's id, which has no
    slash."""
    return read_job(Path(what)) if "/" in what or Path(what).is_dir() else None


class JobChoices(msgspec.Struct, frozen=True, kw_only=True):
    """The submitter's choices. `name`, `workers` and `conf` override job.toml."""

    name: str | None = None
    workers: int | None = None
    conf: Mapping[str, str] = {}
    """Keys of job.toml, such as `restart.policy`."""
    activate: bool = True


async def submit(
    client: MasterClient,
    what: str,
    choices: JobChoices | None = None,
    *,
    swarm: SwarmConfig | None = None,
    timeout: float = 3600.0,
    progress: Callable[[UploadProgress], None] = lambda _: None,
    signer: Signer | None = None,
    trust: TrustConfig | None = None,
) -> JobView:
    """Submits a bundle of the cluster, or a directory, which is uploaded under an id derived from
    its content.

    With `signer`, the job is signed, and so is a directory's bundle. A bundle that is in the
    cluster must have been signed by the same key, or by one that `trust` names.
    """
    choices = choices or JobChoices()
    bundle, name, workers, conf = what, choices.name, choices.workers, dict(choices.conf)
    spec = job_in(what)
    if spec is not None:
        changed = with_overrides(spec, name, workers, conf)
        await _expect_room_for(client, changed)
        if client.dry_run:
            bundle = (await preview_upload(client, Path(what), None, progress=progress)).id
            if not await _has(client, bundle):
                return _planned(changed, bundle)
            signer = None  # the bundle's own signature, which a signed job needs, is made by its upload
        else:
            wanted = UploadWanted(timeout=timeout, signer=signer, swarm=swarm or SwarmConfig())
            bundle = (await upload(client, Path(what), None, wanted, progress=progress)).id
    body = SubmitBody(bundle=bundle, name=name, workers=workers, conf=conf, activate=choices.activate)
    if signer is not None:
        body = await signed_body(client, body, spec, signer, trust or TrustConfig())
    request = Request("POST", "/v1/jobs", content=msgspec.json.encode(body), timeout=SUBMIT_SECS)
    return await client.mutate(request, JobView)


async def _has(client: MasterClient, bundle: BundleId) -> bool:
    try:
        return (await client.bundle(bundle)).state is BundleState.AVAILABLE
    except TorrentdistError as error:
        if error.code != "bundle_not_found":
            raise
        return False


def _planned(spec: JobSpec, bundle: BundleId) -> JobView:
    """Returns a job as it would be, whose bundle no master has yet."""
    return JobView(
        id=JobId(""),
        name=spec.name,
        status=JobStatus.SUBMITTED,
        bundle=bundle,
        dependencies=list(spec.dependencies),
        wanted=spec.workers,
        workers=[],
        created_at=0.0,
        spec=spec,
    )


async def _expect_room_for(client: MasterClient, spec: JobSpec) -> None:
    """Raises, before the upload, the errors that the leader would raise after it."""
    for other in await client.ask_patiently("GET", "/v1/jobs", list[JobView], params={"any": "true"}):
        if other.name == spec.name and other.status not in ENDED:
            raise TorrentdistError("job_exists", id=spec.name)
    for needed in spec.dependencies:
        await client.ask_patiently("GET", f"/v1/bundles/{needed}", BundleView)


async def jobs(client: MasterClient) -> list[JobView]:
    """Returns all jobs in the order of their names; of equal names, the oldest comes first."""
    found = await all_pages(
        lambda page: client.read_of_leader("/v1/jobs", list[JobView], params=page), lambda job: job.id
    )
    return sorted(found, key=lambda job: (job.name, job.created_at))


async def job(client: MasterClient, name: str) -> JobView:
    """Returns one job with its story."""
    return await client.read_of_leader(f"/v1/jobs/{name}", JobView, params={"events": "true"})


async def output_passes(client: MasterClient, job: JobId) -> Mapping[SupervisorId, str]:
    """Returns what lets us read the job's output at each supervisor."""
    return (await client.read("GET", f"/v1/jobs/{job}/pass", HostPassesView)).hosts


async def activate(client: MasterClient, name: str) -> JobView:
    return await client.mutate(Request("POST", f"/v1/jobs/{name}/activate"), JobView)


async def deactivate(client: MasterClient, name: str) -> JobView:
    return await client.mutate(Request("POST", f"/v1/jobs/{name}/deactivate"), JobView)


async def rebalance(client: MasterClient, name: str, *, wait: float, workers: int | None) -> JobView:
    params = {"wait": f"{wait:g}"} | ({} if workers is None else {"workers": str(workers)})
    return await client.mutate(Request("POST", f"/v1/jobs/{name}/rebalance", params=params), JobView)


async def kill(client: MasterClient, name: str, *, wait: float | None) -> JobView:
    params = {} if wait is None else {"wait": f"{wait:g}"}
    return await client.mutate(Request("DELETE", f"/v1/jobs/{name}", params=params), JobView)


async def drain(client: MasterClient, supervisor: SupervisorId) -> None:
    await client.mutate(Request("PUT", f"/v1/supervisors/{supervisor}/drain"), dict[str, object])


async def undrain(client: MasterClient, supervisor: SupervisorId) -> None:
    await client.mutate(Request("DELETE", f"/v1/supervisors/{supervisor}/drain"), dict[str, object])
