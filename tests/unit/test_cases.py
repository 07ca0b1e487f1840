"""`make cases`: which tests show which case."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "cases.py"))

SOURCE = '''
@pytest.mark.case("A1")
def test_marked(): "nothing"
async def test_by_docstring():
    """A12: a record appears too early, and B3 as well."""
def test_a14_by_name(): ...
def helper():
    """A2"""
'''


def test_a_test_names_its_case_by_mark_docstring_or_name() -> None:
    """A covered case would be listed as open."""
    found = set(SCRIPT["mentions_in"](SOURCE))

    expected = {
        ("A1", "test_marked"),
        ("A12", "test_by_docstring"),
        ("B3", "test_by_docstring"),
        ("A14", "test_a14_by_name"),
    }
    assert expected == found


def test_a_mark_of_the_file_counts_for_each_of_its_tests() -> None:
    """`make cases` would call a case uncovered that a whole file is about."""
    mark = 'pytestmark = [pytest.mark.anyio, pytest.mark.case("F3")]'
    source = f'{mark}\n@as_root\ndef test_one(): "F4"\nasync def test_two(): ...'

    assert {("F3", "test_one"), ("F4", "test_one"), ("F3", "test_two")} == set(SCRIPT["mentions_in"](source))


def test_every_section_of_the_page_is_read() -> None:
    """A section whose letter is not known would never be listed, nor would a gap in it."""
    page = (ROOT / "docs" / "cases.md").read_text(encoding="utf-8")
    last = max(line[3] for line in page.splitlines() if line.startswith("## "))

    assert {line[2:].split()[0] for line in page.splitlines() if line.startswith("- ")} == set(SCRIPT["cases_in"](page))
    name = f"test_x_{last.lower()}1"
    assert {(f"{last}1", name), (f"{last}2", name)} == set(SCRIPT["mentions_in"](f'def {name}(): "{last}2"'))


def test_a_case_without_a_test_is_said_to_have_none() -> None:
    """A gap that is not shown is never closed."""
    cases = SCRIPT["cases_in"]("- A10 ten\n- A2 two\ntext\n")

    expected = "A2   two\n       tests/x.py::test_two\nA10  ten\n       - no test\n\n1 of 2 cases have tests"
    assert expected == SCRIPT["report"](cases, {"A2": ["tests/x.py::test_two"]})
