"""Judges from outside which master acted as leader, by ZooKeeper's transactions and by what the
masters said meanwhile.

Always: a verdict needs nothing that a master could get wrong about itself.
Pure: transactions and sightings in, findings out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
from chaos.txnlog import Change, Kind, Transaction

from torrentdist.cluster import paths
from torrentdist.cluster.election.term import queue, read_term
from torrentdist.model.records import BundleRecord, BundleState, decode

CHROOT = "/torrentdist"
OWNED = (
    paths.ASSIGNMENTS,
    paths.REQUESTS,
    paths.JOBS,
    paths.FAILOVERS,
    paths.DISTRIBUTIONS,
    paths.RETENTION,
    paths.KNOWN_MASTERS,
    paths.KNOWN_SUPERVISORS,
)
"""Parents below which only the leader writes."""
SLACK_SECS = 0.02
"""ZooKeeper's times are whole milliseconds, and the asking process times an answer."""


@dataclass(frozen=True)
class Sighting:
    """A master said that it leads, at some moment between these two."""

    master: str
    began: float
    ended: float


@dataclass(frozen=True)
class Committed:
    """A master's own word that it changed something in an epoch."""

    master: str
    epoch: int
    znodes: tuple[str, ...]


@dataclass
class Reign:
    """One epoch, as ZooKeeper has it."""

    epoch: int
    master: str
    session: int
    election: str
    began: float
    ended: float = float("inf")
    """When the epoch was raised again, or the leader's znode went."""
    znode_gone: bool = False
    robbed: bool = False
    """Whether an outsider took its znode or epoch. A restore raises the epoch first."""
    acts: list[frozenset[str]] = field(default_factory=list)


@dataclass
class Judgement:
    reigns: list[Reign] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    @property
    def acts(self) -> int:
        return sum(len(reign.acts) for reign in self.reigns)


def judge_transactions(transactions: Iterable[Transaction], outsiders: Collection[int] = ()) -> Judgement:
    """Checks that every change that only a leader may make was made by the leader of the current
    epoch. `outsiders`: the sessions of operators, who may do anything."""
    court = _Court(outsiders)
    for txn in transactions:
        court.hear(txn)
    return court.judgement


class _Court:
    def __init__(self, outsiders: Collection[int]) -> None:
        self.judgement = Judgement()
        self._outsiders = outsiders
        self._owners: dict[str, int] = {}
        self._masters: dict[str, str] = {}
        self._epoch = 0
        self._reign: Reign | None = None

    def hear(self, txn: Transaction) -> None:
        changes = [Change(c.kind, _inner(c.path), c.data, c.version, c.ephemeral) for c in txn.changes]
        owed = [c.path for c in changes if _is_the_leaders(c)]
        if txn.session in self._outsiders or (owed and self._is_the_electeds(txn, changes)):
            pass
        elif owed and not self._is_fenced(txn, changes):
            self._find(txn, f"changed {owed} without being the leader of epoch {self._epoch}")
        elif owed and self._reign is not None:
            self._reign.acts.append(frozenset(c.path for c in changes if c.kind is not Kind.CHECK))
        for change in changes:
            self._apply(txn, change, changes)

    def _is_fenced(self, txn: Transaction, changes: list[Change]) -> bool:
        reign = self._reign
        if any(c.kind is Kind.SET and c.path == paths.EPOCH for c in changes):
            return True  # raising an epoch is judged elsewhere
        checks = {(c.path, c.version) for c in changes if c.kind is Kind.CHECK}
        return (
            reign is not None
            and txn.session == reign.session
            and (paths.EPOCH, self._epoch) in checks
            and any(path == reign.election for path, _ in checks)
        )

    def _is_the_electeds(self, txn: Transaction, changes: list[Change]) -> bool:
        """Whether this is the one act of an elected master that does not lead: it marks bundles
        lost, and nothing else."""
        places = queue(paths.name(path) for path in self._owners if paths.parent(path) == paths.ELECTION)
        first = paths.election_node(places[0]) if places else ""
        checks = {(c.path, c.version) for c in changes if c.kind is Kind.CHECK}
        return (
            (self._reign is None or self._reign.znode_gone)
            and self._owners.get(first) == txn.session
            and any(path == first for path, _ in checks)
            and (paths.EPOCH, self._epoch) in checks
            and all(_calls_lost(c) for c in changes if c.kind is not Kind.CHECK)
        )

    def _apply(self, txn: Transaction, change: Change, all_of_it: list[Change]) -> None:
        match change.kind:
            case Kind.CREATE if change.ephemeral:
                self._owners[change.path] = txn.session
                self._masters[change.path] = change.data.decode(errors="replace")
            case Kind.DELETE:
                self._owners.pop(change.path, None)
                if self._reign is not None and self._reign.election == change.path:
                    self._end(txn, znode_gone=True)
                if change.path == paths.EPOCH:
                    self._epoch = 0
            case Kind.SET if change.path == paths.EPOCH:
                self._raise(txn, change, all_of_it)
            case _:
                pass

    def _raise(self, txn: Transaction, change: Change, all_of_it: list[Change]) -> None:
        self._end(txn)
        self._epoch = change.version
        record = read_term(change.data)
        if record is None or record.left:
            self._reign = None
            return
        election = paths.election_node(record.election)
        checked = any(c.kind is Kind.CHECK and c.path == election for c in all_of_it)
        if not checked or self._owners.get(election) != txn.session or self._masters.get(election) != record.leader:
            self._find(txn, f"epoch {change.version} raised for {record.leader} without its election znode")
        self._reign = Reign(change.version, record.leader, txn.session, election, txn.at)
        self.judgement.reigns.append(self._reign)

    def _end(self, txn: Transaction, znode_gone: bool = False) -> None:
        if self._reign is not None and self._reign.ended == float("inf"):
            self._reign.ended, self._reign.znode_gone = txn.at, znode_gone
            self._reign.robbed = txn.session in self._outsiders

    def _find(self, txn: Transaction, what: str) -> None:
        self.judgement.findings.append(f"transaction {txn.zxid:#x} of session {txn.session:#x} {what}")


def _inner(path: str) -> str:
    return path[len(CHROOT) :] if path.startswith(CHROOT + "/") else path


def _calls_lost(change: Change) -> bool:
    if change.kind is not Kind.SET or paths.parent(change.path) != paths.BUNDLES:
        return False
    return decode(change.data, BundleRecord, path=change.path).state is BundleState.LOST


def _is_the_leaders(change: Change) -> bool:
    if change.kind is Kind.CHECK or change.path in (*paths.PARENTS, paths.REQUESTS, *paths.LATER_PARENTS):
        return False
    parent = paths.parent(change.path)
    if parent == paths.BUNDLES:
        return True
    if change.path == paths.REMOVALS:
        return change.kind is not Kind.CREATE  # a leader makes what the tree lacks before its first change
    if change.path == paths.CLUSTER:
        return change.kind is not Kind.CREATE  # creating it is `ha init`'s work
    return change.path.startswith(tuple(f"{parent}/" for parent in OWNED))


def judge_sightings(
    reigns: Sequence[Reign], sightings: Iterable[Sighting], stolen: Collection[int], lease_secs: float
) -> list[str]:
    """Checks that no master said that it leads outside its reign. `stolen`: sessions that another
    client ended. Their owner cannot know that before its lease is over, and its changes are refused
    meanwhile."""

    def grace(reign: Reign) -> float:
        return SLACK_SECS + (lease_secs if reign.robbed or reign.session in stolen else 0.0)

    findings = []
    for seen in sightings:
        own = [reign for reign in reigns if reign.master == seen.master]
        if not any(
            reign.began - SLACK_SECS <= seen.ended and seen.began <= reign.ended + grace(reign) for reign in own
        ):
            others = [r.epoch for r in reigns if r.began <= seen.began <= r.ended]
            findings.append(f"{seen.master} said at {seen.began:.3f} that it leads, in epoch {others}")
    return findings


def judge_words(reigns: Sequence[Reign], words: Iterable[Committed]) -> list[str]:
    """Checks that what a master logged as committed is in ZooKeeper's log, in that epoch and by
    this master."""
    acts = {(reign.epoch, reign.master, act) for reign in reigns for act in reign.acts}
    return [
        f"{word.master} logged a commit in epoch {word.epoch} that is not there: {word.znodes}"
        for word in words
        if (word.epoch, word.master, frozenset(word.znodes)) not in acts
    ]


def words_of(master: str, log: Iterable[bytes]) -> list[Committed]:
    words = []
    for line in log:
        if b'"committed"' in line:
            said = msgspec.json.decode(line)
            words.append(Committed(master, said["epoch"], tuple(said["znodes"])))
    return words
