"""Refuses what would exceed an owner's quotas: bytes that the cluster keeps, distributions at once.

An owner is the name of a token; the token's record holds the quotas.
Pure.
"""

from collections.abc import Mapping

from torrentdist.charts.quantities import size as in_units
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.policies.distribution_record import DistributionState
from torrentdist.model.records import BundleState

MOST_UPLOADS = 2_000
"""Most open uploads. Each costs every master a look at its swarm."""
MOST_UPLOADS_EACH = 256
"""Most open uploads of one owner."""


def has_quota(snapshot: ClusterSnapshot, owner: str) -> bool:
    token = snapshot.tokens.get(owner)
    return token is not None and (token.record.max_bytes > 0 or token.record.max_distributions > 0)


def bytes_kept(snapshot: ClusterSnapshot, owner: str, besides: BundleId | None = None) -> int:
    """Returns the bytes of the bundles that this owner uploaded and that are not removed."""
    return sum(
        entry.record.size
        for id_, entry in snapshot.bundles.items()
        if entry.record.owner == owner and entry.record.state is not BundleState.REMOVED and id_ != besides
    )


def check_uploads(uploads: Mapping[BundleId, str], owner: str) -> None:
    """Raises `too_many_uploads` if the owner may not open another upload. `uploads`: the owner of
    each that is open."""
    own = sum(name == owner for name in uploads.values())
    if own >= MOST_UPLOADS_EACH or len(uploads) >= MOST_UPLOADS:
        raise TorrentdistError("too_many_uploads", name=owner, own=own, count=len(uploads))


def distributions_running(snapshot: ClusterSnapshot, owner: str, besides: BundleId | None = None) -> int:
    return sum(
        entry.record.owner == owner and entry.record.state is DistributionState.RUNNING and id_ != besides
        for id_, entry in snapshot.distributions.items()
    )


def check_bytes(snapshot: ClusterSnapshot, owner: str, bundle: BundleId, size: int) -> None:
    """Raises `quota_exceeded` if the owner may not upload another `size` bytes."""
    token = snapshot.tokens.get(owner)
    if token is None or not token.record.max_bytes:
        return
    kept = bytes_kept(snapshot, owner, besides=bundle)
    if kept + size > token.record.max_bytes:
        raise TorrentdistError(
            "quota_exceeded",
            name=owner,
            detail=f"its bundles have {in_units(kept)}, {bundle!r} has {in_units(size)}, "
            f"and {in_units(token.record.max_bytes)} are allowed",
        )


def check_distributions(snapshot: ClusterSnapshot, owner: str, bundle: BundleId) -> None:
    """Raises `quota_exceeded` if the owner may not begin another distribution."""
    token = snapshot.tokens.get(owner)
    if token is None or not token.record.max_distributions:
        return
    running = distributions_running(snapshot, owner, besides=bundle)
    if running >= token.record.max_distributions:
        raise TorrentdistError(
            "quota_exceeded",
            name=owner,
            detail=f"{running} distributions are running, and {token.record.max_distributions} are allowed at once",
        )
