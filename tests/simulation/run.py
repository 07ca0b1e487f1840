"""`make simulate`: nights of a whole cluster on a virtual clock.

Prints what was found, with the seed, the steps of a smaller story that finds it too, and how to
repeat it. Exits with 1 if anything was found.
"""

from __future__ import annotations

import argparse
import gc
import os
import secrets
import sys
import time
from collections.abc import Iterator

from simulation import clocks  # noqa: F401  # before the product
from simulation.aimed_stories import STORIES
from simulation.found_stories import found_stories, line_of
from simulation.story_pool import Pool, end_in_order, repeat_order_of_sets, smallest

ALL = "all"


def main() -> int:
    repeat_order_of_sets()
    end_in_order()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed; the others follow it")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--story", choices=STORIES, default="night")
    parser.add_argument("--found", choices=[ALL, *found_stories()], help="a story that once found something")
    parser.add_argument("--line", action="store_true", help="print what finds something as found_stories.jsonl has it")
    parser.add_argument("--secs", type=float, default=float("inf"), help="begin no story after this time")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--verbose", action="store_true", help="print everything that happens")
    parser.add_argument("--trace", action="store_true", help="print the hash of each story")
    parser.add_argument("--whole", action="store_true", help="do not look for a smaller story")
    given = parser.parse_args()
    seed = secrets.randbelow(2**31) if given.seed is None else given.seed
    print(f"simulation: {given.found or f'{given.count} stories from SEED={seed}'}", flush=True)
    gc.freeze()
    began = time.perf_counter()

    def stories() -> Iterator[object]:
        if given.found:
            yield from (story for name, story in found_stories().items() if given.found in (ALL, name))
            return
        for number in range(given.count):
            if time.perf_counter() - began > given.secs:
                return
            yield STORIES[given.story](seed + number)

    count = found = 0
    virtual = 0.0
    for story, outcome in Pool(given.jobs, verbose=given.verbose).run(stories()):
        count, virtual = count + 1, virtual + outcome.virtual_secs
        if given.trace:
            print(f"seed {story.seed}: {outcome.trace}")
        if given.verbose:
            print("\n".join(outcome.lines))
        if outcome.findings:
            found += 1
            small, said = (story, outcome) if given.whole else smallest(story, outcome)
            print(f"\nFOUND with seed {story.seed} (make simulate STORY={given.story} SEED={story.seed} COUNT=1):")
            print("\n".join(f"  {finding}" for finding in said.findings))
            print("\n".join(f"    {line}" for line in small.sentences()), flush=True)
            if given.line:
                print(line_of(small, said.findings[0]), flush=True)
    secs = time.perf_counter() - began
    print(f"{count} stories, {virtual / 3600:.1f} virtual hours in {secs:.0f} s; {found} found something")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
