"""Sample content for tests: directory trees as values, from a path to the bytes of its file.

Always: a tree has the same bytes in every run.
"""

import random
from collections.abc import Mapping
from pathlib import Path

Tree = Mapping[str, bytes]


def some_bytes(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


SMALL: Tree = {"job.py": b"print('hello')\n", "lib/words.txt": b"one two three\n"}
NESTED: Tree = {
    "job.py": b"print('hello')\n",
    "empty": b"",
    "data/deeper/still deeper/large.bin": some_bytes(3 * 1024 * 1024 + 7, 1),
    "data/deeper/empty too": b"",
    "data/one-byte": b"1",
    "data/twin-a": some_bytes(70_000, 2),
    "data/twin-b": some_bytes(70_000, 2),
}
ODD_NAMES: Tree = {
    name: f"{number}: {name}".encode()
    for number, name in enumerate(
        (
            "with space & plus+",
            "per%20cent%2Fencoded",
            "query?hash#star*[b]{c}",
            "quote'\".txt",
            "back\\slash",
            "colon:semi;pipe|less<more>",
            "na\u00efve",
            "combining e\u0301",
            "\u65e5\u672c\u8a9e/\u30d5\u30a1\u30a4\u30eb",
            "smile \U0001f600",
            "right to left \u202e txt",
            "-dash",
            ".hidden/.also",
            "~tilde",
            "...",
            "trailing dot.",
            "trailing space ",
            " leading space",
            "new\nline\ttab",
            "x" * 255,
        )
    )
}
SINGLE_FILE: Tree = {"only one.jar": some_bytes(200_000, 3)}
MANY_SMALL: Tree = {f"part-{number % 7}/{number:04}.bin": some_bytes(100 + number, number) for number in range(200)}


def write_tree(directory: Path, tree: Tree) -> None:
    """Makes the files of `tree` below `directory`."""
    for path, content in tree.items():
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def read_tree(directory: Path) -> dict[str, bytes]:
    """Returns the files below `directory`, by path."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
