"""Leadership left to one place in the queue: whichever masters die, and in whatever order they
look, that place leads or nobody waits for it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from torrentdist.cluster.election.term import TermRecord, left_to, queue
from torrentdist.model.ids import MasterId

SIZES = st.integers(min_value=1, max_value=12)


def name(number: int) -> str:
    return f"{number % 7:016x}-{number:010}"


@given(SIZES, st.data())
def test_the_successor_leads_unless_it_goes_and_then_the_next_one_does(size: int, data: st.DataObject) -> None:
    """If this fails, a transfer ends at another master, or masters step aside for ever and none
    leads."""
    places = {n: name(n) for n in range(size)}
    successor = data.draw(st.integers(0, size - 1))
    record = TermRecord(leader=MasterId("old"), election=name(99), left="transferred", successor=places[successor])
    dies_after = data.draw(st.integers(0, size + 1))
    steps, next_number = 0, size
    while True:
        if steps == dies_after:
            del places[successor]
            if not places:
                return
        first = queue(places.values())[0]
        who = next(member for member, place in places.items() if place == first)
        if left_to(record, first, places.values()) is None:
            break
        places[who] = name(next_number)
        next_number, steps = next_number + 1, steps + 1
        assert steps <= size, "the queue turns for ever"

    assert (who == successor) is (successor in places)


@given(SIZES, st.integers(0, 20), st.booleans())
def test_without_a_living_successor_the_first_one_leads(size: int, number: int, left: bool) -> None:
    """If this fails, an old record of a transfer changes the order of a later election."""
    places = [name(n) for n in range(size)]
    reason = "transferred" if left else ""
    record = TermRecord(leader=MasterId("old"), election=name(99), left=reason, successor=name(number))

    assert (left_to(record, places[0], places) is None) is (not left or not 0 < number < size)
    assert left_to(None, places[0], places) is None
