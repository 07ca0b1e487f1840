"""Measures how long a breakage goes unnamed: on the Overview of every master that answers, by the
doctor, and by an alert.

Always: a time counts from the moment when the breakage was complete, to the end of the look that
named it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from night.breakages import Breakage
from night.night_cluster import NightCluster

FOR_SECS = 10.0
"""The `for` of every alert while things break: the rules' own are up to an hour. The rules' tests
(deploy/prometheus/rules_test.yml) show that they fire after their own."""
NAMED_SECS = 30.0
"""The bar for the Overview and the doctor. An alert may take its `for` longer."""
GIVE_UP_SECS = 75.0
QUIET_SECS = 150.0
PAUSE_SECS = 0.5
LASTING = {"elections", "restarting"}
LASTING_ALERTS = {f"Torrentdist{name}" for name in ("LeaderChanges", "Restarts", "FetchErrorRate", "AnswerErrorRate")}
"""What is said for a quarter of an hour, because it was a loop or a rate."""
OWN_CHECKS = ("masters' links", "reachable", "records", "clock")
"""What the doctor finds by itself, and not by the list of what needs attention."""
OF_OTHERS = ("gone", "unheard")
"""What a master cannot say of itself."""


@dataclass
class Measured:
    name: str
    overview: float | None = None
    doctor: float | None = None
    alert: float | None = None
    quiet: float | None = None
    """Seconds from its end until nothing needs attention."""
    findings: list[str] = field(default_factory=list)


def on_page(breakage: Breakage, named: str, page: dict[str, Any]) -> bool:
    return any(
        entry["what"] == breakage.what and any(named in subject for subject in (*entry["subjects"], entry["detail"]))
        for entry in page["attention"]
    )


def in_findings(breakage: Breakage, named: str, findings: list[dict[str, Any]]) -> bool:
    return any(
        finding["check"] == breakage.check
        and named in f"{finding['subject']} {finding['detail']}"
        and (finding["detail"].startswith(f"{breakage.what}:") or breakage.check in OWN_CHECKS)
        for finding in findings
    )


async def measure(night: NightCluster, breakage: Breakage) -> Measured:
    """Breaks something, watches until it is named everywhere, mends it, and waits for quiet."""
    measured = Measured(breakage.name)
    target = night.resolve(breakage.target)
    named = breakage.names or target
    await breakage.begin(night, target)
    began = time.monotonic()

    async def page() -> bool:
        pages = [
            page
            for master, page in await night.overviews()
            if master != target or breakage.names or breakage.what not in OF_OTHERS
        ]
        return bool(pages) and all(on_page(breakage, named, page) for page in pages)

    async def finding() -> bool:
        return in_findings(breakage, named, await night.doctor())

    async def alert() -> bool:
        return f"Torrentdist{breakage.alert}" in await asyncio.to_thread(night.prometheus.firing)

    async def never() -> float | None:
        return 0.0

    measured.overview, measured.doctor, measured.alert = await asyncio.gather(
        _first(began, page) if breakage.what else never(), _first(began, finding), _first(began, alert)
    )
    if None in (measured.overview, measured.doctor, measured.alert):
        measured.findings += [
            f"{master}: {view['health']} {view['attention']}" for master, view in await night.overviews()
        ]
        measured.findings += [f"doctor: {finding}" for finding in await night.doctor()]
        measured.findings += [f"alerts: {await asyncio.to_thread(night.prometheus.firing)}"]
    await breakage.end(night, target)
    measured.quiet = await quiet(night)
    return measured


async def _first(began: float, look: Callable[[], Awaitable[bool]]) -> float | None:
    """Returns the seconds until a look succeeded; None: none did."""
    while time.monotonic() - began < GIVE_UP_SECS:
        if await look():
            return round(time.monotonic() - began, 1)
        await asyncio.sleep(PAUSE_SECS)
    return None


async def quiet(night: NightCluster) -> float | None:
    """Waits until every master says that all is well and no alert fires, but for what lasts.
    Returns the seconds; None: that did not come."""
    began = time.monotonic()
    while time.monotonic() - began < QUIET_SECS:
        pages = await night.overviews()
        firing = await asyncio.to_thread(night.prometheus.firing)
        told = {entry["what"] for _, page in pages for entry in page["attention"]}
        if len(pages) == 3 and firing.keys() <= LASTING_ALERTS and told <= LASTING:
            return round(time.monotonic() - began, 1)
        await asyncio.sleep(PAUSE_SECS)
    return None


def misses(measured: Measured) -> list[str]:
    """Returns which bars a breakage misses."""
    found = []
    for where, secs, bar in (
        ("the Overview", measured.overview, NAMED_SECS),
        ("the doctor", measured.doctor, NAMED_SECS),
        ("an alert", measured.alert, NAMED_SECS + FOR_SECS),
    ):
        if secs is None or secs > bar:
            found.append(f"{measured.name}: {where} named it after {secs} s, not within {bar:g} s")
    if measured.quiet is None:
        found.append(f"{measured.name}: it was not quiet within {QUIET_SECS:g} s of its end")
    return found
