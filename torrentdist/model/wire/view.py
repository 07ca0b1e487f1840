"""The base class of everything that users and peers receive as JSON.

docs/protocol.md promises the keys of its subclasses.
Always: a key may be added.
Never: change the meaning of a key.
"""

from typing import Any, TypeVar

import msgspec


class View(msgspec.Struct, frozen=True, kw_only=True):
    """An immutable JSON object. Unknown keys are ignored when it is read."""


V = TypeVar("V", bound=View)


def view_of(kind: type[V], record: object, **more: Any) -> V:
    """Makes a view from the fields that a record has under the same names, and from `more`."""
    same = {
        name: getattr(record, name) for name in kind.__struct_fields__ if name not in more and hasattr(record, name)
    }
    return kind(**same, **more)
