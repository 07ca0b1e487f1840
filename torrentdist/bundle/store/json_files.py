"""Reads and writes the store's small JSON files.

Always: a file contains the number of its schema. A damaged file, or a file of a later release, is
refused with its path and never overwritten.
Never: guess.
"""

from pathlib import Path
from typing import TypeVar

import msgspec

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.view import decode_json

SCHEMA = 1


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    schema: int = SCHEMA


S = TypeVar("S", bound=Saved)


def encode_saved(saved: Saved) -> bytes:
    return msgspec.json.encode(saved)


def decode_saved(path: Path, data: bytes, kind: type[S]) -> S:
    try:
        schema = decode_json(data, Saved).schema
        if schema != SCHEMA:
            raise TorrentdistError(
                "disk_error", path=str(path), detail=f"schema {schema} is not one that this release reads ({SCHEMA})"
            )
        return decode_json(data, kind)
    except msgspec.MsgspecError as exc:
        raise TorrentdistError("disk_error", path=str(path), detail=f"damaged: {exc}") from exc
