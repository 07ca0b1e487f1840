"""How long the masters of a story keep what nobody needs any more."""

from __future__ import annotations

from dataclasses import dataclass

from torrentdist.model.configuration.config import JobsConfig, ReplicationConfig


@dataclass(frozen=True)
class KeptRecords:
    """How long masters keep each kind of record, in seconds."""

    removed: float = ReplicationConfig().tombstone_secs
    """The tombstone of a bundle."""
    silent_upload: float = ReplicationConfig().abandon_secs
    """The record of an upload whose uploader is silent."""
    ended_job: float = JobsConfig().keep_secs
