"""What a refusal means for a command that looks for another master, and what error it ends with."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from torrentdist.client.masters.leader_search import Reply, Said, Search
from torrentdist.client.masters.refusals import answers_of, judge_change, judge_read, no_leader_found
from torrentdist.model.errors import TorrentdistError

FIELDS = dict.fromkeys(("detail", "what", "id", "name", "seconds", "epoch"), "x")
URLS = ["http://m1:1", "http://m2:1"]


def error(code: str, **extra: object) -> TorrentdistError:
    return TorrentdistError(code, extra=extra, **FIELDS)


@pytest.mark.parametrize("code", ["not_ready", "zookeeper_unavailable", "closing", "bundle_unavailable", "internal"])
def test_a_read_goes_on_where_another_master_may_know(code: str) -> None:
    """A read ends with the error of one master while another has the answer."""
    refused = error(code)

    assert Reply(Said.UNABLE, refused.message) == judge_read(refused)
    assert Said.BEHIND is judge_read(error(code, behind=True)).said


@pytest.mark.parametrize("code", ["no_leader", "leadership_lost", "bundle_not_found", "unauthorized"])
def test_a_read_ends_where_no_other_master_would_say_more(code: str) -> None:
    """A command asks each master for a bundle that there is not, and tells of masters instead."""
    with pytest.raises(TorrentdistError) as caught:
        judge_read(error(code))

    assert code == caught.value.code


@pytest.mark.parametrize(
    "code", ["no_leader", "zookeeper_unavailable", "leadership_lost", "closing", "outcome_unknown"]
)
def test_a_change_goes_on_where_another_master_may_lead(code: str) -> None:
    """A change fails in the second in which the masters elect a leader."""
    assert Said.UNABLE is judge_change(error(code)).said


@pytest.mark.parametrize("code", ["bundle_unavailable", "internal", "bundle_not_found", "unauthorized"])
def test_a_change_ends_with_the_leaders_refusal(code: str) -> None:
    """A command repeats a change that the leader refuses, until its time is up."""
    with pytest.raises(TorrentdistError) as caught:
        judge_change(error(code))

    assert code == caught.value.code


def test_a_master_that_is_not_ready_is_waited_for() -> None:
    """A change goes round the standbys while its leader needs a moment."""
    assert Reply(Said.NOT_READY, error("not_ready").message) == judge_change(error("not_ready"))


@pytest.mark.parametrize("judge", [judge_read, judge_change])
def test_a_standby_names_the_leader_and_the_masters(judge: Callable[[TorrentdistError], Reply]) -> None:
    """A command asks strangers that a damaged answer names, or does not find a new master."""
    named = judge(error("not_leader", leader=URLS[0], masters=[*URLS, 7, "ftp://x"]))
    odd = judge(error("not_leader", leader=7, masters=URLS[0]))

    assert Reply(Said.NOT_LEADER, f"not the leader, which is {URLS[0]}", URLS[0], tuple(URLS)) == named
    assert (None, ()) == (odd.leader, odd.masters)
    assert Reply(Said.NOT_LEADER, "not the leader, and knows none") == judge(error("not_leader"))


@pytest.mark.parametrize(
    ("unsure", "heard", "code"),
    [
        (True, True, "outcome_unknown"),
        (True, False, "outcome_unknown"),
        (False, True, "leader_not_found"),
        (False, False, "unreachable"),
    ],
)
def test_a_change_that_nobody_confirmed_says_what_is_known(unsure: bool, heard: bool, code: str) -> None:
    """A user repeats a change that may have been made, or looks for masters that are there."""
    search = Search(
        masters=tuple(URLS), asking=URLS[0], began=0.0, deadline=1.0, ever_heard=heard, answers=((URLS[0], "down"),)
    )
    ended = no_leader_found(search, unsure)

    assert (code, {"answers": {URLS[0]: "down"}}) == (ended.code, ended.extra)
    assert f"{URLS[0]}: down" in ended.message
    assert {"answers": {URLS[0]: "down"}} == answers_of(search)
