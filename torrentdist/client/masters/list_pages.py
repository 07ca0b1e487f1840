"""Reads a long list page by page.

Always: it also understands a master of an older release, which answers with the whole list at once.
Never: go on forever because pages repeat known entries.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

T = TypeVar("T")

PAGE = 1000


async def all_pages(fetch: Callable[[Mapping[str, str]], Awaitable[list[T]]], id_of: Callable[[T], str]) -> list[T]:
    """Returns the whole list. `fetch` receives the parameters of one page; `id_of` returns the id
    by which entries are ordered."""
    found: list[T] = []
    last = ""
    while True:
        page = await fetch({"limit": str(PAGE), **({"after": last} if last else {})})
        new = [entry for entry in page if id_of(entry) > last]
        found += new
        if len(page) != PAGE or not new:
            return found
        last = max(map(id_of, new))
