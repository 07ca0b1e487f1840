"""Issues certificates of the swarm on a master, from the CA's key that it has.

Any master can: nothing is recorded, because a certificate says nothing but in which swarms its
holder is a member. Always: the key is read when it is needed, from a file of its owner alone.
"""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from torrentdist.model.access.swarm_certificate_messages import IssuedMembership
from torrentdist.model.configuration.config import Config
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wording import cause_text
from torrentdist.security.authority.pem_texts import parse_key, parse_public_key
from torrentdist.security.authority.swarm_authority import (
    ALL_NAMES,
    SwarmAuthority,
    issued_for,
    pem_parts,
    swarm_authority,
)
from torrentdist.security.private_files import read_private


class SwarmIssuing:
    """All calls block."""

    def __init__(self, config: Config) -> None:
        self.is_on = config.swarm_has_tls
        self.key_file = config.swarm.ca_key_file or config.tls.ca_key_file
        """Empty: this host issues nothing."""

    def authorities(self) -> Sequence[SwarmAuthority]:
        """Returns the CAs of the swarm, the one for new downloads first. Raises `ca_invalid`."""
        path = Path(self.key_file).expanduser()
        try:
            parts = pem_parts(read_private(path).decode("ascii"))
            return [swarm_authority(parse_key(part.encode())) for part in parts]
        except (OSError, ValueError) as exc:
            raise TorrentdistError("ca_invalid", path=str(path), detail=cause_text(exc)) from exc

    def issue(
        self, public_key: str, lifetime: timedelta, now: float, names: Sequence[str] = ALL_NAMES
    ) -> list[IssuedMembership]:
        """Issues a certificate of each CA. Returns none if the swarm has no TLS."""
        if not self.is_on:
            return []
        try:
            key = parse_public_key(public_key.encode())
        except ValueError as exc:
            raise TorrentdistError("certificate_refused", detail=str(exc)) from exc
        return issued_for(self.authorities(), key, lifetime, now, names)
