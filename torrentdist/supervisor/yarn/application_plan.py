"""Decides what a supervisor does about the applications of a job in YARN, before it submits one and
while it follows it.

Always: a run submits only when no application of an earlier run can be alive any more. Its own end
is known only by the word of a ResourceManager; silence is none. What an earlier run left is
killed, whenever it appears.
Pure: no I/O and no clock.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

SETTLE_SECS = 6.0
"""How long a picture must last before it counts. A submission of a process that has just been
killed may still be on its way, and its application may end before anybody has seen it, while its
processes end a moment later. Each of the two takes less than half of this time."""
ENDED = frozenset({"FINISHED", "FAILED", "KILLED"})
"""YARN's final states. An application in any other state is alive."""
LIVE = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")
SUCCEEDED = "SUCCEEDED"
FAILED_CODE = 1


class YarnApplication(msgspec.Struct, frozen=True):
    """An application as a ResourceManager lists it."""

    id: str
    fencing: int
    """The number of the run that submitted it."""
    state: str
    final: str = ""
    url: str = ""
    diagnostics: str = ""

    @property
    def is_alive(self) -> bool:
        return self.state not in ENDED


class Gate(msgspec.Struct, frozen=True):
    """The next step of a run that has not submitted its application yet."""

    clear_since: float | None = None
    """Since when no application of another run is alive; None: one is."""
    kill: tuple[str, ...] = ()
    may_submit: bool = False
    waits_for: str = ""
    """What is in the way; empty if nothing is, or if only time has to pass."""


def before_submission(found: Sequence[YarnApplication], fencing: int, clear_since: float | None, now: float) -> Gate:
    """Returns the step after a look. `found` has all applications of the job that are alive."""
    alive = [application for application in found if application.is_alive]
    later = [application for application in alive if application.fencing > fencing]
    if later:
        return Gate(waits_for=f"{later[0].id} belongs to a later run")
    if alive:
        return Gate(kill=tuple(each.id for each in alive), waits_for=f"{alive[0].id} has not ended")
    since = now if clear_since is None else clear_since
    return Gate(clear_since=since, may_submit=now - since >= SETTLE_SECS)


class Followed(msgspec.Struct, frozen=True):
    """What is known of a run's application since the process that submitted it ended."""

    fencing: int
    last: YarnApplication | None = None
    absent_since: float | None = None
    """Since when YARN says that there is no such application."""


class ApplicationEnd(msgspec.Struct, frozen=True):
    """How a run ended in YARN."""

    code: int | None
    """The exit code; None: nothing was submitted, so that of the submission counts."""
    detail: str = ""


class FollowStep(msgspec.Struct, frozen=True):
    """What follows from a look at YARN."""

    followed: Followed
    kill: tuple[str, ...] = ()
    end: ApplicationEnd | None = None


def after_submission(
    followed: Followed, found: Sequence[YarnApplication] | None, now: float, *, wanted: bool
) -> FollowStep:
    """Returns the step after a look at the run's own application and all that are alive.

    `found` is None if no ResourceManager answered. `wanted`: the run is to go on.
    """
    if found is None:
        return FollowStep(replace(followed, absent_since=None))
    own = sorted((each for each in found if each.fencing == followed.fencing), key=lambda each: each.id)
    others = [each for each in found if each.fencing != followed.fencing and each.is_alive]
    wanted = wanted and not any(each.fencing > followed.fencing for each in others)
    earlier = [each for each in others if each.fencing < followed.fencing]
    alive = [each for each in own if each.is_alive]
    kill = tuple(each.id for each in (*earlier, *(alive[1:] if wanted else alive)))
    if not own:
        return _absent(followed, kill, now)
    followed = Followed(followed.fencing, last=own[0])
    return FollowStep(followed, kill, None if alive or earlier else _end_of(own[0]))


def _absent(followed: Followed, kill: tuple[str, ...], now: float) -> FollowStep:
    since = now if followed.absent_since is None else followed.absent_since
    followed = replace(followed, absent_since=since)
    if kill or now - since < SETTLE_SECS:
        return FollowStep(followed, kill)
    if followed.last is None:
        return FollowStep(followed, end=ApplicationEnd(None))
    return FollowStep(followed, end=ApplicationEnd(FAILED_CODE, f"YARN no longer knows {followed.last.id}"))


def _end_of(application: YarnApplication) -> ApplicationEnd:
    if application.state == "FINISHED" and application.final == SUCCEEDED:
        return ApplicationEnd(0)
    said = " ".join(application.diagnostics.split())
    how = {"KILLED": "was killed", "FAILED": "failed"}.get(application.state, f"ended as {application.final}")
    return ApplicationEnd(FAILED_CODE, f"{application.id} {how}" + (f": {said}" if said else ""))
