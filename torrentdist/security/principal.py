"""The sender of a request: a name, a role, and how both were proven.

Always: a request has exactly one principal, and authentication sets it before any handler runs.
Never: I/O. The layer that reads headers, tokens or kernel tables calls this module with what it
found.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from torrentdist.model.ids import BundleId, JobId
from torrentdist.security.certificate_identity import CertificateIdentity


class Role(StrEnum):
    """The roles of the cluster. Each operation names the role that it needs."""

    ANYONE = "anyone"
    """Needs no proof: health checks, and the announce whose key is in its path."""
    JOB = "job"
    """A worker of a job: it reads its job and its job's bundles, and tells that it lives."""
    READER = "reader"
    """May read everything but backups and snapshots, and download."""
    UPLOADER = "uploader"
    """May also upload and distribute bundles."""
    SUBMITTER = "submitter"
    """May also submit, steer and kill jobs."""
    OPERATOR = "operator"
    """May do everything that a person may do."""
    HOST = "host"
    """A machine of the cluster: heartbeats, announces, metafiles and snapshots."""


class Proof(StrEnum):
    """How the sender of a request proved its name."""

    NONE = "none"
    TOKEN = "token"
    """A token with a name, that an operator made."""
    TOKEN_FILE = "token-file"
    """The token that the daemons share."""
    CONNECTION = "connection"
    """The kernel names the user at the other end of a loopback connection."""
    CERTIFICATE = "certificate"
    """TLS verified a certificate of the cluster's CA that carries the name."""
    JOB_TOKEN = "job-token"
    """The token that a job's workers are given."""
    SESSION = "session"
    """A cookie of the console, given for a token."""
    PASS = "pass"
    """A master lets it read one thing at this host."""


@dataclass(frozen=True)
class Principal:
    """The sender of one request."""

    name: str
    role: Role
    how: Proof
    certificate: CertificateIdentity | None = None
    """The holder of the certificate, where that is the proof."""
    bundles: str = "*"
    """The pattern that a bundle's id must match for its changes and its jobs."""
    reads: tuple[str, ...] = ("*",)
    """Patterns of the bundles that it may read. It may read `own_bundles` too."""
    expires_at: float | None = None
    """The time at which its token expires, by ZooKeeper's clock. None: never."""
    speaks_for_hosts: bool = False
    """Whether it may also do what only hosts do. The daemons' shared token is such a proof."""

    jobs: frozenset[JobId] = frozenset()
    """The jobs that a sender of the role `job` belongs to."""
    own_bundles: frozenset[BundleId] = frozenset()
    """Further bundles that it may read: those of these jobs."""

    @property
    def is_host(self) -> bool:
        return self.role is Role.HOST or self.speaks_for_hosts


LOCAL = Principal("anonymous", Role.OPERATOR, Proof.NONE, speaks_for_hosts=True)
"""A program on this machine: without a token, a daemon listens on loopback only."""
STRANGER = Principal("anonymous", Role.ANYONE, Proof.NONE, reads=())
"""A sender without any proof, on a daemon that has a token."""
VISITOR = Principal("anonymous", Role.READER, Proof.NONE, reads=())
"""A user of this host whom the gateway lets see its health, and nothing else."""
TOKEN_HOLDER = Principal("token", Role.OPERATOR, Proof.TOKEN_FILE, speaks_for_hosts=True)
"""The sender of the token that the daemons share."""


def host_user(user_id: int, reads: tuple[str, ...]) -> Principal:
    """The principal of a local user whose connection the kernel has attributed to it. One who may
    not read every bundle may not say what the host keeps."""
    role = Role.OPERATOR if "*" in reads else Role.READER
    return Principal(f"user {user_id}", role, Proof.CONNECTION, reads=reads)


def where_hosts_have_certificates(principal: Principal | None) -> Principal | None:
    """The same sender on a port with TLS, where a host needs a certificate and nobody is trusted
    for being on the same machine. None: it has proven nothing.
    """
    if principal is None or principal.how is Proof.NONE:
        return None
    return replace(principal, speaks_for_hosts=False)


def job_user(user_id: int, jobs: frozenset[JobId], bundles: frozenset[BundleId]) -> Principal:
    """The principal of a user of jobs. `bundles`: those of its jobs."""
    return Principal(f"user {user_id}", Role.JOB, Proof.CONNECTION, reads=(), jobs=jobs, own_bundles=bundles)


def certificate_holder(identity: CertificateIdentity) -> Principal:
    """The principal of a verified certificate. Only the CA's owner can give one to a person, so a
    person with one is an operator. A server of ZooKeeper may do what strangers may.
    """
    role = Role.HOST if identity.is_host else Role.ANYONE if identity.has_addresses else Role.OPERATOR
    return Principal(identity.id, role, Proof.CERTIFICATE, identity)
