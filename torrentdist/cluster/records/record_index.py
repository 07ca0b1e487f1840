"""Indexes the records, to answer questions that would otherwise require walking all of them.

Always: an answer equals that of a walk over the last snapshot followed. The cost of following a
snapshot depends only on the number of changes.
Never: decide anything, or do I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from torrentdist.cluster.records.snapshot import Changes, ClusterSnapshot
from torrentdist.model.ids import BundleId, Digest, JobId, SupervisorId

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)

PREFIX = 40
"""Number of digest characters in a BitTorrent announce."""


class Follower:
    """Reports what changed since its last call."""

    def __init__(self) -> None:
        self._version = -1

    def news(self, snapshot: ClusterSnapshot) -> Changes | None:
        """Returns the changes, or None if everything may have changed."""
        before, self._version = self._version, snapshot.version
        return snapshot.changes_since(before)


class PerBundle(Generic[V]):
    """A value per bundle that depends only on the bundle's record and its live holders. `tally`:
    how many bundles have each value."""

    def __init__(self, derive: Callable[[ClusterSnapshot, BundleId], V | None]) -> None:
        self._derive = derive
        self._follower = Follower()
        self._values: dict[BundleId, V] = {}
        self.tally: Counter[V] = Counter()

    def of(self, snapshot: ClusterSnapshot) -> Mapping[BundleId, V]:
        news = self._follower.news(snapshot)
        if news is None or news.any_bundle:
            self._values, self.tally = {}, Counter()
        for bundle in snapshot.bundles if news is None or news.any_bundle else news.bundles:
            value = self._derive(snapshot, bundle) if bundle in snapshot.bundles else None
            before = self._values.pop(bundle, None)
            if before is not None:
                self.tally[before] -= 1
                if not self.tally[before]:
                    del self.tally[before]
            if value is not None:
                self._values[bundle] = value
                self.tally[value] += 1
        return self._values


class _Reverse(Generic[K, V]):
    """An inverted index: maps each value to the keys whose records name it."""

    def __init__(self) -> None:
        self._named: dict[K, frozenset[V]] = {}
        self._namers: dict[V, set[K]] = {}

    def set(self, key: K, values: Iterable[V]) -> None:
        before, now = self._named.pop(key, None), frozenset(values)
        if before is not None:
            for value in before - now:
                self._namers[value].discard(key)
                if not self._namers[value]:
                    del self._namers[value]
        for value in now if before is None else now - before:
            if (namers := self._namers.get(value)) is None:
                self._namers[value] = {key}
            else:
                namers.add(key)
        if now:
            self._named[key] = now

    def namers(self, value: V) -> frozenset[K]:
        return frozenset(self._namers.get(value, ()))

    def values(self, key: K) -> frozenset[V]:
        return self._named.get(key, frozenset())

    def count(self, value: V) -> int:
        return len(self._namers.get(value, ()))

    def keys(self) -> Iterable[K]:
        return self._named.keys()


class RecordIndex:
    def __init__(self) -> None:
        self._follower = Follower()
        self._digests: _Reverse[BundleId, Digest] = _Reverse()
        self._prefixes: _Reverse[BundleId, str] = _Reverse()
        self._hosts: _Reverse[SupervisorId, BundleId] = _Reverse()
        self._running: _Reverse[SupervisorId, JobId] = _Reverse()
        self._jobs: _Reverse[JobId, BundleId] = _Reverse()
        self._snapshot = ClusterSnapshot()

    @classmethod
    def of(cls, snapshot: ClusterSnapshot) -> RecordIndex:
        """Returns a new index of one snapshot, which costs a walk over all of it."""
        index = cls()
        index.follow(snapshot)
        return index

    def follow(self, snapshot: ClusterSnapshot) -> Changes | None:
        """Follows the next snapshot. Returns the changes, or None if everything may have
        changed."""
        news = self._follower.news(snapshot)
        for bundle in {*self._digests.keys(), *snapshot.bundles} if news is None else news.bundles:
            entry = snapshot.bundles.get(bundle)
            self._digests.set(bundle, () if entry is None else (entry.record.digest,))
            self._prefixes.set(bundle, () if entry is None else (entry.record.digest[:PREFIX],))
        for host in (
            {*self._hosts.keys(), *self._running.keys(), *snapshot.assignments} if news is None else news.assignments
        ):
            assignment = snapshot.assignments.get(host)
            self._hosts.set(host, () if assignment is None else assignment.record.bundles)
            workers = () if assignment is None else assignment.record.workers
            self._running.set(host, {worker.job for worker in workers})
        for job in {*self._jobs.keys(), *snapshot.jobs} if news is None else news.jobs:
            found = snapshot.jobs.get(job)
            self._jobs.set(job, found.record.needs if found is not None and found.record.live else ())
        self._snapshot = snapshot
        return news

    def digests_like(self, prefix: str) -> set[Digest]:
        """Returns the digests that begin with these PREFIX characters."""
        return {self._snapshot.bundles[bundle].record.digest for bundle in self._prefixes.namers(prefix)}

    def bundles_of(self, digest: Digest) -> list[BundleId]:
        """Returns all bundles with this content, including removed ones."""
        return sorted(self._digests.namers(digest))

    def contents(self, bundle: BundleId) -> frozenset[Digest]:
        """Returns the content of a bundle; empty if there is no such bundle."""
        return self._digests.values(bundle)

    def hosts_of(self, bundle: BundleId) -> list[SupervisorId]:
        """Returns the registered supervisors that should keep a bundle, in the order in which their
        assignments were written."""
        assignments = self._snapshot.assignments
        hosts = self._hosts.namers(bundle) & self._snapshot.supervisors.keys()
        return sorted(hosts, key=lambda id_: (assignments[id_].mtime, id_))

    def told_to_keep(self, bundle: BundleId) -> list[SupervisorId]:
        """Returns all supervisors whose assignments name a bundle, registered or not."""
        return sorted(self._hosts.namers(bundle))

    def kept(self, host: SupervisorId) -> frozenset[BundleId]:
        """Returns the bundles that a supervisor's assignment names."""
        return self._hosts.values(host)

    def told(self, bundle: BundleId) -> frozenset[SupervisorId]:
        """Returns the same in no order."""
        return self._hosts.namers(bundle)

    def count_told(self, bundle: BundleId) -> int:
        """Returns the number of supervisors whose assignments name a bundle, registered or not."""
        return self._hosts.count(bundle)

    def running(self, job: JobId) -> list[SupervisorId]:
        """Returns the supervisors to which a job's workers are assigned."""
        return sorted(self._running.namers(job))

    def live_jobs_of(self, bundle: BundleId) -> list[JobId]:
        """Returns the live jobs that need a bundle."""
        return sorted(self._jobs.namers(bundle))
