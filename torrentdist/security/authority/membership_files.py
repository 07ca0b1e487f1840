"""A host's file with its certificates of the swarm: its key, then each certificate with its CA.

Always: the file is for its owner alone, and is replaced as a whole.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from torrentdist.model.access.swarm_membership import SwarmMembership
from torrentdist.model.configuration.config import Config
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wording import cause_text
from torrentdist.security.authority.swarm_authority import memberships_text, parse_memberships
from torrentdist.security.private_files import read_private, replace_private

MEMBERSHIP: Final = "swarm.pem"
_MOST_BYTES: Final = 4 * 1024 * 1024
"""A certificate of MOST_DIGESTS bundles has 90 kB, and each CA of the swarm issues one."""


def membership_file(config: Config) -> Path:
    """Returns the place of the file: what the configuration names, or beside the host's key."""
    beside = Path(config.tls.key_file).expanduser().parent / MEMBERSHIP
    return Path(config.swarm.certificate_file).expanduser() if config.swarm.certificate_file else beside


def read_memberships(path: Path) -> tuple[SwarmMembership, ...]:
    """Reads the file; nothing if there is none. Raises `certificate_invalid`."""
    try:
        return parse_memberships(read_private(path, _MOST_BYTES).decode("ascii"))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as exc:
        raise TorrentdistError("certificate_invalid", path=str(path), detail=cause_text(exc)) from exc


def keep_memberships(path: Path, memberships: Sequence[SwarmMembership]) -> None:
    replace_private(path, memberships_text(memberships).encode())
