"""Turns the doctor's observations into findings.

Always: a finding that is not ok says what to do, and names the page that helps. The limits are
defined here, with their reasons.
Pure: no I/O and no clock.
Longer than most files: every finding of the doctor is one small function.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from torrentdist.charts.quantities import size
from torrentdist.client.zookeeper_probe import TreeAccess
from torrentdist.model.access.token_messages import QuotaView, TokenState, TokenView
from torrentdist.model.configuration.config import ZooKeeperConfig
from torrentdist.model.errors import (
    EXIT_DISK,
    EXIT_NOT_ALLOWED,
    EXIT_UNAVAILABLE,
    EXIT_USAGE,
    TorrentdistError,
)
from torrentdist.model.policies.policy_messages import DistributionStatusView, RetentionView
from torrentdist.model.wire.cluster_messages import ClusterView
from torrentdist.model.wire.doctor_views import Finding, IsolationView, Verdict
from torrentdist.model.wire.ha_views import DialView, MasterState, RoleView
from torrentdist.model.wording import counted

LEAST_FILES = 1024
"""A daemon needs a descriptor for each peer, each client and each file that it serves."""
GOOD_FILES = 8192
LOW_DISK_SHARE = 0.05
LEAST_CONNECTIONS = 10
"""A host may run a master, a supervisor and members of resource groups, and each may connect twice
while it reconnects."""
CLOCK_SECS = 2.0
"""More than the error of any clock that uses NTP. People compare logs by it; no decision depends on
it."""


READY_HINTS = {
    "zookeeper": "Run doctor with this master's --config.",
    "cluster": "`torrentdist ha restore FILE` brings back the previous cluster, `ha init` founds a new one.",
}
"""What to do about each thing that a master may lack to be ready."""


FIRST_NEEDS: Final = "docs/deployment.md#1-what-each-host-needs"
ZOOKEEPER_PAGE: Final = "docs/deployment.md#3-zookeeper"
DISK_PAGE: Final = "docs/operations.md#disk-nearly-full"
COPIES_PAGE: Final = "docs/operations.md#under-replicated"
MASTER_PAGE: Final = "docs/operations.md#when-a-master-or-a-disk-fails"
PAGES: Final = {
    "configuration": "docs/configuration.md#configuration",
    "secrets": "docs/security.md#your-duties",
    "certificate": "docs/operations.md#certificate-expires",
    "trust": "docs/signing.md#which-keys-count-for-which-bundle",
    "open files": FIRST_NEEDS,
    "disk": DISK_PAGE,
    "traces": "docs/operations.md#traces",
    "zookeeper": ZOOKEEPER_PAGE,
    "ensemble": ZOOKEEPER_PAGE,
    "session": ZOOKEEPER_PAGE,
    "sync limit": ZOOKEEPER_PAGE,
    "connections": ZOOKEEPER_PAGE,
    "acl": "docs/security.md#identities-in-zookeeper",
    "reachable": MASTER_PAGE,
    "access": "docs/security.md#tokens",
    "ready": MASTER_PAGE,
    "masters' links": MASTER_PAGE,
    "replicas": COPIES_PAGE,
    "clock": FIRST_NEEDS,
    "leader": "docs/operations.md#no-leader",
    "version": "docs/operations.md#upgrading",
    "tls": "docs/security.md#migration",
    "records": "docs/operations.md#when-zookeeper-is-away-or-its-data-is-gone",
    "bundles": COPIES_PAGE,
    "room": DISK_PAGE,
    "hosts": "docs/operations.md#host-silent",
    "reading": "docs/security.md#who-may-read",
    "quotas": "docs/distribution.md#limits",
    "distributions": "docs/operations.md#distribution-stalled",
    "jobs": "docs/operations.md#job-fails",
    "retention": "docs/distribution.md#keep-the-newest-versions",
    "swarm port": FIRST_NEEDS,
    "way back": FIRST_NEEDS,
    "supervisor": "docs/operations.md#when-a-host-or-a-launcher-fails",
    "workers": "docs/security.md#setting-it-up",
    "readers": "docs/security.md#on-the-disks",
    "time": "docs/operations.md#the-doctor",
}
"""The page about each check. A hint that names another page says more."""
_NAMES_A_PAGE: Final = re.compile(r"docs/[a-z-]+\.md#[a-z0-9-]+")


def with_page(check: str, hint: str) -> str:
    """Returns a hint that names a page."""
    return hint if _NAMES_A_PAGE.search(hint) else f"{hint} See {PAGES[check]}"


def failure(check: str, subject: str, detail: str, hint: str, exit_code: int) -> Finding:
    hint = with_page(check, hint)
    return Finding(check=check, subject=subject, verdict=Verdict.FAIL, detail=detail, hint=hint, exit_code=exit_code)


def warning(check: str, subject: str, detail: str, hint: str) -> Finding:
    hint = with_page(check, hint)
    return Finding(check=check, subject=subject, verdict=Verdict.WARN, detail=detail, hint=hint)


def of_error(check: str, subject: str, error: TorrentdistError) -> Finding:
    return failure(check, subject, error.message, error.hint, error.exit_code)


# this host


NEAR_QUOTA = 0.9
"""An owner who has used this share of a quota is about to be refused."""
SLOW_DISTRIBUTION_SECS = 3600.0
"""A distribution that takes longer is worth a look."""


class DiskFacts(msgspec.Struct, frozen=True):
    path: str
    free: int
    total: int
    free_inodes: int | None
    writable: bool


def judge_disk(disk: DiskFacts, reserve: int) -> Finding:
    if not disk.writable:
        return failure("disk", disk.path, "it is not writable", "Check the owner and the mount.", EXIT_DISK)
    if disk.free <= reserve:
        detail = f"{size(disk.free)} free, {size(reserve)} are kept in reserve"
        return failure(
            "disk",
            disk.path,
            detail,
            f"Free some space, or `torrentdist bundle prune`: {DISK_PAGE}",
            EXIT_DISK,
        )
    if disk.free_inodes is not None and disk.free_inodes < 1000:
        return failure("disk", disk.path, f"{disk.free_inodes} inodes left", "Delete small files.", EXIT_DISK)
    if disk.free < disk.total * LOW_DISK_SHARE:
        return warning(
            "disk",
            disk.path,
            f"{size(disk.free)} of {size(disk.total)} free",
            f"Free some space soon: {DISK_PAGE}",
        )
    return Finding(check="disk", subject=disk.path, detail=f"{size(disk.free)} of {size(disk.total)} free")


def judge_open_files(soft: int, hard: int) -> Finding:
    detail = f"{soft} (hard limit {hard})"
    hint = "Raise it: ulimit -n, or LimitNOFILE= of the systemd unit."
    if soft < LEAST_FILES:
        return failure("open files", "", detail, hint, EXIT_USAGE)
    return warning("open files", "", detail, hint) if soft < GOOD_FILES else Finding(check="open files", detail=detail)


def judge_isolation(url: str, said: IsolationView) -> Finding:
    if said.error:
        hint = "Start torrentdist-launcher on this host, or correct supervisor.launcher; no worker starts before."
        return failure("workers", url, said.error, hint, EXIT_UNAVAILABLE)
    if said.refuses_jobs:
        hint = "Make the user, or start torrentdist-launcher with --job-users: docs/security.md#setting-it-up"
        return failure("workers", url, f"this host runs no jobs: {said.why_own_user}", hint, EXIT_USAGE)
    if not said.namespaces:
        detail = f"runs do not get their own namespaces: {said.why_not}"
        hint = "Install bubblewrap and run torrentdist-launcher as root: docs/deployment.md#5-supervisors"
        return warning("workers", url, detail, hint)
    if said.users:
        return Finding(
            check="workers", subject=url, detail=f"each run gets its own namespaces, and the user {said.users}"
        )
    user = "the supervisor's user, which is root" if said.is_root else "the supervisor's user"
    detail = f"each run gets its own namespaces, and {user}: {said.why_own_user}"
    if said.exposed or said.is_root:
        hint = "A job can read the cluster's secrets: docs/security.md#jobs-are-not-the-daemon"
        return warning("workers", url, detail, hint)
    return Finding(check="workers", subject=url, detail=detail)


def judge_readers(url: str, readers: str) -> list[Finding]:
    """Says who can read bundles as files on this host. An older supervisor does not tell."""
    who = {"owner": "the supervisor's own user", "everyone": "every user of the host"}.get(readers, f"the {readers}")
    detail = f"{who} can read the files of bundles (store.readable_by)"
    return [Finding(check="readers", subject=url, detail=detail)] if readers else []


def judge_spark_users(
    url: str, readers: str, own: Collection[int], users: Mapping[int, Collection[str]]
) -> list[Finding]:
    """Says which users of this host's Spark cannot read bundles as files. `own`: the users that
    always can. `users`: each with its groups. An older supervisor does not tell who reads."""
    if not readers or readers == "everyone" or -1 in own:
        return []
    group = readers.removeprefix("group ")
    closed = sorted(user for user, groups in users.items() if user not in own and group not in groups)
    named = ", ".join(map(str, closed))
    detail = f"Spark runs here as user {named}, who cannot read the files of bundles"
    hint = (
        'Set store.readable_by in the supervisor\'s configuration, such as "group torrentdist-readers", '
        "and put the user into that group."
    )
    return [warning("readers", url, detail, hint)] if closed else []


# ZooKeeper


class ServerFacts(msgspec.Struct, frozen=True):
    """What one ZooKeeper server answers to four letter words."""

    address: str
    mode: str = ""
    """leader, follower, standalone...; empty if the server does not serve."""
    settings: Mapping[str, int] | None = None
    """Settings from the server's `conf`, or None if it does not answer that."""
    detail: str = ""


def parse_mode(srvr: str) -> str:
    return next((line[6:].strip() for line in srvr.splitlines() if line.startswith("Mode: ")), "")


def parse_settings(conf: str) -> dict[str, int] | None:
    pairs = (line.partition("=") for line in conf.splitlines())
    found = {name.strip(): int(value) for name, _, value in pairs if value.strip().lstrip("-").isdigit()}
    return found if "tickTime" in found else None


def judge_servers(servers: Sequence[ServerFacts]) -> list[Finding]:
    serving = [server for server in servers if server.mode]
    findings = []
    for server in servers:
        if server.mode:
            findings.append(Finding(check="zookeeper", subject=server.address, detail=server.mode))
            continue
        detail = server.detail or "it answers, and does not serve: its ensemble has no quorum"
        hint = "Start it, or check the address and the firewall."
        if serving:
            findings.append(warning("zookeeper", server.address, detail, hint))
        else:
            findings.append(failure("zookeeper", server.address, detail, hint, EXIT_UNAVAILABLE))
    if serving and all(server.mode == "standalone" for server in serving):
        hint = "Use an ensemble of three or five for anything that matters."
        findings.append(warning("ensemble", "", "a single server: its loss stops every change", hint))
    return findings


def judge_limits(server: ServerFacts, sessions: Collection[float]) -> list[Finding]:
    """Compares the server's limits with `sessions`, the timeouts that daemons request, and with the
    time for which a cut-off server may serve old data."""
    if server.settings is None:
        hint = "Add conf to 4lw.commands.whitelist in zoo.cfg."
        return [warning("session", server.address, "the server does not report its limits", hint)]
    tick = server.settings["tickTime"]
    least = server.settings.get("minSessionTimeout", 2 * tick)
    most = server.settings.get("maxSessionTimeout", 20 * tick)
    findings = []
    shortest = most
    for wanted in sorted({round(secs * 1000) for secs in sessions}):
        granted = min(max(wanted, least), most)
        shortest = min(shortest, granted)
        if granted == wanted:
            findings.append(Finding(check="session", subject=server.address, detail=f"{granted / 1000:g} s"))
            continue
        detail = f"{wanted / 1000:g} s are requested, {granted / 1000:g} s granted"
        hint = f"Set zookeeper.session_timeout_secs to {least / 1000:g} to {most / 1000:g}, or change zoo.cfg."
        findings.append(warning("session", server.address, detail, hint))
    lag = server.settings.get("syncLimit", 0) * tick
    if server.mode != "standalone" and sessions and lag >= shortest:
        detail = f"syncLimit x tickTime is {lag / 1000:g} s, not less than the session's {shortest / 1000:g} s"
        hint = "Lower syncLimit: a server that is cut off must stop serving before sessions can have expired."
        findings.append(warning("sync limit", server.address, detail, hint))
    if 0 < server.settings.get("maxClientCnxns", 0) < LEAST_CONNECTIONS:
        detail = f"maxClientCnxns is {server.settings['maxClientCnxns']} for all of a host's connections"
        hint = f"Set it to {LEAST_CONNECTIONS} or more, or 0: each daemon has one, commands come and go."
        findings.append(warning("connections", server.address, detail, hint))
    return findings


def judge_access(config: ZooKeeperConfig, access: TreeAccess | None) -> Finding:
    """Judges what strangers may do with the tree. `access` is None if that could not be
    determined."""
    if access is TreeAccess.OPEN and config.auth_file:
        detail = (
            "open to everyone, although zookeeper.auth_file is set: anyone who reaches it can run code on every host"
        )
        return failure("acl", config.chroot, detail, "Start a master once with --repair-acls.", EXIT_NOT_ALLOWED)
    if access is TreeAccess.CLOSED and not config.auth_file:
        detail = "closed to this configuration: right for a client; a daemon needs zookeeper.auth_file"
        return Finding(check="acl", subject=config.chroot, detail=detail)
    if config.auth_file:
        seen = {TreeAccess.CLOSED: ", as a request without it confirmed", TreeAccess.ABSENT: "; there is no tree yet"}
        found = f"only holders of zookeeper.auth_file may write{seen.get(access, '') if access else ''}"
        return Finding(check="acl", subject=config.chroot, detail=found)
    hint = "Set zookeeper.auth_file everywhere, then start a master once with --repair-acls."
    return warning("acl", config.chroot, "open: anyone who reaches ZooKeeper can run code on every host", hint)


# the masters


class MasterFacts(msgspec.Struct, frozen=True):
    """What one master answered, or why it did not."""

    url: str
    error: TorrentdistError | None = None
    role: RoleView | None = None
    cluster: ClusterView | None = None
    roles: tuple[RoleView, ...] = ()
    clock_offset: float = 0.0
    """How far the master's clock is ahead of ours."""
    clock_error: float = 0.0
    """The uncertainty of `clock_offset`: half of the time that the answer took."""


def judge_master(master: MasterFacts) -> list[Finding]:
    if master.error is not None:
        check = "access" if master.error.exit_code == EXIT_NOT_ALLOWED else "reachable"
        return [of_error(check, master.url, master.error)]
    assert master.role is not None
    findings = [Finding(check="reachable", subject=master.url, detail=f"{master.role.id}, {master.role.state.value}")]
    for check, why in sorted(master.role.failing.items()):
        hint = READY_HINTS.get(check, "See this master's log.")
        findings.append(failure("ready", master.role.id, f"{check}: {why}", hint, EXIT_UNAVAILABLE))
    wanted, granted = master.role.session_secs, master.role.granted_secs
    if wanted is not None and granted is not None and abs(wanted - granted) >= 0.001:
        detail = f"it requests {wanted:g} s, and was granted {granted:g} s"
        hint = "Set its zookeeper.session_timeout_secs to what ZooKeeper's zoo.cfg allows, or change that."
        findings.append(warning("session", master.role.id, detail, hint))
    if master.role.lag:
        hint = "It catches up by itself; if not, see its log."
        findings.append(warning("replicas", master.role.id, f"it lacks {counted(master.role.lag, 'bundle')}", hint))
    for other in master.roles:
        if other.state is MasterState.UNREACHABLE:
            detail = f"{other.id} at {other.url}: {other.failing.get('reachable', '')}"
            hint = "Check that it runs, its master.host, and the firewall between the two."
            findings.append(failure("masters' links", master.role.id, detail, hint, EXIT_UNAVAILABLE))
    if abs(master.clock_offset) - master.clock_error > CLOCK_SECS:
        detail = f"{master.clock_offset:+.1f} s compared with this host's"
        findings.append(warning("clock", master.role.id, detail, "Run an NTP client on both hosts."))
    return findings


def judge_leader(masters: Sequence[MasterFacts]) -> list[Finding]:
    heard = [m for m in masters if m.role is not None]
    if not heard:
        return []
    leaders = sorted({m.role.id for m in heard if m.role is not None and m.role.state is MasterState.LEADER})
    named = sorted({m.cluster.leader for m in heard if m.cluster is not None and m.cluster.leader is not None})
    if len(leaders) > 1:
        detail = "each of these says that it leads: " + ", ".join(leaders)
        return [failure("leader", "", detail, "Report this: there must never be two leaders.", EXIT_UNAVAILABLE)]
    if not leaders and not named:
        hint = "If there is still none after a session timeout, masters lack ZooKeeper or a live job's bundle."
        return [failure("leader", "", "no master leads", hint, EXIT_UNAVAILABLE)]
    if leaders != named:
        detail = f"{', '.join(leaders) or 'no master'} says that it leads, others name {', '.join(named) or 'none'}"
        return [warning("leader", "", detail, "Run it again: the leader may be changing. If not, a master is cut off.")]
    return [Finding(check="leader", subject=leaders[0], detail="the only leader, and every master agrees")]


def judge_versions(own: str, masters: Sequence[MasterFacts]) -> list[Finding]:
    versions: dict[str, str] = {m.role.id: m.role.version for m in masters if m.role is not None}
    for master in masters:
        if master.cluster is not None:
            versions |= {s.id: s.version for s in master.cluster.supervisors}
            versions |= {m.id: m.version for m in master.cluster.masters}
    others = {f"{id_} {version}" for id_, version in versions.items() if version != own}
    if not others:
        return [Finding(check="version", detail=f"{own} everywhere")] if versions else []
    detail = f"{own} here, but " + _some(sorted(others))
    return [warning("version", "", detail, "Complete the upgrade; one release beside the next is fine for a while.")]


def judge_records(cluster: ClusterView) -> list[Finding]:
    if cluster.stale_secs is None:
        return []
    detail = f"the masters answer from records {cluster.stale_secs:.0f} s old"
    hint = "ZooKeeper holds no cluster." if cluster.problem else "They cannot reach ZooKeeper."
    return [failure("records", "", detail, hint, EXIT_UNAVAILABLE)]


CHECKS: Final = {
    "unheard": "leader",
    "lost": "bundles",
    "under-replicated": "bundles",
    "gone": "hosts",
    "silent": "hosts",
    "full": "room",
    "filling": "room",
    "stuck": "distributions",
    "stopped": "distributions",
    "failing": "jobs",
    "elections": "leader",
    "restarting": "hosts",
    "clock": "clock",
    "expiring": "certificate",
}
"""The check to which each kind of what needs attention belongs. The other kinds have checks of
their own."""


def judge_attention(cluster: ClusterView) -> list[Finding]:
    """Judges what the masters say needs attention, as the console's Overview does."""
    findings = [
        warning(CHECKS[entry.what], entry.subjects[0] if entry.count == 1 else "", entry.sentence, entry.page)
        for entry in cluster.attention
        if entry.what in CHECKS
    ]
    well = {
        "bundles": f"{cluster.bundles.available} available",
        "hosts": f"{counted(len(cluster.supervisors), 'host')}, none of them silent or gone",
        "room": "no master and no host says that it is full",
        "jobs": "none has failed, and none fails again and again",
        "certificate": "none that is recorded ends within a week",
    }
    ill = {finding.check for finding in findings}
    return [*findings, *(Finding(check=check, detail=detail) for check, detail in well.items() if check not in ill)]


def judge_reading(tokens: Sequence[TokenView]) -> Finding:
    """Judges what tokens may read. A pattern does not bind the reading of tokens from before
    patterns bound it.
    """
    usable = [token for token in tokens if token.state is TokenState.USABLE]
    unbound = [token.name for token in usable if token.reads is None and token.bundles != "*"]
    if unbound:
        detail = f"{counted(len(unbound), 'token')} with a pattern may read every bundle: {_some(unbound)}"
        hint = "Make them anew: `torrentdist token revoke NAME`, then `torrentdist token create NAME --bundles GLOB`."
        return warning("reading", "", detail, hint)
    return Finding(check="reading", detail="each token reads what its patterns allow")


def judge_quotas(quotas: Sequence[QuotaView]) -> list[Finding]:
    """Judges quotas that are reached, or nearly."""
    findings = []
    for quota in quotas:
        share = quota.bytes / quota.max_bytes if quota.max_bytes else 0.0
        if share >= NEAR_QUOTA:
            detail = f"{share:.0%} of its {size(quota.max_bytes)} are used"
            hint = f"Remove bundles of {quota.name}, or raise `torrentdist token quota {quota.name} --max-bytes`."
            findings.append(warning("quotas", quota.name, detail, hint))
        if 0 < quota.max_distributions <= quota.distributions:
            detail = f"all of its {counted(quota.max_distributions, 'distribution')} run: the next one is refused"
            hint = "Wait for one of them, or cancel one: `torrentdist bundle distributions`."
            findings.append(warning("quotas", quota.name, detail, hint))
    told = f"{counted(len(quotas), 'token')} with a quota, none is near it" if quotas else "no token has one"
    return findings or [Finding(check="quotas", detail=told)]


def judge_distributions(known: Sequence[DistributionStatusView], now: float) -> list[Finding]:
    """Judges how long distributions take."""
    running = [one for one in known if one.state == "running"]
    findings = [
        warning(
            "distributions",
            one.bundle,
            f"under way for {(now - one.begun_at) / 3600:.0f} h, in wave {one.wave} of {one.waves}",
            "docs/operations.md#distribution-stalled",
        )
        for one in running
        if now - one.begun_at > SLOW_DISTRIBUTION_SECS
    ]
    return findings or [Finding(check="distributions", detail=f"{len(running)} under way, none takes long")]


def judge_traces(endpoint: str, *, is_installed: bool, trouble: str) -> list[Finding]:
    """Judges what sends traces, and the collector that takes them. `trouble`: what its answer
    lacks; empty: nothing."""
    hint = "Check traces.endpoint and the collector. Nothing else waits for it."
    findings = [warning("traces", endpoint, trouble, hint)] if trouble else []
    if not is_installed:
        install = "Install `torrentdist[traces]` here: docs/operations.md#traces"
        findings.append(warning("traces", endpoint, "no traces are sent: a package is missing", install))
    return findings or [Finding(check="traces", subject=endpoint, detail="the collector takes them")]


def judge_retention(rules: Sequence[RetentionView]) -> list[Finding]:
    """Judges the retention rules: what the leader is about to remove, and rules that match
    nothing."""
    idle = [rule.pattern for rule in rules if not rule.bundles]
    hint = "docs/distribution.md#keep-the-newest-versions"
    findings = [warning("retention", pattern, "the rule matches no bundle", hint) for pattern in idle]
    going = sum(len(rule.goes) for rule in rules)
    told = f"{counted(len(rules), 'rule')}, {counted(going, 'bundle')} to go" if rules else "no rule: bundles stay"
    return findings or [Finding(check="retention", detail=told)]


# ports


def judge_ports(tried: Mapping[str, str]) -> list[Finding]:
    """Judges swarm ports as seen from here. `tried` maps each peer to the problem; empty if there
    is none."""
    closed = {subject: why for subject, why in tried.items() if why}
    hint = "Check swarm.listen, swarm.port and the firewall: peers fetch from each other by these ports."
    findings = [failure("swarm port", subject, why, hint, EXIT_UNAVAILABLE) for subject, why in sorted(closed.items())]
    if len(closed) < len(tried):
        findings.append(Finding(check="swarm port", detail=f"{len(tried) - len(closed)} of {len(tried)} reachable"))
    return findings


def judge_way_back(answers: Mapping[str, DialView]) -> list[Finding]:
    """Judges whether this host's swarm port can be reached, as its masters see it."""
    closed = {url: answer for url, answer in answers.items() if not answer.reachable}
    if not answers:
        return []
    if not closed:
        masters = counted(len(answers), "master")
        return [Finding(check="way back", detail=f"{masters} can reach a swarm port of this host")]
    hint = "Open swarm.port of this host to the others: otherwise none of them can fetch from here."
    return [
        warning("way back", url, f"it cannot reach {answer.host}:{answer.port}: {answer.detail}", hint)
        for url, answer in sorted(closed.items())
    ]


def _some(items: Iterable[str], most: int = 5) -> str:
    all_ = list(items)
    return ", ".join(all_[:most]) + (f" and {len(all_) - most} more" if len(all_) > most else "")
