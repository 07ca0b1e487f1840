"""Tokens of jobs: each proves one job's id to the daemons of its cluster.

Always: a token is made of the cluster's secret and the job's id alone, so that every daemon can
verify it without asking anybody. It is compared in constant time. The secret goes through scrypt
first: a job that tries out secrets against its token pays for each guess.
Never: I/O. Making a key takes a moment of processor time: make it once, and in a thread.
"""

from __future__ import annotations

import hashlib
import hmac

from torrentdist.model.ids import BundleId, JobId
from torrentdist.security.principal import Principal, Proof, Role

PREFIX = "job:"
_SALT = b"torrentdist job tokens"
_COST = {"n": 2**14, "r": 8, "p": 1}


def key_of(secret: str) -> bytes:
    """Returns the key of the cluster's job tokens."""
    return hashlib.scrypt(secret.encode(), salt=_SALT, dklen=32, **_COST)


def token_of_job(key: bytes, job: JobId) -> str:
    return f"{PREFIX}{job}:{hmac.new(key, job.encode(), hashlib.sha256).hexdigest()}"


def job_of(key: bytes, token: str) -> JobId | None:
    """Returns the job that the token proves; None if it proves none. No token is right under an
    empty key.
    """
    if not key:
        return None
    job = JobId(token.removeprefix(PREFIX).rpartition(":")[0])
    return job if hmac.compare_digest(token.encode(), token_of_job(key, job).encode()) else None


def job_principal(job: JobId, bundles: frozenset[BundleId]) -> Principal:
    """The principal of a job. `bundles`: those that it needs."""
    return Principal(f"job {job}", Role.JOB, Proof.JOB_TOKEN, jobs=frozenset([job]), own_bundles=bundles)
