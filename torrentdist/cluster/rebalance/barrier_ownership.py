"""A member's place in a group and the barriers that it owns, as a pure state machine.

It chooses the next request, and interprets the answer.
Always: every write shares a transaction with a write to the member's own znode at a known version.
So it renews the lease, happens at most once, and never happens after the place or the session is
lost. A barrier is deleted only while the session that owns it is alive.
Never: know what the barriers protect, or when work starts.
Longer than most files: place and barriers change in the same transactions.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from torrentdist.cluster import paths
from torrentdist.cluster.election.term import LEASE_SHARE, queue
from torrentdist.cluster.paths import GroupPaths, HostGroupPaths
from torrentdist.cluster.rebalance.group_requests import (
    Absent,
    Answer,
    Await,
    Children,
    Commit,
    Content,
    Done,
    Ensure,
    Errand,
    Get,
    Names,
    Refused,
    RequestKind,
)
from torrentdist.cluster.session.znode_operations import BadVersion, Create, Delete, NodeExists, NoNode, Op, Set

RENEWAL_SHARE = 1 / 4
"""A member writes at least once per this share of the session timeout."""

STOP_SHARE = 1 / 6
"""The default share of the session timeout that `on_stop` may take."""

BATCH = 500
"""Most barriers in one transaction: ZooKeeper accepts at most a megabyte."""

_SESSION_BITS = 2**64 - 1
NEVER = float("-inf")


class BarrierLease(msgspec.Struct, frozen=True):
    """How long the session is certain to live, from the last acknowledged write."""

    sent: float = NEVER
    timeout: float = 0.0
    stop_secs: float | None = None

    @property
    def end(self) -> float:
        """The earliest time at which the session may have expired."""
        return self.sent + LEASE_SHARE * self.timeout

    @property
    def stop(self) -> float:
        """When work must begin to stop, in order to have stopped at `end`."""
        return self.end - (self.timeout * STOP_SHARE if self.stop_secs is None else self.stop_secs)

    @property
    def renewal(self) -> float:
        return self.sent + min(RENEWAL_SHARE * self.timeout, (self.stop - self.sent) / 2)


class BarrierOwnership(msgspec.Struct, frozen=True):
    group: GroupPaths
    unique: str
    """Prefix of our znodes' names. No other process uses it."""
    data: bytes = b""
    session: int | None = None
    lease: BarrierLease = BarrierLease()
    name: str | None = None
    """The name of our znode, once it is known to exist."""
    version: int | None = None
    """The version of our znode. None after any request that may have changed it."""
    prepared: bool = False
    looked: bool = False
    """Whether we have looked for a znode of ours whose creation was not confirmed."""
    entering: bool = False
    """Whether a create has been sent, so that our znode may exist."""
    doubtful: bool = False
    """Whether a write whose answer was lost may still be executed. The next write rules that
    out."""
    owned: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Our barriers with their fencing numbers."""
    unclear: frozenset[str] = frozenset()
    """Resources whose barriers may be ours. We have to read them to know."""
    blocked: frozenset[str] = frozenset()
    """Resources whose barriers others own. A watch reports when such a barrier disappears."""
    taken: frozenset[str] | None = None
    """Resources known to have a barrier. None: list the barriers first."""
    granted: frozenset[str] = frozenset()
    """Resources whose barriers the leader lets us take. A watch reports when that ends."""

    # events

    def in_session(self, session: int | None) -> BarrierOwnership:
        """Enters a new session, or none. Nothing of ours survives from the old one."""
        if session == self.session:
            return self
        fresh = BarrierOwnership(self.group, self.unique, self.data, session)
        return replace(fresh, lease=replace(self.lease, sent=NEVER))

    def displaced(self) -> BarrierOwnership:
        """Records that our znode has disappeared while the session lives. The remaining barriers
        are still ours."""
        fresh = self.in_session(None).in_session(self.session)
        return replace(fresh, lease=self.lease, unclear=self.unclear | self.owned.keys())

    def barrier_changed(self, resource: str) -> BarrierOwnership:
        return replace(self, blocked=self.blocked - {resource}, granted=self.granted - {resource}, taken=None)

    def wants_changed(self) -> BarrierOwnership:
        return replace(self, taken=None)

    @property
    def placed(self) -> bool:
        return self.name is not None and self.version is not None

    @property
    def clean(self) -> bool:
        """Whether ZooKeeper holds nothing of ours, as far as this session knows."""
        return self.session is None or (self.name is None and not self.entering and not self.owned and not self.unclear)

    @property
    def prefix(self) -> str:
        """Prefix of our znodes in this session. It excludes znodes left over from an older
        session."""
        assert self.session is not None
        return f"{self.unique}.{self.session & _SESSION_BITS:x}-"

    @property
    def path(self) -> str:
        assert self.name is not None
        return self.group.member(self.name)

    def guarded(self, *ops: Op) -> Commit:
        """Returns a transaction that succeeds only if our znode exists at its known version."""
        assert self.version is not None
        return Commit((Set(self.path, self.data, self.version), *ops))

    # choosing the next request

    def upkeep(self, now: float, *, entering: bool) -> Errand | None:
        """Returns the request that maintains our place. It takes precedence over all others.

        `entering` tells whether to take a place if there is none.
        """
        if self.session is None:
            return None
        if self.name is None:
            return self._entrance(entering)
        if self.version is None:
            return Errand(RequestKind.CHECK, Get(self.path))
        if self.doubtful or now >= self.lease.renewal:
            return Errand(RequestKind.RENEW, self.guarded())
        if self.unclear:
            resource = min(self.unclear)
            return Errand(RequestKind.LOOK, Get(self.group.barrier(resource)), (resource,))
        return None

    def _entrance(self, entering: bool) -> Errand | None:
        # A place is also needed to clean up after an earlier one.
        if not (entering or self.entering or self.unclear):
            return None
        if not self.prepared:
            return Errand(RequestKind.PREPARE, Ensure(self.group.parts))
        if not self.looked:
            return Errand(RequestKind.FIND, Children(self.group.members, fresh=True))
        return Errand(
            RequestKind.ENTER,
            Commit((Create(self.group.member(self.prefix), self.data, ephemeral=True, sequential=True),)),
        )

    def surrender(self, wanted: frozenset[str], in_use: frozenset[str]) -> Errand | None:
        """Returns a request that releases barriers of ours that are neither wanted nor in use."""
        surplus = sorted(self.owned.keys() - wanted - in_use)[:BATCH]
        if not surplus or not self.placed:
            return None
        ops = [Delete(self.group.barrier(resource)) for resource in surplus]
        return Errand(RequestKind.RELEASE, self.guarded(*ops), tuple(surplus))

    def acquisition(self, wanted: frozenset[str], now: float) -> Errand | None:
        """Returns a request that takes wanted, free barriers, or that finds the holders of the
        others."""
        missing = wanted - self.owned.keys() - self.blocked
        if not missing or not self.placed or now >= self.lease.stop:
            return None
        if isinstance(self.group, HostGroupPaths):
            if unsure := missing - self.granted:
                resource = min(unsure)
                return Errand(RequestKind.GRANT, Await(self.group.grant(resource)), (resource,))
        elif self.taken is None:
            return Errand(RequestKind.LIST, Children(self.group.barriers))
        free = sorted(missing - (self.taken or frozenset()))[:BATCH]
        if not free:
            resource = min(missing)
            return Errand(RequestKind.LOOK, Get(self.group.barrier(resource), watch=True), (resource,))
        mark = (self.name or "").encode()
        ops = [Create(self.group.barrier(resource), mark, ephemeral=True) for resource in free]
        return Errand(RequestKind.TAKE, self.guarded(*ops), tuple(free))

    def departure(self) -> Errand | None:
        if not self.placed or self.owned:
            return None
        assert self.version is not None
        return Errand(RequestKind.LEAVE, Commit((Delete(self.path, self.version),)))

    # interpreting an answer

    def answered(self, errand: Errand, answer: Answer) -> BarrierOwnership:
        match errand.kind, answer:
            case RequestKind.PREPARE, Done():
                return replace(self, prepared=True)
            case RequestKind.FIND, Names(names):
                return self._found(names)
            case RequestKind.ENTER, _:
                return self._entered(answer)
            case RequestKind.CHECK, Content(_, stat) if stat.ephemeral_owner == self.session:
                return replace(self, version=stat.version)
            case RequestKind.CHECK, Absent() | Content():
                return self.displaced()
            case RequestKind.LOOK, Content(_, stat):
                return self._seen(errand, stat.ephemeral_owner, stat.created_zxid)
            case RequestKind.LOOK, Absent():
                return self._seen(errand, None, 0)
            case RequestKind.GRANT, Content(data, _):
                return self._told(errand, data.decode(errors="replace"))
            case RequestKind.GRANT, Absent():
                return self._told(errand, "")
            case RequestKind.LIST, Names(names):
                return replace(self, taken=frozenset(names), blocked=self.blocked & frozenset(names))
            case ((RequestKind.PREPARE | RequestKind.FIND | RequestKind.LIST), (Absent() | Refused())):
                return replace(self, prepared=False, looked=False)
        if errand.kind is RequestKind.LEAVE:
            return self._left(answer)
        if isinstance(errand.request, Commit):
            return self.committed(errand, answer)
        return self

    def _found(self, names: tuple[str, ...]) -> BarrierOwnership:
        mine = [name for name in queue(names) if name.startswith(self.prefix)]
        if not mine:
            return replace(self, looked=True, entering=False)
        return replace(self, looked=True, entering=True, name=mine[0], version=None, doubtful=True)

    def _entered(self, answer: Answer) -> BarrierOwnership:
        match answer:
            case Done(results):
                name = paths.name(str(results[0]))
                # It counts only after a read, which tells which session it belongs to.
                return replace(self, name=name, version=None, entering=True)
            case Refused():
                return replace(self, prepared=False, looked=False)
            case _:
                return replace(self, looked=False, entering=True)

    def _seen(self, errand: Errand, owner: int | None, created: int) -> BarrierOwnership:
        (resource,) = errand.subject
        clear = replace(self, unclear=self.unclear - {resource})
        if owner is None:
            return replace(clear, taken=None if self.taken is None else self.taken - {resource})
        if owner == self.session:
            return replace(clear, owned={**self.owned, resource: created})
        # No watch was set: read it again with one.
        if not (isinstance(errand.request, Get) and errand.request.watch):
            return replace(clear, taken=None if self.taken is None else self.taken | {resource})
        return replace(clear, blocked=self.blocked | {resource})

    def _told(self, errand: Errand, user: str) -> BarrierOwnership:
        """Learns which user a barrier is granted to. A watch reports when that changes."""
        (resource,) = errand.subject
        if isinstance(self.group, HostGroupPaths) and user == self.group.user:
            return replace(self, granted=self.granted | {resource})
        return replace(self, blocked=self.blocked | {resource}, granted=self.granted - {resource})

    def _left(self, answer: Answer) -> BarrierOwnership:
        match answer:
            case Done():
                return self.displaced()
            case Refused(_, reason) if isinstance(reason, NoNode):
                return self.displaced()
        return replace(self, version=None)

    def committed(self, errand: Errand, answer: Answer) -> BarrierOwnership:
        """Applies the result of a guarded transaction to our place and barriers."""
        match answer:
            case Done():
                stat = answer.stat(0)
                known = replace(self, version=stat.version, doubtful=False)
                return known._changed(errand, stat.modified_zxid)
            case Refused(0, reason) if isinstance(reason, NoNode):
                return self.displaced()
            case Refused(0, reason) if isinstance(reason, BadVersion):
                return self._uncertain(errand)
            case Refused(index, reason):
                return self._refused(errand, index, reason)
        return self._uncertain(errand)

    def _changed(self, errand: Errand, zxid: int) -> BarrierOwnership:
        if errand.kind is RequestKind.TAKE:
            return replace(self, owned={**self.owned, **dict.fromkeys(errand.subject, zxid)})
        if errand.kind is RequestKind.RELEASE:
            return self._without(errand.subject)
        return self

    def _refused(self, errand: Errand, index: int, reason: Exception) -> BarrierOwnership:
        if errand.kind is RequestKind.TAKE and isinstance(reason, NodeExists):
            return replace(self, taken=(self.taken or frozenset()) | {errand.subject[index - 1]})
        if errand.kind is RequestKind.TAKE and isinstance(reason, NoNode) and self.granted:
            return replace(self, granted=self.granted - set(errand.subject))  # The leader has taken a grant back.
        if errand.kind in (RequestKind.TAKE, RequestKind.REPORT) and index == 1 and isinstance(reason, NoNode):
            return self.displaced()  # The parent is missing. Entering again creates it.
        if errand.kind is RequestKind.RELEASE:  # Another process has deleted it.
            return self._without((errand.subject[index - 1],))
        return self

    def _uncertain(self, errand: Errand) -> BarrierOwnership:
        lost = replace(self, version=None, doubtful=True)
        if errand.kind in (RequestKind.TAKE, RequestKind.RELEASE):
            subject = frozenset(errand.subject)
            lost = replace(lost, granted=self.granted - subject)
            return replace(lost._without(errand.subject), unclear=self.unclear | subject)
        return lost

    def _without(self, resources: tuple[str, ...]) -> BarrierOwnership:
        return replace(self, owned={r: fence for r, fence in self.owned.items() if r not in resources})
