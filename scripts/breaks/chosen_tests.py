"""Chooses the tests and the stories that a break is tried on.

Always: those that run the broken line, the cheapest first, as far as time allows. Without a
coverage map, the fast tests that import the module.
"""

from __future__ import annotations

from itertools import zip_longest

from scripts.breaks.break_choice import importing_tests, source_of
from scripts.breaks.break_sites import Break
from scripts.breaks.coverage_map import STORY_FILE, CoverageMap

FAST = ("tests/unit", "tests/property")
SLOW_TEST_SECS = 60.0
"""Processor time of the tests of slower rings that are run for one break, at most."""
MOST_STORIES = 12


def chosen_tests(known: CoverageMap | None, broken: Break, most_secs: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the fast tests for a break, and those of slower rings, as far as time allows."""
    covering = known.covering(broken.file, source_of(broken.file), broken.line) if known else []
    tests, slower, secs, slow_secs = [], [], 0.0, 0.0
    for test in covering:
        if test.startswith(STORY_FILE):
            continue
        if not test.startswith(FAST):
            if known and (slow_secs := slow_secs + known.secs(test)) < SLOW_TEST_SECS:
                file = test.partition("::")[0]
                slower.append(file if known.is_older_than(file) else test)
        elif known and "::" in test and (secs := secs + known.secs(test)) < most_secs:
            tests.append(test)
    tests += [test for test in importing_tests(broken.file) if known and known.is_older_than(test)]
    if not broken.place:  # these run in a new process each time, which must be short
        tests = importing_tests(broken.file) or tests
    return tuple(tests or importing_tests(broken.file)), tuple(dict.fromkeys(slower))


def chosen_stories(known: CoverageMap | None, broken: Break) -> tuple[str, ...]:
    """Returns some stories that run a line of a function, each kind in turn."""
    if known is None or not broken.place:
        return ()
    covering = known.covering(broken.file, source_of(broken.file), broken.line)
    by_kind: dict[str, list[str]] = {}
    for story in covering:
        if story.startswith(STORY_FILE):
            by_kind.setdefault(story.partition(" ")[0], []).append(story)
    in_turn = [story for some in zip_longest(*by_kind.values()) for story in some if story]
    return tuple(in_turn[:MOST_STORIES])
