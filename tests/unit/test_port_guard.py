"""How a daemon guards its port, and how it proves itself to others."""

from __future__ import annotations

from pathlib import Path

import pytest
from tls_site import make_authority

from torrentdist.host.process.port_guard import PortGuard, open_guard
from torrentdist.http.http_values import NotTrusted, origin_of
from torrentdist.model.configuration.config import ApiConfig, ClientConfig, Config, TlsConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.records import OwnCertificate
from torrentdist.model.wire.swarm_messages import PeerRole
from torrentdist.security.job_token import key_of

PLAIN, SECURE = origin_of("http://10.0.0.2:1"), origin_of("https://10.0.0.2:1")


def guard(
    tmp_path: Path,
    *,
    listen: str = "127.0.0.1",
    token: str = "t" * 32,
    consent: bool = False,
    in_the_clear: bool = False,
    mode: str = "off",
    role: PeerRole = PeerRole.MASTER,
) -> PortGuard:
    """Returns what a daemon with this configuration opens. Its certificate is that of master m1."""
    path, tls = tmp_path / "token", TlsConfig()
    if token:
        path.write_text(token)
        path.chmod(0o600)
    if mode != "off":
        files = make_authority(tmp_path / "ca").files("m1")
        names = {"certificate_file": str(files.certificate), "key_file": str(files.key)}
        tls = TlsConfig(mode=mode, ca_file=str(files.ca), **names)
    api = ApiConfig(listen=listen, token_file=str(path) if token else "", insecure_listen=consent)
    config = Config(api=api, tls=tls, client=ClientConfig(token_in_the_clear=in_the_clear))
    return open_guard(config, role, "m1", "127.0.0.1")


def token_for(found: PortGuard, url: str) -> str | None:
    """Returns the token that a server gets, and None if it is not to be asked."""
    try:
        return found.access(origin_of(url)).token
    except NotTrusted:
        return None


def test_a_daemon_of_one_machine_needs_no_proof(tmp_path: Path) -> None:
    """`dev up` does not start."""
    found = guard(tmp_path, token="")

    assert (None, None, b"", "http") == (found.token, found.own_token, found.job_key, found.scheme)
    assert (None, None, False) == (found.rules(lambda _: False), found.certificate(), found.only_https)
    assert "" == token_for(found, "http://127.0.0.1:1")


def test_a_token_guards_a_daemon_and_makes_the_tokens_of_jobs(tmp_path: Path) -> None:
    """A daemon with a token lets everybody in, or its jobs get no tokens."""
    found = guard(tmp_path)

    assert ("t" * 32, "t" * 32, key_of("t" * 32)) == (found.token, found.own_token, found.job_key)
    assert ("t" * 32, None) == (token_for(found, "http://127.0.0.1:1"), token_for(found, "http://10.0.0.2:1"))


@pytest.mark.parametrize(
    ("token", "consent", "lack"),
    [("", False, "without authentication"), ("", True, "without authentication"), ("t" * 32, False, "without TLS")],
)
def test_nobody_listens_to_the_world_by_mistake(tmp_path: Path, token: str, consent: bool, lack: str) -> None:
    """Strangers use a cluster whose operator forgot a line of its configuration."""
    with pytest.raises(TorrentdistError) as caught:
        guard(tmp_path, listen="0.0.0.0", token=token, consent=consent)

    assert ("insecure_listen", "0.0.0.0") == (caught.value.code, caught.value.fields["address"])
    assert lack == caught.value.fields["lack"]


@pytest.mark.parametrize(("consent", "in_the_clear"), [(True, False), (False, True)])
def test_a_token_travels_in_the_clear_where_the_operator_allows_it(
    tmp_path: Path, consent: bool, in_the_clear: bool
) -> None:
    """A cluster on a trusted network does not find together."""
    found = guard(tmp_path, listen="0.0.0.0" if consent else "127.0.0.1", consent=consent, in_the_clear=in_the_clear)

    assert "t" * 32 == token_for(found, "http://10.0.0.2:1")


def test_where_all_have_certificates_no_token_is_shown(tmp_path: Path) -> None:
    """A host that somebody stole collects the token of every other one."""
    found = guard(tmp_path, listen="0.0.0.0", mode="mutual")
    shown, rules = found.access(SECURE), found.rules(lambda _: True)
    assert found.tls is not None
    assert rules is not None
    facts = found.tls.facts

    assert ("t" * 32, None, key_of("t" * 32)) == (found.token, found.own_token, found.job_key)
    assert ("", found.tls.client) == (shown.token, shown.trust and shown.trust.context)
    assert (True, "https", True, "prod") == (found.only_https, found.scheme, rules.are_for_all_hosts, rules.cluster())
    assert OwnCertificate(serial=facts.serial, expires_at=facts.expires_at) == found.certificate()


def test_while_a_cluster_goes_over_both_ways_work(tmp_path: Path) -> None:
    """A daemon that has a certificate cannot speak to one that has none yet."""
    found = guard(tmp_path, mode="both", in_the_clear=True)
    secure, plain, rules = found.access(SECURE), found.access(PLAIN), found.rules(lambda _: False)
    assert found.tls is not None
    assert rules is not None

    assert ("t" * 32, False, "http") == (found.own_token, found.only_https, found.scheme)
    assert ("", True, "t" * 32, None) == (secure.token, secure.trust is not None, plain.token, plain.trust)
    assert (False, True) == (rules.are_for_all_hosts, found.plain_too)


def test_a_plain_port_beside_tls_needs_consent_too(tmp_path: Path) -> None:
    """A cluster that goes over to TLS is open to strangers meanwhile."""
    with pytest.raises(TorrentdistError) as caught:
        guard(tmp_path, listen="0.0.0.0", mode="both")

    assert "insecure_listen" == caught.value.code


def test_a_certificate_of_another_role_is_refused(tmp_path: Path) -> None:
    """A supervisor with a master's certificate passes for a master everywhere."""
    with pytest.raises(TorrentdistError):
        guard(tmp_path, mode="mutual", role=PeerRole.SUPERVISOR)


def test_a_url_names_the_scheme_and_the_address(tmp_path: Path) -> None:
    """No other host reaches a daemon with an IPv6 address."""
    found = guard(tmp_path)

    assert ["http://[fd00::1]:7", "http://h1:7"] == [found.url(host, 7) for host in ("fd00::1", "h1")]
