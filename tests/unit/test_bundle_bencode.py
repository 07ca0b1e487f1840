"""Bencode is read strictly: one value, one encoding."""

from __future__ import annotations

import pytest

from torrentdist.bundle import bencode
from torrentdist.bundle.bencode import BencodeError, Value


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, b"i0e"),
        (-42, b"i-42e"),
        (b"", b"0:"),
        (b"spam", b"4:spam"),
        ([b"a", [1]], b"l1:ali1eee"),
        ({b"b": 1, b"B": {}, b"": []}, b"d0:le1:Bde1:bi1ee"),
    ],
)
def test_every_kind_of_value_has_its_one_form(value: Value, encoded: bytes) -> None:
    """Keys would not be sorted as bytes, or a value would not come back as it went in."""

    assert (encoded, value) == (bencode.encode(value), bencode.decode(encoded))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"i01e",
        b"i-0e",
        b"i-e",
        b"ie",
        b"i1",
        b"i+1e",
        b"i" + b"9" * 30 + b"e",
        b"01:a",
        b"3:ab",
        b"99999999999999:a",
        b"1",
        b"-1:a",
        b"l",
        b"d",
        b"d1:a",
        b"d1:ai1e",
        b"di1ei1ee",
        b"d1:bi1e1:ai1ee",
        b"d1:ai1e1:ai1ee",
        b"i1ei1e",
        b"le ",
        b"x",
        "1²:a".encode(),
    ],
)
def test_what_is_not_canonical_is_refused(data: bytes) -> None:
    """A second spelling of a value would pass, so that other bytes could stand for the same
    metafile."""

    with pytest.raises(BencodeError):
        bencode.decode(data)


def test_depth_is_bounded() -> None:
    """A megabyte of opening brackets would exhaust the stack."""

    with pytest.raises(BencodeError, match="deeper"):
        bencode.decode(b"l" * 1_000_000)


def test_the_number_of_values_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small metafile of many empty values would take gigabytes of memory."""
    monkeypatch.setattr(bencode, "MAX_TOKENS", 10)

    with pytest.raises(BencodeError, match="more than 10"):
        bencode.decode(b"l" + b"le" * 10 + b"e")


def test_a_reader_says_how_many_values_and_levels_it_wants() -> None:
    """A list of numbers could contain lists of lists, each of which takes thirty times its size."""
    flat, nested = b"li1ei2ee", b"lleleleee"

    assert [1, 2] == bencode.decode(flat, most=3, depth=2)
    with pytest.raises(BencodeError, match="more than 2"):
        bencode.decode(flat, most=2)
    with pytest.raises(BencodeError, match="deeper"):
        bencode.decode(nested, depth=1)


def test_the_parts_of_a_dictionary_come_as_they_stand() -> None:
    """The digest would be made from other bytes than those of the info dictionary."""
    data = b"xd1:ad1:xi1ee1:bl1:ye1:c0:1:dd0:d6:lengthi0eeee"
    parts, end = bencode.spans(data, 1)

    assert len(data) == end
    assert {
        b"a": b"d1:xi1ee",
        b"b": b"l1:ye",
        b"c": b"0:",
        b"d": b"d0:d6:lengthi0eee",
    } == {key: data[start:stop] for key, (start, stop) in parts.items()}


@pytest.mark.parametrize(
    "data",
    [
        b"le",
        b"i1e",
        b"",
        b"d",
        b"d1:a",
        b"d1:ae",
        b"d1:ai1e1:ai2ee",
        b"d1:bi1e1:ai2ee",
        b"d1:a9:xe",
        b"d1:al",
        b"d1:axe",
    ],
)
def test_only_a_dictionary_is_taken_apart(data: bytes) -> None:
    """Data that is not a torrent would raise an unexpected error."""

    with pytest.raises(BencodeError):
        bencode.spans(data)


def test_passing_over_values_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A metafile of brackets would keep a thread busy for as long as its bytes last."""
    with pytest.raises(BencodeError, match="deeper"):
        bencode.spans(b"d1:a" + b"l" * 1000)
    monkeypatch.setattr(bencode, "MAX_PASSED", 10)
    with pytest.raises(BencodeError, match="more than 10"):
        bencode.spans(b"d1:ad" + b"0:" * 20 + b"ee")
    with pytest.raises(BencodeError, match="more than 10"):
        bencode.spans(b"d1:alee")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"d1:a9:xe", "the string at byte 4 is longer than what follows"),
        (b"d1:a0:", "no string starts at byte 6"),
        (b"d1:aede", "no value starts at byte 4"),
        (b"d1:a" + b"l" * 101 + b"e" * 102, "deeper than 100 levels"),
        (b"d1:a" + b"d" * 101, "deeper than 100 levels"),
        (b"i1e", "it is no dictionary"),
    ],
)
def test_what_cannot_be_passed_over_says_why(data: bytes, said: str) -> None:
    """An operator would read of a metafile that is wrong, and not of what is wrong with it."""
    with pytest.raises(BencodeError, match=said):
        bencode.spans(data)


def test_values_as_deep_as_allowed_are_passed_over() -> None:
    """A metafile that can be made could not be read."""
    deepest = b"l" * bencode.MAX_DEPTH + b"e" * bencode.MAX_DEPTH

    assert {b"a": deepest} == bencode.parts(b"d1:a" + deepest + b"e")


def test_a_dictionary_is_put_together_from_its_parts() -> None:
    """The digest of a bundle would change when a tracker is added."""
    data = b"d1:ai1e1:b2:xy1:cdee"
    parts = {b"b": b"2:xy", b"c": b"de", b"a": b"i1e"}

    assert parts == bencode.parts(data)
    assert data == bencode.encode_dict_of_encoded(parts)
    assert ({}, 2) == bencode.spans(b"de!")
    with pytest.raises(BencodeError, match="1 bytes follow its end"):
        bencode.parts(data + b"!")


@pytest.mark.parametrize(("most", "data"), [(4, b"d1:ai1e1:bi1ee"), (3, b"d1:adee"), (4, b"d1:ad0:ee")])
def test_keys_and_values_are_counted_when_they_are_passed_over(
    monkeypatch: pytest.MonkeyPatch, most: int, data: bytes
) -> None:
    """A bundle with as many files as allowed would be refused, or a larger one read."""
    monkeypatch.setattr(bencode, "MAX_PASSED", most)
    assert bencode.parts(data)
    monkeypatch.setattr(bencode, "MAX_PASSED", most - 1)
    with pytest.raises(BencodeError, match=f"more than {most - 1} values"):
        bencode.parts(data)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"1234567890:", "the string at byte 0 is longer than what follows"),
        (b"12345678901:", "no string starts at byte 0"),
        (b"3:ab", "the string at byte 0 is longer than what follows"),
        (b"i" + b"9" * 21 + b"e", "the integer at byte 0 is not in its one form"),
    ],
)
def test_a_length_or_a_number_has_so_many_digits(data: bytes, said: str) -> None:
    """A few bytes would make a number that takes minutes, or a message would mislead."""
    with pytest.raises(BencodeError, match=said):
        bencode.decode(data)

    assert 10**20 - 1 == bencode.decode(b"i" + b"9" * 20 + b"e")


def test_keys_are_values_and_dictionaries_are_levels() -> None:
    """A reader that expects little could be given a tree of dictionaries."""
    assert {b"a": 1} == bencode.decode(b"d1:ai1ee", most=3)
    with pytest.raises(BencodeError, match="more than 2"):
        bencode.decode(b"d1:ai1ee", most=2)
    assert {b"a": {}} == bencode.decode(b"d1:adee", depth=2)
    with pytest.raises(BencodeError, match="deeper"):
        bencode.decode(b"d1:ad1:ai1eee", depth=2)
