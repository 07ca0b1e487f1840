"""How soon a change has its effect where nothing else goes on: an event that a daemon misses, and
only finds when it next looks by itself, shows here, although all is well in the end.

Always: looked at from outside, on the disks, in ZooKeeper's tree and at the runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import chain
from typing import Any

from simulation.ending import Ending
from simulation.faults import Faults
from simulation.hurt_waves import HURT_SIZES
from simulation.scenes import SCENES
from simulation.simulated_cluster import SimulatedCluster
from simulation.simulated_host import Host
from simulation.simulated_runs import SimulatedRunning
from simulation.steps import USERS, USES, Step
from simulation.told_overviews import wrong_jobs, wrong_order, wrong_overview, wrong_return, wrong_summary
from simulation.told_results import wrong_result
from simulation.users import Users

LOOK_SECS = 0.1
AWAY_SECS = 0.1
"""Longest time until a daemon that dies or is told to stop has begun to end."""
ABSENT_SECS = 8.0
"""A daemon that has been away for so long is not registered any more, and not gone yet."""
LONG_SECS = 18.0
"""A daemon that is away for so long is called gone before it returns."""
BEFORE_SECS = 0.5
"""How long before it returns a user looks at the cluster."""
LONGEST_WORK = (1e6, 1e6)
"""Workers do not end by themselves meanwhile."""
LOOK_LATER_SECS = 1.5
"""Overviews and lists are true by then."""
TOLD_SECS = {**dict.fromkeys(HURT_SIZES, 11.0), "rebalance": 4.0}
"""The same where they say how much room disks have, and where a worker that moves has two seconds
to stop."""
HISTORY_SECS = 1.5
"""The leader has noted what a distribution did by then."""
HURT_HISTORY_SECS = 6.0
"""How much later it may look at one in which nothing has changed for long."""
LATER = (" is busy: ", " is kept for ")
"""Parts of complaints that count in the end only."""
DEATHS = ("kill", "wipe")
ORDERS = ("distribute", "stand", "send", "wave")
OUTAGES = ("masters away", "zookeeper away", "cancelled")
UPSETS = ("stop", "kill", "kill leader", "wipe", "transfer", "lose masters", *OUTAGES)
RULES = ("rule", "young rule")
REMOVALS = ("remove", "retain", *RULES)
LEASE_SECS = 60.0
"""How long a program that has asked for a bundle may take to lock it."""
NEXT_LOOK_SECS = 16.0
"""A host that has content of an id that is gone, which another id still had, asks that often
whether it is removed."""
ANNOUNCE_PAUSE_SECS = 15.0
"""A host announces itself that seldom to masters that have not answered for long."""
ASK_AGAIN_SECS = 10.0
"""A host that could ask nobody what it may forget asks again after that."""
MOST_SECS = {
    "upload": 3.0, "distribute": 3.0, "send": 2.1, "wave": 7.0, "remove": 0.6, "submit": 1.6,
    "transfer": 1.6, "rebalance": 5.0, "kill job": 2.6, "deactivate": 3.0, "activate": 2.6, "drain": 3.2,
    "undrain": 0.6, "download": 3.0, **dict.fromkeys(USES, 1.7),
    **dict.fromkeys(("read", "sign", "make token", "use token", "revoke token"), 3.0),
    **dict.fromkeys(HURT_SIZES, 60.0), **dict.fromkeys(SCENES.keys() - HURT_SIZES, 3.0), "join": 3.0, "stand": 3.0,
    "lose masters": 12.0, **dict.fromkeys(RULES, NEXT_LOOK_SECS),
    "stop": 3.0, "kill": 6.5, "kill leader": 6.5, "wipe": 7.0,
}  # fmt: skip
"""Until each kind of step has its effect: a quarter more than the longest of a hundred stories. A
worker has two seconds to stop, a session ends after four to six, and a wave takes one."""
MOST = 0.4
"""For all others."""
UPSET_SECS = 16.0
"""How long a new leader, or one that has started again, may know less of hosts than they do."""
MORE_SECS = {
    **dict.fromkeys(("submit", "rebalance", "kill job", "deactivate", "activate", "drain", "undrain"), 6.0),
    **dict.fromkeys(("distribute", "stand", "send", "wave", "join"), 15.0),
}
"""How much longer these take meanwhile: it waits until it has heard what runs on all hosts, and a
host that has a bundle tells it with its next announce."""


class Promptness:
    def __init__(
        self, cluster: SimulatedCluster, users: Users, ending: Ending, faults: Faults, note: Callable[[str], None]
    ) -> None:
        self._cluster, self._users, self._ending, self._faults, self._note = cluster, users, ending, faults, note
        self._has_ruled = False
        """Whether a rule may have left hosts with content that they have no id for."""
        self._has_history = True
        """Whether the masters still know what all orders did."""
        self._leased_at = -LEASE_SECS
        """When a program last asked for a bundle by its id, or its host started after that."""
        self._was_leased = False
        """Whether a program was about to use a bundle when the step began."""
        self._has_hurt = False
        """Whether the history may follow an order in which nothing changed for long."""
        self._upset_at = 0.0
        """When a step last may have changed who leads."""
        self._away_at = -UPSET_SECS
        """When hosts last could ask nobody, and began to ask less often."""
        self._was_away = False
        """Whether that was just before the step."""

    async def play(self, steps: tuple[Step, ...]) -> list[str]:
        """Plays the steps in turn. Returns what went wrong first, or took too long."""
        SimulatedRunning.all_runs.busy_secs = LONGEST_WORK
        for step in steps:
            self._note(step.sentence())
            if found := await self._step(step):
                return [f"{step.sentence()}, and {found}"]
        return []

    async def _step(self, step: Step) -> str:
        loop = self._cluster.loop
        began, self._was_leased = loop.now, self._is_leased()
        self._was_away = self._was_lately(self._away_at)
        away = self._who_dies(step)
        if step.kind in SCENES:
            if wrong := await SCENES[step.kind](self._cluster, self._users, self._faults, step):
                return wrong
            began = loop.now
        elif step.kind not in USERS:
            if wrong := await self._restart(step):
                return wrong
        else:
            call = await self._users.call(step)
            if wrong := f"is told {call.error}" if call.error else self._wrong_result(step, call.told):
                return wrong
        while missing := self._missing(step):
            if loop.now - began > self._most(step):
                return f"{loop.now - began:.1f} s later {missing}"
            await asyncio.sleep(LOOK_SECS)
        took = loop.now - began
        if step.kind in ("lease", "prune in use") or (step.kind in UPSETS and self._is_leased()):
            self._leased_at = loop.now
        if step.kind in UPSETS:
            self._upset_at = loop.now
        if step.kind in OUTAGES:
            self._away_at = loop.now
        self._note(f"had its effect after {took:.2f} s")
        if took > self._most(step):
            return f"that takes {took:.1f} s"
        return await self._untrue(step, away)

    def _wrong_result(self, step: Step, told: Any) -> str:
        may_be_old = step.kind == "read" and self._is_upset()
        return "" if may_be_old else wrong_result(step, told, len(self._cluster.supervisors))

    def _starts(self) -> int:
        return sum(host.starts for host in self._cluster.hosts)

    def _who_dies(self, step: Step) -> Host | None:
        if step.kind == "kill leader":
            return self._cluster.leader()
        return next((host for host in self._cluster.hosts if host.name == step.who and step.kind in DEATHS), None)

    async def _restart(self, step: Step) -> str:
        """Lets a daemon die or stop, and waits until it has started again."""
        began, starts = self._cluster.loop.now, self._starts()
        self._faults.happen(step)
        wrong = await self._while_away(step)
        while not wrong and self._starts() == starts:
            if self._cluster.loop.now - began > self._most(step):
                wrong = "it has not started again"
            await asyncio.sleep(LOOK_SECS)
        return wrong

    async def _while_away(self, step: Step) -> str:
        """Waits as long as a daemon is to be away. Returns what a user is told of it meanwhile, and
        is not true."""
        if step.secs < LONG_SECS:
            await asyncio.sleep(step.secs + AWAY_SECS)
            return ""
        died_at, wrong = self._cluster.loop.now, ""
        for secs in (ABSENT_SECS, step.secs - BEFORE_SECS, step.secs + AWAY_SECS):
            await asyncio.sleep(max(0.0, died_at + secs - self._cluster.loop.now))
            if secs < step.secs:
                wrong = wrong or await self._wrong_for(LOOK_LATER_SECS, self._overview)
        return wrong

    async def _overview(self) -> str:
        call = await self._users.call(Step(0.0, "look", "dee"))
        if not call.succeeded:
            return f"dee is told {call.error}"
        view, jobs = call.told
        return next(chain(wrong_overview(self._cluster, view), wrong_jobs(self._cluster, jobs)), "")

    async def _wrong_for(self, secs: float, look: Callable[[], Awaitable[str]]) -> str:
        """Looks until nothing is wrong, or for this long. Returns what is wrong."""
        until = self._cluster.loop.now + secs + UPSET_SECS * self._is_upset()
        while True:
            wrong = await look()
            if not wrong or self._cluster.loop.now >= until:
                return wrong
            await asyncio.sleep(LOOK_SECS)

    async def _untrue(self, step: Step, away: Host | None) -> str:
        """Returns what records and overviews say of a step that has had its effect, and is not
        true."""
        wrong = "" if away is None else wrong_return(self._cluster, away, step.secs)
        self._has_ruled |= step.kind in RULES
        self._has_hurt |= step.kind in HURT_SIZES
        self._has_history &= step.kind != "lose masters"
        if step.kind in ORDERS and not self._has_history:
            wrong = wrong_order(self._cluster, step)
        elif step.kind in ORDERS:
            wrong = wrong_order(self._cluster, step)
            most = HISTORY_SECS + HURT_HISTORY_SECS * self._has_hurt
            wrong = wrong or await self._wrong_for(most, lambda: self._history(step))
        later = TOLD_SECS.get(step.kind, LOOK_LATER_SECS)
        return wrong or await self._wrong_for(later, self._overview)

    async def _history(self, step: Step) -> str:
        call = await self._users.call(Step(0.0, "history", "dee", step.what))
        hosts = 1 if step.kind == "send" else len(self._cluster.supervisors)
        return wrong_summary(call.told, step, hosts) if call.succeeded else f"dee is told {call.error}"

    def _most(self, step: Step) -> float:
        most = MOST_SECS.get(step.kind, MOST) + step.secs
        if step.kind == "remove" and (self._has_ruled or self._was_away):
            most = NEXT_LOOK_SECS + ASK_AGAIN_SECS * self._was_away
        if step.kind in USES and self._was_away:
            most += ANNOUNCE_PAUSE_SECS
        if step.kind in REMOVALS and self._was_leased:
            most += LEASE_SECS + NEXT_LOOK_SECS
        return most + self._is_upset() * MORE_SECS.get(step.kind, 0.0)

    def _is_leased(self) -> bool:
        return self._cluster.loop.now - self._leased_at < LEASE_SECS + NEXT_LOOK_SECS

    def _is_upset(self) -> bool:
        return self._was_lately(self._upset_at)

    def _was_lately(self, at: float) -> bool:
        return self._cluster.loop.now - at < UPSET_SECS

    def _missing(self, step: Step) -> str:
        """Returns what has not come to pass yet."""
        if step.kind in ("drain", "deactivate"):
            runs = (run for run in SimulatedRunning.all_runs.living() if _is_meant(step, run.host.name))
            return next((f"worker {run.key[1]} still runs on {run.host.name}" for run in runs), "")
        return next((text for text in self._ending.complaints() if not any(part in text for part in LATER)), "")


def _is_meant(step: Step, host: str) -> bool:
    """Whether a step ends the workers of a host. There is one job."""
    return step.kind == "deactivate" or step.what == host
