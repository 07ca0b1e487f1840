"""The text of an invitation: what a host needs to join, and to know the right cluster.

Always: it carries the fingerprint of the CA, so that whoever answers at a master's address cannot
pass for the cluster. Pure: no I/O.
"""

import base64
from typing import Final

import msgspec

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.view import decode_json

PREFIX: Final = "td-invitation."


class Invitation(msgspec.Struct, frozen=True, kw_only=True):
    """A host's invitation, with its secret."""

    id: str
    role: str
    addresses: list[str]
    masters: list[str]
    ca: str
    """SHA-256 of the CA's certificate, in hex."""
    secret: str


def invitation_text(invitation: Invitation) -> str:
    return PREFIX + base64.urlsafe_b64encode(msgspec.json.encode(invitation)).decode().rstrip("=")


def parse_invitation(text: str, path: str) -> Invitation:
    """Reads an invitation. Raises `secret_invalid` with the path of its file."""
    encoded = text.strip().removeprefix(PREFIX)
    try:
        if not text.strip().startswith(PREFIX):
            raise ValueError(PREFIX)
        data = base64.urlsafe_b64decode(f"{encoded}==")  # more padding than needed is no error
        return decode_json(data, Invitation)
    except (ValueError, msgspec.MsgspecError) as exc:
        detail = "it holds no invitation; `torrentdist host invite -q` prints one"
        raise TorrentdistError("secret_invalid", path=path, detail=detail) from exc
