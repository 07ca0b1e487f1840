"""A module beside main.py, imported from the bundle."""

from pathlib import Path


def count_lines(path: Path) -> int:
    return len(path.read_text().splitlines())
