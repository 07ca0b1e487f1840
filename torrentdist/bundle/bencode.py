"""Strict bencode, the encoding of metafiles.

Always: each value has exactly one encoding, and only that one is decoded: sorted unique keys, no
leading zeros, nothing after the end. So values are equal if and only if their bytes are. A reader
of bytes from outside says how many values it accepts and how deep. `spans` finds the parts of a
dictionary without creating any of them.
Never: recurse or allocate without a bound.
"""

import re
from collections.abc import Mapping
from typing import Final

Value = int | bytes | list["Value"] | dict[bytes, "Value"]

MAX_DEPTH = 100
"""libtorrent's default, so that a stock client can read everything that we accept."""
MAX_TOKENS = 1_000_000
"""Most values decoded at once, unless the caller sets another limit. A million take about a second
and 100 MB."""
MAX_PASSED = 4_000_000
"""Most values that `spans` skips: a name for each file, a name and a dictionary for each directory,
and room for the rest. They take no memory."""
_LIST_COST = 1000
"""Number of values that a list counts for. A metafile has three lists, and one more for each
tracker."""
LEAF: Final = re.compile(rb"d0:d6:lengthi(0|[1-9][0-9]{0,18})e(?:11:pieces root32:([\s\S]{32}))?ee")
"""A file in a file tree, in its only form: its length, and its root if it has one."""
_STRING: Final = re.compile(rb"(0|[1-9][0-9]{0,9}):")
_LENGTH_DIGITS = 10
_INT_DIGITS = 20


class BencodeError(ValueError):
    """The bytes are not canonical bencode."""


class _Budget:
    __slots__ = ("left", "most")

    def __init__(self, most: int) -> None:
        self.left = self.most = most

    def spend(self, cost: int = 1) -> None:
        self.left -= cost
        if self.left < 0:
            raise BencodeError(f"it has more than {self.most} values")


def encode(value: Value) -> bytes:
    parts: list[bytes] = []
    _encode_into(value, parts)
    return b"".join(parts)


def encode_dict_of_encoded(items: Mapping[bytes, bytes]) -> bytes:
    """Encodes a dict whose values are encoded already."""
    return b"d" + b"".join(b"%d:%b%b" % (len(key), key, items[key]) for key in sorted(items)) + b"e"


def _encode_into(value: Value, parts: list[bytes]) -> None:
    if isinstance(value, bytes):
        parts.append(b"%d:%b" % (len(value), value))
    elif isinstance(value, dict):
        parts.append(b"d")
        for key in sorted(value):
            parts.append(b"%d:%b" % (len(key), key))
            _encode_into(value[key], parts)
        parts.append(b"e")
    elif isinstance(value, list):
        parts.append(b"l")
        for item in value:
            _encode_into(item, parts)
        parts.append(b"e")
    else:
        parts.append(b"i%de" % value)


def decode(data: bytes, *, most: int | None = None, depth: int = MAX_DEPTH) -> Value:
    """Decodes one value. `most` limits the number of values, including itself and keys; `depth`
    limits the levels."""
    value, end = decode_at(data, 0, most=most, depth=depth)
    if end != len(data):
        raise BencodeError(f"{len(data) - end} bytes follow its end")
    return value


def decode_at(data: bytes, pos: int, *, most: int | None = None, depth: int = MAX_DEPTH) -> tuple[Value, int]:
    """Decodes the value at `pos`. Also returns where it ends."""
    return _value(data, pos, MAX_DEPTH + 1 - depth, _Budget(MAX_TOKENS if most is None else most))


def decode_single(data: bytes | None) -> Value | None:
    """Decodes a value that contains no others. Returns None for a list or a dictionary."""
    return None if data is None or data.startswith((b"l", b"d")) else decode(data, most=1)


def spans(data: bytes, start: int = 0) -> tuple[dict[bytes, tuple[int, int]], int]:
    """Returns where the values of the dictionary at `start` begin and end, and where the dictionary
    ends.

    It checks the keys of this dictionary but skips the values, which are checked when they are
    decoded.
    """
    if data[start : start + 1] != b"d":
        raise BencodeError("it is no dictionary")
    found: dict[bytes, tuple[int, int]] = {}
    last: bytes | None = None
    pos, budget = start + 1, _Budget(MAX_PASSED)
    while data[pos : pos + 1] != b"e":
        budget.spend()
        key, begin = read_string(data, pos)
        if last is not None and key <= last:
            raise BencodeError(f"the keys of a dictionary are not sorted and unique at byte {pos}")
        pos = _end_of(data, begin, budget)
        found[key], last = (begin, pos), key
    return found, pos + 1


def parts(data: bytes) -> dict[bytes, bytes]:
    """Returns the values of an encoded dictionary, still encoded."""
    found, end = spans(data)
    if end != len(data):
        raise BencodeError(f"{len(data) - end} bytes follow its end")
    return {key: data[start:stop] for key, (start, stop) in found.items()}


def _end_of(data: bytes, pos: int, budget: _Budget) -> int:
    """Returns where the value at `pos` ends."""
    depth = 0
    while True:
        budget.spend()
        kind = data[pos : pos + 1]
        if string := _STRING.match(data, pos):
            pos = string.end() + int(string[1])
            if pos > len(data):
                raise BencodeError(f"the string at byte {string.start()} is longer than what follows")
        elif leaf := LEAF.match(data, pos):
            pos = leaf.end()
        elif kind == b"i":
            pos = _int(data, pos)[1]
        elif kind in (b"d", b"l") and depth < MAX_DEPTH:
            budget.spend(_LIST_COST if kind == b"l" else 0)
            depth, pos = depth + 1, pos + 1
        elif kind == b"e" and depth:
            depth, pos = depth - 1, pos + 1
        else:
            deep = f"it is nested deeper than {MAX_DEPTH} levels"
            raise BencodeError(deep if kind in (b"d", b"l") else f"no value starts at byte {pos}")
        if not depth:
            return pos


def _value(data: bytes, pos: int, depth: int, budget: _Budget) -> tuple[Value, int]:
    budget.spend()
    if depth > MAX_DEPTH:
        raise BencodeError(f"it is nested deeper than {MAX_DEPTH} levels")
    kind = data[pos : pos + 1]
    if kind.isdigit():
        return read_string(data, pos)
    if kind == b"d":
        return _dict(data, pos, depth, budget)
    if kind == b"i":
        return _int(data, pos)
    if kind == b"l":
        items: list[Value] = []
        pos += 1
        while data[pos : pos + 1] != b"e":
            item, pos = _value(data, pos, depth + 1, budget)
            items.append(item)
        return items, pos + 1
    raise BencodeError(f"no value starts at byte {pos}")


def _dict(data: bytes, pos: int, depth: int, budget: _Budget) -> tuple[dict[bytes, Value], int]:
    result: dict[bytes, Value] = {}
    last: bytes | None = None
    pos += 1
    while data[pos : pos + 1] != b"e":
        budget.spend()
        key, start = read_string(data, pos)
        if last is not None and key <= last:
            raise BencodeError(f"the keys of a dictionary are not sorted and unique at byte {pos}")
        last = key
        result[key], pos = _value(data, start, depth + 1, budget)
    return result, pos + 1


def read_string(data: bytes, pos: int) -> tuple[bytes, int]:
    """Returns the string at `pos`, and where it ends."""
    colon = data.find(b":", pos, pos + _LENGTH_DIGITS + 1)
    digits = data[pos:colon] if colon > 0 else b""
    if not digits.isdigit() or (digits[0] == 0x30 and len(digits) > 1):
        raise BencodeError(f"no string starts at byte {pos}")
    end = colon + 1 + int(digits)
    if end > len(data):
        raise BencodeError(f"the string at byte {pos} is longer than what follows")
    return data[colon + 1 : end], end


def _int(data: bytes, pos: int) -> tuple[int, int]:
    end = data.find(b"e", pos, pos + _INT_DIGITS + 2)
    text = data[pos + 1 : end] if end > 0 else b""
    digits = text.removeprefix(b"-")
    if not digits.isdigit() or (digits[0] == 0x30 and text != b"0"):
        raise BencodeError(f"the integer at byte {pos} is not in its one form")
    return int(text), end + 1
