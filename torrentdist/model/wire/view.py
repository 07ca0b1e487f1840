"""The base class of everything that is shown to users and peers as JSON.

The keys of its subclasses are promised in docs/protocol.md. Always: a new key may be added. Never:
a key changes its meaning.
"""

from __future__ import annotations

import msgspec


class View(msgspec.Struct, frozen=True, kw_only=True):
    """An immutable JSON object. Unknown keys are ignored when it is read."""
