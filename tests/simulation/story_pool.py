"""Runs stories in processes of their own, forked from one that has imported everything, and makes
those smaller that found something."""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import resource
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any

from simulation.story_maker import Story, smaller
from simulation.story_runner import Outcome, run_story

MOST_PROCESSOR_SECS = 60
"""Processor time after which a story is stuck."""
MOST_TRIES = 60
HASH_SEED = "0"


def repeat_order_of_sets() -> None:
    """Starts this program again with a fixed hash seed, so that a story does not depend on it."""
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        os.environ["PYTHONHASHSEED"] = HASH_SEED
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


class Pool:
    def __init__(self, jobs: int, *, verbose: bool = False, before: Callable[[], None] = lambda: None) -> None:
        """`before` runs in each story's process, before the story."""
        self._jobs, self._verbose, self._before = jobs, verbose, before

    def run(self, stories: Iterable[Any]) -> Iterator[tuple[Story, Outcome]]:
        """Yields the outcomes in the order in which they come."""
        waiting = iter(stories)
        running: dict[int, tuple[Story, bytearray]] = {}
        while True:
            while len(running) < self._jobs and (story := next(waiting, None)) is not None:
                running[_fork(story, self._verbose, self._before)] = story, bytearray()
            if not running:
                return
            for fd in select.select(list(running), [], [])[0]:
                if part := os.read(fd, 1 << 20):
                    running[fd][1].extend(part)
                    continue
                os.close(fd)
                os.wait()
                done, data = running.pop(fd)
                yield done, _outcome(done, bytes(data))


def _outcome(story: Story, data: bytes) -> Outcome:
    if not data:
        return Outcome(story.seed, ["the story got stuck"], story.sentences(), "", 0.0)
    return Outcome(**json.loads(data))


def _fork(story: Story, verbose: bool, before: Callable[[], None]) -> int:
    """Begins a story in a child. Returns the descriptor from which its outcome can be read."""
    read, write = os.pipe()
    sys.stdout.flush()
    if os.fork():
        os.close(write)
        return read
    try:
        os.close(read)
        faulthandler.register(signal.SIGXCPU, chain=True)
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_PROCESSOR_SECS, MOST_PROCESSOR_SECS + 5))
        gc.disable()  # Its turns would depend on what this process did before.
        before()
        outcome = run_story(story, verbose=verbose)
        with open(write, "wb") as stream:
            stream.write(json.dumps(asdict(outcome)).encode())
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def smallest(story: Story, outcome: Outcome) -> tuple[Story, Outcome]:
    """Returns a story that finds something of the same kind with as few steps as were tried."""
    kind, tries = _kind(outcome), 0
    shrinking = True
    while shrinking and tries < MOST_TRIES:
        shrinking = False
        for candidate in smaller(story):
            tries += 1
            for _, found in Pool(1).run([candidate]):
                if _kind(found) == kind:
                    story, outcome, shrinking = candidate, found, True
            if shrinking or tries >= MOST_TRIES:
                break
    return story, outcome


def _kind(outcome: Outcome) -> str:
    """Returns the first finding without names and numbers."""
    text = outcome.findings[0] if outcome.findings else ""
    return "".join(char for char in text if not char.isdigit())[:40]
