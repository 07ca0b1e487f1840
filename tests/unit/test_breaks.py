"""`make breaks`: which places are broken, and which tests are chosen for them."""

from __future__ import annotations

import json
from fnmatch import fnmatch
from pathlib import Path

import pytest

from scripts.breaks import coverage_map
from scripts.breaks.break_choice import (
    Equivalent,
    Kind,
    Terms,
    importing_tests,
    read_terms,
    sample,
    source_of,
)
from scripts.breaks.break_sites import breaks_of
from scripts.breaks.chosen_tests import chosen_stories, chosen_tests
from scripts.breaks.coverage_map import STORY_FILE, CoverageMap, checksum_of, functions_of, name_now, product_files
from scripts.breaks.own_directory import mounted_in
from scripts.breaks.warm_tests import CannotSwap, swap

SOURCE = '''"""A docstring."""
LIMIT = 3


def is_full(count: int, *, is_open: bool) -> bool:
    """Another docstring."""
    log.info("asked")
    assert count >= 0
    if is_open and count < LIMIT:
        return False
    return count + 1 > LIMIT
'''


def broken_texts() -> set[tuple[str, str]]:
    return {(found.old, found.new) for found in breaks_of("a.py", SOURCE)}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("count < LIMIT", "count <= LIMIT"),
        ("count < LIMIT", "count >= LIMIT"),
        ("is_open and count < LIMIT", "is_open or count < LIMIT"),
        ("is_open and count < LIMIT", "is_open"),
        ("is_open and count < LIMIT", "not (is_open and count < LIMIT)"),
        ("False", "True"),
        ("count + 1", "count - 1"),
        ("count + 1 > LIMIT", "None"),
    ],
)
def test_every_kind_of_place_is_broken(old: str, new: str) -> None:
    """Holes in the tests of such places would stay unknown."""
    assert (old, new) in broken_texts()


def test_what_nobody_observes_stays() -> None:
    """Logs, assertions and docstrings would count as holes in the tests."""
    touched = [old for old, _ in broken_texts() if "log" in old or ">= 0" in old or "docstring" in old or old == "3"]

    assert [] == touched


def test_a_break_keeps_the_numbers_of_the_lines() -> None:
    """The coverage map would name the tests of other lines."""
    source = "def f(a, b):\n    return (a and\n        b)\n\nX = 1\n"
    lines = {found.applied_to(source).count("\n") for found in breaks_of("a.py", source)}

    assert {5} == lines


def test_a_seed_repeats_its_sample() -> None:
    """A developer could not try the breaks of a failed run again."""
    terms = read_terms()
    one, again, other = (sample(terms, Kind.DECIDING, ["jobs"], 20, seed) for seed in (1, 1, 2))

    assert one == again
    assert one != other


def test_a_break_that_changes_nothing_is_in_no_sample() -> None:
    """The bar could not be reached, however good the tests are."""
    file = "torrentdist/master/leading/gate.py"
    first = breaks_of(file, source_of(file))[0]
    terms = Terms((file,), (), (Equivalent(file, first.place, first.text, first.old, first.new, "why"),))

    assert first not in sample(terms, Kind.DECIDING, [file], 10_000, 1)


def test_a_break_counts_again_once_its_line_has_changed() -> None:
    """A break that was harmless in an older text would hide a hole for ever."""
    file = "torrentdist/master/leading/gate.py"
    first = breaks_of(file, source_of(file))[0]
    terms = Terms((file,), (), (Equivalent(file, first.place, "older text", first.old, first.new, "why"),))

    assert first in sample(terms, Kind.DECIDING, [file], 10_000, 1)


def test_a_word_may_name_a_line() -> None:
    """A developer could not see whether a new test notices the break that survived."""
    file = "torrentdist/master/leading/gate.py"
    first = breaks_of(file, source_of(file))[0]
    found = sample(read_terms(), Kind.DECIDING, [f"gate.py:{first.line}"], 10_000, 1)

    assert first in found
    assert {first.line} == {other.line for other in found}


def test_the_lists_name_what_is_there() -> None:
    """A module that was renamed would no longer count as one that decides, and a break that was
    listed as harmless would be forgotten."""
    terms = read_terms()
    patterns = (*terms.decides, *terms.left_out, *(some.modules for some in terms.elsewhere))
    gone = [pattern for pattern in patterns if not any(fnmatch(file, pattern) for file in product_files())]
    unknown = [
        listed
        for listed in terms.equivalents
        if not any(terms.is_equivalent(found) for found in breaks_of(listed.file, source_of(listed.file)))
    ]

    assert [] == gone
    assert [] == unknown


def test_a_function_gets_the_broken_code() -> None:
    """The tests would run with the whole code, and every break would survive."""
    scope: dict[str, object] = {}
    whole = compile("def f():\n    return 1\n", "x.py", "exec")
    exec(whole, scope)
    swap([scope["f"]], whole, compile("def f():\n    return 2\n", "x.py", "exec"))  # type: ignore[list-item]

    assert 2 == scope["f"]()  # type: ignore[operator]


def test_a_change_of_a_module_itself_is_refused() -> None:
    """A break that no running function shows would survive."""
    with pytest.raises(CannotSwap):
        swap([], compile("X = 1\n", "x.py", "exec"), compile("X = 2\n", "x.py", "exec"))


def test_the_cheapest_tests_of_a_line_come_first() -> None:
    """A run of breaks would take hours."""
    (function,) = functions_of(SOURCE)
    lines = {"5": ["dear", "cheap"], "6": ["other"]}
    known = CoverageMap({"dear": 9.0, "cheap": 0.1, "other": 1.0}, {"a.py": {"is_full": (function.text, lines)}})

    assert ["cheap", "dear"] == known.covering("a.py", SOURCE, 10)
    assert ["cheap", "other", "dear"] == known.covering("a.py", SOURCE.replace("+ 1", "+ 2"), 10)


def test_a_test_stands_for_its_parameters_once_its_file_has_changed() -> None:
    """A break would survive, because the test that notices it has another number now."""
    file = "tests/unit/test_gate.py"
    now = checksum_of(file)
    assert now is not None
    test = f"{file}::test_x[case3]"

    assert test == name_now(test, {file: now})
    assert f"{file}::test_x" == name_now(test, {file: now + 1})
    assert name_now("tests/unit/test_that_is_gone.py::test_x", {}) == ""


def test_slower_tests_and_stories_are_kept_for_what_fast_tests_miss() -> None:
    """A break in a shell would survive, though a test with a cluster or a story notices it."""
    file = "torrentdist/master/leading/gate.py"
    broken = next(found for found in breaks_of(file, source_of(file)) if found.place)
    function = next(one for one in functions_of(source_of(file)) if one.name == broken.place)
    fast, slow = "tests/unit/test_gate.py::test_x", "tests/integration/test_cluster_gate.py"
    nights, quiet = [f"{STORY_FILE}::night {seed}" for seed in range(1, 15)], f"{STORY_FILE}::quiet 1"
    lines = {str(broken.line - function.first): [f"{slow}::test_y", fast, *nights, quiet]}
    checksums = {test: checksum_of(test) or 0 for test in (*importing_tests(file), slow)}
    known = CoverageMap({}, {file: {function.name: (function.text, lines)}}, checksums)

    assert ((fast,), (f"{slow}::test_y",)) == chosen_tests(known, broken, 30.0)
    assert quiet in chosen_stories(known, broken), "each kind of story has its turn"
    known.checksums.clear()
    assert importing_tests(file) == list(chosen_tests(known, broken, 30.0)[0][1:]), "tests that may be newer"
    assert (slow,) == chosen_tests(known, broken, 30.0)[1], "the number of a parameter may be another one"


def test_what_was_not_run_again_stays_as_old_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """New tests of a file would be forgotten once another ring has been recorded."""
    ran, other = "tests/unit/test_gate.py", "tests/unit/test_ids.py"
    part = {"costs": {f"{ran}::test_x": 0.5}, "lines": {f"{ran}::test_x": {"a.py": [10]}}}
    (tmp_path / "1.json").write_text(json.dumps(part))
    monkeypatch.setattr(coverage_map, "MAP", tmp_path / "map.json")
    monkeypatch.setattr(coverage_map, "PARTS", tmp_path)
    known = CoverageMap(checksums={ran: 1, other: 2})
    coverage_map._merge(known, {ran: checksum_of(ran), other: checksum_of(other)}, {"a.py": SOURCE})
    merged = coverage_map.load()
    assert merged is not None

    assert (False, True) == (merged.is_older_than(ran), merged.is_older_than(other))
    assert [f"{ran}::test_x"] == merged.covering("a.py", SOURCE, 10)


def test_without_a_map_the_tests_are_those_that_import_the_module() -> None:
    """A break of a module that was just added would run no test."""
    assert "tests/unit/test_gate.py" in importing_tests("torrentdist/master/leading/gate.py")


def test_what_a_killed_test_has_mounted_is_found_the_innermost_first() -> None:
    """The directory of the breaks could not be removed, and the run ended with an error."""
    outer, inner, other = "/dev/loop1 /tmp/b/mount xfs", "none /tmp/b/mount/y tmpfs", "none /tmp/bc tmpfs"
    mounts = "\n".join(f"{line} rw 0 0" for line in (outer, inner, other))

    assert ["/tmp/b/mount/y", "/tmp/b/mount"] == mounted_in(Path("/tmp/b"), mounts)
