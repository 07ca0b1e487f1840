"""Decodes JSON from outside.

Always: a decoding failure is a MsgspecError, also for too deep nesting and for text
that is not UTF-8, so that callers need to
handle only one failure.
"""

from typing import TypeVar

import msgspec

T = TypeVar("T")


def decode_json(data: bytes, kind: type[T]) -> T:
    """Returns the value of that kind, or raises a MsgspecError."""
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deeply") from None
    except UnicodeDecodeError as exc:
        raise msgspec.DecodeError(f"it is not UTF-8: {exc.reason}") from None
