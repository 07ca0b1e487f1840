"""Cuts long lists into pages. Pure.

Always: a reader that follows `after` from page to page gets every id that exists throughout exactly
once, even if others come and go. Without a limit the list is whole, as older clients expect.
Never: make a page larger than its limit.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeVar

import msgspec

K = TypeVar("K", bound=str)


class Page(msgspec.Struct, frozen=True):
    after: str = ""
    """Last id of the previous page; empty: this is the first page."""
    limit: int | None = None

    def of(self, ids: Iterable[K], listed: Callable[[K], bool] = lambda _: True) -> list[K]:
        """Returns the ids of this page in their order, among those that `listed` accepts."""
        following = sorted(id_ for id_ in ids if id_ > self.after)
        return list(islice((id_ for id_ in following if listed(id_)), self.limit))


WHOLE = Page()
