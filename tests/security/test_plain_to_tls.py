"""A live cluster goes over from plain to mutual, by the steps of docs/security.md, and nothing
fails."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cluster_fixtures import Cluster, disk_bytes, make_source, part_bytes, running_cluster, until
from engines_in_process import LARGE, address, engines, published, run
from swarm_members import RawPeer, membership
from zookeeper_fixtures import eventually

from torrentdist.dev.dev_certificates import DevCertificates
from torrentdist.host.process.daemon_address import read_address
from torrentdist.security.authority.certificates import new_key
from torrentdist.swarm.engine.engine import EngineConfig, Transfer
from torrentdist.swarm.membership.wire_metafile import hash_on_wire

pytestmark = pytest.mark.case("F7")

MiB = 1024 * 1024
TLS = EngineConfig(tls=True)
PLAIN = EngineConfig()
BOTH = EngineConfig(tls=True, plain_too=True)
SLOW_BOTH = EngineConfig(tls=True, plain_too=True, upload_limit=4 * MiB)


def wires(transfer: Transfer) -> set[str]:
    """Returns the hashes under which peers can have this transfer."""
    handles = [handle for handle in (transfer.handle, *transfer.twins.values()) if handle is not None]
    return {str(handle.info_hashes().v2) for handle in handles}


def test_a_seed_of_both_kinds_serves_plain_and_tls_side_by_side(tmp_path: Path) -> None:
    """If this failed, hosts that have gone over to TLS and hosts that have not could not fetch from
    the same master."""
    key = new_key()

    async def scenario() -> None:
        async with engines(SLOW_BOTH, PLAIN, TLS, BOTH, BOTH, BOTH) as (giver, old, new, first, third, last):
            for engine in (giver, new, first, third, last):
                engine.join([membership(key)])
            meta = published(tmp_path / "a", LARGE)
            seed = giver.seed(meta, tmp_path / "a")
            secret = hash_on_wire(meta.raw, membership(key).ca)
            await eventually(lambda: wires(seed) == {meta.digest, secret})
            assert len({giver.port, giver.tls_port, 0}) == 3
            begun = old.fetch(meta, tmp_path / "b", [address(giver, complete=True)])
            await eventually(lambda: begun.view().done > 0)
            later = [
                engine.fetch(meta, tmp_path / name, [address(giver, complete=True)])
                for engine, name in ((new, "c"), (first, "d"))
            ]
            await asyncio.gather(*(fetch.wait_done() for fetch in (begun, *later)))

            assert {meta.digest} == wires(begun)
            assert {secret} == wires(later[0])
            assert secret == str(later[1].handle and later[1].handle.info_hashes().v2)
            await eventually(lambda: wires(later[1]) == {meta.digest, secret})
            assert meta.size == later[0].view().sources.masters
            # Where nobody has TLS yet, a host that could use it does without.
            plain = third.fetch(meta, tmp_path / "e", [address(old, complete=True)])
            await plain.wait_done()
            assert meta.digest == str(plain.handle and plain.handle.info_hashes().v2)
            # Peers that come late decide too.
            waiting = last.fetch(meta, tmp_path / "f")
            waiting.add_peers([address(old, complete=True)])
            await waiting.wait_done()

    run(scenario())


def test_what_is_seeded_without_tls_is_seeded_with_it_once_there_is_a_certificate(tmp_path: Path) -> None:
    """If this failed, a host that goes over before it has a certificate would cut off others."""
    key = new_key()

    async def scenario() -> None:
        async with engines(BOTH, PLAIN) as (giver, taker):
            meta = published(tmp_path / "a", LARGE)
            seed = giver.seed(meta, tmp_path / "a")
            await taker.fetch(meta, tmp_path / "b", [address(giver, complete=True)]).wait_done()
            giver.join([membership(key)])
            await eventually(lambda: wires(seed) == {meta.digest, hash_on_wire(meta.raw, membership(key).ca)})
            await giver.remove(meta.digest)

    run(scenario())


@pytest.fixture
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster without TLS, whose daemons send slowly, so that a download lasts."""
    settings = {"swarm": {"seeding_secs": 1.0, "upload_limit": 400 * 1024}}
    with running_cluster(settings, work=tmp_path_factory.mktemp("plain"), masters=3, supervisors=2) as cluster:
        yield cluster


class Move:
    """One daemon after the other gets its certificate and goes over; after each, an upload has to
    work."""

    def __init__(self, cluster: Cluster, sources: Path) -> None:
        self._cluster = cluster
        self._sources = sources
        self._certificates = DevCertificates(cluster.dir)
        self.failed: list[str] = []

    def go(self, name: str, mode: str) -> None:
        tls = {**self._certificates.daemon_sections(name)["tls"], "mode": mode}
        self._cluster.reconfigure(name, {"tls": tls})
        bundle = f"{mode}-{name}"
        source = make_source(self._sources / bundle, len(bundle), 20_000)
        ran = self._cluster.run("upload", source, "--id", bundle, "--min-replicas", 2)
        self.failed += [f"{bundle}: {ran.stderr}"] if ran.code else []

    def clients_trust(self) -> None:
        """Makes commands speak HTTPS."""
        file = self._cluster.dir / "client.toml"
        lines = [
            line.replace("http://", "https://") if line.startswith("masters") else line
            for line in file.read_text().splitlines()
        ]
        ca = f'ca_file = "{self._certificates.client_section()["ca_file"]}"'
        file.write_text("\n".join(line.replace("[client]", f"[client]\n{ca}") for line in lines) + "\n")


def is_closed_to_strangers(cluster: Cluster, name: str, digest: str) -> bool:
    """Whether a peer without TLS gets no answer of this daemon."""
    address = read_address(cluster.store(name))
    assert address is not None
    with closing(RawPeer(address.swarm_port, digest, None)) as peer, contextlib.suppress(ConnectionError):
        peer.handshake()
        return False
    return True


def test_hosts_go_over_one_by_one_under_a_running_download(plain: Cluster, tmp_path: Path) -> None:
    """If this failed, a cluster would have to stop to become safe: hosts of the two kinds would not
    reach each other, or a download that runs would end. It takes long: each daemon starts again
    three times."""
    cluster, move = plain, Move(plain, tmp_path)
    digest = cluster.upload(make_source(tmp_path / "source", 1, 40 * MiB), "big")["digest"]

    first, *others = cluster.masters()
    download = cluster.begin("download", "big", tmp_path / "got", client__supervisor="")
    until(lambda: part_bytes(tmp_path) > 0, "the download has begun")
    move.go(first, "both")
    assert download.running()
    for name in others:
        move.go(name, "both")
    assert 0 == download.end(360.0).code
    assert not any(is_closed_to_strangers(cluster, name, digest) for name in cluster.masters())

    fleet = cluster.begin("bundle", "distribute", "big")
    for name in cluster.supervisors():
        until(lambda n=name: disk_bytes(cluster.store(n) / "objects") > 0, f"{name} has begun")  # type: ignore[misc]
        move.go(name, "mutual")
    assert fleet.running()
    assert 0 == fleet.end(360.0).code

    move.clients_trust()
    for name in cluster.masters():
        move.go(name, "mutual")
    daemons = [*cluster.masters(), *cluster.supervisors()]
    assert [] == move.failed
    assert all(is_closed_to_strangers(cluster, name, digest) for name in daemons)
    last = cluster.run("download", f"mutual-{first}", tmp_path / "last", client__supervisor="")
    assert (0, True) == (last.code, (tmp_path / "last").exists())
