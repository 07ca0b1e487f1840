"""The sender of a request, and what it may do: a name and a role, how both were proven, and
which operations and bundles they allow.

Always: what is not allowed here is refused. A request has exactly one principal, and
authentication sets it before any handler runs. A role includes the roles below it; the role of
hosts is apart, and includes reading. A job gets what is its own, and nothing else.
Never: I/O, or a clock. The layer that reads headers, tokens or kernel tables calls this module
with what it found.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase, translate
from functools import lru_cache
from typing import Final

import msgspec
from msgspec.structs import replace

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MAX_ID_LENGTH, BundleId, JobId
from torrentdist.security.certificate_identity import CertificateIdentity, CertificateRole


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
    CAPABILITY = "capability"
    """Its URL carries a capability that the masters have signed."""
    PASS = "pass"
    """A master lets it read one thing at this host."""


class Principal(msgspec.Struct, frozen=True):
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

    @property
    def has_shared_name(self) -> bool:
        """Whether others prove the same name."""
        return self.how in (Proof.NONE, Proof.TOKEN_FILE)


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


ALL_BUNDLES: Final = "*"
_RANK: Final = {
    Role.ANYONE: 0, Role.JOB: 1, Role.HOST: 2, Role.READER: 2, Role.UPLOADER: 3, Role.SUBMITTER: 4, Role.OPERATOR: 5
}  # fmt: skip
BOUND_ROLES: Final = (Role.UPLOADER, Role.SUBMITTER)
"""The roles that a pattern binds. Each operation of theirs names the bundles that it is about."""
_PATTERN: Final = re.compile(r"[A-Za-z0-9._*?-]+", re.ASCII)


def may_use(principal: Principal, needed: Role) -> bool:
    """Whether the principal may use operations that need this role."""
    if needed is Role.HOST:
        return principal.is_host
    return _RANK[principal.role] >= _RANK[needed]


def may_change(principal: Principal, bundles: Iterable[str]) -> bool:
    """Whether the principal's pattern allows one of the ids under which this content is known."""
    if principal.role not in BOUND_ROLES or principal.bundles == ALL_BUNDLES:
        return True
    return any(fnmatchcase(bundle, principal.bundles) for bundle in bundles)


def may_read(principal: Principal, bundle: str) -> bool:
    """Whether a bundle exists for this principal. What it may not read is not there: no answer may
    differ from that about an id that nobody has used.
    """
    return bundle in principal.own_bundles or matches_one(principal.reads, bundle)


def matches_one(patterns: tuple[str, ...], bundle: str) -> bool:
    return ALL_BUNDLES in patterns or (bool(patterns) and _matcher(patterns)(bundle) is not None)


@lru_cache(maxsize=1024)
def _matcher(patterns: tuple[str, ...]) -> Callable[[str], object]:
    """Compiles patterns into one expression, since a list asks for each of its bundles."""
    return re.compile("|".join(map(translate, patterns))).match


def reads_everything(principal: Principal) -> bool:
    """Whether no bundle is hidden from this principal, whatever its id."""
    return ALL_BUNDLES in principal.reads


def may_see_pattern(principal: Principal, pattern: str) -> bool:
    """Whether a pattern names nothing that is hidden from this principal. A pattern that holds the
    beginning of an id tells that there is such an id.
    """
    return pattern in ("", ALL_BUNDLES) or may_read(principal, pattern)


def check_role(principal: Principal, needed: Role, operation: str) -> None:
    """Raises the error that says which role is missing."""
    if may_use(principal, needed):
        return
    if principal == STRANGER:
        raise TorrentdistError("unauthorized")
    if needed is Role.HOST:
        raise TorrentdistError("hosts_only", name=principal.name, operation=operation)
    raise TorrentdistError("role_needed", name=principal.name, role=principal.role, needed=needed, operation=operation)


def check_readable(principal: Principal, bundle: str) -> None:
    """Raises the error about an id that nobody has used, for a bundle that is hidden."""
    if not may_read(principal, bundle):
        raise TorrentdistError("bundle_not_found", id=bundle, note="")


def check_master(principal: Principal, what: str) -> None:
    """Raises an error for a certificate that is not a master's. `what` is for masters alone."""
    certificate = principal.certificate
    if certificate is not None and certificate.role is not CertificateRole.MASTER:
        raise TorrentdistError("forbidden", detail=f"{what} for masters alone")


def check_bundles(principal: Principal, bundles: Iterable[str]) -> None:
    """Raises the error that names the pattern that none of these ids matches."""
    bundles = sorted(bundles)
    if not may_change(principal, bundles):
        named = ", ".join(bundles) or "an unknown bundle"
        raise TorrentdistError("pattern_mismatch", name=principal.name, pattern=principal.bundles, id=named)


def check_own(principal: Principal, named: Mapping[str, object]) -> None:
    """Raises an error if a job asks for what belongs to another. `named`: the parameters of the
    path, of which `id` is a bundle and `job` a job.
    """
    if principal.role is not Role.JOB:
        return
    for kind, own in (("id", principal.own_bundles), ("job", principal.jobs)):
        if kind in named and named[kind] not in own:
            detail = f"{principal.name} runs jobs, and {str(named[kind])[:200]!r} is not theirs"
            raise TorrentdistError("forbidden", name=principal.name, detail=detail)


def may_read_content(principal: Principal, names: Iterable[str]) -> bool:
    """Whether a principal may read content that is known under these ids: one of them is enough."""
    return reads_everything(principal) or any(may_read(principal, name) for name in names)


def checked_pattern(text: str) -> str:
    """Returns a pattern of bundle ids, or raises the error that says what it may hold."""
    if len(text) > MAX_ID_LENGTH or not _PATTERN.fullmatch(text):
        raise TorrentdistError("invalid_pattern", text=text[:200])
    return text
