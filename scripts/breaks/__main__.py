"""Breaks the code on purpose, one place at a time, and reports the breaks that no test notices.

Always: a break is made in a copy of the tree, never in the tree itself. The tests that run are
those that cover the line, the cheapest first; without a coverage map, those that import the module.
Never: count a break as noticed because of a test that fails without it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import comb, inf
from pathlib import Path
from typing import Any

from scripts.breaks import coverage_map
from scripts.breaks.break_choice import Kind, Terms, read_terms, sample, source_of
from scripts.breaks.break_sites import Break
from scripts.breaks.chosen_tests import chosen_stories, chosen_tests
from scripts.breaks.coverage_map import ROOT
from scripts.breaks.fresh_tests import FreshTests, TooSlow, copy_tree, environment
from scripts.breaks.own_directory import own_directory

BARS = {Kind.DECIDING: 0.03, Kind.SHELLS: 0.15}
"""Share of the breaks that may survive."""
FEW = 20
"""A sample of fewer breaks that were judged is said to say little."""
UNLUCKY = 0.001
"""A sample is too bad if a module just at its bar gave one like it less often than this."""
TEST_SECS = 30.0
"""Processor time of the tests that are run for one break, at most."""
RING_SECS = 240.0
"""Most time on the clock of the tests of slower rings for one break."""
LONG_SECS = 1e8
"""A run that ends sooner tries nothing but the fast tests in forks."""


@dataclass
class BreakOutcome:
    broken: Break
    tests: tuple[str, ...]
    kind: Kind
    noticed_by: str = ""
    judged: bool = False
    seconds: float = 0.0
    slower: tuple[str, ...] = field(default=())
    """Tests and test files of other rings that cover the line."""
    stories: tuple[str, ...] = field(default=())
    """Stories of the simulation that run the line."""


def run_warm(
    outcomes: Sequence[BreakOutcome], work: Path, processes: int, secs: float, ends_at: float
) -> Iterator[dict[str, Any]]:
    """Runs the tests of all breaks in forks of one process, and yields what becomes of each."""
    tree, plan, results = work / "warm", work / "plan.json", work / "plan.results"
    tasks = [
        {"number": number, "file": o.broken.file, "source": o.broken.applied_to(source_of(o.broken.file)),
         "tests": o.tests, "secs": 60 + 10 * secs, "cpu_secs": 10 + 3 * secs}
        for number, o in enumerate(outcomes) if o.broken.place
    ]  # fmt: skip
    plan.write_text(json.dumps({"tasks": tasks, "processes": processes, "ends_at": ends_at}), encoding="utf-8")
    results.touch()
    home = work / "home"
    home.mkdir()
    files = sorted({test.partition("::")[0] for o in outcomes if o.broken.place for test in o.tests})
    if not files:  # no fast test imports any of the modules
        yield from ({"number": task["number"], "verdict": "green", "secs": 0.0} for task in tasks)
        return
    command = [sys.executable, "-m", "pytest", "-q", "-p", "scripts.breaks.warm_tests", "-p", "no:cacheprovider"]
    env = environment(tree, home) | {"HOUSE_BREAKS_PLAN": str(plan)}
    with (work / "warm.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "-m", "not alone", *files], cwd=tree, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        try:
            with results.open(encoding="utf-8") as file:
                is_over = False
                while not is_over:
                    is_over = process.poll() is not None
                    while line := file.readline():
                        yield json.loads(line)
                    time.sleep(0.05)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
    if process.returncode not in (0, 5):
        print((work / "warm.log").read_text(encoding="utf-8", errors="replace")[-3000:], file=sys.stderr)
        raise SystemExit("the tests could not be collected")


def judge(outcomes: Sequence[BreakOutcome], processes: int, secs: float, ends_at: float, *, slow_rings: bool) -> None:
    with own_directory() as work:
        copy_tree(work / "warm")
        done = 0
        again = {number for number, outcome in enumerate(outcomes) if not outcome.broken.place}
        for said in run_warm(outcomes, work, processes, secs, ends_at):
            if "unfit" in said:
                print(f"  left out, since it is red without a break: {said['unfit']}", flush=True)
            elif "number" in said:
                outcome = outcomes[said["number"]]
                outcome.seconds = said["secs"]
                outcome.judged = said["verdict"] in ("red", "green")
                done += 1
                if said["verdict"] == "red":
                    outcome.noticed_by = said["test"]
                    tell(f"{done}", outcome)
                elif said["verdict"] == "green":
                    outcome.noticed_by = ""
                    tell(f"{done}", outcome)
                else:
                    again.add(said["number"])
        if ends_at < time.time() + LONG_SECS:
            return
        fresh = FreshTests(work, work / "warm")
        with ThreadPoolExecutor(processes) as pool:
            list(pool.map(partial(run_anew, fresh), [outcomes[number] for number in sorted(again)]))
            if slow_rings:
                try_on_stories(outcomes, processes)
                missed = [outcome for outcome in outcomes if outcome.judged and not outcome.noticed_by]
                list(pool.map(partial(run_slower, fresh), missed))


def run_anew(fresh: FreshTests, outcome: BreakOutcome) -> None:
    """Runs the fast tests of a break that no fork can have, in a process of their own."""
    began, broken = time.monotonic(), outcome.broken
    text = broken.applied_to(source_of(broken.file))
    try:
        red = fresh.first_red(broken.file, text, outcome.tests, RING_SECS) if outcome.tests else None
    except TooSlow:
        print(f"  left out, since its tests take too long without a break, too: {broken}", flush=True)
        return
    outcome.noticed_by, outcome.seconds, outcome.judged = red or "", time.monotonic() - began, True
    tell("anew", outcome)


def run_slower(fresh: FreshTests, outcome: BreakOutcome) -> None:
    """Runs the tests of slower rings for a break that the fast ones have missed."""
    if not outcome.slower:
        return
    began, broken = time.monotonic(), outcome.broken
    with suppress(TooSlow):
        red = fresh.first_red(broken.file, broken.applied_to(source_of(broken.file)), outcome.slower, RING_SECS)
        outcome.noticed_by = red or ""
    outcome.seconds = time.monotonic() - began
    tell("slow", outcome)


def try_on_stories(outcomes: Sequence[BreakOutcome], processes: int) -> None:
    """Plays stories of the simulation with each break of a shell that no test has noticed."""
    tasks = [
        {"number": number, "file": o.broken.file, "source": o.broken.applied_to(source_of(o.broken.file)),
         "stories": o.stories}
        for number, o in enumerate(outcomes)
        if o.judged and not o.noticed_by and o.stories and o.kind is Kind.SHELLS
    ]  # fmt: skip
    if not tasks:
        return
    command = [sys.executable, "-m", "scripts.breaks.story_breaks"]
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'tests'}{os.pathsep}{ROOT}", "PYTHONHASHSEED": "0"}
    with subprocess.Popen(
        command, cwd=ROOT, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as playing:
        assert playing.stdin is not None
        assert playing.stdout is not None
        playing.stdin.write(json.dumps({"tasks": tasks, "processes": processes}))
        playing.stdin.close()
        for line in playing.stdout:
            said = json.loads(line)
            outcome = outcomes[said["number"]]
            outcome.noticed_by = said["noticed_by"]
            tell("story", outcome)
    if playing.returncode:
        raise SystemExit("the stories could not be played")


def tell(number: str, outcome: BreakOutcome) -> None:
    ends = f"noticed by {outcome.noticed_by}" if outcome.noticed_by else f"SURVIVED {len(outcome.tests)} tests"
    print(f"{number:>5} {outcome.seconds:5.1f} s  {outcome.broken}  {ends}", flush=True)


def report(outcomes: Sequence[BreakOutcome]) -> None:
    folders: dict[str, list[BreakOutcome]] = {}
    for outcome in outcomes:
        folders.setdefault(outcome.broken.file.rpartition("/")[0], []).append(outcome)
    print()
    for folder, some in sorted(folders.items()):
        noticed = sum(bool(outcome.noticed_by) for outcome in some)
        print(f"{noticed:5} of {len(some):3} noticed  {100 * noticed / len(some):4.0f} %  {folder}")
    survivors = [outcome for outcome in outcomes if not outcome.noticed_by]
    if survivors:
        print("\nNo test noticed:")
        for outcome in survivors:
            print(f"  {outcome.broken}" + ("" if outcome.tests else "  (no test covers it)"))


def is_too_bad(survivors: int, count: int, bar: float) -> bool:
    """Whether modules that keep the bar would hardly ever give so many survivors."""
    worse = sum(comb(count, k) * bar**k * (1 - bar) ** (count - k) for k in range(survivors, count + 1))
    return survivors > bar * count and worse < UNLUCKY


def main() -> int:
    parser = argparse.ArgumentParser(prog="breaks", description="Break the code, and see that a test turns red.")
    parser.add_argument("words", nargs="*", help="only modules whose path contains one of these")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--kind", type=Kind, default=Kind.ALL, choices=list(Kind))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--fast-rings", action="store_true", help="only unit and property tests")
    parser.add_argument("--secs", type=float, default=TEST_SECS, help="most processor time of tests for each break")
    parser.add_argument("--modules", type=int, default=0, help="draw so many modules first; 0: all")
    parser.add_argument("--bar", type=float, help="share that may survive; the usual ones are in docs/breaks.md")
    parser.add_argument("--within", type=float, default=inf, help="stop after so many seconds")
    parser.add_argument("--record", nargs=argparse.REMAINDER, help="run these tests, and add them to the coverage map")
    options = parser.parse_args()
    if options.record is not None:
        return coverage_map.record(options.record)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the copies are removed
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    terms: Terms = read_terms()
    known = coverage_map.load()
    ends_at = time.time() + min(options.within, 1e9)
    breaks = sample(terms, options.kind, options.words, options.count, seed, options.modules)
    no_map = "" if known else "; there is no coverage map: make coverage-map"
    print(f"{len(breaks)} breaks, SEED={seed}{no_map}", flush=True)
    outcomes = []
    for broken in breaks:
        tests, slower = chosen_tests(known, broken, options.secs)
        slower = (*slower, *terms.tests_elsewhere(broken.file))
        stories = chosen_stories(known, broken)
        outcomes.append(BreakOutcome(broken, tests, terms.kind_of(broken.file), slower=slower, stories=stories))
    if options.within < inf:
        random.Random(seed).shuffle(outcomes)
    judge(outcomes, options.processes, options.secs, ends_at, slow_rings=not options.fast_rings)
    outcomes = [outcome for outcome in outcomes if outcome.judged]
    report(outcomes)
    if len(outcomes) < min(FEW, len(breaks)):
        print(f"only {len(outcomes)} of {len(breaks)} breaks were judged in time, which says little: give it longer")
    failed = False
    for kind, usual in BARS.items():
        bar = usual if options.bar is None else options.bar
        if of_kind := [outcome for outcome in outcomes if outcome.kind is kind]:
            lost = sum(not outcome.noticed_by for outcome in of_kind)
            share = lost / len(of_kind)
            print(f"{kind}: {lost} of {len(of_kind)} survived, {share:.1%}; the bar is {bar:.0%}")
            failed |= is_too_bad(lost, len(of_kind), bar)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
