"""Runs one story from its founding to its end, and returns what was found.

Always: one story runs in a process of its own, so that stories share nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import random
import shutil
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from simulation.aimed_faults import AIMED, AimedFaults
from simulation.ending import Ending
from simulation.faults import Faults
from simulation.history import History
from simulation.host_process import HERE
from simulation.invariants import LOOK_SECS, Invariants, Tree
from simulation.kept_records import KeptRecords
from simulation.more_invariants import MoreInvariants
from simulation.operating_system import simulated
from simulation.outdated_records import OutdatedRecords
from simulation.promptness import Promptness
from simulation.simulated_cluster import SimulatedCluster
from simulation.simulated_runs import SimulatedRunning
from simulation.steps import CONTENTS, LAST_CONTENT, SINGLE_FILE, USERS, Step
from simulation.story_maker import Story
from simulation.told_changes import wrong_answers
from simulation.told_warnings import needless_warnings
from simulation.user_calls import Desk
from simulation.users import Users
from simulation.virtual_loop import VirtualLoop
from simulation.work_rate import WorkRate

import torrentdist.log
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.host.process.background_loops import LOOP_FAILED
from torrentdist.http.api_calls import Broken
from torrentdist.http.http_values import HttpError
from torrentdist.model.errors import TorrentdistError
from torrentdist.testing.sample_trees import some_bytes, write_tree

SETTLED_SECS = 3.0
CALM_SECS = 150.0
"""Time after the last fault within which everything must have come to rest."""
REST_SECS = 3.0
FAILURES = (TorrentdistError, OSError, HttpError, Broken)
"""Errors that faults of a story may cause anywhere."""
EXPECTED = frozenset(
    {
        *("closing", "disk_full", "disk_error", "port_in_use", "os_error", "bug", "zookeeper_unavailable"),
        *("id_taken", "later_release"),
    }
)
"""Codes of errors that may end a daemon or one of its loops in a story."""
QUIET_ANSWERS_SECS = 24.0
"""How long masters keep their answers where no user has to try again for long."""
QUIET_KEPT = KeptRecords(removed=30.0, silent_upload=15.0, ended_job=25.0)


@dataclass
class Outcome:
    seed: int
    findings: list[str]
    steps: list[str]
    trace: str
    """Hash of everything that happened."""
    virtual_secs: float
    lines: list[str] = field(default_factory=list)


class StoryRunner:
    def __init__(self, story: Story, loop: VirtualLoop, place: Path, *, verbose: bool = False) -> None:
        self.story, self.loop, self.place, self.verbose = story, loop, place, verbose
        self.lines: list[str] = []
        self._hash = hashlib.sha256()
        self._warned: set[str] = set()
        self._cluster: SimulatedCluster | None = None
        torrentdist.log.show_lines(self._log, logging.INFO if verbose else logging.WARNING)

    def note(self, text: str) -> None:
        line = f"{self.loop.now - 1000:9.4f} {text}"
        self._hash.update(line.encode() + b"\n")
        if self.verbose:
            self.lines.append(line)

    def _log(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if level in ("warning", "error"):
            self._warned.add(event)
            self._note_mistake(event, fields.get("exc_info"))
        if self.verbose:
            self.lines.append(f"{self.loop.now - 1000:9.4f}     {HERE.get().name} {level}: {event} {fields}"[:400])

    def _note_mistake(self, event: str, told: object) -> None:
        """Notes mistakes of ours that a daemon logs with a traceback, and goes on after."""
        error = sys.exception() if told is True else told
        if self._cluster is None or not isinstance(error, Exception) or not is_mistake(event, error):
            return
        if HERE.get().alive:
            self._cluster.note_bug(f"{HERE.get().name} logs {event!r}: {error!r}", error)

    async def run(self, zookeeper: Any) -> list[str]:
        rng = random.Random(self.story.seed ^ 0xC1)
        cluster = self._cluster = SimulatedCluster(self.loop, zookeeper, self.place, rng)
        trees = {number: sample(number) for number in (*CONTENTS, LAST_CONTENT)}
        sources = {number: self.place / f"content-{number}" for number in trees}
        for number, tree in trees.items():
            write_tree(sources[number], tree)
        sources[SINGLE_FILE] /= next(iter(trees[SINGLE_FILE]))
        digests = {make_metafile(sources[number]).digest: tree for number, tree in trees.items()}
        jobs = {name: self.place / name for name in JOBS}
        once = any(step.kind == "long texts" for step in self.story.steps)
        for name, workers in JOBS.items():
            tree = {"job.toml": job_toml(name, workers, once=once).encode(), "work.bin": some_bytes(20_000, workers)}
            write_tree(jobs[name], tree)
            digests[make_metafile(jobs[name]).digest] = tree
        if self.story.in_turn:
            cluster.answers_secs, cluster.kept, cluster.one_known = QUIET_ANSWERS_SECS, QUIET_KEPT, True
        invariants = Invariants(cluster, {str(digest): tree for digest, tree in digests.items()})
        more, work = MoreInvariants(cluster, invariants), WorkRate(cluster, invariants)
        outdated = OutdatedRecords(cluster, invariants, compares=self.story.in_turn)
        history = History()
        faults = Faults(cluster, invariants, self.note)
        aimed = AimedFaults(cluster, faults, self.note)
        SimulatedRunning.all_runs.on_start.append(lambda run: aimed.on_start(run.host.name))
        zookeeper.on_change.append(lambda kind, path: self.note(f"{zookeeper.writer_name()} {kind} {path}"))
        for number in range(self.story.masters):
            cluster.add(f"master-{number + 1}")
        for number in range(self.story.supervisors):
            cluster.add(f"supervisor-{number + 1}")
        faults.prepare(self.story.steps)
        desk = Desk(sources, jobs, {}, cluster.token_file, cluster.zookeeper_config(), [])
        users = Users(cluster, history, invariants, desk, trees, self.note)
        await cluster.found()
        for host in cluster.hosts:
            host.start()
        await asyncio.sleep(SETTLED_SECS)
        looking = asyncio.create_task(self._look(invariants, more, work, outdated))
        ending = Ending(cluster, invariants, history)
        late: list[str] = []
        if self.story.in_turn:
            late = await Promptness(cluster, users, ending, faults, self.note).play(self.story.steps)
        else:
            await self._play(faults, aimed, users, history)
        aimed.disarm()
        faults.mend_all()
        await self._undo(users)
        complaints = await self._until_rest(ending, users)
        complaints = complaints or await self._use(users)
        complaints += wrong_answers(history, invariants.records_of_zookeeper)
        if self.story.in_turn:
            late += needless_warnings(self._warned, self.story.steps)
        looking.cancel()
        return [*invariants.findings, *users.findings, *late, *complaints, *_bugs(cluster, self.loop)]

    @staticmethod
    async def _look(*looking: Invariants | MoreInvariants | WorkRate | OutdatedRecords) -> None:
        while True:
            await asyncio.sleep(LOOK_SECS)
            for each in looking:
                each.look()

    async def _play(self, faults: Faults, aimed: AimedFaults, users: Users, history: History) -> None:
        began = self.loop.now
        for step in self.story.steps:
            if faults.cluster.bugs:
                return
            await asyncio.sleep(max(0.0, began + step.at - self.loop.now))
            self.note(step.sentence())
            if step.kind == "set back":
                history.restored_at = self.loop.now + step.secs
            if step.kind in USERS:
                users.act(step)
            elif step.kind in AIMED:
                aimed.arm(step)
            else:
                faults.happen(step)
        await asyncio.sleep(max(0.0, began + self.story.secs - self.loop.now) if self.story.steps else 0.0)

    async def _undo(self, users: Users) -> None:
        """Takes back what would keep workers from running: drains, and jobs that were
        deactivated."""
        for kind, back in (("drain", "undrain"), ("deactivate", "activate")):
            for what in sorted({step.what for step in self.story.steps if step.kind == kind}):
                users.act_at_last(Step(self.loop.now, back, "dee", what), undone=kind)
        if any(step.kind == "wipe zookeeper" for step in self.story.steps) and not users.has_restored():
            users.act(Step(self.loop.now, "restore", "dee"))

    async def _use(self, users: Users) -> list[str]:
        """Uses the cluster after the calm. Returns what does not work."""
        has_room = self.story.supervisors and not any(step.kind == "small store" for step in self.story.steps)
        last = Step(self.loop.now, "upload", "dee", "last", number=LAST_CONTENT)
        steps = [last, replace(last, kind="download")]
        if has_room:
            steps.insert(1, replace(last, kind="distribute"))
            steps += [replace(last, kind="open", who=f"supervisor-{n + 1}") for n in range(self.story.supervisors)]
        for step in steps:
            if error := (await users.call(step)).error:
                return [f"after the calm: {step.sentence()}, and is told {error}"]
        return []

    async def _until_rest(self, ending: Ending, users: Users) -> list[str]:
        """Waits until nothing is to be complained about for a while, and returns what is left."""
        deadline, fine_since = self.loop.now + CALM_SECS, None
        while True:
            complaints = [*users.waiting(), *ending.complaints()]
            fine_since = None if complaints else fine_since or self.loop.now
            rested = fine_since is not None and self.loop.now - fine_since >= REST_SECS
            if rested or ending.has_bugs():
                return []
            if self.loop.now >= deadline:
                return [f"in the end: {complaint}" for complaint in complaints]
            await asyncio.sleep(1.0)


def is_mistake(event: str, error: Exception) -> bool:
    """Whether an error that a daemon logs is a mistake of ours. Disks and networks fail in stories,
    but a loop that must begin anew should have known what to do about most errors."""
    if event == LOOP_FAILED and not isinstance(error, OSError):
        return getattr(error, "code", "") not in EXPECTED
    return not isinstance(error, FAILURES)


def _bugs(cluster: SimulatedCluster, loop: VirtualLoop) -> list[str]:
    found = [f"a daemon's error: {bug}" for bug in cluster.bugs]
    found += [f"an error that nobody handled: {error}" for error in loop.errors]
    found += [f"{name} ended with {code}: {text}" for name, code, text in cluster.ends if code not in EXPECTED]
    return found


JOBS = {"j1": 2, "j2": 3}
"""The jobs that users submit, and how many workers each has."""


def job_toml(name: str, workers: int, *, once: bool) -> str:
    """`once`: a worker that fails is not started again, so that its job's record says why."""
    restart = 'restart = "never"\n' if once else ""
    return f'name = "{name}"\ncommand = ["work"]\nworkers = {workers}\nstop_grace_secs = 2.0\n{restart}'


def sample(number: int) -> Tree:
    """Returns the content with this number. Those of directories share a file, but for one."""
    if number == SINGLE_FILE:
        return {"model.jar": some_bytes(90_000, 6)}
    if number == 4:
        return {f"small/{n}": some_bytes(300 + n, 40 + n) for n in range(12)}
    return {"common.bin": some_bytes(40_000, 7), f"own-{number}.bin": some_bytes(30_000 * number, number)}


def run_story(story: Story, parent: Path, *, verbose: bool = False) -> Outcome:
    """Runs a story in this process, which must end afterwards."""
    place = Path(tempfile.mkdtemp(prefix="story-", dir=parent))
    os.environ["XDG_CACHE_HOME"] = str(place / "cache")
    os.environ["TMPDIR"] = tempfile.tempdir = str(place)
    logging.getLogger("torrentdist").addHandler(logging.NullHandler())  # Nobody reads these lines.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # It would tell of each death within a request.
    loop = VirtualLoop(random.Random(story.seed))
    runner = StoryRunner(story, loop, place, verbose=verbose)
    try:
        with simulated(loop, story.seed) as zookeeper:
            try:
                findings = loop.run_until_complete(runner.run(zookeeper))
            except Exception as exc:
                import traceback

                findings = [f"the story itself failed: {''.join(traceback.format_exception(exc))}"]
    finally:
        with suppress(OSError):
            shutil.rmtree(place, ignore_errors=True)
    return Outcome(story.seed, findings, story.sentences(), runner._hash.hexdigest(), loop.now - 1000.0, runner.lines)
