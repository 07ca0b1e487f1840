"""Turns the events of one daemon into spans: which operation each of them ends, and where that
belongs in the bundle's trace.

The intake of an upload is the parent of everything that follows it: each publication on a master or
a host, and each distribution.
Always: the client's span is remembered for a bounded number of uploads.
Never: do I/O or read a clock; the time of an event is passed in.
"""

from typing import Final

from torrentdist.model.events import (
    BundleUploaded,
    DistributionEnded,
    DownloadEnd,
    DownloadFailed,
    Fact,
    UploadOpened,
)
from torrentdist.traces.spans import SpanPlace, TraceSpan, about, is_kept, place_in, span_of, trace_of

INTAKE: Final = "intake"
DISTRIBUTE: Final = "distribute"
PUBLISH_ON_MASTER: Final = "publish on master"
PUBLISH_ON_HOST: Final = "publish on host"
STOPPED: Final = "stopped"
"""The code of a fetch that was cancelled, which is no failure."""
MOST_UPLOADS: Final = 1000
"""Most open uploads whose senders are remembered; of more, the oldest are forgotten."""

Upload = tuple[str, str]


class EventSpans:
    """`node`: the daemon's id. `share`: the share of all traces that is kept."""

    def __init__(self, node: str, *, is_master: bool, share: float) -> None:
        self._node = node
        self._is_master = is_master
        self._share = share
        self._senders: dict[Upload, SpanPlace] = {}

    def of_event(self, fact: Fact, now: float) -> TraceSpan | None:
        """Returns the span that an event ends, if it ends one that is kept."""
        match fact:
            case UploadOpened():
                self._remember(fact)
            case BundleUploaded():
                return self._kept(self._intake(fact, now))
            case DistributionEnded():
                return self._kept(self._distribution(fact))
            case DownloadEnd():
                return self._kept(self._publication(fact, now))
        return None

    def _kept(self, span: TraceSpan) -> TraceSpan | None:
        return span if is_kept(span.place.trace_id, self._share) else None

    def _remember(self, fact: UploadOpened) -> None:
        sender = place_in(fact.traceparent)
        if sender is not None:
            self._senders.setdefault((fact.bundle, fact.digest), sender)
            while len(self._senders) > MOST_UPLOADS:
                del self._senders[next(iter(self._senders))]

    def _intake(self, fact: BundleUploaded, now: float) -> TraceSpan:
        place = intake_of(fact.bundle, fact.digest)
        sender = self._senders.pop((fact.bundle, fact.digest), None)
        is_ours = sender is not None and sender.trace_id == place.trace_id
        return TraceSpan(
            name=INTAKE,
            place=place,
            parent=sender.span_id if sender is not None and is_ours else None,
            link=None if is_ours else sender,
            began=now - fact.seconds,
            ended=now,
            attributes={**about(fact.bundle, fact.digest, fact.size), "torrentdist.host": self._node},
        )

    def _distribution(self, fact: DistributionEnded) -> TraceSpan:
        intake, is_whole = intake_of(fact.bundle, fact.digest), fact.done == fact.hosts
        ended = fact.began_at + fact.secs_100 if fact.secs_100 is not None else fact.ended_at
        return TraceSpan(
            name=DISTRIBUTE,
            place=span_of(intake.trace_id, DISTRIBUTE, fact.distribution),
            parent=intake.span_id,
            began=fact.began_at,
            ended=ended,
            attributes={
                **about(fact.bundle, fact.digest, fact.size),
                "torrentdist.host": self._node,
                "torrentdist.hosts": fact.hosts,
                "torrentdist.hosts_done": fact.done,
                **_bytes(fact.from_masters, fact.from_peers, fact.local),
                "torrentdist.bytes.plugin": fact.from_plugin,
                "torrentdist.result": "cancelled" if fact.cancelled else "finished" if is_whole else "incomplete",
            },
            error="" if is_whole or fact.cancelled else f"{fact.done} of {fact.hosts} hosts have it",
        )

    def _publication(self, fact: DownloadEnd, now: float) -> TraceSpan:
        intake = intake_of(fact.bundle, fact.digest)
        name, began = PUBLISH_ON_MASTER if self._is_master else PUBLISH_ON_HOST, now - fact.seconds
        code, reason = (fact.code, fact.reason) if isinstance(fact, DownloadFailed) else ("", "")
        return TraceSpan(
            name=name,
            place=span_of(intake.trace_id, name, self._node, f"{began:.6f}"),
            parent=intake.span_id,
            began=began,
            ended=now,
            attributes={
                **about(fact.bundle, fact.digest, fact.size),
                "torrentdist.host": self._node,
                **_bytes(fact.from_masters, fact.from_peers, fact.local),
                "torrentdist.peers": fact.peers,
                "torrentdist.hash_failures": fact.hash_failures,
                "torrentdist.prepare_secs": fact.prepare_secs,
                "torrentdist.wait_secs": fact.wait_secs,
                "torrentdist.fetch_secs": fact.fetch_secs,
                "torrentdist.publish_secs": fact.publish_secs,
                "torrentdist.result": code or "finished",
            },
            error="" if code in ("", STOPPED) else f"{code}: {reason}",
        )


def intake_of(bundle: str, digest: str) -> SpanPlace:
    """Returns the span of a bundle's intake, which the leader makes and everybody can name."""
    return span_of(trace_of(bundle, digest), INTAKE)


def _bytes(masters: int, peers: int, local: int) -> dict[str, str | int | float]:
    return {
        "torrentdist.bytes.masters": masters,
        "torrentdist.bytes.peers": peers,
        "torrentdist.bytes.local": local,
    }
