"""The CA of the swarm, and the hash that a bundle has under it."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import pytest
from swarm_members import membership

from torrentdist.bundle.metafile import parse_metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.model.access.swarm_certificate_messages import MOST_DIGESTS
from torrentdist.model.configuration.config import Config, SwarmConfig, TlsConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.security.authority.certificates import new_key
from torrentdist.security.authority.membership_files import keep_memberships, read_memberships
from torrentdist.security.authority.pem_texts import key_pem, parse_key, public_key_pem
from torrentdist.security.authority.swarm_authority import (
    HOST_LIFETIME,
    PERSON_LIFETIME,
    issued_for,
    memberships_of,
    swarm_authority,
)
from torrentdist.security.authority.swarm_issuing import SwarmIssuing
from torrentdist.security.private_files import write_private
from torrentdist.swarm.membership.wire_metafile import hash_on_wire, with_swarm_ca


def issuing(key_file: Path, mode: str = "mutual", swarm: SwarmConfig | None = None) -> SwarmIssuing:
    tls = TlsConfig(mode=mode, ca_key_file=str(key_file), key_file=str(key_file))
    return SwarmIssuing(Config(tls=tls, swarm=swarm or SwarmConfig()))


def test_all_masters_with_one_key_have_one_swarm_ca() -> None:
    """If this failed, hosts with certificates from different masters would not meet in a swarm."""
    key = new_key()

    assert swarm_authority(key).pem == swarm_authority(parse_key(key_pem(key))).pem
    assert swarm_authority(key).pem != swarm_authority(new_key()).pem


def test_a_certificate_names_nobody_and_lives_as_long_as_it_should(tmp_path: Path) -> None:
    """If this failed, a certificate of the swarm would stand for a host or a person, or outlive the
    token for which it was given."""
    write_private(tmp_path / "ca.key", key_pem(new_key()))
    own, now = public_key_pem(new_key().public_key()).decode(), time.time()
    (issued,) = issuing(tmp_path / "ca.key").issue(own, PERSON_LIFETIME, now)
    held = membership(new_key(), lives=timedelta(hours=1).total_seconds())

    assert "torrentdist://" not in issued.certificate
    assert 3600 >= held.expires_at - now > 3500


def test_a_master_issues_for_every_key_of_its_file(tmp_path: Path) -> None:
    """If this failed, no host could serve both CAs while the swarm's CA is rotated."""
    old, new = new_key(), new_key()
    write_private(tmp_path / "ca.key", key_pem(new) + key_pem(old))
    issued = issuing(tmp_path / "ca.key").issue(public_key_pem(new_key().public_key()).decode(), PERSON_LIFETIME, 0.0)

    assert [swarm_authority(new).pem, swarm_authority(old).pem] == [each.ca for each in issued]


@pytest.mark.parametrize(
    ("mode", "swarm", "count"), [("mutual", "", 1), ("mutual", "on", 1), ("mutual", "off", 0), ("off", "", 0)]
)
def test_the_swarm_has_tls_where_daemons_have_it(mode: str, swarm: str, count: int, tmp_path: Path) -> None:
    """If this failed, a mutual cluster would exchange its bundles in the clear."""
    write_private(tmp_path / "ca.key", key_pem(new_key()))
    made = issuing(tmp_path / "ca.key", mode, SwarmConfig(tls=swarm))

    assert count == len(made.issue(public_key_pem(new_key().public_key()).decode(), PERSON_LIFETIME, 0.0))


def test_a_host_reads_what_it_has_written(tmp_path: Path) -> None:
    """If this failed, a host that starts without masters could not seed what it has."""
    held = membership(new_key())
    keep_memberships(tmp_path / "swarm.pem", [held])

    assert (held,) == read_memberships(tmp_path / "swarm.pem")
    assert () == read_memberships(tmp_path / "none.pem")
    assert 0o600 == (tmp_path / "swarm.pem").stat().st_mode & 0o777


def test_a_host_reads_certificates_of_as_many_bundles_as_one_may_name(tmp_path: Path) -> None:
    """If this failed, a host with very many bundles would join no swarm when it starts without
    masters."""
    names = [f"{number:032x}" for number in range(MOST_DIGESTS)]
    key, cas = new_key(), [swarm_authority(new_key()) for _ in range(2)]
    held = memberships_of(key, issued_for(cas, key.public_key(), HOST_LIFETIME, time.time(), names))
    keep_memberships(tmp_path / "swarm.pem", held)

    assert held == read_memberships(tmp_path / "swarm.pem")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    """If this failed, a host with half a file would say nothing that helps."""
    write_private(tmp_path / "swarm.pem", membership(new_key()).key.encode())
    with pytest.raises(TorrentdistError, match=r"swarm\.pem"):
        read_memberships(tmp_path / "swarm.pem")


def test_a_bundle_has_one_digest_and_a_hash_for_each_ca(tmp_path: Path) -> None:
    """If this failed, a rotation of the CA would give each bundle another digest, or peers of
    different CAs would find each other and fail."""
    (tmp_path / "a").write_bytes(b"some bytes")
    meta = make_metafile(tmp_path / "a")
    cas = [membership(new_key()).ca for _ in range(2)]

    assert 3 == len({meta.digest, *(hash_on_wire(meta.raw, ca) for ca in cas)})
    assert hash_on_wire(meta.raw, cas[0]) == hash_on_wire(parse_metafile(meta.raw).raw, cas[0])
    with pytest.raises(TorrentdistError, match="ssl-cert"):
        parse_metafile(with_swarm_ca(meta.raw, cas[0]))
