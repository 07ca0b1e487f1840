"""Strict bencode, the encoding of metafiles.

Always: a value has exactly one encoding, and only that one is decoded: sorted unique keys, no
leading zeros, nothing after the end. So equal bytes and equal values are the same thing.
Never: recurse or allocate without a bound, since the bytes come from outside.
"""

from __future__ import annotations

from collections.abc import Mapping

Value = int | bytes | list["Value"] | dict[bytes, "Value"]

MAX_DEPTH = 100
"""libtorrent's default: a stock client reads everything that we accept."""
MAX_TOKENS = 10_000_000
_LENGTH_DIGITS = 10
_INT_DIGITS = 20


class BencodeError(ValueError):
    """The bytes are not canonical bencode."""


class _Budget:
    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise BencodeError(f"it has more than {MAX_TOKENS} values")


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


def decode(data: bytes) -> Value:
    value, end = _value(data, 0, 1, _Budget(MAX_TOKENS))
    if end != len(data):
        raise BencodeError(f"{len(data) - end} bytes follow its end")
    return value


def decode_dict(data: bytes) -> tuple[dict[bytes, Value], dict[bytes, bytes]]:
    """Decodes a dict; also returns each of its values as encoded in `data`."""
    if data[:1] != b"d":
        raise BencodeError("it is no dictionary")
    spans: dict[bytes, tuple[int, int]] = {}
    value, end = _dict(data, 0, 1, _Budget(MAX_TOKENS), spans)
    if end != len(data):
        raise BencodeError(f"{len(data) - end} bytes follow its end")
    return value, {key: data[start:stop] for key, (start, stop) in spans.items()}


def _value(data: bytes, pos: int, depth: int, budget: _Budget) -> tuple[Value, int]:
    budget.spend()
    if depth > MAX_DEPTH:
        raise BencodeError(f"it is nested deeper than {MAX_DEPTH} levels")
    kind = data[pos : pos + 1]
    if kind.isdigit():
        return _string(data, pos)
    if kind == b"d":
        return _dict(data, pos, depth, budget, None)
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


def _dict(
    data: bytes, pos: int, depth: int, budget: _Budget, spans: dict[bytes, tuple[int, int]] | None
) -> tuple[dict[bytes, Value], int]:
    result: dict[bytes, Value] = {}
    last: bytes | None = None
    pos += 1
    while data[pos : pos + 1] != b"e":
        budget.spend()
        key, start = _string(data, pos)
        if last is not None and key <= last:
            raise BencodeError(f"the keys of a dictionary are not sorted and unique at byte {pos}")
        last = key
        result[key], pos = _value(data, start, depth + 1, budget)
        if spans is not None:
            spans[key] = (start, pos)
    return result, pos + 1


def _string(data: bytes, pos: int) -> tuple[bytes, int]:
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
