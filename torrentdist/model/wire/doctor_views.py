"""The JSON that `torrentdist doctor` prints, and the one exit code for all its findings.

Always: warnings never fail a command. docs/operations.md promises the keys.
"""

from collections.abc import Iterable
from enum import StrEnum

from torrentdist.model.errors import EXIT_OK
from torrentdist.model.wire.view import View


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"
    """It works now, but will cause trouble one day."""
    FAIL = "fail"


class Finding(View, frozen=True, kw_only=True):
    check: str
    subject: str = ""
    """The host, file or process that was checked."""
    verdict: Verdict = Verdict.OK
    detail: str = ""
    hint: str = ""
    exit_code: int = EXIT_OK
    """Exit code of the resulting error; 0 unless the finding is a failure."""


class DoctorView(View, frozen=True, kw_only=True):
    verdict: Verdict
    findings: list[Finding]
    """Causes before their consequences."""
    seconds: float


def worst(findings: Iterable[Finding]) -> Verdict:
    order = list(Verdict)
    return max((finding.verdict for finding in findings), key=order.index, default=Verdict.OK)


def exit_code(findings: Iterable[Finding]) -> int:
    """Returns the exit code of the first failure. Checks run from causes to consequences."""
    return next((finding.exit_code for finding in findings if finding.verdict is Verdict.FAIL), EXIT_OK)


class IsolationView(View, frozen=True, kw_only=True):
    """A supervisor's answer to the doctor: how runs on its host are isolated."""

    namespaces: bool
    """Whether each run has its own PID and mount namespaces."""
    why_not: str = ""
    launcher: str = ""
    """The socket of the launcher; empty if the supervisor starts workers itself."""
    error: str = ""
    """Why no worker can be started now; empty if workers can be started."""
    users: str = ""
    """The users that jobs run as; empty: the supervisor's own."""
    why_own_user: str = ""
    """Why jobs run as the supervisor's own user, if they do."""
    readers: str = ""
    """The users that can read the files of bundles, in the words of `store.readable_by`; empty: not
    known."""
    own_user: int = -1
    """The supervisor's own user; -1: not known."""
    refuses_jobs: bool = False
    """Whether the host therefore runs no jobs."""
    exposed: bool = False
    """Whether the supervisor listens beyond loopback."""
    is_root: bool = False
    """Whether the supervisor's own user is root."""
