"""Bencode beside a second reader, on every short text: both take the same and read the same."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest

from torrentdist.bundle import bencode
from torrentdist.bundle.bencode import BencodeError, Value

ALPHABET = b"deil01:-"
LONGEST = 5
SKELETONS = [b"d%s", b"d1:a%se", b"l%se", b"%si0e", b"d0:%s1:aleee", b"d1:bi1e%se"]


def texts() -> Iterator[bytes]:
    """Returns all texts of the letters of bencode up to a length, alone and within other values."""
    for length in range(LONGEST + 1):
        for letters in itertools.product(ALPHABET, repeat=length):
            yield bytes(letters)
    for skeleton in SKELETONS:
        for length in range(1, LONGEST):
            for letters in itertools.product(ALPHABET, repeat=length):
                yield skeleton % bytes(letters)


class Wrong(Exception):
    pass


def second_reader(data: bytes) -> Value:
    value, rest = read(data)
    if rest:
        raise Wrong
    return value


def read(data: bytes) -> tuple[Value, bytes]:
    if number := re.match(rb"i(0|-?[1-9][0-9]*)e", data):
        return int(number[1]), data[number.end() :]
    if length := re.match(rb"(0|[1-9][0-9]*):", data):
        end = length.end() + int(length[1])
        if end > len(data):
            raise Wrong
        return data[length.end() : end], data[end:]
    if data[:1] in (b"l", b"d"):
        items, rest = [], data[1:]
        while rest[:1] != b"e":
            item, rest = read(rest)
            items.append(item)
        return items if data[:1] == b"l" else as_dictionary(items), rest[1:]
    raise Wrong


def as_dictionary(items: list[Value]) -> Value:
    keys = items[::2]
    if len(items) % 2 or not all(isinstance(key, bytes) for key in keys):
        raise Wrong
    if any(first >= second for first, second in itertools.pairwise(keys)):  # type: ignore[operator]
        raise Wrong
    return dict(zip(keys, items[1::2], strict=True))  # type: ignore[arg-type]


def expected(data: bytes) -> Value | None:
    try:
        return second_reader(data)
    except Wrong:
        return None


def decoded(data: bytes) -> Value | None:
    try:
        return bencode.decode(data)
    except BencodeError:
        return None


def test_every_short_text_is_read_as_a_second_reader_reads_it() -> None:
    """Another text would stand for the same metafile, or a good one would be refused."""
    differing = [data for data in texts() if expected(data) != decoded(data)]

    assert [] == differing


def test_what_is_read_has_no_other_form() -> None:
    """A metafile that is written anew would have another digest."""
    values = {data: value for data in texts() if (value := decoded(data)) is not None}

    assert [] == [data for data, value in values.items() if bencode.encode(value) != data]


def test_the_parts_of_a_dictionary_are_its_values() -> None:
    """The info dictionary would be cut out of a metafile at the wrong place."""
    for data in texts():
        value = expected(data)
        if not isinstance(value, dict):
            continue
        parts, end = bencode.spans(data + b"xx")

        assert len(data) == end
        assert value == {key: bencode.decode(data[begin:stop]) for key, (begin, stop) in parts.items()}


def test_nothing_but_our_error_comes_out_of_cutting_a_text_up() -> None:
    """A damaged metafile would end a daemon's request with a bug."""
    for data in texts():
        try:
            parts, end = bencode.spans(data)
        except BencodeError:
            continue

        assert data[end - 1 : end] == b"e"
        assert all(0 < begin < stop < end for begin, stop in parts.values())
        assert list(parts) == sorted(parts)


@pytest.mark.parametrize("digits", [19, 20, 21])
def test_a_number_has_at_most_twenty_characters(digits: int) -> None:
    """A number of a megabyte would keep a thread busy."""
    for sign in (b"", b"-"):
        data = b"i%s%se" % (sign, b"9" * digits)

        assert (digits + len(sign) <= 20) == (decoded(data) is not None)


def test_a_list_counts_for_many_values_where_it_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A metafile of lists would be taken apart for minutes."""
    monkeypatch.setattr(bencode, "MAX_PASSED", 1003)

    assert 1 == len(bencode.spans(b"d1:alee")[0])
    monkeypatch.setattr(bencode, "MAX_PASSED", 1002)
    with pytest.raises(BencodeError, match="more than 1002"):
        bencode.spans(b"d1:alee")


@pytest.mark.parametrize("depth", [1, 3, bencode.MAX_DEPTH])
def test_values_as_deep_as_allowed_are_read(depth: int) -> None:
    """A bundle whose directories are as deep as they may be could not be read."""
    for begin in (b"l", b"d1:a"):
        deep = begin * (depth - 1) + b"i0e" + b"e" * (depth - 1)
        too_deep = begin * depth + b"i0e" + b"e" * depth

        assert bencode.encode(bencode.decode(deep, depth=depth)) == deep
        with pytest.raises(BencodeError, match="deeper"):
            bencode.decode(too_deep, depth=depth)


@pytest.mark.parametrize("begin", [b"l", b"d1:a"])
def test_what_is_passed_over_says_that_it_is_too_deep(begin: bytes) -> None:
    """A user would read that no value starts there, and look for damage."""
    depth = bencode.MAX_DEPTH

    assert 1 == len(bencode.spans(b"d1:a" + begin * depth + b"i0e" + b"e" * depth + b"e")[0])
    with pytest.raises(BencodeError, match="deeper"):
        bencode.spans(b"d1:a" + begin * (depth + 1) + b"i0e" + b"e" * (depth + 1) + b"e")


def test_values_are_counted_with_their_keys() -> None:
    """A dictionary of many keys would take more memory than its reader allows."""
    data = b"d1:ai1e1:bli1eee"

    assert {b"a": 1, b"b": [1]} == bencode.decode(data, most=6)
    with pytest.raises(BencodeError, match="more than 5 values"):
        bencode.decode(data, most=5)


def test_encoded_values_make_the_same_dictionary() -> None:
    """A metafile that is put together from its parts would have another digest."""
    assert bencode.encode({b"b": 1, b"a": b"x"}) == bencode.encode_dict_of_encoded({b"b": b"i1e", b"a": b"1:x"})
