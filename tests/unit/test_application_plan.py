"""What a supervisor does about an application in YARN, by what it sees."""

from __future__ import annotations

import pytest

from torrentdist.supervisor.yarn.application_plan import (
    SETTLE_SECS,
    ApplicationEnd,
    Followed,
    Gate,
    YarnApplication,
    after_submission,
    before_submission,
)

OWN, EARLIER, LATER = 7, 6, 8


def application(fencing: int, state: str = "RUNNING", final: str = "UNDEFINED", said: str = "") -> YarnApplication:
    return YarnApplication(f"application_1_{fencing}", fencing, state, final, diagnostics=said)


def test_an_earlier_application_is_killed_before_a_new_one_is_submitted() -> None:
    """If this fails, the application of a lost host runs beside its successor."""
    gate = before_submission([application(EARLIER, "ACCEPTED")], OWN, None, 0.0)

    assert ("application_1_6",) == gate.kill
    assert not gate.may_submit
    assert "application_1_6 has not ended" == gate.waits_for


def test_a_run_that_was_overtaken_submits_and_kills_nothing() -> None:
    """If this fails, a supervisor that was paused ends the job's rightful application."""
    found = [application(LATER), application(EARLIER)]

    assert Gate(waits_for="application_1_8 belongs to a later run") == before_submission(found, OWN, 0.0, 9.0)


def test_a_picture_counts_once_it_has_lasted() -> None:
    """If this fails, a submission that was on its way when its host died is not noticed."""
    first = before_submission([], OWN, None, 5.0)
    early = before_submission([], OWN, first.clear_since, 5.0 + SETTLE_SECS - 0.1)

    assert [False, False] == [first.may_submit, early.may_submit]
    assert before_submission([], OWN, first.clear_since, 5.0 + SETTLE_SECS).may_submit


def test_a_state_that_nobody_knows_is_alive() -> None:
    """If this fails, a later YARN's new state counts as an end."""
    assert ("application_1_6",) == before_submission([application(EARLIER, "PAUSED")], OWN, None, 0.0).kill
    assert after_submission(Followed(OWN), [application(OWN, "PAUSED")], 0.0, wanted=True).end is None


@pytest.mark.parametrize(
    ("state", "final", "expected"),
    [
        ("FINISHED", "SUCCEEDED", ApplicationEnd(0)),
        ("FINISHED", "FAILED", ApplicationEnd(1, "application_1_7 ended as FAILED: no such table")),
        ("FAILED", "FAILED", ApplicationEnd(1, "application_1_7 failed: no such table")),
        ("FAILED", "SUCCEEDED", ApplicationEnd(1, "application_1_7 failed: no such table")),
        ("KILLED", "KILLED", ApplicationEnd(1, "application_1_7 was killed: no such table")),
    ],
)
def test_yarns_word_is_the_exit_code(state: str, final: str, expected: ApplicationEnd) -> None:
    """If this fails, a failed application counts as a success, or its restart policy is ignored."""
    found = [application(OWN, state, final, "no such\n\ttable")]

    assert expected == after_submission(Followed(OWN), found, 0.0, wanted=True).end


def test_silence_is_no_end() -> None:
    """If this fails, a job counts as ended while YARN's ResourceManager is restarted."""
    known = Followed(OWN, last=application(OWN), absent_since=0.0)
    look = after_submission(known, None, 1000.0, wanted=False)

    assert look.end is None
    assert look.followed.absent_since is None


def test_nothing_submitted_is_known_after_a_while() -> None:
    """If this fails, a submission that failed holds its barrier for ever, or one that is on its way
    counts as failed."""
    first = after_submission(Followed(OWN), [], 0.0, wanted=True)
    early = after_submission(first.followed, [], SETTLE_SECS - 0.1, wanted=True)

    assert [None, None] == [first.end, early.end]
    assert ApplicationEnd(None) == after_submission(first.followed, [], SETTLE_SECS, wanted=True).end


def test_an_application_that_yarn_has_forgotten_has_failed() -> None:
    """If this fails, a restart of a ResourceManager without a store counts as success."""
    known = Followed(OWN, last=application(OWN), absent_since=0.0)
    end = after_submission(known, [], SETTLE_SECS, wanted=True).end

    assert ApplicationEnd(1, "YARN no longer knows application_1_7") == end


def test_what_is_not_wanted_is_killed_until_it_has_ended() -> None:
    """If this fails, `job kill` leaves the application in YARN."""
    look = after_submission(Followed(OWN), [application(OWN)], 0.0, wanted=False)

    assert ("application_1_7",) == look.kill
    assert look.end is None


def test_a_run_that_was_overtaken_ends_its_own_application() -> None:
    """If this fails, two runs of one job go on side by side."""
    look = after_submission(Followed(OWN), [application(OWN), application(LATER)], 0.0, wanted=True)

    assert ("application_1_7",) == look.kill


def test_an_earlier_application_that_appears_late_is_killed() -> None:
    """If this fails, a submission that was long on its way runs beside its successor."""
    found = [application(EARLIER, "ACCEPTED"), application(OWN, "FINISHED", "SUCCEEDED")]
    look = after_submission(Followed(OWN), found, 0.0, wanted=True)

    assert ("application_1_6",) == look.kill
    assert look.end is None
