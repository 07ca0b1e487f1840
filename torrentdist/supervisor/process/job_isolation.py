"""Decides which users the jobs of this host run as, and whether they run at all.

Always: a host that must isolate its jobs and cannot refuses them with the reason. A job never runs
as root, and as the supervisor's own user only where isolation is not required.
`isolation_of` reads the host's list of users: call it in threads.
"""

import fnmatch
import zlib
from collections.abc import Collection, Mapping
from enum import StrEnum

import msgspec

from torrentdist.launcher.job_users import NOBODY, BadJobUsers, JobUsers, job_users
from torrentdist.launcher.launcher_client import HostIsolation, Starter
from torrentdist.model.configuration.config import Config
from torrentdist.model.configuration.settings import secret_files
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.loopback import is_loopback


class IsolationMode(StrEnum):
    """How a host keeps its jobs away from its daemon."""

    REQUIRED = "required"
    """Jobs run as other users in namespaces, or not at all."""
    PREFERRED = "preferred"
    """Jobs run as other users where the host can do that, else as the supervisor's own user."""
    NONE = "none"
    """Jobs run as the supervisor's own user."""


class IsolationPolicy(msgspec.Struct, frozen=True):
    """What the configuration says about the jobs of this host."""

    mode: IsolationMode = IsolationMode.PREFERRED
    users: str = ""
    """A name, a number or a range."""
    pass_env: tuple[str, ...] = ("*",)
    hidden: tuple[str, ...] = ()
    """Files that no job may read."""
    exposed: bool = False
    """Whether the supervisor listens beyond loopback."""


def policy_of(config: Config) -> IsolationPolicy:
    """Returns the policy of a supervisor. By default it is strict where strangers can reach the
    host."""
    exposed = not is_loopback(config.api.listen)
    default = IsolationMode.REQUIRED if exposed else IsolationMode.PREFERRED
    hidden = (*secret_files(config), *filter(None, [config.supervisor.launcher]))
    jobs = config.jobs
    mode = IsolationMode(jobs.isolation or default)
    return IsolationPolicy(mode, jobs.user, tuple(jobs.pass_env), hidden, exposed)


class JobIsolation(msgspec.Struct, frozen=True):
    """How the jobs of this host are isolated."""

    users: JobUsers
    """The users of jobs; none: jobs run as the supervisor's own user."""
    why_not: str = ""
    """Why jobs run as the supervisor's own user; empty if they do not."""
    refused: bool = False
    """Whether this host therefore runs no jobs."""


def isolation_of(policy: IsolationPolicy, host: HostIsolation) -> JobIsolation:
    """Returns how jobs are isolated, from the policy and what the launcher offers."""
    if policy.mode is IsolationMode.NONE:
        return JobIsolation(NOBODY, 'jobs.isolation is "none"')
    try:
        users = job_users(policy.users)
        why_not = _obstacle(users, host)
    except BadJobUsers as error:
        users, why_not = NOBODY, f"jobs.user: {error}"
    if why_not:
        return JobIsolation(NOBODY, why_not, refused=policy.mode is IsolationMode.REQUIRED)
    return JobIsolation(users)


def _obstacle(users: JobUsers, host: HostIsolation) -> str:
    """Returns what keeps jobs from running as these users; empty if nothing does."""
    if not host.namespaces:
        return f"runs have no namespaces of their own: {host.why_not}"
    if not host.users:
        return "only a launcher that root started with --job-users can start jobs as another user"
    if not job_users(host.users).includes(users):
        return f"the launcher allows jobs to run as {host.users}, and jobs.user is {users}"
    return ""


def own_users(policy: IsolationPolicy) -> str:
    """Returns the users that a supervisor without a launcher allows itself; empty: none."""
    try:
        return "" if policy.mode is IsolationMode.NONE else str(job_users(policy.users))
    except BadJobUsers:
        return ""


class IsolationCheck:
    """Finds out how the jobs of this host are isolated now: its launcher may be replaced."""

    def __init__(self, policy: IsolationPolicy, starter: Starter) -> None:
        self.policy = policy
        self._starter = starter

    def host(self) -> HostIsolation:
        """Asks the launcher what it offers. Blocks; raises OSError if it does not answer."""
        return self._starter.isolation()

    def users(self) -> JobUsers:
        """Returns the users of jobs; none: jobs run as the supervisor's own user. Blocks."""
        if self.policy.mode is IsolationMode.NONE:
            return NOBODY
        found = isolation_of(self.policy, self.host())
        if found.refused:
            raise TorrentdistError("jobs_not_isolated", detail=found.why_not)
        return found.users


def free_user(users: JobUsers, taken: Collection[int], seed: str) -> int | None:
    """Returns a user for one more job; None if every user of a range has a job.

    The search begins at a place that depends on `seed`, so that supervisors which share a host and
    a range rarely choose the same user, and the user of a job that left is not the next to be used.
    """
    if users.size == 1:
        return users.lowest
    start = zlib.crc32(seed.encode()) % users.size
    order = (users.lowest + (start + step) % users.size for step in range(min(users.size, len(taken) + 1)))
    return next((uid for uid in order if uid not in taken), None)


def passed_on(environ: Mapping[str, str], patterns: Collection[str]) -> dict[str, str]:
    """Returns the variables of the supervisor that its workers get."""
    return {
        name: value
        for name, value in environ.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }
