"""Immutable progress reports of an upload or download, for a progress bar or a log line.

Never: make the work depend on the receiver of a report, who may be slow or ignore it.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from torrentdist.model.ids import MasterId
from torrentdist.model.wire.transfer_messages import TransferPhase, TransferView
from torrentdist.model.wire.view import view_of


class TransferStage(StrEnum):
    HASHING = "hashing"
    CHECKING = "checking"
    FETCHING = "fetching"
    SEEDING = "seeding"
    SENDING = "sending"
    """The bytes are sent over HTTP, because the masters cannot connect to this process."""
    FINISHING = "finishing"


class StageProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a stage of a transfer is."""

    phase: TransferStage
    done: int
    size: int
    rate: float = 0.0
    eta: float | None = None
    peers: int = 0


class TransferProgress(StageProgress, frozen=True, kw_only=True):
    """The progress of a download."""

    from_masters: int = 0
    from_peers: int = 0


class UploadProgress(StageProgress, frozen=True, kw_only=True):
    """The progress of an upload. `done` counts hashed bytes first, then bytes that were sent."""

    replicas: int = 0
    wanted: int = 0
    lacking: Mapping[MasterId, str] = {}
    """The masters without a copy, and why each does not have it yet."""


_PHASES = {
    TransferPhase.CHECKING: TransferStage.CHECKING,
    TransferPhase.FETCHING: TransferStage.FETCHING,
    TransferPhase.SEEDING: TransferStage.SEEDING,
    TransferPhase.FAILED: TransferStage.FETCHING,
}


def of_transfer(view: TransferView) -> TransferProgress:
    phase, sources = _PHASES[view.phase], view.sources
    return view_of(TransferProgress, view, phase=phase, from_masters=sources.masters, from_peers=sources.peers)
