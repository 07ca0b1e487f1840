"""Counts the lines of code: those that are not blank, not comment and not docstring.

Always: a line of a multi-line string that is not a docstring counts. Never: judge; it only prints.
`make size` prints a line for each room of the product, the largest first, and the sum. With a
commit (`make size SINCE=abc1234`) each line also says how much it grew or shrank since.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parent.parent
COUNTED = ("torrentdist", "cli")
NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def docstring_lines(tree: ast.AST) -> set[int]:
    """Returns the lines of all strings that stand alone: docstrings, and those after a field."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def code_lines(source: str) -> int:
    """Counts the lines of code in the text of one module."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(ast.parse(source)))


def files_now() -> Iterator[tuple[str, str]]:
    for top in COUNTED:
        for path in sorted((ROOT / top).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def files_at(commit: str) -> Iterator[tuple[str, str]]:
    names = git("ls-tree", "-r", "--name-only", commit, *COUNTED).splitlines()
    for name in names:
        if name.endswith(".py"):
            yield name, git("show", f"{commit}:{name}")


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def room_of(name: str) -> str:
    """Returns the folder that a file is counted in: two levels, which is how rooms are named."""
    return "/".join(PurePosixPath(name).parent.parts[:3])


def by_room(files: Iterator[tuple[str, str]]) -> Counter[str]:
    sizes: Counter[str] = Counter()
    for name, source in files:
        sizes[room_of(name)] += code_lines(source)
    return sizes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--since", metavar="COMMIT", help="say how much each room grew or shrank since")
    since = parser.parse_args().since
    sizes = by_room(files_now())
    before = by_room(files_at(since)) if since else sizes
    for room in sorted(sizes | before, key=lambda r: -sizes[r]):
        change = f"{sizes[room] - before[room]:+7}" if since else ""
        print(f"{sizes[room]:7}{change}  {room}")
    total, old = sizes.total(), before.total()
    print(f"{total:7}{f'{total - old:+7} ({(total - old) / old:+.1%})' if since else ''}  all")


if __name__ == "__main__":
    main()
