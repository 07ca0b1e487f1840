"""`ca init` and `ca issue`: what they write, what a second run changes, and what they refuse."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torrentdist.model.errors import TorrentdistError
from torrentdist.security.authority.authority_files import IssuedView, init_authority, issue_files
from torrentdist.security.authority.certificates import facts_of
from torrentdist.security.authority.pem_texts import parse_certificate
from torrentdist.security.certificate_identity import CertificateIdentity, CertificateRole

NOW = 1_800_000_000.0
DAY = 86_400.0
MASTER, SUPERVISOR, PERSON = CertificateRole.MASTER, CertificateRole.SUPERVISOR, CertificateRole.PERSON


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    init_authority(tmp_path / "ca", "prod", NOW)
    return tmp_path / "ca"


def host(ca: Path, now: float = NOW, **changes: Any) -> IssuedView:
    asked = {"role": SUPERVISOR, "id_": "host-1", "addresses": ["10.0.0.7", "Host-1.example"], "out": None} | changes
    return issue_files(ca, now=now, **asked)


def error_of(work: Callable[[], object]) -> str:
    with pytest.raises(TorrentdistError) as caught:
        work()
    return caught.value.code


def content(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def test_a_certificate_names_exactly_what_was_asked_for(ca: Path) -> None:
    """A host could prove an id, a role or an address that nobody gave it."""
    view = host(ca)
    facts = facts_of(parse_certificate(Path(view.certificate_file).read_bytes()))

    assert CertificateIdentity("prod", SUPERVISOR, "host-1") == facts.identity
    assert ("10.0.0.7", "host-1.example") == facts.addresses == view.addresses
    assert (view.serial, NOW + 30 * DAY) == (facts.serial, facts.expires_at)


def test_keys_are_for_their_owner_alone(ca: Path) -> None:
    """Another user of the machine could be any host of the cluster."""
    keys = [ca / "ca.key", Path(host(ca).key_file)]

    assert [0o600, 0o600] == [stat.S_IMODE(key.stat().st_mode) for key in keys]


def test_a_second_run_changes_nothing(ca: Path) -> None:
    """A script that is run again would replace the CA and lock every host out."""
    first = host(ca)
    before = content(ca)
    again = init_authority(ca, "", NOW + DAY), host(ca, NOW + DAY)

    assert (False, False, first.serial) == (again[0].created, again[1].created, again[1].serial)
    assert before == content(ca)


@pytest.mark.parametrize("lost", [["ca.pem"], ["ca.pem", "zookeeper.auth"]])
def test_an_interrupted_ca_is_completed_under_its_key(ca: Path, lost: list[str]) -> None:
    """A disk that was full for a moment would leave a directory in which no CA can be made."""
    for name in lost:
        (ca / name).unlink()
    before = content(ca)
    errors = [error_of(lambda: host(ca))]
    again = init_authority(ca, "prod", NOW)

    assert (["ca_missing"], True) == (errors, again.created)
    assert before == {name: data for name, data in content(ca).items() if name in before}
    assert {"ca.key", "ca.pem", "zookeeper.auth"} == content(ca).keys()
    assert host(ca).created


@pytest.mark.parametrize("lost", [["ca.pem"], ["certificate.pem"], ["ca.pem", "certificate.pem"]])
def test_an_interrupted_certificate_is_completed_under_its_key(ca: Path, lost: list[str]) -> None:
    """A host would stay without its CA, and `ca issue` would say that it has everything."""
    out = Path(host(ca).key_file).parent
    before = content(out)
    for name in lost:
        (out / name).unlink()

    assert host(ca).created
    assert [before[name] for name in ("key.pem", "ca.pem")] == [content(out)[name] for name in ("key.pem", "ca.pem")]
    assert not host(ca).created


def test_a_certificate_is_written_after_its_ca(ca: Path, tmp_path: Path) -> None:
    """A certificate whose CA could not be written would look like all that a host needs."""
    out = tmp_path / "out"
    (out / "ca.pem" / "in-the-way").mkdir(parents=True)

    assert error_of(lambda: host(ca, out=out)) == "disk_error"
    assert not (out / "certificate.pem").exists()


def test_the_name_of_a_key_is_on_disk_when_its_command_ends(ca: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host's key would be gone after a power failure, and its certificate worth nothing."""
    synced: list[str] = []
    fsync = os.fsync

    def noting(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noting)
    view = host(ca)

    assert 4 == synced.count(str(Path(view.key_file).parent))


def test_a_certificate_past_half_of_its_life_is_replaced_under_its_key(ca: Path) -> None:
    """A cron job that calls `ca issue` would never renew, or its key would change under a
    daemon."""
    first, key = host(ca), Path(host(ca).key_file).read_bytes()
    later = host(ca, NOW + 16 * DAY)

    assert later.created
    assert later.serial != first.serial
    assert key == Path(later.key_file).read_bytes()


def test_another_address_is_another_certificate(ca: Path) -> None:
    """A host that moved would keep a certificate for its old address."""
    first, moved = host(ca), host(ca, addresses=["10.0.0.8"])

    assert (True, ("10.0.0.8",)) == (moved.created, moved.addresses)
    assert moved.serial != first.serial


def test_anothers_certificate_is_never_replaced(ca: Path) -> None:
    """A wrong --out would take a host's identity away."""
    view = host(ca)
    out = Path(view.certificate_file).parent
    before = content(out)
    errors = [error_of(lambda: host(ca, id_="host-2", out=out)), error_of(lambda: host(ca, role=MASTER, out=out))]

    assert ["certificate_exists"] * 2 == errors
    assert before == content(out)


def test_a_cas_key_that_others_can_read_is_refused(ca: Path) -> None:
    """A key that leaked would go on signing."""
    (ca / "ca.key").chmod(0o640)

    assert error_of(lambda: host(ca)) == "secret_invalid"


def test_a_ca_without_its_key_issues_nothing(ca: Path) -> None:
    """A cluster whose certificates come from elsewhere would get a second CA by mistake."""
    (ca / "ca.key").unlink()

    assert ["issuing_elsewhere"] * 2 == [error_of(lambda: host(ca)), error_of(lambda: init_authority(ca, "", NOW))]


def test_a_key_of_another_ca_is_refused(ca: Path, tmp_path: Path) -> None:
    """Hosts would get certificates that nobody trusts."""
    init_authority(tmp_path / "other", "prod", NOW)
    (ca / "ca.key").unlink()
    (tmp_path / "other" / "ca.key").rename(ca / "ca.key")

    assert error_of(lambda: host(ca)) == "ca_invalid"


def test_another_clusters_name_is_refused(ca: Path) -> None:
    """Two clusters would share a CA, and each other's hosts."""
    assert error_of(lambda: init_authority(ca, "test", NOW)) == "ca_exists"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"addresses": []}, "usage"),
        ({"role": PERSON}, "usage"),
        ({"id_": "a/b"}, "invalid_id"),
        ({"id_": "x" * 129}, "invalid_id"),
        ({"addresses": ["*.example"]}, "invalid_address"),
        ({"addresses": ["0.0.0.0"]}, "invalid_address"),
        ({"addresses": ["10.0.0.1:7060"]}, "invalid_address"),
        ({"addresses": ["10.0.0.300"]}, "invalid_address"),
        ({"addresses": ["a\nb"]}, "invalid_address"),
    ],
)
@pytest.mark.case("F6")
def test_what_no_certificate_may_name_is_refused(ca: Path, changes: dict[str, Any], code: str) -> None:
    """A wildcard, or an address that means every host, would let its holder be all of them.
    Dragonfly's manager signed certificates for any address."""
    assert code == error_of(lambda: host(ca, **changes))


def test_a_missing_ca_says_how_to_make_one(tmp_path: Path) -> None:
    """The user would not know the first step."""
    with pytest.raises(TorrentdistError) as caught:
        host(tmp_path / "nothing")

    assert caught.value.code == "ca_missing"
    assert f"ca init {tmp_path / 'nothing'}" in caught.value.hint
