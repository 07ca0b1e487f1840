"""Tables with any values, in terminals of any width."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from torrentdist_cli.frame.table_layout import columns, shorten, shorten_apart, table

TEXT = st.text(max_size=150)
IDS = st.text("ab-.", min_size=1, max_size=128)
ROWS = st.lists(st.tuples(IDS, IDS, st.text(max_size=200), st.integers(0, 10**9).map(str)), max_size=6)


@given(TEXT, st.integers(3, 60))
def test_a_shortened_text_fits_and_keeps_both_ends(text: str, room: int) -> None:
    """A line would be wider than the terminal, which breaks it anywhere."""
    short = shorten(text, room)

    assert columns(short) <= room
    assert short == text or "…" in short
    assert short == text or text.startswith(short.partition("…")[0])
    assert short == text or text.endswith(short.rpartition("…")[2])


@given(TEXT)
def test_a_text_that_just_fits_is_shown_whole(text: str) -> None:
    """A user would read a name without its middle, although its column has room for all of it."""
    assert text == shorten(text, max(1, columns(text)))


@given(st.lists(IDS, max_size=8), st.integers(12, 40))
def test_shortened_ids_differ_as_their_ids_do(ids: list[str], room: int) -> None:
    """Two hosts would look the same."""
    short = shorten_apart(ids, room)

    if short is not None:
        assert len(set(ids)) == len(set(short))
        assert max(map(columns, short), default=0) <= room


@given(ROWS, st.integers(30, 120))
def test_a_line_fits_and_a_program_gets_everything(rows: list[tuple[str, str, str, str]], width: int) -> None:
    """A value would be broken over two lines and copied wrong, or a program would get a shortened
    name."""
    headers = ("ID", "HOST", "NOTE", "SIZE")
    whole = table(headers, rows, ("SIZE",), None)
    fitted = table(headers, rows, ("SIZE",), width)

    assert "…" in "".join(map("".join, rows)) or "…" not in whole
    assert all(text.isprintable() for text in fitted.splitlines())
    assert all(id_ in whole and host in whole for id_, host, _, _ in rows)
    assert max(map(columns, fitted.splitlines()), default=0) <= width


@given(st.integers(2, 5), st.integers(40, 128), st.sampled_from([50, 80]))
def test_ids_that_differ_in_one_place_stay_apart(count: int, length: int, width: int) -> None:
    """Ids of hosts that differ in one number in their middle would look the same."""
    half = "x" * (length // 2)
    ids = [f"{half}{n}{half}"[:128] for n in range(count)]
    fitted = table(("ID", "HOST", "NOTE"), [(id_, id_, "a sentence of some words") for id_ in ids], (), width)

    assert max(map(columns, fitted.splitlines())) <= width
    starts = [line.split() for line in fitted.splitlines() if "…" in line]
    shown = {words[1] for words in starts if words[0] == "ID"} or {words[0] for words in starts}
    assert count == len(shown)
