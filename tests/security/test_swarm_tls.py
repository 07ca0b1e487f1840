"""The swarm over TLS, attacked by real libtorrent peers and by peers that say what they like."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import libtorrent as lt
import pytest
from engines_in_process import LARGE, MiB, address, engines, published, run
from swarm_members import LOOPBACK, RawPeer, asked_for_metadata, joined, membership, stock_session, wire_params
from zookeeper_fixtures import eventually

from torrentdist.bundle.metafile import Metafile
from torrentdist.model.access.swarm_membership import SwarmMembership, names_on_wire
from torrentdist.model.ids import Digest
from torrentdist.security.authority.certificates import Key, new_key
from torrentdist.swarm.engine.engine import Engine, EngineConfig, Transfer
from torrentdist.swarm.engine.session_settings import new_session, session_pack
from torrentdist.swarm.membership import member_torrents
from torrentdist.swarm.membership.wire_metafile import hash_on_wire
from torrentdist.testing.sample_trees import Tree, some_bytes

TLS = EngineConfig(tls=True)


@pytest.fixture(scope="module")
def ca_key() -> Key:
    return new_key()


ONE: Tree = {"only.bin": some_bytes(MiB, 7)}
"""libtorrent names a torrent with a single file after the file."""
SMALL: Tree = {"only.txt": b"text"}


def seeding(engine: Engine, home: Path, tree: Tree = LARGE) -> Metafile:
    meta = published(home, tree)
    engine.seed(meta, home)
    return meta


def is_ready(engine: Engine) -> bool:
    """Whether libtorrent serves the engine's only transfer. It calls a torrent a seed before it has
    looked at the resume data, and refuses its peers until then."""
    handle = engine.transfers()[0].handle
    return handle is not None and handle.status().state == lt.torrent_status.seeding


def attempts_of(session: lt.session) -> int:
    """Returns how many connections have ended since the last call."""
    ends = (lt.peer_disconnected_alert, lt.peer_error_alert)
    return sum(isinstance(alert, ends) for alert in session.pop_alerts())


def test_members_exchange_a_bundle(tmp_path: Path, ca_key: Key) -> None:
    """If this failed, no bundle would reach anybody in a cluster with TLS."""

    async def scenario() -> None:
        async with engines(TLS, TLS) as (giver, taker):
            giver.join([membership(ca_key)])
            taker.join([membership(ca_key)])
            meta = seeding(giver, tmp_path / "a")
            fetch = taker.fetch(meta, tmp_path / "b", [address(giver, complete=True)])
            await fetch.wait_done()

            assert meta.size == fetch.view().sources.masters
            assert meta.digest == fetch.digest
            handle = fetch.handle
            assert handle is not None
            assert hash_on_wire(meta.raw, membership(ca_key).ca) == str(handle.info_hashes().v2)

    run(scenario())
    assert (tmp_path / "a/content/large.bin").read_bytes() == (tmp_path / "b/content/large.bin").read_bytes()


@pytest.mark.parametrize("before", [(), ("none",)], ids=["no certificate", "one for other bundles"])
def test_a_transfer_waits_for_a_certificate_for_its_bundle(before: Sequence[str], tmp_path: Path, ca_key: Key) -> None:
    """If this failed, a host that starts before the masters, or gets a further bundle, would never
    exchange it: a peer that refused it three times is not dialled again."""

    async def scenario() -> None:
        async with engines(TLS, TLS) as (giver, taker):
            taker.join([membership(ca_key)])
            giver.join([membership(ca_key, names=before)] if before else [])
            meta = seeding(giver, tmp_path / "a")
            fetch = taker.fetch(meta, tmp_path / "b", [address(giver, complete=True)])
            giver.join([membership(ca_key, names=names_on_wire([meta.digest]))])
            await eventually(lambda: is_ready(giver))
            fetch.add_peers([address(giver, complete=True)])
            await fetch.wait_done()

    run(scenario())


def test_a_removed_transfer_waits_for_no_certificate(
    tmp_path: Path, ca_key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this failed, each attempt of a fetch without a certificate would leave its metafile in
    memory."""
    monkeypatch.setattr(member_torrents, "LOOK_SECS", 0.05)

    async def scenario() -> None:
        async with engines(TLS) as (taker,):
            taker.join([membership(ca_key, names=names_on_wire([]))])
            meta = published(tmp_path / "a", SMALL)
            fetch = weakref.ref(taker.fetch(meta, tmp_path / "b"))
            await asyncio.sleep(0.1)  # it begins to wait
            await taker.remove(meta.digest)
            await eventually(lambda: gc.collect() >= 0 and fetch() is None)

    run(scenario())


STRANGERS: dict[str, Callable[[Key], SwarmMembership | None]] = {
    "another CA": lambda ca_key: membership(new_key()),
    "expired": lambda ca_key: membership(ca_key, age=7200, lives=3600),
    "no certificate": lambda ca_key: None,
    "other bundles": lambda ca_key: membership(ca_key, names=names_on_wire([Digest("b" * 64)])),
    "no bundle": lambda ca_key: membership(ca_key, names=names_on_wire([])),
}


@pytest.mark.case("F8")
@pytest.mark.parametrize(
    ("stranger", "tree"), [*((each, LARGE) for each in STRANGERS), ("other bundles", ONE), ("other bundles", SMALL)]
)
def test_a_stranger_that_knows_everything_gets_no_byte(stranger: str, tree: Tree, tmp_path: Path, ca_key: Key) -> None:
    """If this failed, a metafile and an admitted address would be enough to read a bundle. The
    stranger is a real libtorrent peer that knows the metafile and the CA."""
    shown = STRANGERS[stranger](ca_key)

    async def scenario() -> None:
        async with engines(TLS) as (giver,):
            member = membership(ca_key)
            giver.join([member])
            meta = seeding(giver, tmp_path / "a", tree)
            await eventually(lambda: is_ready(giver))
            with stock_session(listen_interfaces=f"{LOOPBACK}:0s", min_reconnect_time=1) as session:
                handle = joined(session, wire_params(meta, member.ca, tmp_path / "b"), shown, giver.port)
                await eventually(lambda: attempts_of(session) > 0)
                assert (0, 0) == (handle.status().total_payload_download, handle.status().total_done)
            assert 0 == giver.transfers()[0].view().uploaded
            with stock_session(listen_interfaces=f"{LOOPBACK}:0s") as session:  # the same peer, as a member
                own = membership(ca_key, names=names_on_wire([meta.digest]))
                handle = joined(session, wire_params(meta, member.ca, tmp_path / "c"), own, giver.port)
                await eventually(lambda: handle.status().is_seeding)

    run(scenario())


@pytest.mark.case("F8")
@pytest.mark.parametrize("known", ["digest", "wire hash"])
def test_a_plain_handshake_gets_no_answer(known: str, tmp_path: Path, ca_key: Key) -> None:
    """If this failed, a client that leaves out TLS would be served as before."""

    async def scenario() -> None:
        async with engines(TLS) as (giver,):
            member = membership(ca_key)
            giver.join([member])
            meta = seeding(giver, tmp_path / "a")
            await eventually(lambda: is_ready(giver))
            asked = meta.digest if known == "digest" else hash_on_wire(meta.raw, member.ca)
            with closing(RawPeer(giver.port, asked, None)) as peer, pytest.raises(ConnectionError):
                await asyncio.to_thread(peer.handshake)

    run(scenario())


@pytest.mark.case("F8")
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_peer_that_asks_for_the_metafile_gets_nothing(tls: bool, tmp_path: Path, ca_key: Key) -> None:
    """If this failed, the digest of a bundle would be enough to get its metafile from any host, and
    whoever may not have a bundle would get it. The masters alone hand out metafiles."""

    async def scenario() -> None:
        async with engines(EngineConfig(tls=tls)) as (giver,):
            member = membership(ca_key) if tls else None
            giver.join([member] if member else [])
            meta = seeding(giver, tmp_path / "a")
            await eventually(lambda: is_ready(giver))
            wire = hash_on_wire(meta.raw, member.ca) if member else meta.digest
            with closing(await asyncio.to_thread(RawPeer, giver.port, wire, member)) as peer:
                names, answers = await asyncio.to_thread(asked_for_metadata, peer)

            assert not {b"ut_metadata", b"ut_pex"} & {*names}
            assert [] == answers

    run(scenario())


@pytest.mark.case("F8")
@pytest.mark.parametrize("ours", [False, True], ids=["libtorrent's own", "ours"])
def test_our_sessions_give_no_metafile_whatever_the_torrent_says(ours: bool, tmp_path: Path) -> None:
    """If this failed, only the private flag in a metafile would stand between a stranger and the
    metafile. A session with libtorrent's own extensions shows that this peer would get it."""
    (tmp_path / "content").write_bytes(bytes(100_000))
    torrent = lt.create_torrent(lt.list_files(str(tmp_path / "content")), flags=lt.create_torrent.v2_only)
    lt.set_piece_hashes(torrent, str(tmp_path))
    params = lt.load_torrent_buffer(lt.bencode(torrent.generate()))
    params.save_path, params.flags = str(tmp_path), lt.torrent_flags.seed_mode
    pack: Any = session_pack(EngineConfig(), LOOPBACK)
    session = new_session(pack) if ours else lt.session(pack)
    handle = session.add_torrent(params)
    asyncio.run(eventually(lambda: handle.status().state == lt.torrent_status.seeding and session.is_listening()))
    with closing(RawPeer(session.listen_port(), str(handle.info_hashes().v2), None)) as peer:
        names, answers = asked_for_metadata(peer)

    assert (not ours) == (b"ut_metadata" in names)
    assert (not ours) == bool(answers)
    session.pause()


def test_a_new_certificate_needs_no_new_connection(tmp_path: Path, ca_key: Key) -> None:
    """If this failed, every renewal would break the transfers that are under way."""

    async def scenario() -> None:
        slow = EngineConfig(tls=True, upload_limit=4 * 1024 * 1024)
        async with engines(slow, TLS) as (giver, taker):
            giver.join([membership(ca_key)])
            taker.join([membership(ca_key)])
            meta = seeding(giver, tmp_path / "a")
            fetch = taker.fetch(meta, tmp_path / "b", [address(giver, complete=True)])
            await eventually(lambda: fetch.view().done > 0)
            before = {peer.remote for peer in fetch.seen_peers()}
            giver.join([membership(ca_key)])
            taker.join([membership(ca_key)])
            await fetch.wait_done()
            assert before & {peer.remote for peer in fetch.seen_peers()}

    run(scenario())


def test_an_expired_host_serves_again_after_its_renewal(tmp_path: Path, ca_key: Key) -> None:
    """If this failed, a host that was off for long would have to start twice."""

    async def scenario() -> None:
        async with engines(TLS, TLS) as (giver, taker):
            giver.join([membership(ca_key, age=7200, lives=3600)])
            taker.join([membership(ca_key)])
            meta = seeding(giver, tmp_path / "a")
            await eventually(lambda: is_ready(giver))
            fetch = taker.fetch(meta, tmp_path / "b", [address(giver, complete=True)])
            giver.join([membership(ca_key)])
            done = asyncio.ensure_future(fetch.wait_done())
            while not done.done():  # as each picture of the masters does
                fetch.add_peers([address(giver, complete=True)])
                await asyncio.wait({done}, timeout=0.5)
            done.result()

    run(scenario())


@pytest.mark.case("F7")
def test_both_cas_are_served_while_the_swarms_ca_is_rotated(tmp_path: Path) -> None:
    """If this failed, a rotation of the CA would cut off what is being fetched, or all hosts would
    have to change in the same moment."""
    old, new = new_key(), new_key()

    async def scenario() -> None:
        slow = EngineConfig(tls=True, upload_limit=4 * 1024 * 1024)
        async with engines(slow, TLS, TLS, TLS) as (giver, early, late, last):
            giver.join([membership(old)])
            early.join([membership(old)])
            meta = seeding(giver, tmp_path / "a")
            wires = {name: hash_on_wire(meta.raw, membership(key).ca) for name, key in (("old", old), ("new", new))}
            begun = early.fetch(meta, tmp_path / "b", [address(giver, complete=True)])
            await eventually(lambda: begun.view().done > 0)
            seed = giver.transfers()[0]
            giver.join([membership(new), membership(old)])
            early.join([membership(new), membership(old)])
            await eventually(lambda: seed.twins)
            late.join([membership(new)])
            later = late.fetch(meta, tmp_path / "c", [address(giver, complete=True)])
            assert (begun.active, {wires["old"]}) == (True, {*_wires(begun)})
            await asyncio.gather(begun.wait_done(), later.wait_done())
            await eventually(lambda: begun.twins)
            assert ({*wires.values()}, {wires["new"]}) == ({*_wires(begun)}, {*_wires(later)})

            for engine in (giver, early):  # the old CA has ended
                engine.join([membership(new)])
            await eventually(lambda: [wires["new"]] == _wires(seed) == _wires(begun))
            last.join([membership(new)])
            await last.fetch(meta, tmp_path / "d", [address(early, complete=True)]).wait_done()
            with pytest.raises(OSError, match="UNRECOGNIZED_NAME"):
                await asyncio.to_thread(RawPeer, giver.port, wires["old"], membership(old))
            await giver.remove(meta.digest)

    run(scenario())


def _wires(transfer: Transfer) -> list[str]:
    """Returns the hashes under which peers can have this transfer."""
    handles = [handle for handle in (transfer.handle, *transfer.twins.values()) if handle is not None]
    return [str(handle.info_hashes().v2) for handle in handles]
