"""How a command authenticates to masters, and how masters must authenticate to the command.

Always: the token is sent only to servers that the user named, whose certificate the cluster's CA
issued, or that prove that they know the token. It is never sent unencrypted to another machine,
unless the user asks for that.
"""

from torrentdist.http.access import AccessRule, Trust, to_known_masters, with_token
from torrentdist.model.configuration.config import ClientConfig
from torrentdist.model.configuration.settings import read_secret
from torrentdist.model.errors import TorrentdistError


def access_of(config: ClientConfig) -> AccessRule:
    """Returns the access rule for a client's configuration."""
    trust = _trust(config)
    token = read_token(config.token_file)
    rule = with_token(token, lambda: trust, configured=config.masters, in_the_clear=config.token_in_the_clear)
    return to_known_masters(rule, token, lambda: config.masters)


def only_https(config: ClientConfig) -> bool:
    """Whether the user names masters by https:// URLs alone. Then nobody is asked without TLS, as
    masters may answer both ways while a cluster goes over.
    """
    return all(url.startswith("https://") for url in config.masters)


def _trust(config: ClientConfig) -> Trust | None:
    if not config.ca_file:
        return None
    from torrentdist.security.tls_contexts import client_context, complaint_about, files_of

    files = files_of(config)
    assert files is not None
    return Trust(client_context(files), lambda certificate: complaint_about(certificate, ""))


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
