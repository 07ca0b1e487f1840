"""TLS to ZooKeeper by configuration, against a real server with certificates made here."""

from __future__ import annotations

import datetime
import ipaddress
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from torrentdist.cluster.session.founding import found_cluster
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper
from torrentdist.host.process.listening_sockets import free_ports
from torrentdist.model.configuration.config import ZooKeeperConfig
from torrentdist.model.errors import TorrentdistError

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Authority:
    """A certificate authority, and a certificate of it for 127.0.0.1 with its key."""

    ca: Path
    cert: Path
    key: Path
    both: Path


def authority(directory: Path, name: str) -> Authority:
    directory.mkdir()
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    host = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    ca = (
        _certificate(ca_name, ca_key.public_key(), ca_name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    cert = _certificate(subject, key.public_key(), ca_name).add_extension(host, critical=False)
    made = Authority(*(directory / f"{part}.pem" for part in ("ca", "cert", "key", "both")))
    made.ca.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    cert_bytes = cert.sign(ca_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    key_bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    made.cert.write_bytes(cert_bytes)
    made.key.write_bytes(key_bytes)
    made.both.write_bytes(key_bytes + cert_bytes)
    return made


def _certificate(subject: x509.Name, key: ec.EllipticCurvePublicKey, issuer: x509.Name) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
    )


def secure_lines(port: int, both: Path, ca: Path) -> list[str]:
    """Returns the lines of zoo.cfg for a port that demands certificates."""
    return [
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
        f"secureClientPort={port}",
        "secureClientPortAddress=127.0.0.1",
        f"ssl.keyStore.location={both}",
        "ssl.keyStore.type=PEM",
        f"ssl.trustStore.location={ca}",
        "ssl.trustStore.type=PEM",
        "ssl.clientAuth=need",
    ]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("authority") / "ours", "our authority")


@pytest.fixture(scope="module")
def tls_address(tmp_path_factory: pytest.TempPathFactory, ours: Authority) -> Iterator[str]:
    """A server that requires client certificates of our authority."""
    port = free_ports(1)[0]
    server = EmbeddedZooKeeper(tmp_path_factory.mktemp("tls") / "zk", config=secure_lines(port, ours.both, ours.ca))
    server.start()
    yield f"127.0.0.1:{port}"
    server.kill()


def config(address: str, chroot: str, ca: Path, client: Authority) -> ZooKeeperConfig:
    return ZooKeeperConfig(
        servers=[address], chroot=chroot, tls_ca=str(ca), tls_cert=str(client.cert), tls_key=str(client.key)
    )


async def test_only_the_authority_that_is_named_is_trusted_on_either_side(
    tmp_path: Path, tls_address: str, ours: Authority, chroot: str
) -> None:
    """If this fails, TLS is off, or it accepts every certificate."""
    theirs = authority(tmp_path / "theirs", "their authority")
    zk = ZooKeeper(config(tls_address, chroot, ours.ca, ours))
    await zk.start(10.0)
    await found_cluster(zk)
    made = await zk.create("/a")
    await zk.close()
    codes = []
    for bad in (config(tls_address, chroot, theirs.ca, ours), config(tls_address, chroot, ours.ca, theirs)):
        stranger = ZooKeeper(bad)
        with pytest.raises(TorrentdistError) as caught:
            await stranger.start(1.0)
        codes.append(caught.value.code)
        await stranger.close()

    assert made == "/a"
    assert codes == ["zookeeper_unavailable", "zookeeper_unavailable"]


async def test_changed_files_are_used_for_the_next_connection(
    tmp_path: Path, tls_address: str, ours: Authority, chroot: str
) -> None:
    """If this fails, a daemon loses ZooKeeper for good when its first certificate has expired."""
    theirs = authority(tmp_path / "theirs", "their authority")
    shutil.copytree(theirs.cert.parent, tmp_path / "own")
    own = replace(theirs, **{part: tmp_path / "own" / f"{part}.pem" for part in ("cert", "key", "ca", "both")})
    zk = ZooKeeper(config(tls_address, chroot, ours.ca, own))
    with pytest.raises(TorrentdistError):
        await zk.start(0.5)
    for part in ("cert", "key"):
        shutil.copy(getattr(ours, part), getattr(own, part))
    await zk.start(20.0)
    await zk.close()


async def test_a_missing_certificate_file_is_a_clear_error(tmp_path: Path, ours: Authority, chroot: str) -> None:
    """If this fails, a typo in the configuration shows as a connection that never comes."""
    zk = ZooKeeper(config("127.0.0.1:1", chroot, tmp_path / "missing", ours))
    with pytest.raises(TorrentdistError) as caught:
        await zk.start(1.0)

    assert caught.value.code == "config_invalid"
