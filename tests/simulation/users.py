"""The users of a story: each call of the Python API in a process of its own, noted in the
history."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from simulation.history import Call, History
from simulation.invariants import Invariants, Tree, wrong_in
from simulation.simulated_cluster import SimulatedCluster
from simulation.steps import READS, USES, Step
from simulation.told_changes import wrong_listing
from simulation.user_calls import Desk, make_call

from torrentdist.api.async_client import AsyncClient
from torrentdist.model.errors import TorrentdistError

LONGEST_SECS = 130.0
BUSY = "job_state"
"""What a user is told who activates a job that is being rebalanced, or has ended."""
AGAIN_SECS = 2.0
MOST_TRIES = 20
READERS = 3
"""How many users list the bundles at once."""
TELL_SECS = 2.0
"""A user who waits for this long for a master that can answer is told why, and nobody earlier."""
TOLD_SECS = 12.0
"""A change that takes so long was tried at more than one master."""
CHANGES = ("pin", "unpin")
"""Calls that are one change each, and that no master works on for long."""
SAY_NOTHING = frozenset({"backup", "open", "objects", "untar", "lease", "mount", "drain", "undrain"})
"""Calls that return nothing when they went well."""
RETURN_BUNDLES = frozenset({"upload", "remove", "pin", "unpin", "sign"})
OLD_SECS = 3.0
"""How long after ZooKeeper is gone masters say that their answers are old."""
REVOKED_SECS = 5.0
"""A revoked token is refused within seconds, where masters reach ZooKeeper."""
READ_SECS = 2.5
"""Reads answer within two seconds (invariant 16). The rest is for the client's start and end."""


class Users:
    def __init__(
        self,
        cluster: SimulatedCluster,
        history: History,
        invariants: Invariants,
        desk: Desk,
        trees: dict[int, Tree],
        note: Callable[[str], None],
    ) -> None:
        self._cluster, self._history, self._invariants = cluster, history, invariants
        self.desk, self._trees, self._note = desk, trees, note
        self._records = invariants.records_of_zookeeper
        self._revoked: dict[str, float] = {}
        """When each token was told to be revoked."""
        self.findings: list[str] = []
        self._tasks: dict[asyncio.Task[Any], Step] = {}
        self._count = 0

    def act(self, step: Step) -> None:
        self._follow(step, self._again(step) if step.kind == "again" else self.call(step))

    def _follow(self, step: Step, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = step
        task.add_done_callback(self._ended)

    def act_at_last(self, step: Step, undone: str) -> None:
        """Lets a user undo steps of one kind when nobody waits for their answers any more, and
        again while the job does something else."""
        doing = [task for task, other in self._tasks.items() if (other.kind, other.what) == (undone, step.what)]
        self._follow(step, self._at_last(step, doing))

    async def _at_last(self, step: Step, doing: list[asyncio.Task[Any]]) -> None:
        if doing:
            await asyncio.wait(doing)
        for _ in range(MOST_TRIES):
            if (await self.call(step)).error != BUSY:
                return
            await asyncio.sleep(AGAIN_SECS)

    async def _again(self, step: Step) -> None:
        """Removes a bundle, uploads the same content again, and reads it everywhere, without a
        pause. Others list the bundles after each change."""
        for kind in ("remove", "upload"):
            await self.call(replace(step, kind=kind))
            for _ in range(READERS):
                self.act(replace(step, kind="read"))
        for host in self._cluster.supervisors:
            self.act(replace(step, kind="open", who=host.name))

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.findings.append(f"the story's user failed: {error!r}")

    def has_restored(self) -> bool:
        return any(call.kind == "restore" and call.succeeded for call in self._history.calls)

    def waiting(self) -> list[str]:
        return [f"{step.who} has no answer to {step.kind} {step.what}" for step in self._tasks.values()]

    async def call(self, step: Step) -> Call:
        """Does what the step says, and returns what the user was told."""
        call = self._history.begin(step.kind, step.what, self._cluster.loop.now, step.number)
        self._count += 1
        dest = self._cluster.place / f"download-{self._count}"
        waits: list[float] = []
        slow = any(host.process.disk == "slow" for host in self._cluster.hosts)
        try:
            async with asyncio.timeout(LONGEST_SECS):
                call.told = result = await self._cluster.as_user(
                    step.who, lambda api: self._make(api, step, dest, waits)
                )
            self._check(step, call, result, dest)
        except TorrentdistError as error:
            call.error = error.code
            self._check_refusal(step, call)
            if error.code == "internal":
                self.findings.append(f"{step.who} is told of a bug: {error.message}")
        except TimeoutError:
            call.error = "no answer"
            self.findings.append(f"{step.who} has no answer to {step.kind} {step.what} after {LONGEST_SECS:.0f} s")
        except Exception as error:
            call.error = "bug"
            self.findings.append(f"{step.kind} {step.what} failed with {error!r}")
        call.ended = self._cluster.loop.now
        took = call.ended - call.began
        if step.kind == "read" and took > READ_SECS and not slow:
            self._invariants.say("16", f"a read was answered after {took:.1f} s ({call.error or 'ok'})")
        self._check_waits(step, call, waits)
        self._note(f"{step.who} {step.kind} {step.what}: {call.error or 'ok'} after {took:.3f} s")
        shutil.rmtree(dest, ignore_errors=True)
        dest.unlink(missing_ok=True)
        return call

    async def _make(self, api: AsyncClient, step: Step, dest: Path, waits: list[float]) -> Any:
        config, now = self._cluster.client_config(), self._cluster.loop.time
        return await make_call(self.desk, api, config, step, dest, lambda _: waits.append(now()))

    def _check(self, step: Step, call: Call, result: Any, dest: Path) -> None:
        """Checks what a user was told by a call that went well."""
        if result is None and step.kind not in SAY_NOTHING:
            self.findings.append(f"{step.who} is told nothing by {step.kind}, as if it had gone well")
        if step.kind in RETURN_BUNDLES and result is not None and str(result.id) != step.what:
            self.findings.append(f"{step.who} is told of {result.id} by {step.kind} {step.what}")
        if step.kind in ("download", *READS) and (wrong := wrong_in(dest, self._trees[step.number])) is not None:
            self._invariants.say("14", f"{step.who} got {step.what}, and {wrong}")
        if step.kind in USES and self._must_be_signed(step.what) and not self._signs(step.what):
            self._invariants.say("trust", f"{step.who} got {step.what}, which nobody has signed")
        if step.kind == "read" and not result.is_old:
            told = {str(view.id): str(view.state) for view in result.bundles}
            now = self._cluster.loop.now
            self.findings += wrong_listing(told, call.began, now, self._history, self._records)
        gone_at = self._cluster.zookeeper.gone_at
        if step.kind == "read" and gone_at is not None and call.began - gone_at > OLD_SECS and not result.is_old:
            self._invariants.say("16", "an answer is not called old, and ZooKeeper is down")
        if step.kind == "use token" and not result.is_old:
            revoked = self._revoked.get(step.what)
            if revoked is not None and call.began - revoked > REVOKED_SECS:
                self._invariants.say("18", f"a master answers the token {step.what}, which was revoked")
        if step.kind == "restore":
            self._history.restored_at = self._cluster.loop.now
        if step.kind == "revoke token":
            self._revoked[step.what] = self._cluster.loop.now

    def _check_waits(self, step: Step, call: Call, waits: list[float]) -> None:
        """Checks when the user of a call was told why it takes long."""
        if waits and waits[0] - call.began < TELL_SECS:
            self.findings.append(f"{step.who} is told after {waits[0] - call.began:.1f} s why {step.kind} takes long")
        if step.kind in CHANGES and call.ended - call.began > TOLD_SECS and not waits:
            self.findings.append(
                f"{step.who} waits for {step.kind} for {call.ended - call.began:.1f} s, and is not told why"
            )

    def _must_be_signed(self, bundle: str) -> bool:
        return bool(self._cluster.trust.bundles) and bundle.startswith("b")

    def _check_refusal(self, step: Step, call: Call) -> None:
        signed = any(other.succeeded and other.ended < call.began for other in self._signs(step.what))
        if call.error == "unsigned_bundle" and signed and not self._changed(step.what):
            self._invariants.say("trust", f"{step.who} is told that {step.what} is not signed")

    def _signs(self, bundle: str) -> list[Call]:
        return [call for call in self._history.calls if (call.kind, call.bundle) == ("sign", bundle)]

    def _changed(self, bundle: str) -> bool:
        """Whether anybody has removed the bundle, whose signatures go with it."""
        return any(call.bundle == bundle and call.kind == "remove" for call in self._history.calls)
