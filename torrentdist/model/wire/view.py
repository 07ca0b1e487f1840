"""The base class of everything that users and peers receive as JSON.

docs/protocol.md promises the keys of its subclasses.
Always: a key may be added.
Never: change the meaning of a key.
"""

from __future__ import annotations

import msgspec


class View(msgspec.Struct, frozen=True, kw_only=True):
    """An immutable JSON object. Unknown keys are ignored when it is read."""
