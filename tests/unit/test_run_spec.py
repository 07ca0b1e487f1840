"""What a launcher's guardian accepts as the specification of a run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from torrentdist.launcher.privileges import User
from torrentdist.launcher.run.namespaces import wrapped
from torrentdist.launcher.run.run_spec import MOST_BYTES, decode, parse

DAEMON, ROOT = User(1000, 1000), User(0, 0)
GIVEN: dict[str, Any] = {
    "run": "r", "lease_file": "/d/lease.json", "argv": ["run.sh"], "cwd": "/d/w", "env": {"A": "1"},
    "read_only": ["/d/objects"], "memory_bytes": 5, "grace": 1.5, "log_bytes": 10, "log_files": 2,
}  # fmt: skip


def spec(**changes: Any) -> bytes:
    return json.dumps({**GIVEN, **changes}).encode()


def test_a_run_is_its_callers_unless_it_says_otherwise() -> None:
    """If this fails, jobs run as root as soon as there is a launcher."""
    found = parse(spec(), DAEMON)

    assert DAEMON == found.user
    assert (["run.sh"], {"A": "1"}, ["/d/objects"], 1.5) == (found.argv, found.env, found.read_only, found.grace)
    assert found == decode(found.encode())


@pytest.mark.parametrize(
    ("caller", "user", "users"),
    [(DAEMON, (1000, 1000), ()), (DAEMON, (2000, 2000), (2000,)), (ROOT, (2000, 2000), ())],
)
def test_a_run_may_be_of_a_user_that_the_caller_may_be(
    caller: User, user: tuple[int, int], users: tuple[int, ...]
) -> None:
    """If this fails, the users that an operator allows for jobs are refused."""
    assert User(*user) == parse(spec(uid=user[0], gid=user[1]), caller, users).user


@pytest.mark.parametrize("user", [(0, 0), (2000, 2000), (1000, 0)])
def test_a_run_of_another_user_is_refused(user: tuple[int, int]) -> None:
    """If this fails, a user who can write into the daemon's directory becomes root."""
    with pytest.raises(ValueError, match="not allowed"):
        parse(spec(uid=user[0], gid=user[1]), DAEMON)


@pytest.mark.parametrize(
    "changes",
    [
        {"run": 1}, {"argv": []}, {"argv": ["a\0b"]}, {"argv": "sh"}, {"cwd": "w"}, {"lease_file": "lease.json"},
        {"env": {"A=B": ""}}, {"env": {"A": 1}}, {"env": []}, {"read_only": ["objects"]}, {"read_only": "/"},
        {"memory_bytes": -1}, {"memory_bytes": 2**63}, {"log_files": "2"}, {"uid": 1000}, {"uid": "1000", "gid": 1000},
        {"env": {"A": "x" * MOST_BYTES}},
    ],
    ids=lambda changes: str(changes)[:40],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(changes: dict[str, Any]) -> None:
    """If this fails, a mistake or an attack reaches system calls unchecked."""
    with pytest.raises(ValueError, match=r"."):
        parse(spec(**changes), DAEMON)


def test_only_a_process_without_privileges_needs_a_user_namespace() -> None:
    """If this fails, root's runs lose their users, or other hosts have no namespaces at all."""
    assert "--unshare-user" not in wrapped(["init"], privileged=True)
    assert "--unshare-user" in wrapped(["init"], privileged=False)
    assert ["--ro-bind", "/o", "/o", "--", "init"] == wrapped(["init"], ["/o"], privileged=True)[-5:]
    assert ["--tmpfs", "/h", "--", "init"] == wrapped(["init"], (), ["/h"], privileged=True)[-4:]
