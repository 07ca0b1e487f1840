"""All persistent records of a cluster as one file, in case the ZooKeeper ensemble is lost.

Always: a decoded backup is complete and unchanged. Records are kept as they were, including those
that this release does not know.
Pure: no I/O and no clock.
"""

import hashlib

import msgspec

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.view import decode_json

FORMAT = "torrentdist-backup"
SCHEMA = 1
_BEGINNING = f'{{"format":"{FORMAT}"'.encode()


class Node(msgspec.Struct, frozen=True):
    path: str
    data: bytes = b""
    """The record as it is in ZooKeeper; base64 in the file."""


class Backup(msgspec.Struct, frozen=True, kw_only=True):
    format: str = FORMAT
    schema: int = SCHEMA
    cluster: str
    epoch: int
    zxid: int
    """The backup includes every transaction up to this zxid."""
    made_at: float
    checksum: str = ""
    """SHA-256 of the file with this field empty."""
    nodes: tuple[Node, ...]
    """Parents before children."""


class _BackupHeader(msgspec.Struct, frozen=True):
    format: str = ""
    schema: int = 0


def encode_backup(backup: Backup) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(backup, checksum=digest_of(backup)))


def decode_backup(data: bytes, path: str) -> Backup:
    """Decodes a backup. Raises an error that names the problem: a different format, a later
    release, or damage."""
    try:
        header = decode_json(data, _BackupHeader)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        if data.startswith(_BEGINNING):
            raise TorrentdistError("backup_damaged", path=path, detail=str(exc)) from exc
        raise TorrentdistError("not_a_backup", path=path, detail="it is something else") from exc
    if header.format != FORMAT:
        raise TorrentdistError("not_a_backup", path=path, detail="it is something else")
    if header.schema != SCHEMA:
        detail = f"it is of schema {header.schema}, and this release reads {SCHEMA}"
        raise TorrentdistError("not_a_backup", path=path, detail=detail)
    try:
        backup = decode_json(data, Backup)
    except msgspec.MsgspecError as exc:
        raise TorrentdistError("backup_damaged", path=path, detail=str(exc)) from exc
    if encode_backup(backup) != data:
        raise TorrentdistError("backup_damaged", path=path, detail="its checksum is another one")
    return backup


def digest_of(backup: Backup) -> str:
    """Returns a hash that identifies this backup."""
    return hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(backup, checksum=""))).hexdigest()
