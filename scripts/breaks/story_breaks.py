"""Tries breaks on stories of the simulation: whole clusters, each in a fork in which one function
is exchanged.

Always: a break counts as noticed only if a story finds something; without a break none of them
does. The stories are some of those that `make test` plays.
Never: count a story that the break could not be put into.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FunctionType

from simulation import clocks  # noqa: F401  # before the product
from simulation.aimed_stories import STORIES
from simulation.story_pool import Pool, end_in_order, repeat_order_of_sets

from scripts.breaks.coverage_map import ROOT
from scripts.breaks.warm_tests import CannotSwap, functions_by_file, swap

KIND, FIRST_SEED, COUNT = "night", 1, 6
STORY_SECS = 20
"""Processor time after which a story is stuck; most take two seconds."""


def swapped(path: Path, source: str, functions: Sequence[FunctionType], odd: Path) -> Callable[[], None]:
    """Returns what puts the break into a story's process. `odd`: made if that is impossible."""

    def before() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (STORY_SECS, STORY_SECS + 5))
        whole = path.read_text(encoding="utf-8")
        try:
            swap(functions, *(compile(text, str(path), "exec", dont_inherit=True) for text in (whole, source)))
        except CannotSwap:
            odd.touch()
            os._exit(0)

    return before


def first_finding(before: Callable[[], None], jobs: int) -> str:
    stories = (STORIES[KIND](FIRST_SEED + number) for number in range(COUNT))
    for story, outcome in Pool(jobs, before=before).run(stories):
        if outcome.findings:
            return f"story {KIND} {story.seed}: {outcome.findings[0][:100]}"
    return ""


def verdicts(plan: dict[str, object]) -> Iterator[dict[str, object]]:
    """Yields what stories say of each break: `noticed_by` is empty if they find nothing."""
    known = functions_by_file(ROOT)
    gc.freeze()
    with tempfile.TemporaryDirectory(prefix="torrentdist-breaks-") as work:
        for task in plan["tasks"]:  # type: ignore[attr-defined]
            path, odd = ROOT / task["file"], Path(work) / str(task["number"])
            before = swapped(path, task["source"], known.get(str(path), []), odd)
            found = first_finding(before, int(str(plan["processes"])))
            yield {"number": task["number"], "noticed_by": "" if odd.exists() else found}


def main() -> None:
    repeat_order_of_sets()
    end_in_order()
    for verdict in verdicts(json.load(sys.stdin)):
        print(json.dumps(verdict), flush=True)


if __name__ == "__main__":
    main()
