"""Decides which names, paths and symlinks a bundle may have. A problem is returned as a sentence.

Always: a path that passes, joined to one of our directories, names something inside it. A symlink
that passes never leads out of the bundle, not even through other symlinks.
Pure: functions of names.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 3072
"""Linux allows 4096; the rest is for the directory of a store or a destination."""
MAX_DEPTH = 90
"""Keeps a file tree below the 100 levels that libtorrent's decoder reads by default."""
MAX_TARGET_BYTES = 4095
MAX_LINK_HOPS = 40
"""The number of symlinks that Linux follows in one lookup."""
MAX_RESOLVED_DEPTH = 256
MAX_ENTRIES = 1_000_000
MAX_ALL_PATHS_BYTES = 256 * 1024 * 1024
"""Total bytes of all paths: a small file tree can describe paths that fill the memory."""


def name_problem(name: bytes) -> str | None:
    """Returns why `name` cannot be one component of a path, or None."""
    if not name or name in (b".", b".."):
        return "it is empty, '.' or '..'"
    if len(name) > MAX_NAME_BYTES:
        return f"it has {len(name)} bytes, more than {MAX_NAME_BYTES}"
    if b"/" in name or b"\0" in name:
        return "it contains '/' or NUL"
    return _text_problem(name)


def names_problem(names: Sequence[bytes]) -> str | None:
    """Returns why one of many names cannot be one component of a path, or None."""
    joined = b"".join(names)
    sound = b"/" not in joined and b"\0" not in joined and not {b"", b".", b".."}.intersection(names)
    if sound and max(map(len, names), default=0) <= MAX_NAME_BYTES and _text_problem(b"/".join(names)) is None:
        return None
    return next((problem for name in names if (problem := name_problem(name))), None)


def path_problem(path: bytes) -> str | None:
    """Returns why `path`, components joined by '/', cannot be in a bundle, or None."""
    if len(path) > MAX_PATH_BYTES:
        return f"its path has {len(path)} bytes, more than {MAX_PATH_BYTES}"
    components = path.split(b"/")
    if len(components) > MAX_DEPTH:
        return f"it lies {len(components)} levels deep, more than {MAX_DEPTH}"
    return next((problem for name in components if (problem := name_problem(name))), None)


def target_problem(target: bytes) -> str | None:
    """Returns why no symlink may have this target, or None.

    `find_link_problem` checks that a target is inside the bundle.
    """
    if not target or b"\0" in target or len(target) > MAX_TARGET_BYTES:
        return f"its target is empty, contains NUL or is longer than {MAX_TARGET_BYTES} bytes"
    return _text_problem(target)


def _text_problem(text: bytes) -> str | None:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return "it is not valid UTF-8"
    return None


class LinkFault(StrEnum):
    LEAVES = "leaves the bundle"
    CIRCLE = "leads in a circle or through too many other symlinks"
    DEEP = "leads too deep"


class LinkProblem(NamedTuple):
    path: str
    target: str
    fault: LinkFault


class _Refused(Exception):
    def __init__(self, fault: LinkFault) -> None:
        self.fault = fault


def find_link_problem(links: Mapping[str, str]) -> LinkProblem | None:
    """Returns the first symlink (path to target) that leads outside or in a circle.

    A symlink to a missing path is no problem.
    """
    resolver = _Resolver(links)
    for path in sorted(links):
        try:
            resolver.resolve(path, 1)
        except _Refused as refused:
            return LinkProblem(path, links[path], refused.fault)
    return None


class _Resolver:
    """Follows symlinks as the kernel would, using only names, and remembers every result.

    A place is a tuple of ever longer prefixes: ("a", "a/b", "a/b/c").
    """

    def __init__(self, links: Mapping[str, str]) -> None:
        self._links = links
        self._known: dict[str, tuple[tuple[str, ...], int]] = {}

    def resolve(self, path: str, depth: int) -> tuple[tuple[str, ...], int]:
        """Returns the place to which the symlink at `path` leads, and the number of symlinks
        followed."""
        if path in self._known:
            return self._known[path]
        target = self._links[path]
        if target.startswith("/"):
            raise _Refused(LinkFault.LEAVES)
        place = list(accumulate(path.split("/")[:-1], "{}/{}".format))
        hops = 1
        for name in target.split("/"):
            if name in ("", "."):
                continue
            if name == "..":
                if not place:
                    raise _Refused(LinkFault.LEAVES)
                place.pop()
                continue
            here = f"{place[-1]}/{name}" if place else name
            place.append(here)
            if here in self._links:
                if depth >= MAX_LINK_HOPS:
                    raise _Refused(LinkFault.CIRCLE)
                resolved, more = self.resolve(here, depth + 1)
                place, hops = list(resolved), hops + more
            if hops > MAX_LINK_HOPS:
                raise _Refused(LinkFault.CIRCLE)
            if len(place) > MAX_RESOLVED_DEPTH:
                raise _Refused(LinkFault.DEEP)
        self._known[path] = (tuple(place), hops)
        return self._known[path]


def find_layout_problem(files: Iterable[str], links: Iterable[str], empty_dirs: Iterable[str]) -> str | None:
    """Returns why these paths cannot be in one bundle, or None.

    Each path must have one role only, and only directories may contain others.
    """
    leaves: set[str] = set()
    total = 0
    for path in (path for group in (files, links, empty_dirs) for path in group):
        if path in leaves:
            return f"{path[:200]!r} is named twice"
        leaves.add(path)
        total += len(path)
        if len(leaves) > MAX_ENTRIES or total > MAX_ALL_PATHS_BYTES:
            return "it has too many entries"
    directories: set[str] = set()
    for path in leaves:
        end = path.rfind("/")
        while end > 0 and (parent := path[:end]) not in directories:
            if parent in leaves:
                return f"{path[:200]!r} lies beneath something that is no directory"
            directories.add(parent)
            total += end
            if len(directories) > MAX_ENTRIES or total > MAX_ALL_PATHS_BYTES:
                return "it has too many directories"
            end = path.rfind("/", 0, end)
    return None
