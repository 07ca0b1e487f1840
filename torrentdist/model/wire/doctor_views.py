"""The JSON that `torrentdist doctor` prints, and the one exit code for all its findings.

Always: warnings never fail a command. The keys are promised in docs/operations.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from torrentdist.model.errors import EXIT_OK
from torrentdist.model.wire.view import View


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"
    """It works, and it will bite somebody one day."""
    FAIL = "fail"


class Finding(View, frozen=True, kw_only=True):
    check: str
    subject: str = ""
    """The host, file or process that was looked at."""
    verdict: Verdict = Verdict.OK
    detail: str = ""
    hint: str = ""
    exit_code: int = EXIT_OK
    """Exit code of the error that this leads to; 0 unless it is a failure."""


class DoctorView(View, frozen=True, kw_only=True):
    verdict: Verdict
    findings: list[Finding]
    """Causes before what they lead to."""
    seconds: float


def worst(findings: Iterable[Finding]) -> Verdict:
    order = list(Verdict)
    return max((finding.verdict for finding in findings), key=order.index, default=Verdict.OK)


def exit_code(findings: Iterable[Finding]) -> int:
    """Exit code of the first failure: checks run from causes to consequences."""
    return next((finding.exit_code for finding in findings if finding.verdict is Verdict.FAIL), EXIT_OK)


class IsolationView(View, frozen=True, kw_only=True):
    """What runs of a host get: the supervisor's answer to the doctor."""

    namespaces: bool
    """Each run has PID and mount namespaces of its own."""
    why_not: str = ""
    launcher: str = ""
    """The socket of the launcher; empty: the supervisor starts workers itself."""
    error: str = ""
    """Why no worker can be started now."""
