"""Tokens of jobs: each proves one job's id to the daemons of its cluster.

Always: a token is made of a secret and the job's id alone, and is compared in constant time. The
secret is the token that daemons share, which every daemon can verify without asking anybody; where
they share none, it is what the worker's host and the masters alone know. A shared token goes
through scrypt first: a job that tries out secrets against its token pays for each guess.
Never: I/O. Making a key takes a moment of processor time: make it once, and in a thread.
"""

import hashlib
import hmac

from torrentdist.model.ids import BundleId, JobId
from torrentdist.security.authorization import Principal, Proof, Role

PREFIX = "job:"
_SALT = b"torrentdist job tokens"
_COST = {"n": 2**14, "r": 8, "p": 1}


def key_of(secret: str) -> bytes:
    """Returns the key of the cluster's job tokens."""
    return hashlib.scrypt(secret.encode(), salt=_SALT, dklen=32, **_COST)


def key_of_host(host_key: str) -> bytes:
    """Returns the key of the tokens that one host gives to its jobs; empty if it has none."""
    return hmac.new(host_key.encode(), _SALT, hashlib.sha256).digest() if host_key else b""


def named_job(token: str) -> JobId:
    """Returns the job that the token names. It proves nothing."""
    return JobId(token.removeprefix(PREFIX).rpartition(":")[0])


def token_of_job(key: bytes, job: JobId) -> str:
    return f"{PREFIX}{job}:{hmac.new(key, job.encode(), hashlib.sha256).hexdigest()}"


def job_of(key: bytes, token: str) -> JobId | None:
    """Returns the job that the token proves; None if it proves none. No token is right under an
    empty key.
    """
    if not key:
        return None
    job = named_job(token)
    return job if hmac.compare_digest(token.encode(), token_of_job(key, job).encode()) else None


def job_principal(job: JobId, bundles: frozenset[BundleId]) -> Principal:
    """The principal of a job. `bundles`: those that it needs."""
    return Principal(f"job {job}", Role.JOB, Proof.JOB_TOKEN, reads=(), jobs=frozenset([job]), own_bundles=bundles)
