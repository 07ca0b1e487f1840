"""Tries breaks on stories of the simulation: whole clusters, each in a fork in which one function
is exchanged. With `--record` it adds to the coverage map which story runs which line.

Always: a break counts as noticed only if a story finds something; without a break none of them
does. The stories are some nights and quiet stories, all found stories, and one of each kind that
`make simulate STORY=mixed` plays.
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
from typing import Any

from simulation import clocks  # noqa: F401  # before the product
from simulation.aimed_stories import KINDS, STORIES
from simulation.found_stories import found_stories
from simulation.story_maker import Story
from simulation.story_pool import Pool, end_in_order, repeat_order_of_sets

from scripts.breaks.coverage_map import PARTS, ROOT, STORY_FILE, recorded_parts
from scripts.breaks.map_recorder import lines_of, started
from scripts.breaks.warm_tests import CannotSwap, functions_by_file, swap

SEEDS = {"night": range(1, 7), "quiet": range(1, 7), "mixed": range(len(KINDS))}
STORY_SECS = 20
"""Processor time after which a story is stuck; most take two seconds."""


def tried_stories() -> dict[str, Story]:
    """Returns the stories by the names that the coverage map has for them."""
    made = {f"{STORY_FILE}::{kind} {seed}": STORIES[kind](seed) for kind, seeds in SEEDS.items() for seed in seeds}
    return made | {f"{STORY_FILE}::found {number}": story for number, story in enumerate(found_stories().values())}


def record(jobs: int) -> None:
    """Adds to the coverage map what the stories run, and what they cost."""
    names = {story: name for name, story in tried_stories().items()}
    measured: list[Any] = []

    def after(story: Story) -> None:
        measured[0].stop()
        lines = {names[story]: lines_of(measured[0])[names[story]]}
        costs = {names[story]: resource.getrusage(resource.RUSAGE_SELF).ru_utime}
        (PARTS / f"{os.getpid()}.json").write_text(json.dumps({"costs": costs, "lines": lines}), encoding="utf-8")

    def before(story: Story) -> None:
        measured.append(started())
        measured[0].switch_context(names[story])

    with recorded_parts():
        for story, outcome in Pool(jobs, before=before, after=after).run(names):
            print(f"{names[story]}: {outcome.findings}", flush=True)


def swapped(path: Path, source: str, functions: Sequence[FunctionType], odd: Path) -> Callable[[Story], None]:
    """Returns what puts the break into a story's process. `odd`: made if that is impossible."""

    def before(_: Story) -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (STORY_SECS, STORY_SECS + 5))
        whole = path.read_text(encoding="utf-8")
        try:
            swap(functions, *(compile(text, str(path), "exec", dont_inherit=True) for text in (whole, source)))
        except CannotSwap:
            odd.touch()
            os._exit(0)

    return before


def first_finding(before: Callable[[Story], None], stories: Sequence[Story], jobs: int) -> str:
    for story, outcome in Pool(jobs, before=before).run(stories):
        if outcome.findings:
            return f"story {story.name} {story.seed}: {outcome.findings[0][:100]}"
    return ""


def verdicts(plan: dict[str, Any]) -> Iterator[dict[str, object]]:
    """Yields what stories say of each break: `noticed_by` is empty if they find nothing."""
    known, stories = functions_by_file(ROOT), tried_stories()
    gc.freeze()
    with tempfile.TemporaryDirectory(prefix="torrentdist-breaks-") as work:
        for task in plan["tasks"]:
            path, odd = ROOT / task["file"], Path(work) / str(task["number"])
            before = swapped(path, task["source"], known.get(str(path), []), odd)
            chosen = [stories[name] for name in task["stories"] if name in stories]
            found = first_finding(before, chosen, plan["processes"])
            yield {"number": task["number"], "noticed_by": "" if odd.exists() else found}


def main() -> None:
    repeat_order_of_sets()
    end_in_order()
    if sys.argv[1:] == ["--record"]:
        record(len(os.sched_getaffinity(0)))
        return
    for verdict in verdicts(json.load(sys.stdin)):
        print(json.dumps(verdict), flush=True)


if __name__ == "__main__":
    main()
