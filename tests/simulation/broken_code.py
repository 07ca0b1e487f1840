"""Breaks the code on purpose, one place at a time, and tells which breaks stories find, with no
other test: `python -m simulation.broken_code`.

Always: a break is made in the process of a story, by exchanging the code of one function.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import random
import sys
import time
from collections.abc import Iterator
from itertools import cycle, islice

from simulation import clocks  # noqa: F401  # before the product
from simulation.aimed_stories import STORIES
from simulation.story_maker import Story
from simulation.story_pool import Pool, end_in_order, is_clean, repeat_order_of_sets

from scripts.breaks.break_choice import all_breaks, read_terms, source_of
from scripts.breaks.break_sites import Break
from scripts.breaks.coverage_map import ROOT, product_files
from scripts.breaks.warm_tests import CannotSwap, functions_by_file, swap

SUITED = {
    "torrentdist/master/leading/leader_duties": ("quiet", "corners", "night", "operators", "storm"),
    "torrentdist/master/leading/leader_rounds": ("quiet", "corners", "night", "operators", "storm"),
    "torrentdist/master/leading/lost_bundles": ("quiet", "corners", "storm", "jobs", "operators"),
    "torrentdist/master/leading/gate": ("quiet", "corners", "jobs", "storm", "restores"),
    "torrentdist/master/jobs/job_loop": ("quiet", "corners", "jobs", "night", "retries"),
    "torrentdist/master/jobs/job_duties": ("quiet", "corners", "jobs", "night", "retries"),
    "torrentdist/master/policies/policy_loop": ("quiet", "corners", "operators", "rooms", "night"),
    "torrentdist/master/policies/distribution_changes": ("quiet", "corners", "operators", "rooms", "night"),
    "torrentdist/master/policies/wave_plan": ("quiet", "corners", "operators", "rooms", "night"),
    "torrentdist/master/policies/retention_rules": ("quiet", "corners", "operators"),
    "torrentdist/master/policies/retention_operations": ("quiet", "corners", "operators"),
    "torrentdist/master/presence/presence_plan": ("quiet", "corners", "night", "crowds", "storm"),
    "torrentdist/master/replication/": ("quiet", "corners", "night", "storm", "retries"),
    "torrentdist/master/changes/": ("quiet", "corners", "retries", "operators", "night"),
    "torrentdist/bundle/store/retention": ("quiet", "corners", "programs", "rooms", "caches"),
    "torrentdist/supervisor/bundles/keep": ("quiet", "corners", "programs", "rooms", "caches", "night"),
    "torrentdist/supervisor/exclusivity/": ("quiet", "corners", "jobs", "upgrades", "night"),
    "torrentdist/cluster/rebalance/barrier_ownership": ("quiet", "corners", "jobs", "identities"),
    "torrentdist/client/masters/master_": ("quiet", "corners", "retries", "night", "operators"),
    "torrentdist/client/masters/leader_search": ("quiet", "corners", "retries", "night", "operators"),
    "torrentdist/client/masters/seen_cluster": ("quiet", "corners", "restores", "retries", "operators"),
    "torrentdist/client/masters/refusals": ("quiet", "corners", "retries", "night", "operators"),
}
"""The modules of the leader's loops, replication, keeping, barriers, retention, answered requests
and the client's retries, by the beginning of their path, and the kinds of stories for each."""


def main() -> int:
    repeat_order_of_sets()
    end_in_order()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1, help="chooses the breaks")
    parser.add_argument("--only", type=int, nargs="*", help="the numbers of some of them")
    parser.add_argument("--first", type=int, default=1, help="the seed of the first story")
    parser.add_argument("--stories", type=int, default=150)
    parser.add_argument("--secs", type=float, default=math.inf, help="begin no break after this time")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    functions = functions_by_file(ROOT)
    gc.freeze()
    ends_at, found, tried = time.perf_counter() + given.secs, 0, 0
    for number, broken in enumerate(_sample(given.count, given.seed, functions)):
        if (given.only and number not in given.only) or time.perf_counter() > ends_at:
            continue
        runs, told = _found(broken, functions, range(given.first, given.first + given.stories), given.jobs)
        tried, found = tried + 1, found + bool(told)
        print(f"{number:3} {runs:4} stories  {broken}\n      {told[:160] or 'SURVIVED'}", flush=True)
    print(f"stories found {found} of {tried} breaks, {found / max(1, tried):.0%}")
    return 0


def _sample(count: int, seed: int, functions: dict[str, list]) -> list[Break]:  # type: ignore[type-arg]
    terms = read_terms()
    files = [file for file in product_files() if file.startswith(tuple(SUITED)) and str(ROOT / file) in functions]
    breaks = [each for each in all_breaks(files) if each.place and not terms.is_equivalent(each)]
    random.Random(seed).shuffle(breaks)
    return list(islice((each for each in breaks if _can_swap(each, functions)), count))


def _can_swap(broken: Break, functions: dict[str, list]) -> bool:  # type: ignore[type-arg]
    """Whether a running daemon would get the broken code. Tried in a process that ends."""
    if child := os.fork():
        return os.waitpid(child, 0)[1] == 0
    try:
        _swap(broken, functions)
    except (CannotSwap, SyntaxError):
        os._exit(1)
    os._exit(0)


def _swap(broken: Break, functions: dict[str, list]) -> None:  # type: ignore[type-arg]
    path, source = str(ROOT / broken.file), source_of(broken.file)
    old, new = (compile(text, path, "exec", dont_inherit=True) for text in (source, broken.applied_to(source)))
    swap(functions[path], old, new)


def _found(broken: Break, functions: dict[str, list], seeds: range, jobs: int) -> tuple[int, str]:  # type: ignore[type-arg]
    """Returns how many stories were run, and what the one said that found the break; empty: none
    did."""
    tried, told = 0, ""
    kinds = cycle(next(kinds for path, kinds in SUITED.items() if broken.file.startswith(path)))

    def stories() -> Iterator[Story]:
        for seed, kind in zip(seeds, kinds, strict=False):
            if told:
                return
            yield STORIES[kind](seed)

    for story, outcome in Pool(jobs, before=lambda _: _swap(broken, functions)).run(stories()):
        tried += 1
        if outcome.findings and not told and is_clean(story):
            told = f"{story.name} {story.seed}: {outcome.findings[0]}"
    return tried, told


if __name__ == "__main__":
    sys.exit(main())
