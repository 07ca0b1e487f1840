"""More known errors: of stores, uploads and busy daemons. put_back.py runs stories with them."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import torrentdist.bundle.store.objects as objects
import torrentdist.cluster.session.znode_operations as znode_operations
import torrentdist.cluster.session.zookeeper_session as zookeeper_session
import torrentdist.master.bundles.intake as intake
import torrentdist.master.changes.commit as changes_commit
import torrentdist.master.jobs.heartbeats as heartbeats
import torrentdist.master.policies.distribution_changes as distribution_changes
import torrentdist.master.policies.retention_rules as retention_rules
import torrentdist.supervisor.jobs.host_workers as host_workers
import torrentdist.supervisor.jobs.worker_table as worker_table
from torrentdist.host.runtime import HostRuntime
from torrentdist.host.swarm_transfers import SwarmTransfers
from torrentdist.model.wire.transfer_messages import TransferPhase
from torrentdist.supervisor.bundles.keeper import Keeper

NEVER = re.compile(r"(?!)")


def evicted_counts_as_verified() -> None:
    """A bundle evicted for room leaves its transfer, and the next fetch ends at once."""
    fetch = SwarmTransfers.fetch

    async def trusting(self: SwarmTransfers, meta: Any, home: Path, **kwargs: Any) -> None:
        transfer = self._engine.transfer(meta.digest)
        if transfer is not None and transfer.phase is TransferPhase.SEEDING:
            self._verified.add(meta.digest)
            return
        await fetch(self, meta, home, **kwargs)

    SwarmTransfers.end_seeding = lambda self, digest: None  # type: ignore[method-assign]
    SwarmTransfers.fetch = trusting  # type: ignore[method-assign]


def dropped_while_uploaded() -> None:
    """An upload begins with content that the replicator is just deleting."""
    HostRuntime.turn = lambda self, digest: asyncio.Lock()  # type: ignore[method-assign]


def fetched_again_at_once() -> None:
    """The keeper plans many times a second after a failed fetch."""
    failed = Keeper._failed

    def hasty(self: Keeper, bundle: Any, error: Any, asked_at: float) -> None:
        failed(self, bundle, error, asked_at)
        if bundle in self._not_before:
            self._not_before[bundle] = 0.0

    Keeper._failed = hasty  # type: ignore[method-assign]


def disk_error_told_as_bug() -> None:
    """An upload that begins on a failing disk is told of a bug."""
    intake._renew = lambda path: os.utime(path)


def probes_stay() -> None:
    """What a daemon tried out on the disk stays for ever after a loss of power."""
    objects._TEMPORARY = NEVER


def torn_files_stay() -> None:
    """Files that were half written at a loss of power stay for ever."""
    objects._TORN = NEVER


def texts_without_bounds() -> None:
    """What a failed worker says is written into its job's record, however long it is."""
    for module in (heartbeats, worker_table, host_workers):
        module.bounded = lambda report: report  # type: ignore[attr-defined]


def retention_counts_uploads() -> None:
    """A rule counts an upload that has only begun among the versions that it keeps."""
    _rewrite(
        retention_rules,
        ("rank += entry.record.state is BundleState.AVAILABLE", "rank += 1"),
        ("if rank < rule.keep and entry.record.state is BundleState.AVAILABLE", "if rank < rule.keep"),
    )


def assignment_counts_as_known() -> None:
    """A host that starts in an outage takes what it was told to keep for unwanted."""
    Keeper.knows_assignment = property(lambda self: True, lambda self, known: None)  # type: ignore[assignment]


def batch_too_large() -> None:
    """A batch of changes has any size, also one that ZooKeeper does not take."""
    znode_operations.fitting = lambda ops, most: min(most, len(ops))
    changes_commit.fitting = znode_operations.fitting  # type: ignore[attr-defined]
    zookeeper_session.check_size = lambda ops: None  # type: ignore[attr-defined]


def cancelled_order_ends_earlier() -> None:
    """A cancelled order takes its bundle from every host that fetches it, also for an earlier
    order."""
    distribution_changes._reached = lambda snapshot, record: sorted(
        distribution_changes.told_of(snapshot, record.bundle, snapshot.assignments)
    )


def _rewrite(module: ModuleType, *changes: tuple[str, str]) -> None:
    """Runs a module again in its own names, with other text."""
    source = inspect.getsource(module)
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    exec(compile(source, str(module.__file__), "exec", dont_inherit=True), vars(module))


MORE = (
    evicted_counts_as_verified, dropped_while_uploaded, fetched_again_at_once, disk_error_told_as_bug, probes_stay,
    torn_files_stay, texts_without_bounds, retention_counts_uploads, assignment_counts_as_known, batch_too_large,
    cancelled_order_ends_earlier,
)  # fmt: skip
