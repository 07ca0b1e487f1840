"""What users and peers receive as JSON, and how JSON from outside is decoded.

docs/protocol.md promises the keys of the views.

Always: a key may be added. A decoding failure is a MsgspecError, also for too deep nesting and
for text that is not UTF-8, so that callers need to handle only one failure.
Never: change the meaning of a key.
"""

from typing import Any, TypeVar

import msgspec


class View(msgspec.Struct, frozen=True, kw_only=True):
    """An immutable JSON object. Unknown keys are ignored when it is read."""


S = TypeVar("S", bound=msgspec.Struct)


def view_of(kind: type[S], record: object, **more: Any) -> S:
    """Makes a view, or another struct, from the fields that a record has under the same names, and
    from `more`."""
    same = {
        name: getattr(record, name) for name in kind.__struct_fields__ if name not in more and hasattr(record, name)
    }
    return kind(**same, **more)


T = TypeVar("T")


def decode_json(data: bytes, kind: type[T]) -> T:
    """Returns the value of that kind, or raises a MsgspecError."""
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deeply") from None
    except UnicodeDecodeError as exc:
        raise msgspec.DecodeError(f"it is not UTF-8: {exc.reason}") from None
