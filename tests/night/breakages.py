"""The breakages of a night: what breaks, who must be named, where, and how it ends.

Always: the cluster is whole again when a breakage has ended.
"""

from dataclasses import dataclass

from chaos.schedule import LEADER, Others
from night import acts
from night.acts import HOST, Act

HOUR_SECS = 3600.0
STANDBY = "standby"


@dataclass(frozen=True)
class Breakage:
    name: str
    target: str
    """The member that breaks; LEADER: the one that leads. It must be named, unless `names` says
    otherwise."""
    what: str
    """The kind on the Overview; empty: nobody is left who could show one."""
    check: str
    """The doctor's check that fails."""
    alert: str
    begin: Act
    end: Act
    names: str = ""
    is_short: bool = False
    """Whether `make test` makes it too."""


def _gone(name: str, target: str, begin: Act, end: Act, names: str = "", is_short: bool = False) -> Breakage:
    return Breakage(name, target, "gone", "hosts", "HostSilent", begin, end, names, is_short)


def _full(name: str, target: str, begin: Act, end: Act, is_short: bool = False) -> Breakage:
    return Breakage(name, target, "full", "room", "DiskFull", begin, end, "", is_short)


def _stopped(name: str, bundle: str, *options: str) -> Breakage:
    begin, end = acts.distribute(bundle, *options), acts.empty_and_remove(bundle)
    return Breakage(name, HOST, "stopped", "distributions", "DistributionStopped", begin, end, bundle)


def _failing(name: str, job: str, *settings: str, is_short: bool = False) -> Breakage:
    return Breakage(name, job, "failing", "jobs", "JobFails", acts.job(*settings), acts.submit_again, "", is_short)


def _clock(name: str, target: str, secs: float) -> Breakage:
    return Breakage(name, target, "clock", "clock", "ClockOff", acts.clock(secs), acts.clock(0.0))


LOOP = ("restart.backoff_secs=0.2", "restart.max_backoff_secs=0.2", "restart.limit=-1")
BREAKAGES = (
    # What follows kills so many daemons that these two would be nothing new.
    Breakage(
        "a host restarts again and again", HOST, "restarting", "hosts", "Restarts",
        acts.restart_again_and_again, acts.nothing,
    ),
    Breakage("the leader changes", "", "elections", "leader", "LeaderChanges", acts.change_leaders, acts.nothing),
    _gone("a host dies", HOST, acts.kill, acts.start, is_short=True),
    _gone("a host hangs", HOST, acts.stop, acts.go_on),
    _gone("a host is cut off from ZooKeeper", HOST, acts.cut_off, acts.mend),
    _gone("a standby dies", STANDBY, acts.kill, acts.start),
    _gone("the leader dies", LEADER, acts.kill, acts.start),
    _gone("the leader hangs", LEADER, acts.stop, acts.go_on),
    _gone("the leader is cut off from ZooKeeper", LEADER, acts.cut_off, acts.mend),
    _gone("a standby is cut off", STANDBY, acts.part(Others.ALL), acts.join),
    Breakage(
        "the leader does not reach the masters", LEADER, "unheard", "masters' links", "LinkBroken",
        acts.part(Others.MASTERS), acts.join,
    ),
    _gone("one master is left", LEADER, acts.kill_standbys, acts.start_masters, "master-"),
    Breakage("no master is left", LEADER, "", "reachable", "NoLeader", acts.kill_masters, acts.start_masters, "http"),
    Breakage("ZooKeeper has no quorum", "", "problem", "records", "NoLeader", acts.lose_quorum, acts.regain_quorum),
    _full("a host's disk is full", HOST, acts.fill, acts.empty, is_short=True),
    _full("the leader's disk is full", LEADER, acts.fill, acts.empty),
    _full("a bundle waits for room", HOST, acts.distribute("waits"), acts.empty_and_remove("waits")),
    _stopped("a canary is stuck", "canary", "--canary", "1"),
    _stopped("a wave is stuck", "wave", "--concurrency", "1"),
    _failing("a job crashes again and again", "looping", *LOOP, is_short=True),
    _failing("a job has failed", "failed", "restart.policy=never"),
    _clock("a host's clock jumps", HOST, HOUR_SECS),
    _clock("a master's clock jumps", STANDBY, -HOUR_SECS),
    Breakage(
        "a bundle has too few copies", STANDBY, "under-replicated", "bundles", "UnderReplicated",
        acts.stop_holder, acts.start, "with-three-copies",
    ),
    Breakage(
        "every copy of a bundle is lost", "", "lost", "bundles", "BundleLost",
        acts.lose_bundle, acts.remove_bundles, "only-on-masters",
    ),
)  # fmt: skip
