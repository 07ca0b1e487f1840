"""Decides what a worker runs on a host that checks signatures.

Always: under `enforce`, every bundle of the job is verified, and its specification is derived from
the verified bundle (security/signing/signed_jobs.py).
"""

import asyncio
from collections.abc import Mapping

from torrentdist.bundle.job_files import job_text
from torrentdist.bundle.store.store import StoredBundle
from torrentdist.log import get_logger
from torrentdist.model.configuration.config import Config
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, JobId
from torrentdist.model.jobs.job import FILE_NAME, JobSpec
from torrentdist.security.signing.signed_jobs import HostRules, JobClaim, spec_to_run
from torrentdist.security.signing.trust import TrustMode, trust_in
from torrentdist.supervisor.bundles.bundle_signatures import BundleSignatures
from torrentdist.supervisor.jobs.local_state import JobFacts

log = get_logger()


class JobSignatures:
    def __init__(self, config: Config, bundles: BundleSignatures) -> None:
        self._trust = config.trust
        self._defaults = config.jobs.defaults
        self._bundles = bundles

    async def spec_of(self, job: JobId, facts: JobFacts, stored: Mapping[BundleId, StoredBundle]) -> JobSpec:
        """Returns the specification that this host runs. Raises an error if it must not run the
        job."""
        for bundle, held in stored.items():
            await self._bundles.check(bundle, held.digest)
        trust = trust_in(self._trust, facts.bundle)
        if trust.mode is TrustMode.OFF:
            return facts.spec
        claim = JobClaim(job, facts.bundle, facts.dependencies, facts.spec, facts.signature)
        rules = HostRules(trust, self._trust.cluster, self._defaults)
        try:
            return await asyncio.to_thread(_derived, claim, stored, rules)
        except TorrentdistError as error:
            if trust.mode is TrustMode.ENFORCE:
                raise
            log.warning("a job runs although its signature is not right", job=job, reason=error.message)
            return facts.spec


def _derived(claim: JobClaim, stored: Mapping[BundleId, StoredBundle], rules: HostRules) -> JobSpec:
    text = job_text(stored[claim.bundle].content, f"{claim.bundle}/{FILE_NAME}")
    return spec_to_run(claim, text, {bundle: held.digest for bundle, held in stored.items()}, rules)
