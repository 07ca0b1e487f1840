"""Ordinary work: uploads, distributions, jobs, handovers, drains and rolling restarts. None of it
may raise an alarm.

Always: each step ends before the next begins, as an operator works. A restart is a clean one.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from signal import SIGKILL, SIGTERM

from chaos.schedule import MASTERS, SUPERVISORS
from night.night_cluster import NightCluster

LOOK_SECS = 2.0
PAUSE_SECS = 20.0
REST_SECS = 300.0
"""Between two failovers or rounds of restarts: an operator does not make a leader loop."""
Step = Callable[[NightCluster, int], Awaitable[None]]


async def _distribute(night: NightCluster, number: int) -> None:
    await night.upload(f"release-{number}")
    await night.command("bundle", "distribute", f"release-{number}", "--canary", "1", "--concurrency", "1")


async def _remove(night: NightCluster, number: int) -> None:
    await night.command("bundle", "rm", f"release-{number - 1}", may_fail=True)


async def _run_job(night: NightCluster, number: int) -> None:
    await night.submit(f"batch-{number}", "sleep 3", "--conf", "restart.policy=never")


async def _drain(night: NightCluster, number: int) -> None:
    host = SUPERVISORS[number % len(SUPERVISORS)]
    await night.command("supervisor", "drain", host)
    await asyncio.sleep(5.0)
    await night.command("supervisor", "undrain", host)


async def _hand_over(night: NightCluster, number: int) -> None:
    await night.command("ha", "transfer", night.resolve("standby"))


async def _lose_leader(night: NightCluster, number: int) -> None:
    """The leader dies, and an init system starts it again at once."""
    leader = night.world.leader
    await night.world.end(leader, SIGKILL)
    night.world.start(leader)
    await asyncio.to_thread(night.world.cluster.wait_started, leader)


async def _restart_all(night: NightCluster, number: int) -> None:
    """A rolling restart: supervisors first, then masters, the leader last."""
    masters = sorted(MASTERS, key=lambda name: name == night.world.leader)
    for name in (*SUPERVISORS, *masters):
        await night.world.end(name, SIGTERM)
        night.world.start(name)
        await asyncio.to_thread(night.world.cluster.wait_started, name)
        await night.registered(name)
        await asyncio.sleep(5.0)


OFTEN: tuple[Step, ...] = (_distribute, _run_job, _remove, _drain)
SELDOM: tuple[Step, ...] = (_hand_over, _restart_all, _lose_leader)


@dataclass
class Alarms:
    """What was said to be wrong."""

    alerts: dict[str, float] = field(default_factory=dict)
    """Each alert that fired, with its summary, and after how many seconds it did first."""
    attention: Counter[str] = field(default_factory=Counter)
    """How often each kind was on the Overview of a master. An operator may see what happens."""

    async def watch(self, night: NightCluster) -> None:
        began = time.monotonic()
        while True:
            for name, summaries in (await asyncio.to_thread(night.prometheus.firing)).items():
                self.alerts.setdefault(f"{name}: {summaries[0]}", round(time.monotonic() - began))
            for _, page in await night.overviews():
                self.attention.update({entry["what"] for entry in page["attention"]})
            await asyncio.sleep(LOOK_SECS)


async def work(night: NightCluster, seconds: float) -> dict[str, object]:
    """Works for `seconds`. Returns what was done, and every alarm."""
    done: Counter[str] = Counter()
    alarms, failed = Alarms(), []
    ends_at = time.monotonic() + seconds
    watching = asyncio.create_task(alarms.watch(night))
    number, seldom_at = 0, time.monotonic() + min(REST_SECS, seconds) / 4
    while time.monotonic() < ends_at:
        step = OFTEN[number % len(OFTEN)]
        if time.monotonic() >= seldom_at:
            step, seldom_at = SELDOM[done["seldom"] % len(SELDOM)], time.monotonic() + REST_SECS
            done["seldom"] += 1
        try:
            await step(night, number)
            done[step.__name__.strip("_")] += 1
        except (RuntimeError, TimeoutError) as error:
            failed.append(f"{step.__name__}: {error}")
        number += 1
        await asyncio.sleep(PAUSE_SECS)
    if watching.done():  # it never ends by itself
        await watching
    watching.cancel()
    missed = [f"{what} after {at} s" for what, at in alarms.alerts.items()]
    return {"seconds": seconds, "done": dict(done), "attention": alarms.attention, "missed": [*missed, *failed]}
