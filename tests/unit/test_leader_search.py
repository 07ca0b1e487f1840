"""The search for the leader, reply by reply: whom a client asks, when, and what it remembers."""

from __future__ import annotations

import pytest

from torrentdist.client.masters.leader_search import (
    MAX_LEARNED,
    AskMaster,
    GiveUp,
    Policy,
    Reply,
    Said,
    Search,
    begin,
    ends_at,
    learned,
    step,
)

FIRST, SECOND, THIRD = URLS = ("http://m0:1", "https://m1:1", "http://m2:1")
POLICY = Policy(first_wait=1.0, longest_wait=4.0, absent_secs=20.0, in_place=3)
DEADLINE = 100.0


def after(*replies: Reply | Said, masters: tuple[str, ...] = URLS) -> tuple[Search, AskMaster | GiveUp]:
    """Returns where a search stands after these replies, which all come at once."""
    search, first = begin(masters, None, 0.0, DEADLINE)
    action: AskMaster | GiveUp = first
    for reply in replies:
        search, action = step(search, Reply(reply, "x") if isinstance(reply, Said) else reply, 0.0, 1.0, POLICY)
    return search, action


def asks(*replies: Reply | Said, masters: tuple[str, ...] = URLS) -> list[AskMaster | GiveUp]:
    """Returns what is done after each of these replies."""
    return [after(*replies[: number + 1], masters=masters)[1] for number in range(len(replies))]


def refusal(leader: str | None, *masters: str) -> Reply:
    return Reply(Said.NOT_LEADER, "x", leader=leader, masters=masters)


@pytest.mark.parametrize("said", [Said.NOTHING, Said.UNABLE, Said.BEHIND, Said.NOT_LEADER])
def test_each_master_is_asked_once_a_round_and_rounds_wait_longer_and_longer(said: Said) -> None:
    """B3: a client would ask one master again and again, or wait before each master."""
    waits = [1.0, 2.0, 4.0, 4.0]
    rounds = [AskMaster(url, wait if url == FIRST else 0.0) for wait in waits for url in URLS]

    assert rounds == asks(*[said] * 14)[2:]


def test_a_master_that_is_not_ready_is_asked_again_and_then_the_others_are() -> None:
    """B6: a client would lose a leader that is about to be ready, or stay with one that was
    replaced."""
    in_place = [AskMaster(FIRST, wait) for wait in (1.0, 2.0, 4.0)]

    assert [*in_place, AskMaster(SECOND), AskMaster(SECOND, 1.0)] == asks(*[Said.NOT_READY] * 5)


def test_patience_with_a_single_master_begins_anew_each_round() -> None:
    """B6: after its first round a client would ask the only master rarely, though it is soon
    ready."""
    waits = (1.0, 2.0, 4.0, 1.0, 1.0, 2.0, 4.0, 2.0, 1.0)

    assert [AskMaster(FIRST, wait) for wait in waits] == asks(*[Said.NOT_READY] * 9, masters=(FIRST,))


def test_a_named_leader_is_followed_at_once_and_once_a_round() -> None:
    """B3: two masters that name each other would send a client back and forth without a wait."""
    second, first = AskMaster(SECOND, followed=True), AskMaster(FIRST, followed=True)
    waits = [AskMaster(FIRST, wait) for wait in (1.0, 2.0)]

    assert [second, first, waits[0], second, first, waits[1]] == asks(
        *[refusal(SECOND), refusal(f" {FIRST}/ "), refusal(SECOND)] * 2, masters=URLS[:2]
    )


def test_a_master_that_names_itself_or_a_stranger_is_not_followed() -> None:
    """B3: a client would ask a standby for ever that takes itself for the leader, or send its token
    to a server that no master named."""
    assert [AskMaster(SECOND)] == asks(refusal(FIRST))
    assert [AskMaster(SECOND)] == asks(refusal("http://stranger:1"))
    assert [AskMaster("http://new:1", followed=True)] == asks(refusal("http://new:1", "http://new:1"))


def test_a_round_begins_at_the_leader_that_the_last_one_named() -> None:
    """B5: after an election a client would ask standbys first, again and again."""
    replies: list[Reply | Said] = [refusal(THIRD), Said.UNABLE, Said.UNABLE, *[Said.UNABLE] * 3]

    assert [AskMaster(THIRD, 1.0), AskMaster(FIRST), AskMaster(SECOND), AskMaster(FIRST, 2.0)] == asks(*replies)[2:]


def test_a_silent_master_is_asked_last_until_it_answers() -> None:
    """If this failed, each round would cost the whole patience with a frozen master, or one that
    answers again would stay the last."""
    replies: list[Reply | Said] = [Said.SILENT, refusal(FIRST), *[Said.UNABLE] * 5]
    expected = [AskMaster(SECOND), AskMaster(THIRD), AskMaster(SECOND, 1.0), AskMaster(THIRD)]

    assert [*expected, AskMaster(FIRST, silences=1), AskMaster(FIRST, 2.0), AskMaster(SECOND)] == asks(*replies)


def test_only_addresses_of_servers_are_learned_and_not_too_many() -> None:
    """B9: one answer could fill a client's memory, or send it to an address that it cannot ask."""
    many = [f"http://m{n}:1" for n in range(MAX_LEARNED + 1)]

    assert ("http://a:1", "https://b:1") == learned([" http://a:1/", "ftp://c:1", "https://b:1", "http://a:1", ""])
    assert tuple(many[:-1]) == learned(many)
    assert len(after(refusal(None, *many[5:]), refusal(None, *many))[0].masters) == MAX_LEARNED


def test_the_masters_that_a_client_was_given_are_all_asked() -> None:
    """B9: a client would leave out masters of its own list."""
    many = tuple(f"http://m{n}:1" for n in range(MAX_LEARNED + 2))

    assert many == after(refusal(None, "http://new:1"), masters=many)[0].masters
    with pytest.raises(ValueError, match="at least one master"):
        begin([], None, 0.0, DEADLINE)


@pytest.mark.parametrize(
    ("replies", "there", "heard", "behind"),
    [
        ([Said.NOTHING], False, False, False),
        ([Said.SILENT, Said.NOTHING], True, False, False),
        ([Said.UNABLE, Said.NOTHING], True, True, False),
        ([Said.NOTHING, Said.BEHIND, Said.NOTHING], True, True, True),
    ],
)
def test_what_one_master_said_is_kept_to_the_end(replies: list[Said], there: bool, heard: bool, behind: bool) -> None:
    """B4: a client would tell its user that nobody runs there although a master has answered, or
    give up early."""
    search, _ = after(*replies)

    assert (there, heard, behind) == (search.ever_there, search.ever_heard, search.behind)
    assert ends_at(search, POLICY) == (DEADLINE if there else POLICY.absent_secs)
    assert [url for url, _ in search.answers] == list(URLS[: len(replies)])


@pytest.mark.parametrize(("old", "expected"), [(Said.BEHIND, True), (Said.UNABLE, False)])
def test_old_records_are_taken_after_a_full_round_only(old: Said, expected: bool) -> None:
    """B1: a client would be shown records without its own change although another master has
    it."""
    rounds = [after(*[old, *[Said.UNABLE] * rest])[0].content for rest in range(6)]

    assert [False, False, *[expected] * 4] == rounds


@pytest.mark.parametrize(("now", "over"), [(98.9, False), (99.0, True)])
def test_no_wait_ends_after_the_deadline(now: float, over: bool) -> None:
    """B4: a client with a deadline would begin another request when its time is over."""
    for said in (Said.NOT_READY, Said.UNABLE):
        search, _ = begin([FIRST], None, 0.0, DEADLINE)
        _, action = step(search, Reply(said, "x"), now, 1.0, POLICY)

        assert (GiveUp() if over else AskMaster(FIRST, 1.0)) == action


def test_the_error_names_the_last_answer_of_each_master() -> None:
    """If this failed, whoever reads the error would not know which master to look at."""
    search, _ = after(Reply(Said.NOTHING, "refused"), Reply(Said.UNABLE, "no leader"))

    assert f"{FIRST}: refused; {SECOND}: no leader" == search.story()
    assert "there is no master to ask" == begin(URLS, None, 0.0, DEADLINE)[0].story()
