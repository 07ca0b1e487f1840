"""Builds every ZooKeeper path below the chroot. No other module builds one.

Always: an id is checked before it becomes part of a path.
Longer than most files, because it is the only one that knows the shape of the tree.
"""

import hashlib
import re

import msgspec

from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, JobId, MasterId, RequestId, SupervisorId

ROOT = "/"
CLUSTER = "/cluster"
EPOCH = "/epoch"
MASTERS = "/masters"
SUPERVISORS = "/supervisors"
ELECTION = "/election"
FAILOVERS = "/failovers"
BUNDLES = "/code-distributor"
ASSIGNMENTS = "/assignments"
REQUESTS = "/requests"
TOKENS = "/tokens"
HOSTS = "/hosts"
INVITATIONS = "/invitations"
DISTRIBUTIONS = "/distributions"
RETENTION = "/retention"
JOBS = "/jobs"
GROUPS = "/groups"
PLACES = "/places"
"""A parent for each host with an identity of its own, in which only that host can register."""
REMOVALS = "/removals"
"""Names the bundles that were removed last. Every supervisor watches it."""
KNOWN_MASTERS = "/known-masters"
KNOWN_SUPERVISORS = "/known-supervisors"
"""Parents of the masters and supervisors that belong to the cluster, registered or not."""
RESTORING = "/restoring"
"""Exists while a backup is being restored, and names that backup."""

PARENTS = (MASTERS, SUPERVISORS, ELECTION, FAILOVERS, BUNDLES, ASSIGNMENTS)
"""Parents that must exist before any record can be written."""
LATER_PARENTS = (JOBS, TOKENS, HOSTS, INVITATIONS, DISTRIBUTIONS, RETENTION, KNOWN_MASTERS, KNOWN_SUPERVISORS)
"""Parents that a tree of an older release may lack."""

_SEQUENCE_DIGITS = 10
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)


def master(id_: MasterId) -> str:
    return f"{MASTERS}/{ids.master_id(id_)}"


def supervisor(id_: SupervisorId) -> str:
    return f"{SUPERVISORS}/{ids.supervisor_id(id_)}"


def known_master(id_: str) -> str:
    return f"{KNOWN_MASTERS}/{ids.peer_id(id_)}"


def known_supervisor(id_: str) -> str:
    return f"{KNOWN_SUPERVISORS}/{ids.peer_id(id_)}"


def place(id_: str) -> str:
    return f"{PLACES}/{ids.peer_id(id_)}"


REGISTRATION = "registration"


def registration(id_: SupervisorId) -> str:
    """Returns the path at which a supervisor with an identity of its own registers."""
    return f"{place(id_)}/{REGISTRATION}"


def bundle(id_: BundleId) -> str:
    return f"{BUNDLES}/{ids.bundle_id(id_)}"


def replica(bundle_id: BundleId, holder: MasterId) -> str:
    return f"{bundle(bundle_id)}/{ids.master_id(holder)}"


def assignment(id_: SupervisorId) -> str:
    return f"{ASSIGNMENTS}/{ids.supervisor_id(id_)}"


def job(id_: JobId) -> str:
    return f"{JOBS}/{ids.job_id(id_)}"


def job_story(id_: JobId) -> str:
    return f"{job(id_)}/story"


def token(name: str) -> str:
    return f"{TOKENS}/{ids.token_name(name)}"


def distribution(bundle_id: BundleId) -> str:
    return f"{DISTRIBUTIONS}/{ids.bundle_id(bundle_id)}"


def retention(pattern: str) -> str:
    """Returns the path of a retention rule. A pattern may hold characters that no path may."""
    return f"{RETENTION}/{hashlib.sha256(pattern.encode()).hexdigest()[:32]}"


def host(id_: str) -> str:
    return f"{HOSTS}/{ids.peer_id(id_)}"


def invitation(id_: str) -> str:
    return f"{INVITATIONS}/{ids.peer_id(id_)}"


def request_bucket(name: str) -> str:
    return f"{REQUESTS}/{name}"


def request_buckets() -> list[str]:
    """Returns the paths of all request buckets."""
    return [request_bucket(f"{number:02x}") for number in range(256)]


def request(id_: RequestId) -> str:
    """Returns the path of a request. The id determines one of 256 buckets, so a lookup never lists
    children."""
    bucket = hashlib.sha256(ids.request_id(id_).encode()).hexdigest()[:2]
    return f"{request_bucket(bucket)}/{id_}"


def election_node(name: str) -> str:
    return f"{ELECTION}/{name}"


def election_prefix(unique: str) -> str:
    """Returns the path to which ZooKeeper appends the sequence number."""
    return f"{ELECTION}/{unique}-"


def failover(name: str) -> str:
    return f"{FAILOVERS}/{name}"


def failover_prefix() -> str:
    return f"{FAILOVERS}/f-"


def is_name(text: str) -> bool:
    """Whether `text` is safe as one component of a path."""
    return 0 < len(text) <= ids.MAX_ID_LENGTH and _NAME.fullmatch(text) is not None


def _checked(kind: str, text: str) -> str:
    if not is_name(text):
        raise TorrentdistError("invalid_id", kind=kind, text=text[:200])
    return text


class GroupPaths(msgspec.Struct, frozen=True):
    """The paths of one resource group."""

    name: str

    def __post_init__(self) -> None:
        _checked("group", self.name)

    @property
    def root(self) -> str:
        return f"{GROUPS}/{self.name}"

    @property
    def members(self) -> str:
        return f"{self.root}/members"

    @property
    def resources(self) -> str:
        return f"{self.root}/resources"

    @property
    def barriers(self) -> str:
        return f"{self.root}/barriers"

    @property
    def stopped(self) -> str:
        return f"{self.root}/stopped"

    @property
    def status(self) -> str:
        return f"{self.root}/status"

    @property
    def plan(self) -> str:
        return f"{self.root}/plan"

    @property
    def epoch(self) -> str:
        return f"{self.root}/epoch"

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.members, self.resources, self.barriers, self.stopped, self.status, self.plan, self.epoch)

    def member(self, znode: str) -> str:
        return f"{self.members}/{znode}"

    def resource(self, name: str) -> str:
        return f"{self.resources}/{_checked('resource', name)}"

    def barrier(self, resource: str) -> str:
        return f"{self.barriers}/{_checked('resource', resource)}"

    def grant(self, resource: str) -> str | None:
        """Returns the path of the znode that says which host may take a barrier; None: any member
        may."""
        return None

    def resource_at(self, path: str) -> str:
        """Returns the resource that a barrier, or its grant, is for."""
        return name(path)


JOB_GROUP = GroupPaths("jobs")
"""The group that holds the barriers of all workers. It has no coordinator: the leader assigns
workers."""


_HELD = "held"


class HostGroupPaths(GroupPaths, frozen=True):
    """The jobs' group as a host with an identity of its own uses it: its membership and each of its
    barriers have a parent that the leader makes for this host."""

    user: str = ""
    """The host's user in ZooKeeper, which the grants name."""
    host: str = ""

    @property
    def members(self) -> str:
        return host_members(self.host)

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.members,)

    def grant(self, resource: str) -> str:
        return super().barrier(resource)

    def barrier(self, resource: str) -> str:
        return f"{self.grant(resource)}/{_HELD}"

    def resource_at(self, path: str) -> str:
        return name(parent(path) if name(path) == _HELD else path)


def host_members(id_: str) -> str:
    """Returns the parent of a host's memberships in the jobs' group."""
    return f"{JOB_GROUP.members}/{ids.peer_id(id_)}"


def held(grant: str) -> str:
    """Returns the path of the barrier below a grant."""
    return f"{grant}/{_HELD}"


def jobs_group(host: str | None, user: str) -> GroupPaths:
    """Returns the jobs' group as a host uses it. `host`: its id, if it has an identity of its
    own."""
    return JOB_GROUP if host is None else HostGroupPaths(JOB_GROUP.name, user=user, host=host)


def free_group(name: str) -> GroupPaths:
    """Returns the paths of a user's group. Refuses the group whose barriers protect the workers of
    jobs."""
    if name == JOB_GROUP.name:
        raise TorrentdistError("forbidden", detail=f"the group {name!r} is reserved for the workers of jobs")
    return GroupPaths(name)


_LONGEST_PLAIN_JOB = 100


def worker_resource(id_: JobId, worker: int) -> str:
    """Returns the resource that represents a worker in the jobs' group. No two workers share
    one."""
    plain = ids.job_id(id_)
    if len(plain) > _LONGEST_PLAIN_JOB:
        plain = JobId(f"{plain[:60]}-{hashlib.sha256(plain.encode()).hexdigest()[:32]}")
    return f"{plain}.{worker:d}"


def stopped_name(znode: str, generation: int) -> str:
    """Returns the name of the znode that reports that a member has stopped for a generation."""
    return f"{znode}.{generation}"


def sequence_of(name: str) -> int | None:
    """Returns the sequence number that ZooKeeper appended to a name, or None if there is none."""
    digits = name[-_SEQUENCE_DIGITS:]
    if len(name) <= _SEQUENCE_DIGITS or not digits.isascii() or not digits.isdigit():
        return None
    return int(digits)


def parent(path: str) -> str:
    return path.rpartition("/")[0] or ROOT


def name(path: str) -> str:
    return path.rpartition("/")[2]
