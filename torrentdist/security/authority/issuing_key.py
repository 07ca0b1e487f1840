"""The CA's key on a master, with which its leader issues certificates.

Always: the key is read when it is needed, from a file of its owner alone. Never: give it to
anyone but another master that has proven by its certificate that it is one.
"""

from pathlib import Path

from torrentdist.model.configuration.config import TlsConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wording import cause_text
from torrentdist.security.authority.authority_files import authority_of
from torrentdist.security.authority.certificates import Authority
from torrentdist.security.private_files import read_private


class IssuingKey:
    """All calls block."""

    def __init__(self, config: TlsConfig) -> None:
        self._config = config

    def authority(self) -> Authority:
        """Returns the CA. Raises `issuing_elsewhere` where this master has no key."""
        key_file = self._key_file()
        return authority_of(Path(self._config.ca_file).expanduser(), key_file)

    def trusted(self) -> str:
        """Returns the CAs that this master trusts, in PEM."""
        if self._config.mode == "off":
            raise TorrentdistError("issuing_elsewhere", detail='this master has tls.mode = "off"')
        try:
            return Path(self._config.ca_file).expanduser().read_text(encoding="ascii")
        except (OSError, ValueError) as exc:
            raise TorrentdistError("ca_invalid", path=self._config.ca_file, detail=cause_text(exc)) from exc

    def key_text(self) -> str:
        """Returns the key in PEM, for another master."""
        key_file = self._key_file()
        try:
            return read_private(key_file).decode("ascii")
        except (OSError, ValueError) as exc:
            raise TorrentdistError("ca_invalid", path=str(key_file), detail=cause_text(exc)) from exc

    def _key_file(self) -> Path:
        if self._config.mode == "off":
            raise TorrentdistError("issuing_elsewhere", detail='this master has tls.mode = "off"')
        if not self._config.ca_key_file:
            raise TorrentdistError("issuing_elsewhere", detail="this master has no tls.ca_key_file")
        return Path(self._config.ca_key_file).expanduser()
