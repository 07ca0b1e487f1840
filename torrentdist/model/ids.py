"""Identifiers, and the only place where a text from outside becomes one.

Always: an id is short and has few kinds of characters, because it becomes a path component in
ZooKeeper, in URLs and on disk.
"""

import os
import re
from typing import NewType

from torrentdist.model.errors import TorrentdistError

BundleId = NewType("BundleId", str)
MasterId = NewType("MasterId", str)
SupervisorId = NewType("SupervisorId", str)
PeerId = NewType("PeerId", str)
JobId = NewType("JobId", str)
StoreId = NewType("StoreId", str)
RequestId = NewType("RequestId", str)
Digest = NewType("Digest", str)
"""The v2 info-hash (SHA-256) of a bundle, 64 lower-case hex digits."""

MAX_ID_LENGTH = 128
_MOST_SHOWN = 200
"""Most characters of a wrong id that an error names."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)


def _checked(kind: str, text: str) -> str:
    if len(text) > MAX_ID_LENGTH or not _ID.fullmatch(text):
        raise TorrentdistError("invalid_id", kind=kind, text=text[:_MOST_SHOWN])
    return text


def bundle_id(text: str) -> BundleId:
    return BundleId(_checked("bundle id", text))


def master_id(text: str) -> MasterId:
    return MasterId(_checked("master id", text))


def supervisor_id(text: str) -> SupervisorId:
    return SupervisorId(_checked("supervisor id", text))


def job_id(text: str) -> JobId:
    return JobId(_checked("job id", text))


def token_name(text: str) -> str:
    return _checked("token name", text)


def peer_id(text: str) -> PeerId:
    return PeerId(_checked("peer id", text))


def store_id(text: str) -> StoreId:
    return StoreId(_checked("store id", text))


def request_id(text: str) -> RequestId:
    return RequestId(_checked("request id", text))


def digest(text: str) -> Digest:
    if not _DIGEST.fullmatch(text):
        raise TorrentdistError("invalid_digest", text=text[:_MOST_SHOWN])
    return Digest(text)


def new_random_id(prefix: str) -> str:
    """Returns a new unique id: prefix, a dash, and 16 random hex digits."""
    return f"{prefix}-{os.urandom(8).hex()}"
