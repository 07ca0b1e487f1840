"""Reads the token that a command presents to masters."""

from __future__ import annotations

from torrentdist.model.configuration.settings import read_secret
from torrentdist.model.errors import TorrentdistError


def read_token(token_file: str) -> str:
    """Returns the bearer token in a file; empty if no file is named. Raises `secret_invalid`, as
    daemons do, for a file that other users can read.
    """
    if not token_file:
        return ""
    token = read_secret(token_file)
    if not token.isascii() or not token.isprintable():
        raise TorrentdistError("secret_invalid", path=token_file, detail="it holds no token")
    return token
