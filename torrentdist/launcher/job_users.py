"""The users that a host allows for jobs: one user for all of them, or a range of numbers with one
user per job.

Always: root and the daemon's own user and group are no job users. The group of a job user comes
from the host's list of users, never from a request. Never: choose a job's user (the
supervisor does), or import anything but the standard library.
"""

import pwd
import re
from typing import NamedTuple

from torrentdist.launcher.privileges import User

HIGHEST_ID = 2**32 - 2
_RANGE = re.compile(r"(\d{1,10})-(\d{1,10})", re.ASCII)


class BadJobUsers(ValueError):
    """The text names no users that may run jobs."""


class JobUsers(NamedTuple):
    lowest: int
    highest: int

    def has(self, uid: int) -> bool:
        return self.lowest <= uid <= self.highest

    @property
    def size(self) -> int:
        return self.highest - self.lowest + 1

    def includes(self, other: "JobUsers") -> bool:
        """Whether every user of the other range is in this one."""
        return self.lowest <= other.lowest and other.highest <= self.highest

    def __str__(self) -> str:
        return f"{self.lowest}-{self.highest}" if self.size > 1 else str(self.lowest)


NOBODY = JobUsers(0, -1)
"""No user may run jobs."""


def job_users(text: str) -> JobUsers:
    """Returns the users that `text` names: a user's name or number, or a range such as
    20000-20999."""
    if found := _RANGE.fullmatch(text):
        users = JobUsers(int(found[1]), int(found[2]))
    elif text.isascii() and text.isdigit():
        users = JobUsers(int(text), int(text))
    else:
        try:
            uid = pwd.getpwnam(text).pw_uid
        except (KeyError, ValueError):
            raise BadJobUsers(f"there is no user {text!r} on this host") from None
        users = JobUsers(uid, uid)
    if not 0 < users.lowest <= users.highest <= HIGHEST_ID:
        raise BadJobUsers(f"{text!r} is no range of users above 0: root runs no jobs")
    return users


def user_of(uid: int) -> User:
    """Returns the user with its group. A user that the host does not list has a group with its own
    number."""
    try:
        return User(uid, pwd.getpwuid(uid).pw_gid)
    except KeyError:
        return User(uid, uid)


def is_listed(uid: int) -> bool:
    """Whether the host lists this user."""
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def name_of(uid: int) -> str:
    """Returns the user's name. A run sees one of a range under the name that is made up here."""
    return pwd.getpwuid(uid).pw_name if is_listed(uid) else f"job-{uid}"


def barred_users(users: JobUsers, daemon: User) -> frozenset[int]:
    """Returns those of the users that may run no jobs, as far as the host lists its users."""
    listed = (User(found.pw_uid, found.pw_gid) for found in pwd.getpwall() if users.has(found.pw_uid))
    own = {daemon.uid} if users.has(daemon.uid) else set()
    return frozenset(own.union(user.uid for user in listed if not may_run_jobs(user, users, daemon)))


def may_run_jobs(user: User, users: JobUsers, daemon: User) -> bool:
    """Whether a daemon of one user may start jobs as another."""
    return users.has(user.uid) and user.uid not in (0, daemon.uid) and user.gid not in (0, daemon.gid)
