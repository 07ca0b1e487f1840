"""What happened, one line each and in words: changes and refusals, leaders, bundles and
distributions.

Pure: values in, values out.

Always: the newest come first, each thing is told once, and a list is bounded.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from heapq import nlargest
from typing import Final

import msgspec

from torrentdist.host.http.operation import ELSEWHERE
from torrentdist.model.access.audit_messages import AuditView
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.events import (
    BundleUploaded,
    DaemonStarted,
    DownloadFailed,
    EventsDropped,
    Fact,
    HashFailed,
    LeaderLost,
)
from torrentdist.model.records import FailoverRecord
from torrentdist.model.wire.cluster_messages import GoneView
from torrentdist.model.wire.fleet_messages import DistributionSummary
from torrentdist.model.wire.view import View

VERBS: Final = {
    "POST bundles": "upload",
    "DELETE bundles": "remove",
    "DELETE bundles distribution": "cancel the distribution",
    "PUT bundles pin": "pin",
    "DELETE bundles pin": "unpin",
    "POST bundles signatures": "sign",
    "PUT uploads": "upload",
    "POST uploads finish": "upload",
    "POST jobs": "submit",
    "DELETE jobs": "kill",
    "PUT supervisors drain": "drain",
    "DELETE supervisors drain": "undrain",
    "DELETE presence": "forget",
    "POST transfer": "transfer the leadership",
    "POST tokens": "make a token",
    "DELETE tokens": "revoke the token",
    "PUT tokens quota": "set the quota",
    "POST invitations": "invite",
    "POST invitations redeem": "join",
    "POST hosts renew": "renew the certificate",
    "POST hosts place": "get a place in ZooKeeper",
    "PUT hosts bundles": "set which bundles it may have",
    "DELETE hosts": "revoke",
    "PUT retention": "set the retention rule",
    "DELETE retention": "end the retention rule",
    "POST sign-in": "sign in",
    "POST bundles cancel": "cancel the distribution",
    "POST tokens quota": "set the quota",
    "POST tokens revoke": "revoke the token",
    "POST retention set": "set the retention rule",
    "POST retention end": "end the retention rule",
}
"""What operations do, by their method and the fixed words of their path. The last word of any
other is a verb, such as `distribute`."""
_WHO: Final = {"token": "the shared token", "anonymous": "a local user"}
AGAIN_SECS: Final = 60.0
"""Within this time the same entry is a retry of the client, or one change that two masters tell."""


def verb(operation: str) -> str:
    """Returns what an operation does, such as `remove` for `DELETE /v1/bundles/{id}`."""
    method, _, path = operation.partition(" ")
    words = [word for word in path.split("/")[2:] if word and not word.startswith("{")]
    if method == "GET":
        return f"read {path}"
    return VERBS.get(" ".join([method, *words])) or (words[-1] if words else operation)


def sender(entry: AuditView) -> str:
    return _WHO.get(entry.who, entry.who)


def is_worth_a_line(entry: AuditView) -> bool:
    """Whether people want to read it. A browser that is sent to the sign-in page has done nothing,
    and what a standby refused is told by the leader."""
    opens_a_page = entry.result == "unauthorized" and re.match(r"GET /(ui\b|$)", entry.operation) is not None
    return not opens_a_page and entry.result not in ELSEWHERE


def once(entries: Iterable[AuditView]) -> Iterator[AuditView]:
    """Yields the entries that are worth a line, the newest first, without repetitions."""
    told: dict[tuple[str, ...], float] = {}
    for entry in sorted(entries, key=lambda entry: -entry.at):
        key = entry.who, verb(entry.operation), entry.target, entry.result
        if is_worth_a_line(entry) and told.get(key, float("inf")) - entry.at > AGAIN_SECS:
            yield entry
        told[key] = entry.at


KINDS = ("bundles", "hosts", "jobs", "masters", "distributions")
"""The kinds of things that have pages."""
TIMES = (
    *("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M"),
    *("%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d"),
)


class EventLine(View, frozen=True, kw_only=True):
    at: float
    who: str
    """The name of the sender, or the master that tells it."""
    what: str
    about: str = ""
    page: str = ""
    """The kind of page about it, if it has one."""
    result: str = ""
    detail: str = ""


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The filters. Empty text stands for everything."""

    who: str = ""
    what: str = ""
    about: str = ""
    since: float = 0.0
    until: float = float("inf")

    def has(self, line: EventLine) -> bool:
        named = self.who in line.who and self.about in line.about
        return named and self.what in f"{line.what} {line.result} {line.detail}" and self.since <= line.at < self.until


def newest(lines: Iterable[EventLine], wanted: EventFilter, most: int) -> list[EventLine]:
    return nlargest(most, (line for line in lines if wanted.has(line)), key=lambda line: line.at)


def moment_of(text: str, otherwise: float) -> float:
    """Returns the moment that a filter names in UTC, or raises `invalid_request`."""
    for form in TIMES if text else ():
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    if text:
        raise TorrentdistError("invalid_request", detail=f"{text[:100]!r} is no time such as 2026-01-31 15:00")
    return otherwise


def of_audit(entry: AuditView) -> EventLine:
    times = f"{entry.count} times, " if entry.count > 1 else ""
    operation = entry.operation.replace("/supervisors/", "/hosts/")
    kind = next((kind for kind in KINDS if f"/{kind}/" in operation), "")
    source = f", from {entry.source}" if entry.source else ""
    return EventLine(
        at=entry.at,
        who=sender(entry),
        what=verb(entry.operation),
        about=entry.target,
        page=kind if kind and "," not in entry.target else "",
        result=entry.result,
        detail=f"{times}{entry.role}{source}: {entry.operation}",
    )


def without_repeats(lines: Iterable[EventLine]) -> Iterator[EventLine]:
    """Yields the lines without a beginning of a distribution that its sender's line tells."""
    told = [*lines]
    ordered = {(line.about, round(line.at / 60)) for line in told if line.what == "distribute"}
    for line in told:
        minute = round(line.at / 60)
        if line.what != "distribution began" or ordered.isdisjoint((line.about, minute + n) for n in (-1, 0, 1)):
            yield line


def of_failover(record: FailoverRecord) -> EventLine:
    detail = f"after {record.previous}: {record.reason}" if record.previous else record.reason
    return EventLine(
        at=record.at, who=record.current, what="leads", about=record.current, page="masters", detail=detail
    )


def of_gone(view: GoneView) -> EventLine:
    page = "masters" if view.role == "master" else "hosts"
    return EventLine(at=view.since, who="leader", what="gone", about=view.id, page=page, result="gone")


def of_absence(role: str, id_: str, left_at: float, back_at: float) -> Iterator[EventLine]:
    """Yields the lines of a daemon that was gone and is back."""
    page = "masters" if role == "master" else "hosts"
    detail = f"it was gone for {back_at - left_at:,.0f} s"
    yield EventLine(at=left_at, who="leader", what="gone", about=id_, page=page, result="gone")
    yield EventLine(at=back_at, who="leader", what="is back", about=id_, page=page, result="ok", detail=detail)


def lane_of(line: EventLine) -> str:
    """Returns the lane of the timeline to which a line belongs."""
    if line.what in ("gone", "is back"):
        return "Gone"
    if line.what == "leads":
        return "Leaders"
    if line.result not in ("", "ok", "cancelled"):
        return "Failures"
    if line.what in ("distribution began", "distribution ended", "distribute"):
        return "Distributions"
    return "Changes" if line.result == "ok" else ""


def of_distribution(one: DistributionSummary) -> Iterator[EventLine]:
    about = str(one.bundle)
    yield EventLine(
        at=one.began_at,
        who="leader",
        what="distribution began",
        about=about,
        page="bundles",
        detail=f"to {one.hosts:,} hosts",
    )
    if one.ended_at is not None:
        result = "cancelled" if one.cancelled else "ok" if one.hosts and one.done == one.hosts else "incomplete"
        detail = f"{one.done:,} of {one.hosts:,} hosts have it"
        yield EventLine(
            at=one.ended_at,
            who="leader",
            what="distribution ended",
            about=about,
            page="bundles",
            result=result,
            detail=detail,
        )


def of_fact(fact: Fact, at: float, master: str) -> EventLine | None:
    """Returns the line of an event of a master; None: it is not worth one."""
    match fact:
        case DaemonStarted():
            return EventLine(at=at, who=master, what="started", about=master, page="masters", detail=fact.version)
        case BundleUploaded():
            return EventLine(at=at, who=master, what="bundle available", about=fact.bundle, page="bundles")
        case LeaderLost():
            detail = f"it led for {fact.led_secs:.0f} s"
            return EventLine(at=at, who=master, what="leads no more", about=master, page="masters", detail=detail)
        case DownloadFailed():
            about = fact.bundle
            return EventLine(
                at=at,
                who=master,
                what="fetch failed",
                about=about,
                page="bundles",
                result=fact.code,
                detail=fact.reason,
            )
        case HashFailed():
            detail = f"piece {fact.piece}; it is fetched again"
            return EventLine(at=at, who=master, what="piece damaged", about=fact.digest, result="bad", detail=detail)
        case EventsDropped():
            return EventLine(at=at, who=master, what="events dropped", detail=f"{fact.count:,} of them")
    return None
