"""Which users the jobs of a host run as, and whether they run at all."""

from __future__ import annotations

import pwd
from typing import Any

import pytest

from torrentdist.launcher.job_users import NOBODY, JobUsers, barred_users
from torrentdist.launcher.launcher_client import HostIsolation
from torrentdist.launcher.privileges import User
from torrentdist.model.configuration.config import ApiConfig, Config, JobsConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.supervisor.process.job_isolation import (
    IsolationCheck,
    IsolationMode,
    IsolationPolicy,
    free_user,
    isolation_of,
    own_users,
    passed_on,
    policy_of,
)

RANGE = JobUsers(20000, 20009)
ABLE = HostIsolation(namespaces=True, users="20000-20009")
REQUIRED = IsolationPolicy(IsolationMode.REQUIRED, "20000-20009")
PREFERRED = IsolationPolicy(IsolationMode.PREFERRED, "20000-20009")


def test_jobs_run_as_the_users_that_the_host_offers() -> None:
    """If this fails, jobs run as the user of the daemon, whose files they can then read."""
    assert (RANGE, "", False) == _facts(REQUIRED, ABLE)
    assert (RANGE, "", False) == _facts(PREFERRED, ABLE)
    assert (JobUsers(20003, 20003), "", False) == _facts(IsolationPolicy(IsolationMode.REQUIRED, "20003"), ABLE)


def _facts(policy: IsolationPolicy, host: HostIsolation) -> tuple[JobUsers, str, bool]:
    found = isolation_of(policy, host)
    return found.users, found.why_not, found.refused


@pytest.mark.parametrize(
    ("users", "host", "why"),
    [
        ("20000-20009", HostIsolation(False, "no user namespaces", "20000-20009"), "no user namespaces"),
        ("20000-20009", HostIsolation(namespaces=True), "--job-users"),
        ("20000-20010", ABLE, "the launcher allows jobs to run as 20000-20009, and jobs.user is 20000-20010"),
        ("0", ABLE, "jobs.user: '0' is no range"), ("nobody-here-of-this-name", ABLE, "jobs.user: there is no user"),
    ],
)  # fmt: skip
def test_a_host_that_cannot_isolate_jobs_says_why(users: str, host: HostIsolation, why: str) -> None:
    """If this fails, a host that strangers reach runs their jobs beside its own secrets."""
    strict = _facts(IsolationPolicy(IsolationMode.REQUIRED, users), host)
    mild = _facts(IsolationPolicy(IsolationMode.PREFERRED, users), host)

    assert (NOBODY, True) == (strict[0], strict[2])
    assert (NOBODY, False) == (mild[0], mild[2])
    assert why in strict[1]
    assert strict[1] == mild[1]


def test_isolation_can_be_switched_off() -> None:
    """If this fails, a host without a launcher for jobs cannot run any."""
    off = IsolationPolicy(IsolationMode.NONE, "20000-20009")
    unable: Any = Starter(HostIsolation(namespaces=False))

    assert (NOBODY, 'jobs.isolation is "none"', False) == _facts(off, ABLE)
    assert NOBODY == IsolationCheck(off, unable).users()


class Starter:
    """A launcher that offers what the test says."""

    def __init__(self, offered: HostIsolation) -> None:
        self.offered = offered

    def isolation(self) -> HostIsolation:
        return self.offered

    def start(self, home: str, run: str, told: int) -> tuple[int, int]:
        raise NotImplementedError

    def remove(self, path: str, owner: int) -> None:
        raise NotImplementedError


def test_a_host_that_must_isolate_jobs_and_cannot_refuses_them() -> None:
    """If this fails, such a host takes a job, and runs it as the daemon's own user."""
    unable: Any = Starter(HostIsolation(namespaces=False, why_not="no user namespaces"))
    able: Any = Starter(ABLE)
    with pytest.raises(TorrentdistError) as refused:
        IsolationCheck(REQUIRED, unable).users()

    assert "jobs_not_isolated" == refused.value.code
    assert (NOBODY, RANGE) == (IsolationCheck(PREFERRED, unable).users(), IsolationCheck(REQUIRED, able).users())


@pytest.mark.parametrize(
    ("listen", "isolation", "mode", "exposed"),
    [
        ("127.0.0.1", "", IsolationMode.PREFERRED, False), ("10.0.0.1", "", IsolationMode.REQUIRED, True),
        ("0.0.0.0", "none", IsolationMode.NONE, True), ("127.0.0.1", "required", IsolationMode.REQUIRED, False),
    ],
)  # fmt: skip
def test_a_host_that_strangers_reach_is_strict_by_default(
    listen: str, isolation: str, mode: IsolationMode, exposed: bool
) -> None:
    """If this fails, a host on a network runs jobs without isolation, and nobody asked for that."""
    jobs = JobsConfig(user="20000", isolation=isolation, pass_env=["A*"])
    policy = policy_of(Config(api=ApiConfig(listen=listen), jobs=jobs))

    assert (mode, exposed, "20000", ("A*",)) == (policy.mode, policy.exposed, policy.users, policy.pass_env)


def test_a_supervisor_without_a_launcher_allows_itself_the_configured_users() -> None:
    """If this fails, a supervisor that is root runs jobs as users that nobody has named."""
    assert "20000-20009" == own_users(REQUIRED)
    assert ["", ""] == [own_users(IsolationPolicy(mode, text)) for mode, text in _NONE]


_NONE = [(IsolationMode.NONE, "20000"), (IsolationMode.PREFERRED, "0")]


def test_each_job_gets_a_user_of_its_own() -> None:
    """If this fails, two jobs of one host share a user, and each reads the other's files."""
    taken: list[int] = []
    for number in range(RANGE.size):
        found = free_user(RANGE, taken, f"job-{number}")
        assert found is not None
        assert RANGE.has(found)
        taken.append(found)

    assert RANGE.size == len(set(taken))
    assert free_user(RANGE, taken, "one more") is None
    assert taken[3] == free_user(RANGE, [uid for uid in taken if uid != taken[3]], "again")
    assert 20000 == free_user(JobUsers(20000, 20000), [20000], "shared")
    assert len({free_user(RANGE, [], f"job-{number}") for number in range(30)}) > 1


def test_no_job_gets_the_daemons_own_user_or_one_of_its_group() -> None:
    """If this fails, a job of a wide range of users can do all that the supervisor can."""
    nobody = pwd.getpwnam("nobody")
    users = JobUsers(1, 65535)

    assert {20000} == barred_users(RANGE, User(20000, 20000))
    assert nobody.pw_uid in barred_users(users, User(20000, nobody.pw_gid))
    assert nobody.pw_uid not in barred_users(users, User(20000, 20000))


def test_workers_get_the_variables_that_are_named() -> None:
    """If this fails, a job reads a secret in the environment of its supervisor."""
    environ = {"PATH": "p", "LANG": "l", "LC_ALL": "c", "lc_x": "x", "SECRET": "s"}

    assert {"PATH": "p", "LC_ALL": "c"} == passed_on(environ, ["PATH", "LC_*"])
    assert ({}, environ) == (passed_on(environ, []), passed_on(environ, ["*"]))
