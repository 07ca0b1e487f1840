"""Runs stories in processes of their own, forked from one that has imported everything, and makes
those smaller that found something."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
from simulation.story_maker import Story, smaller
from simulation.story_runner import Outcome, run_story

MOST_PROCESSOR_SECS = 60
"""Processor time after which a story is stuck."""
MOST_TRIES = 60
HASH_SEED = "0"
_NEW_MOUNTS, _PRIVATE = 0x20000, (1 << 18) | (1 << 14)
"""The kernel's CLONE_NEWNS, and MS_PRIVATE with MS_REC."""


def end_in_order() -> None:
    """Makes SIGTERM an ordinary end of this program, which removes what it made."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


@contextlib.contextmanager
def _term_waits() -> Iterator[None]:
    """Puts SIGTERM off: Python drops an exception that comes while it forks, and a child that
    nobody has noted yet would go on."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def repeat_order_of_sets() -> None:
    """Starts this program again with a fixed hash seed, and takes the addresses of types out of the
    hashes of values, so that a story depends on neither."""
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        os.environ["PYTHONHASHSEED"] = HASH_SEED
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    msgspec.Struct.__hash__ = _hash_of_fields  # type: ignore[assignment,method-assign]


def _hash_of_fields(value: msgspec.Struct) -> int:
    if not value.__struct_config__.frozen:
        raise TypeError(f"unhashable type: {type(value).__name__!r}")
    return hash((type(value).__name__, *msgspec.structs.astuple(value)))


class Pool:
    def __init__(
        self,
        jobs: int,
        *,
        verbose: bool = False,
        before: Callable[[Story], None] = lambda _: None,
        after: Callable[[Story], None] = lambda _: None,
    ) -> None:
        """`before` and `after` run in each story's process."""
        self._jobs, self._verbose, self._before, self._after = jobs, verbose, before, after

    def run(self, stories: Iterable[Any]) -> Iterator[tuple[Story, Outcome]]:
        """Yields the outcomes in the order in which they come. Leaves nothing behind, also when
        an exception or SIGTERM ends it."""
        place = Path(tempfile.mkdtemp(prefix="torrentdist-stories-"))
        children: dict[int, int] = {}
        try:
            yield from self._run(stories, place, children)
        finally:
            for child in children.values():
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            shutil.rmtree(place, ignore_errors=True)

    def _run(self, stories: Iterable[Any], place: Path, children: dict[int, int]) -> Iterator[tuple[Story, Outcome]]:
        """`children`: filled with the process of each story that runs, by the descriptor of its
        outcome."""
        waiting = iter(stories)
        running: dict[int, tuple[Story, bytearray]] = {}
        while True:
            while len(running) < self._jobs and (story := next(waiting, None)) is not None:
                with _term_waits():
                    read, child = self._fork(story, place)
                    running[read], children[read] = (story, bytearray()), child
            if not running:
                return
            for fd in select.select(list(running), [], [])[0]:
                if part := os.read(fd, 1 << 20):
                    running[fd][1].extend(part)
                    continue
                os.close(fd)
                os.waitpid(children.pop(fd), 0)
                done, data = running.pop(fd)
                yield done, _outcome(done, bytes(data))

    def _fork(self, story: Story, place: Path) -> tuple[int, int]:
        """Begins a story in a child. Returns the descriptor from which its outcome can be read, and
        the child."""
        read, write = os.pipe()
        sys.stdout.flush()
        if child := os.fork():
            os.close(write)
            return read, child
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            os.close(read)
            faulthandler.register(signal.SIGXCPU, chain=True)
            _keep_in_memory(place)
            resource.setrlimit(resource.RLIMIT_CPU, (MOST_PROCESSOR_SECS, MOST_PROCESSOR_SECS + 5))
            gc.disable()  # Its turns would depend on what this process did before.
            self._before(story)
            outcome = run_story(story, place, verbose=self._verbose)
            self._after(story)
            with open(write, "wb") as stream:
                stream.write(json.dumps(asdict(outcome)).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)


def _outcome(story: Story, data: bytes) -> Outcome:
    if not data:
        return Outcome(story.seed, ["the story got stuck"], story.sentences(), "", 0.0)
    return Outcome(**json.loads(data))


def _keep_in_memory(place: Path) -> None:
    """Puts the files of this process below `place` into memory, where the kernel allows it. They
    are gone with the process, and cost half as much."""
    libc = ctypes.CDLL(None)
    if libc.unshare(_NEW_MOUNTS) == 0 and libc.mount(None, b"/", None, _PRIVATE, None) == 0:
        libc.mount(b"none", os.fsencode(place), b"tmpfs", 0, b"mode=0700")


def is_clean(story: Story) -> bool:
    """Whether this story finds nothing in the product as it is."""
    return not any(outcome.findings for _, outcome in Pool(1).run([story]))


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
