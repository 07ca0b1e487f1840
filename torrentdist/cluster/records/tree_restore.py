"""Plans the transactions that write a backup's records into an empty tree.

Always: a tree is filled only if it holds nothing but records that daemons write by themselves, or
records of an interrupted run of the same backup, as its marker shows. A bundle is written together
with all its replica records, because a master would otherwise see it without holders. Records of
others are never overwritten.
Pure: no I/O and no clock.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from torrentdist.cluster import paths
from torrentdist.cluster.election.term import TermRecord, queue, read_term
from torrentdist.cluster.session.znode_operations import Create, request_size
from torrentdist.model.backup import Backup, Node, digest_of
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.records import ClusterRecord, decode, encode
from torrentdist.model.wire.view import decode_json

PASSING = frozenset(
    {
        paths.MASTERS,
        paths.SUPERVISORS,
        paths.ELECTION,
        paths.REQUESTS,
        paths.INVITATIONS,
        paths.REMOVALS,
        paths.RESTORING,
        paths.PLACES,
        paths.KNOWN_MASTERS,
        paths.KNOWN_SUPERVISORS,
    }
)
"""Parents of short-lived records: daemons write them again, or nobody needs them later. A backup
never contains them."""
LAST = frozenset({paths.CLUSTER, paths.EPOCH})
MAX_OPS = 1000
MAX_BYTES = 400_000

RESTORED = "restored from a backup"


def section(path: str) -> str:
    return "/" + path.split("/")[1]


def passing(path: str) -> bool:
    """Whether a path describes only current activity. In a resource group that is everything except
    the group's record and its resources."""
    _, first, *rest = path.split("/")
    return "/" + first in PASSING or ("/" + first == paths.GROUPS and len(rest) > 1 and rest[1] != "resources")


def _group(path: str) -> tuple[str, ...]:
    return tuple(path.split("/")[1:3])


def marker(backup: Backup) -> bytes:
    """Returns the content of /restoring, which identifies the backup being restored."""
    return digest_of(backup).encode()


def occupant(there: Mapping[str, bytes], backup: Backup) -> str | None:
    """Returns a record that prevents the tree from counting as empty, or None."""
    if there.get(paths.CLUSTER) is not None and _cluster_id(there[paths.CLUSTER]) == backup.cluster:
        return f"the cluster of this backup itself ({paths.CLUSTER})"
    return stranger(there)


def stranger(there: Iterable[str]) -> str | None:
    """Returns a path that daemons do not create by themselves, or None."""
    return next((path for path in sorted(there) if not _of_daemons(path)), None)


def _cluster_id(data: bytes) -> str | None:
    try:
        return decode(data, ClusterRecord, path=paths.CLUSTER).id
    except TorrentdistError:
        return None


def _of_daemons(path: str) -> bool:
    """Whether daemons create this path by themselves in an empty tree."""
    depth = path.count("/")
    parts = section(path) == paths.GROUPS and (depth == 2 or (depth == 3 and path.endswith("/resources")))
    return depth == 1 or section(path) == paths.FAILOVERS or parts


def obstacle(there: Mapping[str, bytes], backup: Backup) -> str | None:
    """Returns a record that was written neither by a daemon nor by an interrupted run of this
    backup."""
    wanted = {node.path: node.data for node in backup.nodes}
    for path, data in sorted(there.items()):
        ours = wanted.get(path) == data
        below_ours = len(_group(path)) == 2 and wanted.get("/" + "/".join(_group(path))) is not None
        if not (ours or (path.count("/") > 2 and below_ours) or _of_daemons(path)):
            return path
    return None


def creations(backup: Backup, there: Iterable[str]) -> Iterator[list[Create]]:
    """Yields transactions that write the missing records, except epoch, cluster and history, which
    are written last."""
    present = set(there)
    missing = [
        Create(node.path, node.data)
        for node in backup.nodes
        if node.path not in present and node.path not in LAST and paths.parent(node.path) != paths.FAILOVERS
    ]
    groups: dict[tuple[str, ...], list[Create]] = {}
    for op in missing:
        groups.setdefault(_group(op.path), []).append(op)
    batch: list[Create] = []
    for _, group in sorted(groups.items(), key=lambda item: (len(item[0]), item[0])):
        # A group goes in one transaction if it fits; otherwise its records are written one
        # by one.
        for part in [group] if _fits(group) else [[op] for op in group]:
            if batch and not _fits([*batch, *part]):
                yield batch
                batch = []
            batch += part
    if batch:
        yield batch


def _fits(ops: list[Create]) -> bool:
    return len(ops) <= MAX_OPS and request_size(ops) <= MAX_BYTES


def history(backup: Backup) -> list[bytes]:
    """Returns the failover records, oldest first."""
    found = {paths.name(n.path): n.data for n in backup.nodes if paths.parent(n.path) == paths.FAILOVERS}
    return [found[name] for name in queue(found)]


def cluster_record(backup: Backup) -> bytes:
    return _data(backup, paths.CLUSTER)


def with_announce_key(record: bytes, key: str) -> bytes:
    """Returns the cluster's record with another key of its tracker URLs. Nothing else changes, not
    even a field that this release doesn't know.
    """
    document = decode_json(record, dict[str, object])
    return msgspec.json.encode({**document, "announce_key": key})


def left_record(backup: Backup) -> bytes:
    """Returns the content of /epoch until there is a leader: the backup's term, and why it
    ended."""
    last = read_term(_data(backup, paths.EPOCH))
    return encode(TermRecord(leader=last.leader, election="", left=RESTORED)) if last is not None else b""


def _data(backup: Backup, path: str) -> bytes:
    return next((node.data for node in backup.nodes if node.path == path), b"")


def sorted_nodes(found: Mapping[str, bytes]) -> tuple[Node, ...]:
    return tuple(Node(path, data) for path, data in sorted(found.items(), key=lambda item: item[0].split("/")))
