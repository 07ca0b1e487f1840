"""The records as one sender may see them: what it may not read is absent.

Always: every view for a sender is made of these records, so that no view has a rule of its own. A
sender that reads everything gets the records themselves, at no cost.
Never: do I/O, or use a clock.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import msgspec

from torrentdist.cluster.records.snapshot import AssignmentEntry, ClusterSnapshot, HostEntry, JobEntry
from torrentdist.security.authorization import Principal, may_read, may_see_pattern, reads_everything

K = TypeVar("K", bound=str)
V = TypeVar("V")
MOST_SENDERS = 256
"""Most rights for which the answer is remembered."""
HIDDEN = "(hidden)"
"""Stands for a host's pattern that names what the sender may not read."""


class _Readable(Mapping[K, V]):
    """A view of a mapping. It costs what is looked at, and copies nothing."""

    def __init__(
        self, all_: Mapping[K, V], is_there: Callable[[K, V], bool], shown: Callable[[V], V] = lambda value: value
    ) -> None:
        self._all = all_
        self._is_there = is_there
        self._shown = shown

    def __getitem__(self, key: K) -> V:
        value = self._all[key]
        if not self._is_there(key, value):
            raise KeyError(key)
        return self._shown(value)

    def __iter__(self) -> Iterator[K]:
        return (key for key, value in self._all.items() if self._is_there(key, value))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class ReadableRecords:
    """Remembers what senders may see of the newest snapshot, since most requests ask for the
    same."""

    def __init__(self) -> None:
        self._snapshot = ClusterSnapshot()
        self._seen: dict[tuple[object, ...], ClusterSnapshot] = {}

    def of(self, snapshot: ClusterSnapshot, sender: Principal) -> ClusterSnapshot:
        if reads_everything(sender):
            return snapshot
        if snapshot is not self._snapshot or len(self._seen) >= MOST_SENDERS:
            self._snapshot, self._seen = snapshot, {}
        rights = (sender.reads, sender.own_bundles)
        seen = self._seen.get(rights)
        if seen is None:
            seen = self._seen[rights] = readable(snapshot, sender)
        return seen


def readable(snapshot: ClusterSnapshot, sender: Principal) -> ClusterSnapshot:
    """Returns the records that the sender may see. A job is there for those who may read all its
    bundles, because its output may hold what is in them.
    """
    if reads_everything(sender):
        return snapshot

    def may_see_job(_: str, entry: JobEntry) -> bool:
        return all(may_read(sender, bundle) for bundle in entry.record.needs)

    def assignment(entry: AssignmentEntry) -> AssignmentEntry:
        kept = tuple(bundle for bundle in entry.record.bundles if may_read(sender, bundle))
        record = msgspec.structs.replace(entry.record, bundles=kept, terms={})
        return msgspec.structs.replace(entry, record=record)

    def host(entry: HostEntry) -> HostEntry:
        if may_see_pattern(sender, entry.record.bundles):
            return entry
        return msgspec.structs.replace(entry, record=msgspec.structs.replace(entry.record, bundles=HIDDEN))

    return msgspec.structs.replace(
        snapshot,
        bundles=_Readable(snapshot.bundles, lambda id_, _: may_read(sender, id_)),
        jobs=_Readable(snapshot.jobs, may_see_job),
        distributions=_Readable(snapshot.distributions, lambda id_, _: may_read(sender, id_)),
        retention=_Readable(snapshot.retention, lambda _, entry: may_see_pattern(sender, entry.record.pattern)),
        assignments=_Readable(snapshot.assignments, lambda *_: True, assignment),
        hosts=_Readable(snapshot.hosts, lambda *_: True, host),
        invitations=_Readable(snapshot.invitations, lambda _, entry: may_see_pattern(sender, entry.record.bundles)),
    )
