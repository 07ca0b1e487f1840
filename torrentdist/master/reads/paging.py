"""Parts of a long list: which entries one answer gives. Pure.

Always: pages that follow each other by `after` give every id that stays there exactly once, whatever comes and goes
meanwhile. Never: a page larger than asked for; whoever names no limit gets the whole list, as older clients expect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

K = TypeVar("K", bound=str)

MOST = 1000
"""Entries of one page."""


@dataclass(frozen=True)
class Page:
    after: str = ""
    """The last id of the page before."""
    limit: int | None = None

    def of(self, ids: Iterable[K], listed: Callable[[K], bool] = lambda _: True) -> list[K]:
        """The ids of this page, in their order."""
        following = sorted(id_ for id_ in ids if id_ > self.after)
        return list(islice((id_ for id_ in following if listed(id_)), self.limit))


WHOLE = Page()
