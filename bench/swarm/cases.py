"""The goals of the swarm: each case as data, with its bar and the unit of its bar.

Always: a case that is compared with another run has that run made in the same minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from bench.swarm.scenario import Outcome, Scenario


class By(Enum):
    LINK = "T"
    """Time of the last host, divided by that of one transfer over one link."""
    OWN_START = "T of its own start"
    """Time of the slowest host from its own start, divided by that of one transfer over one
    link."""
    BOTH = "T of both"
    """Time until the last host has both bundles, divided by that of one transfer of both over one
    link."""
    ORDER = "s from the order"
    """Seconds from the record of the order to the last host."""
    BASE = "of the run beside it"
    """Time of the last host, divided by that of the last host in the base run."""


@dataclass(frozen=True, kw_only=True)
class Case:
    what: str
    scenario: Scenario
    bar: float | None
    """None: there is no time limit; all hosts must finish."""
    by: By = By.LINK
    base: Scenario | None = None
    beside: str = ""
    """The name of the base run."""
    runs: int = 3
    """Number of runs that the bar needs: five where it is about percents."""
    peers: tuple[str, ...] = ()
    """References in the table that run in the same minutes."""

    def measured(self, ours: Outcome, base: Outcome | None, link_time: float) -> float:
        if self.by is By.OWN_START:
            return ours.longest / link_time
        if self.by is By.BOTH:
            return ours.last_done / (link_time * self.scenario.both)
        if self.by is By.ORDER:
            return ours.last_done - ours.ordered_at
        return ours.last_done / (base.last_done if base and self.by is By.BASE else link_time)

    def met(self, ours: Outcome, measured: float) -> bool:
        return not ours.failed and bool(ours.ends) and (self.bar is None or measured <= self.bar)


MAIN = Scenario()
CROWD = Scenario(hosts=48, rate=10.0, size=16)
CASES = {
    "main": Case(
        what="16 hosts, 25 Mbit/s, 32 MiB, one holder", scenario=MAIN, bar=1.20, peers=("stock", "tuned", "aria2")
    ),
    "large": Case(what="16 hosts, 25 Mbit/s, 128 MiB", scenario=Scenario(size=128), bar=1.12),
    "crowd": Case(
        what="48 hosts, 10 Mbit/s, 16 MiB, by 16 hosts",
        scenario=CROWD,
        bar=1.15,
        by=By.BASE,
        base=Scenario(hosts=16, rate=10.0, size=16),
        beside="16 hosts",
    ),
    "holders": Case(
        what="three holders, by one",
        scenario=Scenario(holders=3),
        bar=1.0,
        by=By.BASE,
        base=MAIN,
        beside="one holder",
    ),
    "files": Case(
        what="20 MiB in 10,000 files, by one file",
        scenario=Scenario(size=20, files=10_000),
        bar=1.05,
        by=By.BASE,
        base=Scenario(size=20),
        beside="one file",
    ),
    "apart": Case(what="a host joins each second", scenario=Scenario(apart=1.0), bar=1.25, by=By.OWN_START),
    "slow": Case(
        what="one host's link is ten times slower: the others",
        scenario=Scenario(slow=1),
        bar=1.10,
        by=By.BASE,
        base=MAIN,
        beside="undisturbed",
        runs=5,
    ),
    "killed": Case(
        what="a quarter of the hosts killed halfway: the others",
        scenario=Scenario(killed=0.25),
        bar=1.15,
        by=By.BASE,
        base=MAIN,
        beside="undisturbed",
        runs=5,
    ),
    "liars": Case(
        what="one host, one holder, 15 peers that lie or stall", scenario=Scenario(hosts=1, liars=15), bar=2.0
    ),
    "leaving": Case(what="the holder dies as soon as one copy is out", scenario=Scenario(leaving=True), bar=None),
    "download": Case(what="16 hosts with `torrentdist download`", scenario=Scenario(alone=True), bar=1.30),
    "tls": Case(
        what="mutual TLS, by the same without TLS; ZooKeeper is plain in both",
        scenario=Scenario(tls=True),
        bar=1.03,
        by=By.BASE,
        base=MAIN,
        beside="without TLS",
        runs=5,
    ),
    "zones": Case(
        what="3 zones of 16 hosts, 10 Mbit/s, 16 MiB, by the same without labels",
        scenario=Scenario(hosts=48, rate=10.0, size=16, zones=3),
        bar=1.15,
        by=By.BASE,
        base=Scenario(hosts=48, rate=10.0, size=16, zones=3, blind=True),
        beside="blind",
    ),
    "borders": Case(
        what="the same, each border with a quarter of its zone's speed",
        scenario=Scenario(hosts=48, rate=10.0, size=16, zones=3, border=40.0),
        bar=0.6,
        by=By.BASE,
        base=Scenario(hosts=48, rate=10.0, size=16, zones=3, border=40.0, blind=True),
        beside="blind",
    ),
    "far": Case(
        what="2 hosts, 30 ms from each other and the holder, 100 Mbit/s, 32 MiB",
        scenario=Scenario(hosts=2, rate=100.0, rtt=30.0),
        bar=None,
        runs=1,
    ),
    "tiny": Case(
        what="4 KiB to 16 hosts without limits, from the order",
        scenario=Scenario(rate=0.0, size=4 / 1024),
        bar=0.15,
        by=By.ORDER,
    ),
    "two": Case(
        what="24 MiB and 8 MiB at once, 3 : 1, until all have both",
        scenario=Scenario(size=24, beside=8),
        bar=1.05,
        by=By.BOTH,
    ),
    "source": Case(
        what="16 hosts, 25 Mbit/s, 8 MiB, beside all the others, also those from one source",
        scenario=Scenario(size=8),
        bar=None,
        runs=1,
        peers=("stock", "tuned", "aria2", "nginx", "local"),
    ),
    **{
        f"at{hosts}": Case(
            what=f"{hosts} hosts, 4 Mbit/s, 16 MiB", scenario=Scenario(hosts=hosts, rate=4.0, size=16), bar=None, runs=1
        )
        for hosts in (8, 16, 32, 48)
    },
}
"""The simulator is compared with the last four. Their links are so slow that this machine's
processors matter little."""
