"""The user of a process, for a while or for good, and the kernel's ties between parent and child.

Always: a process that became another user cannot go back. The guardian keeps one capability,
CAP_KILL, so that its signals and its death reach a run of any user. Never: import anything but the
standard library.
"""

import ctypes
import os
import pwd
import signal
import struct
from typing import NamedTuple

PR_SET_PDEATHSIG, PR_SET_KEEPCAPS, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 8, 36, 38
CAPABILITY_VERSION_3 = 0x20080522
CAP_KILL = 5

_libc = ctypes.CDLL(None, use_errno=True)


class User(NamedTuple):
    uid: int
    gid: int


def own_user() -> User:
    return User(os.getuid(), os.getgid())


def act_as(user: User) -> None:
    """Makes file accesses count as the user's, until `act_as_root`."""
    act_as_root()
    if os.getuid() == 0 and user.uid != 0:
        os.setgroups(_groups_of(user))
        os.setegid(user.gid)
        os.seteuid(user.uid)


def act_as_root() -> None:
    """Ends `act_as`. It has no effect in a process that was not started as root."""
    if os.getuid() == 0 and os.geteuid() != 0:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups([])


def become(user: User) -> None:
    """Changes to the user for good, with no capability left."""
    if user == own_user():
        return
    os.setgroups(_groups_of(user))
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)


def become_keeping_kill(user: User) -> None:
    """Changes to the user for good, but keeps the capability to signal processes of other users."""
    act_as_root()
    if user == own_user():
        return
    _prctl(PR_SET_KEEPCAPS, 1)
    become(user)
    kill = 1 << CAP_KILL
    header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
    if _libc.capset(header, struct.pack("=6I", kill, kill, 0, 0, 0, 0)) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def die_with_parent() -> None:
    """Has the kernel kill this process when its parent dies, even if it is stopped. A change of
    user clears this."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def gain_nothing() -> None:
    """Keeps this process and its descendants from gaining privileges by set-user-id programs."""
    _prctl(PR_SET_NO_NEW_PRIVS, 1)


def adopt_orphans() -> None:
    """Makes descendants whose parent has died children of this process."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _groups_of(user: User) -> list[int]:
    try:
        return os.getgrouplist(pwd.getpwuid(user.uid).pw_name, user.gid)
    except KeyError:
        return [user.gid]


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
