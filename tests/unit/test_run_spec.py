"""What a launcher's guardian accepts as the specification of a run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from torrentdist.launcher.job_users import (
    NOBODY,
    BadJobUsers,
    JobUsers,
    is_listed,
    job_users,
    may_run_jobs,
    name_of,
    user_of,
)
from torrentdist.launcher.privileges import User
from torrentdist.launcher.run.namespaces import FilesView, wrapped
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
    assert (0, 0, [], []) == (found.processes, found.open_files, found.hidden, found.writable)
    assert found == decode(found.encode())


JOBS = JobUsers(2000, 2999)


def test_a_user_that_the_host_does_not_list_has_a_name_and_a_group() -> None:
    """A job of a user out of a range would not start, or run in a group of another user."""
    unlisted = 3_999_999_999

    assert (User(0, 0), User(unlisted, unlisted)) == (user_of(0), user_of(unlisted))
    assert (True, False, "root", f"job-{unlisted}") == (
        is_listed(0),
        is_listed(unlisted),
        name_of(0),
        name_of(unlisted),
    )


@pytest.mark.parametrize(
    ("user", "allowed"),
    [
        (User(2000, 2000), True), (User(2999, 1), True), (User(3000, 3000), False), (User(1999, 1), False),
        (User(2000, 0), False), (User(2000, 1000), False), (User(0, 1), False), (User(2001, 2001), False),
    ],
)  # fmt: skip
def test_a_job_user_has_nothing_of_root_and_of_the_daemon(user: User, allowed: bool) -> None:
    """A job would read what the daemon or root alone may read."""
    assert allowed is may_run_jobs(user, JOBS, User(2001, 1000))


def test_a_range_of_users_holds_its_parts() -> None:
    """A launcher would accept users that its operator has not allowed."""
    others = JobUsers(2000, 2999), JobUsers(1999, 2500), JobUsers(2500, 3000)

    assert [True, False, False] == [JOBS.includes(other) for other in others]
    assert (1000, "2000-2999", "5", 1) == (JOBS.size, str(JOBS), str(JobUsers(5, 5)), JobUsers(5, 5).size)


@pytest.mark.parametrize(
    ("caller", "uid", "users"), [(DAEMON, 1000, NOBODY), (DAEMON, 2000, JOBS), (DAEMON, 2999, JOBS), (ROOT, 2000, JOBS)]
)
def test_a_run_may_be_of_a_user_that_the_caller_may_be(caller: User, uid: int, users: JobUsers) -> None:
    """If this fails, the users that an operator allows for jobs are refused."""
    assert User(uid, uid) == parse(spec(uid=uid), caller, users).user


@pytest.mark.case("F1")
@pytest.mark.parametrize(
    ("caller", "uid", "users"),
    [
        (DAEMON, 0, NOBODY), (DAEMON, 2000, NOBODY), (DAEMON, 0, JobUsers(0, 3000)), (DAEMON, 1999, JOBS),
        (DAEMON, 3000, JOBS), (ROOT, 2000, NOBODY), (User(1000, 2000), 2000, JOBS),
        (User(2000, 2000), 2000, JOBS),
    ],
)  # fmt: skip
def test_a_run_of_another_user_is_refused(caller: User, uid: int, users: JobUsers) -> None:
    """If this fails, whoever can write into the daemon's directory is root, or any other user."""
    with pytest.raises(ValueError, match="not allowed"):
        parse(spec(uid=uid), caller, users)


@pytest.mark.case("F1")
def test_a_specification_names_no_group() -> None:
    """If this fails, a daemon that was taken over starts its jobs in the group of the secrets."""
    assert 2000 == parse(spec(uid=2000, gid=0), DAEMON, JOBS).gid


@pytest.mark.parametrize(
    ("text", "users"),
    [("2000", JobUsers(2000, 2000)), ("20000-20999", JobUsers(20000, 20999)), ("nobody", JobUsers(65534, 65534))],
)
def test_users_are_a_name_a_number_or_a_range(text: str, users: JobUsers) -> None:
    """If this fails, an operator cannot say which users run jobs."""
    assert users == job_users(text)


@pytest.mark.parametrize("users", [JobUsers(5, 5), JobUsers(5, 6), JobUsers(5, 99)])
def test_users_that_are_told_as_a_text_are_the_same_users(users: JobUsers) -> None:
    """A guardian would refuse to run jobs as some of the users that its launcher allows."""
    assert users == job_users(str(users))


@pytest.mark.case("F1")
@pytest.mark.parametrize("text", ["", "0", "root", "0-10", "20-10", "nobody-here", "1-99999999999", "-1", "1-2-3", "²"])
def test_what_names_no_job_users_is_refused(text: str) -> None:
    """If this fails, a slip in the configuration makes root a user of jobs."""
    with pytest.raises(BadJobUsers):
        job_users(text)


@pytest.mark.parametrize(
    "changes",
    [
        {"run": 1}, {"argv": []}, {"argv": ["a\0b"]}, {"argv": "sh"}, {"cwd": "w"}, {"lease_file": "lease.json"},
        {"env": {"A=B": ""}}, {"env": {"A": 1}}, {"env": []}, {"read_only": ["objects"]}, {"read_only": "/"},
        {"memory_bytes": -1}, {"memory_bytes": 2**63}, {"log_files": "2"}, {"uid": "1000"}, {"uid": -1},
        {"hidden": ["x"]}, {"writable": ["x"]}, {"processes": -1}, {"open_files": "1"},
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
    assert "--unshare-user" not in wrapped(["init"], FilesView(), privileged=True)
    assert "--unshare-user" in wrapped(["init"], FilesView(), privileged=False)


@pytest.mark.case("F1")
def test_what_a_run_needs_is_shown_after_what_is_hidden() -> None:
    """If this fails, a run finds an empty directory in place of its bundle, or can write into
    it."""
    files = FilesView(hidden=["/d"], closed=["/s"], read_only=["/d/o/b"], writable=["/d/w"])
    hides = ["--tmpfs", "/d", "--ro-bind", "/dev/null", "/s"]
    shows = ["--dir", "/d/o", "--ro-bind", "/d/o/b", "/d/o/b", "--bind", "/d/w", "/d/w"]

    assert [*hides, *shows, "--", "init"] == wrapped(["init"], files, privileged=True)[-15:]


def test_a_specification_is_as_long_as_it_may_be() -> None:
    """If this fails, a job with a long environment is refused, or a launcher's memory is filled."""
    data = spec()

    assert parse(data.ljust(MOST_BYTES), DAEMON) == parse(data, DAEMON)
    with pytest.raises(ValueError, match="is no object"):
        parse(b"[]", DAEMON)
    with pytest.raises(ValueError, match="is the most"):
        parse(data.ljust(MOST_BYTES + 1), DAEMON)
