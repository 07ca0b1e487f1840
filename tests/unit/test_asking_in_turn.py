"""How a daemon asks one master after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import httpx
import msgspec
import pytest
from scripted_http import ScriptedHttp

from torrentdist.http.api_calls import decode
from torrentdist.http.asking_in_turn import MOST_ASKED, ask_leader, first_sound
from torrentdist.http.http_values import Answer
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.headers import AnswerAge

URLS = ["http://m0:1", "http://m1:1", "http://m2:1"]
DOWN = None
Script = Mapping[str, TorrentdistError | dict[str, object] | None]


class Said(msgspec.Struct):
    by: str = ""


class Masters:
    """Masters that say what a test wants. One that is not named is down."""

    def __init__(self, script: Script, old: str = "") -> None:
        """`old`: the master that answers from old records."""
        self.script = script
        self.old = old
        self.asked: list[str] = []

    def answer(self, request: httpx.Request) -> httpx.Response:
        url = f"{request.url.scheme}://{request.url.netloc.decode()}"
        self.asked.append(url)
        match self.script.get(url):
            case None:
                raise httpx.ConnectError("down")
            case TorrentdistError() as error:
                headers = AnswerAge(stale_secs=3.0).to_headers() if url == self.old else {}
                return httpx.Response(error.http_status, json=error.to_wire(), headers=headers)
            case said:
                return httpx.Response(200, json=said)


async def read(answer: Answer) -> str:
    return decode(answer, Said).by


def first(masters: Masters, final: str = "") -> str:
    http = ScriptedHttp(masters.answer)
    return asyncio.run(first_sound(http, URLS, "/v1/x", read, lambda refusal: refusal.code == final))


def leader(masters: Masters, likely: str = URLS[0], urls: list[str] | None = None) -> tuple[str, str] | None:
    http = ScriptedHttp(masters.answer)
    found = asyncio.run(ask_leader(http, likely, URLS if urls is None else urls, "/v1/x", Said(by="me"), Said))
    return (found[0], found[1].by) if found else None


def refusal(leader: str | None = None) -> TorrentdistError:
    return TorrentdistError("not_leader", extra={"leader": leader})


def test_the_first_master_that_answers_is_enough() -> None:
    """Every read of a daemon would cost as many requests as there are masters."""
    masters = Masters({URLS[1]: {"by": "m1"}, URLS[2]: {"by": "m2"}})

    assert "m1" == first(masters)
    assert URLS[:2] == masters.asked


def test_a_refusal_or_a_damaged_answer_sends_it_to_the_next() -> None:
    """One master that lags behind would hide what the others know."""
    lags = TorrentdistError("bundle_not_found", id="a")

    assert "m2" == first(Masters({URLS[0]: lags, URLS[1]: {"by": 3}, URLS[2]: {"by": "m2"}}))


def test_the_first_refusal_is_told_when_no_master_can_answer() -> None:
    """A daemon would log that no master is reachable where all say that there is no such bundle."""
    errors = [TorrentdistError("bundle_not_found", id="a"), TorrentdistError("job_not_found", id="b")]
    masters = Masters({URLS[0]: errors[0], URLS[2]: errors[1]})
    with pytest.raises(TorrentdistError) as caught:
        first(masters)

    assert "bundle_not_found" == caught.value.code
    assert URLS == masters.asked


def test_a_final_refusal_ends_the_round() -> None:
    """A host that was shut out would ask every master for what none will give it."""
    masters = Masters({URLS[0]: TorrentdistError("bundle_not_found", id="a"), URLS[1]: {"by": "m1"}})
    with pytest.raises(TorrentdistError, match="a"):
        first(masters, final="bundle_not_found")

    assert URLS[:1] == masters.asked


@pytest.mark.parametrize("code", ["bundle_not_found", "forbidden"])
def test_old_records_do_not_say_that_a_bundle_does_not_exist(code: str) -> None:
    """A program would be told that the bundle that was just uploaded does not exist."""
    refused = TorrentdistError(code, id="a", detail="no")
    masters = Masters({URLS[1]: refused}, old=URLS[1])

    with pytest.raises(TorrentdistError) as raised:
        first(masters, final=code)
    assert ("unreachable" if code == "bundle_not_found" else code) == raised.value.code
    assert "m2" == first(
        Masters({URLS[1]: TorrentdistError("bundle_not_found", id="a"), URLS[2]: {"by": "m2"}}, old=URLS[1])
    )


def test_an_answer_that_its_reader_refuses_counts_as_a_refusal() -> None:
    """One damaged metafile at one master would keep a host from getting it at another."""

    async def refuse(answer: Answer) -> str:
        raise TorrentdistError("bundle_not_found", id=answer.url)

    http = ScriptedHttp(Masters({url: {"by": "m"} for url in URLS}).answer)
    with pytest.raises(TorrentdistError, match="m0"):
        asyncio.run(first_sound(http, URLS, "/v1/x", refuse))


def test_masters_that_are_down_are_named_with_what_happened() -> None:
    """An operator would not learn from a host's log which masters it tried."""
    with pytest.raises(TorrentdistError) as caught:
        first(Masters({}))

    assert "unreachable" == caught.value.code
    assert ", ".join(f"{url}: down" for url in URLS) in caught.value.message
    with pytest.raises(TorrentdistError, match="no master is known"):
        asyncio.run(first_sound(ScriptedHttp(Masters({}).answer), [], "/v1/x", read))


def test_the_likely_leader_is_asked_first_and_once() -> None:
    """Each mutation of a host would first go to a standby."""
    masters = Masters({URLS[1]: {"by": "m1"}})

    assert (URLS[1], "m1") == leader(masters, likely=URLS[1])
    assert URLS[1:2] == masters.asked
    again = Masters({})
    assert None is leader(again, likely=URLS[1])
    assert [URLS[1], URLS[0], URLS[2]] == again.asked


def test_the_leader_that_a_refusal_names_is_asked_next() -> None:
    """B1: a host would go through all masters, and never find a leader that it does not know."""
    new = "http://m9:1"
    masters = Masters({URLS[0]: refusal(new), URLS[1]: {"by": "m1"}, new: {"by": "m9"}})

    assert (new, "m9") == leader(masters)
    assert [URLS[0], new] == masters.asked


def test_masters_that_name_each_other_are_asked_once_each() -> None:
    """B1: during an election a host would send its request round in a circle for ever."""
    masters = Masters({URLS[0]: refusal(URLS[1]), URLS[1]: refusal(URLS[0]), URLS[2]: refusal()})

    assert None is leader(masters)
    assert URLS == masters.asked


def test_a_broken_or_silent_master_is_passed_over() -> None:
    """One master that is down would keep a host from reaching the leader."""
    masters = Masters({URLS[1]: {"by": 3}, URLS[2]: {"by": "m2"}})

    assert (URLS[2], "m2") == leader(masters, likely="")
    assert URLS == masters.asked


def test_the_number_of_masters_that_are_asked_is_bounded() -> None:
    """A master that always names another one would keep a host busy for ever."""
    many = [f"http://n{number}:1" for number in range(MOST_ASKED + 5)]
    masters = Masters({})

    assert None is leader(masters, likely="", urls=many)
    assert many[:MOST_ASKED] == masters.asked
