"""What counts as a line of code in `make size`."""

from __future__ import annotations

import runpy
from pathlib import Path

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "size.py"))

MODULE = '''"""A docstring
of two lines."""

# a comment
import os  # with a comment


class Place:
    """A place."""

    name: str = """text
    of two lines"""
    """What the field is."""

    def where(self) -> str:
        return os.path.join(
            self.name,

            "there",
        )
'''


def test_blank_lines_comments_and_docstrings_are_no_code() -> None:
    """Otherwise a room that explains itself would look heavier than one that doesn't."""
    expected = ["import", "class", "name", "name", "def", "return", "self.name", "there", ")"]

    assert len(expected) == SCRIPT["code_lines"](MODULE)
