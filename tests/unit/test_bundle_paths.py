"""Which names, paths and symlinks can be in a bundle."""

from __future__ import annotations

import pytest

from torrentdist.bundle import safe_paths
from torrentdist.bundle.safe_paths import LinkFault, LinkProblem

GOOD_NAMES = [
    "a",
    "\u202egnp.exe",
    "e\u0301",
    "\u00e9",
    "👩‍👩‍👧",
    "back\\slash",
    "...",
    ".hidden",
    "trailing. ",
    " ",
    "CON",
    "a:b",
    "new\nline",
    "x" * 255,
    "é" * 127,
]


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_every_valid_unicode_name_is_taken(name: str) -> None:
    """A name that Linux stores would be refused."""

    assert safe_paths.name_problem(name.encode()) is None


@pytest.mark.parametrize(
    "name", [b"", b".", b"..", b"a/b", b"a\0b", b"\xff", b"\xed\xa0\x80", b"\xc0\xaf", b"x" * 256, "é".encode() * 128]
)
def test_a_name_that_cannot_be_stored_is_refused(name: bytes) -> None:
    """A component of a metafile could leave its directory, or fail on disk."""

    assert safe_paths.name_problem(name) is not None


@pytest.mark.parametrize(
    "path", [b"/a", b"a/", b"a//b", b"a/../b", b"./a", b"/".join([b"d"] * 91), b"/".join([b"d" * 255] * 13)]
)
def test_a_path_that_cannot_be_stored_is_refused(path: bytes) -> None:
    """An absolute, empty, climbing, too deep or too long path would pass. Dragonfly's peers wrote
    anywhere on the disk."""

    assert safe_paths.path_problem(path) is not None


def test_the_deepest_and_longest_paths_are_taken() -> None:
    """The limits would be off by one."""
    longest = b"/".join([b"d" * 255] * 11 + [b"d" * 127, b"d" * 128])

    assert safe_paths.path_problem(b"/".join([b"d"] * safe_paths.MAX_DEPTH)) is None
    assert safe_paths.MAX_PATH_BYTES == len(longest)
    assert safe_paths.path_problem(longest) is None
    assert safe_paths.path_problem(longest + b"d") is not None


@pytest.mark.parametrize("name", [b"", b".", b"..", b"a/b", b"a\0b", b"\xff", b"x" * 256])
def test_one_bad_name_among_many_is_found(name: bytes) -> None:
    """A packed file could leave its directory, because many names are checked at once."""
    good = b"x" * safe_paths.MAX_NAME_BYTES

    assert safe_paths.names_problem([good, name, good]) == safe_paths.name_problem(name)
    assert safe_paths.names_problem([good, good]) is None


def test_the_longest_target_is_taken() -> None:
    """A symlink that Linux stores would be refused, or one that it cannot store would be taken."""
    assert safe_paths.target_problem(b"x" * safe_paths.MAX_TARGET_BYTES) is None
    assert safe_paths.target_problem(b"x" * (safe_paths.MAX_TARGET_BYTES + 1)) is not None


@pytest.mark.parametrize(
    "links",
    [
        {"a": "b"},
        {"a": "."},
        {"d/a": ".."},
        {"d/e/a": "../../x/./y//"},
        {"a": "missing/../b"},
        {"d/in": "../e", "e/out": "../d/in/x"},
        {"l": "d/e", "d/m": "../l/../f"},
        {f"l{i}": f"l{i + 1}" for i in range(safe_paths.MAX_LINK_HOPS)},
        {"a": "x/" * safe_paths.MAX_RESOLVED_DEPTH},
    ],
)
def test_a_symlink_that_stays_inside_is_taken(links: dict[str, str]) -> None:
    """A harmless symlink would make an upload impossible."""

    assert safe_paths.find_link_problem(links) is None


@pytest.mark.parametrize(
    ("links", "path"),
    [
        ({"a": "/etc/passwd"}, "a"),
        ({"a": ".."}, "a"),
        ({"a": "../x"}, "a"),
        ({"d/a": "../../x"}, "d/a"),
        ({"a": "b/../../x"}, "a"),
        ({"d/e/deep": "../..", "out": "d/e/deep/../x"}, "out"),
        ({"s": "d/e/f/up", "d/e/f/up": "../../..", "z": "s/.."}, "z"),
        ({"d/top": "..", "a": "d/top/../x"}, "a"),
        ({"d/top": "..", "e/b": "../d/top/.."}, "e/b"),
    ],
)
def test_a_symlink_that_leaves_is_found_through_any_chain(links: dict[str, str], path: str) -> None:
    """A bundle could make its host read or write another user's file."""

    assert LinkProblem(path, links[path], LinkFault.LEAVES) == safe_paths.find_link_problem(links)


@pytest.mark.parametrize(
    "links",
    [
        {"a": "a"},
        {"a": "b", "b": "a"},
        {"a": "a/x"},
        {"d/a": "../e/b", "e/b": "../d/a/c"},
        {f"l{i:03}": f"l{i + 1:03}" for i in range(200)},
        {f"l{i}": f"l{i + 1}" for i in range(safe_paths.MAX_LINK_HOPS + 1)},
        {"a": "b/b", "b": "c/c/c/c/c/c/c", "c": "d/d/d/d/d/d/d", "d": "e/e/e/e/e/e/e", "e": "."},
    ],
)
def test_a_circle_of_symlinks_ends(links: dict[str, str]) -> None:
    """Following the symlinks of a hostile metafile would not end, or need memory without bound."""
    problem = safe_paths.find_link_problem(links)

    assert problem is not None
    assert problem.fault == LinkFault.CIRCLE


def test_a_symlink_that_leads_too_deep_is_refused() -> None:
    """Many symlinks to one distant place would take memory without a limit."""
    problem = safe_paths.find_link_problem({"a": "x/" * (safe_paths.MAX_RESOLVED_DEPTH + 1)})

    assert problem is not None
    assert problem.fault == LinkFault.DEEP


@pytest.mark.parametrize(
    ("files", "links", "empty"),
    [
        (["a", "a"], [], []),
        (["a", "a/b"], [], []),
        (["a"], ["a"], []),
        (["l/a"], ["l"], []),
        ([], ["l", "l/m"], []),
        ([], ["l"], ["l/e"]),
        (["e/a"], [], ["e"]),
        (["a"], [], ["a"]),
        (["a"], [], ["a/b/c"]),
        ([], [], ["e", "e/f"]),
        ([], [], ["e", "e"]),
        (["d/a"], ["d"], []),
    ],
)
def test_two_things_in_one_place_are_refused(files: list[str], links: list[str], empty: list[str]) -> None:
    """A file could be written through a symlink of the same bundle."""

    assert safe_paths.find_layout_problem(files, links, empty) is not None


def test_what_differs_in_case_or_normal_form_is_not_one_place() -> None:
    """Names that Linux tells apart would be refused."""

    assert safe_paths.find_layout_problem(["a", "A", "\u00e9", "e\u0301"], ["l"], ["E", "e/f"]) is None


def test_the_paths_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small metafile could describe paths that fill the memory."""
    monkeypatch.setattr(safe_paths, "MAX_ALL_PATHS_BYTES", 1000)

    assert safe_paths.find_layout_problem(["/".join("d" * 60)], [], []) == "it has too many directories"
    assert safe_paths.find_layout_problem(["x" * 600, "y" * 400], [], []) is None
    assert safe_paths.find_layout_problem(["x" * 600, "y" * 401], [], []) == "it has too many entries"
