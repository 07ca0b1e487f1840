"""The specification of one run: its program, user, environment, limits, and what it sees of the
host's files.

Always: a specification is checked before anything is done for it. It names a user only if the
caller may start runs as that user. It names no group: that is the user's. Never: import anything
but the standard library.
"""

import json
from typing import Any, NamedTuple

from torrentdist.launcher.job_users import NOBODY, JobUsers, may_run_jobs, user_of
from torrentdist.launcher.privileges import User

MOST_BYTES = 4 * 1024 * 1024
"""Most bytes of a specification: more than the kernel accepts as a program's arguments and
environment."""


class RunSpec(NamedTuple):
    run: str
    lease_file: str
    argv: list[str]
    cwd: str
    env: dict[str, str]
    uid: int
    gid: int
    hidden: list[str]
    """Directories and files that the run does not see. This takes namespaces, as the next two
    do."""
    read_only: list[str]
    """Directories that the run can read, but neither change nor link from; also below hidden
    ones."""
    writable: list[str]
    """Directories that the run sees below hidden ones. They are handed over to its user."""
    memory_bytes: int
    processes: int
    open_files: int
    grace: float
    log_bytes: int
    log_files: int

    @property
    def user(self) -> User:
        return User(self.uid, self.gid)

    def encode(self) -> bytes:
        return json.dumps(self._asdict()).encode()


class NotAllowed(ValueError):
    pass


def decode(data: bytes) -> RunSpec:
    """Returns the specification that `encode` made these bytes of."""
    return RunSpec(**json.loads(data))


def parse(data: bytes, caller: User, users: JobUsers = NOBODY) -> RunSpec:
    """Checks and returns a caller's specification. Raises ValueError with the reason if it is
    refused.

    `users` are those, besides the caller itself, as which the caller may start runs.
    """
    if len(data) > MOST_BYTES:
        raise NotAllowed(f"a specification of {len(data)} bytes; {MOST_BYTES} is the most")
    given = json.loads(data)
    if not isinstance(given, dict):
        raise NotAllowed("the specification is no object")
    user = _user(given, caller, users)
    spec = RunSpec(
        run=_text(given, "run"),
        lease_file=_path(given, "lease_file"),
        argv=_texts(given, "argv"),
        cwd=_path(given, "cwd"),
        env=_environment(given),
        uid=user.uid,
        gid=user.gid,
        hidden=_paths(given, "hidden"),
        read_only=_paths(given, "read_only"),
        writable=_paths(given, "writable"),
        memory_bytes=_number(given, "memory_bytes"),
        processes=_number(given, "processes"),
        open_files=_number(given, "open_files"),
        grace=float(given["grace"]),
        log_bytes=_number(given, "log_bytes"),
        log_files=_number(given, "log_files"),
    )
    if not spec.argv:
        raise NotAllowed("a run needs a program")
    return spec


def _user(given: dict[str, Any], caller: User, users: JobUsers) -> User:
    if given.get("uid") is None:
        return caller
    user = user_of(_number(given, "uid"))
    if (user != caller or users.has(user.uid)) and not may_run_jobs(user, users, caller):
        raise NotAllowed(f"user {user.uid}, group {user.gid}: runs of this user are not allowed")
    return user


def _text(given: dict[str, Any], key: str) -> str:
    return _checked(given.get(key), key)


def _checked(value: object, key: str) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise NotAllowed(f"{key} is no text")
    return value


def _texts(given: dict[str, Any], key: str) -> list[str]:
    values = given.get(key, [])
    if not isinstance(values, list):
        raise NotAllowed(f"{key} is no list")
    return [_checked(value, key) for value in values]


def _path(given: dict[str, Any], key: str) -> str:
    return _absolute(_text(given, key), key)


def _paths(given: dict[str, Any], key: str) -> list[str]:
    return [_absolute(path, key) for path in _texts(given, key)]


def _absolute(path: str, key: str) -> str:
    if not path.startswith("/"):
        raise NotAllowed(f"{key}: {path!r} is no absolute path")
    return path


def _number(given: dict[str, Any], key: str) -> int:
    value = given.get(key, 0)
    if not isinstance(value, int) or not 0 <= value < 2**63:
        raise NotAllowed(f"{key} is no number that can be used")
    return value


def _environment(given: dict[str, Any]) -> dict[str, str]:
    env = given.get("env", {})
    if not isinstance(env, dict) or any("=" in name for name in env):
        raise NotAllowed("env is no environment")
    return {_checked(name, "env"): _checked(value, "env") for name, value in env.items()}
