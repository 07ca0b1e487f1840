"""The conductor's plan in real engines: a holder on a slow link, and receivers that share its
bundle."""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial
from pathlib import Path

import libtorrent as lt
import pytest

from torrentdist.bundle.content_check import Damage, verify_content
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.model.events import Fact, PeerConnected, PeerDropped
from torrentdist.model.swarm_place import SwarmPlace
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole
from torrentdist.model.wire.transfer_messages import TransferPhase
from torrentdist.swarm.engine.engine import Engine, EngineConfig
from torrentdist.swarm.engine.transfer import Transfer
from torrentdist.swarm.plan import conductor, request_window
from torrentdist.testing.sample_trees import some_bytes, write_tree

MiB = 1024 * 1024
DEADLINE_SECS = 60.0
AT_ONCE_SECS = 2.0
"""Longest time for an answer that comes at once. The fetch takes four times as long."""
SLOW = EngineConfig(upload_limit=4 * MiB)


async def broadcast(directory: Path, meta: Metafile, *, there: int, planned: int, first: int = 0) -> float:
    """Lets `there` receivers take places out of `planned`, starting at `first`. Returns the copies
    that the holder sent."""
    holder = Engine(SLOW)
    receivers = [Engine(SLOW) for _ in range(there)]
    try:
        for engine in (holder, *receivers):
            await engine.start()
            engine.crowd(meta.digest, planned)
        holder.seed(meta, directory / "holder")
        peers = [PeerAddress(host="127.0.0.1", port=holder.port, role=PeerRole.MASTER, complete=True)]
        peers += [PeerAddress(host="127.0.0.1", port=r.port, role=PeerRole.SUPERVISOR) for r in receivers]
        transfers = []
        for number, receiver in enumerate(receivers):
            place = SwarmPlace(number=first + number, receivers=planned)
            transfers.append(receiver.fetch(meta, directory / f"receiver-{number}", peers, place))
        async with asyncio.timeout(DEADLINE_SECS):
            await asyncio.gather(*(transfer.wait_done() for transfer in transfers))
        for number in range(there):
            content = directory / f"receiver-{number}" / "content"
            assert [] == await asyncio.to_thread(verify_content, meta, content)
        return sum(transfer.view().sources.masters for transfer in transfers) / meta.size
    finally:
        for engine in (holder, *receivers):
            await engine.close()


def bundle(directory: Path, mib: int = 12, piece_length: int | None = None) -> Metafile:
    write_tree(directory / "holder" / "content", {"large.bin": some_bytes(mib * MiB, 5), "tiny": b"tiny"})
    return make_metafile(directory / "holder" / "content", piece_length=piece_length)


def test_the_holder_sends_little_more_than_one_copy(tmp_path: Path) -> None:
    """If this failed, the holder's link would carry the same pieces again and again, and all
    receivers would wait for it."""
    copies = asyncio.run(broadcast(tmp_path, bundle(tmp_path), there=4, planned=4))

    assert copies < 1.3


def test_the_share_of_a_member_that_never_comes_arrives_too(tmp_path: Path) -> None:
    """If this failed, a host that was told to fetch and cannot would keep all others from
    finishing."""
    copies = asyncio.run(broadcast(tmp_path, bundle(tmp_path), there=3, planned=5))

    assert copies < 3.0


def test_a_receiver_without_a_share_is_not_done_before_it_has_everything(tmp_path: Path) -> None:
    """If this failed, a receiver without a share would look finished to libtorrent, and its bundle
    would be published with holes."""
    copies = asyncio.run(broadcast(tmp_path, bundle(tmp_path), there=2, planned=60, first=30))

    assert copies < 3.0


@pytest.mark.alone  # a receiver that gets no processor counts as one that stalls, and its share is taken over
def test_a_receiver_leaves_the_holder_after_its_share_and_comes_back_if_others_die(tmp_path: Path) -> None:
    """Receivers would request from the holder what it has sent to others; or one that has left it
    would wait for ever for the share of a host that is gone, or for the next bundle.

    A piece takes a second, so that the plan is looked at while the last one is under way."""
    meta, dropped = bundle(tmp_path, 2, MiB // 4), list[str]()

    async def scenario() -> tuple[list[str], list[Damage]]:
        holder = Engine(EngineConfig(upload_limit=MiB // 4))
        quick = Engine(EngineConfig(listen_host="127.0.0.2"), tell=partial(note, dropped))
        slow = Engine(EngineConfig(listen_host="127.0.0.3", download_limit=MiB // 8))
        try:
            for engine in (holder, quick, slow):
                await engine.start()
            holder.seed(meta, tmp_path / "holder")
            peers = [address(holder, PeerRole.MASTER), address(quick), address(slow)]
            first, _ = (
                engine.fetch(meta, tmp_path / engine.host, peers, SwarmPlace(number=number, receivers=2))
                for number, engine in enumerate((quick, slow))
            )
            async with asyncio.timeout(DEADLINE_SECS):
                while "not needed any more" not in dropped:
                    assert first.active
                    await asyncio.sleep(0.01)
                await slow.close()
                await first.wait_done()
                left, other = list(dropped), bundle(tmp_path / "other", 1)
                holder.seed(other, tmp_path / "other" / "holder")
                await quick.fetch(other, tmp_path / "next", peers[:1]).wait_done()
            return left, await asyncio.to_thread(verify_content, meta, tmp_path / quick.host / "content")
        finally:
            for engine in (holder, quick, slow):
                await engine.close()

    left, damage = asyncio.run(scenario())

    assert 1 == left.count("not needed any more")
    assert [] == damage


def note(dropped: list[str], fact: Fact) -> None:
    if isinstance(fact, PeerDropped) and fact.host == "127.0.0.1":
        dropped.append(fact.reason)


def address(engine: Engine, role: PeerRole = PeerRole.SUPERVISOR) -> PeerAddress:
    return PeerAddress(host=engine.host, port=engine.port, role=role, complete=role is PeerRole.MASTER)


def stock_client(meta: Metafile, directory: Path, holder: Engine) -> lt.session:
    """A client without our code, on an address of its own, and so slow that it is never done."""
    session = lt.session(
        {
            "listen_interfaces": "127.0.0.3:0",
            "outgoing_interfaces": "127.0.0.3",
            "enable_outgoing_utp": False,
            "enable_dht": False,
            "enable_lsd": False,
            "alert_mask": 0,
        }
    )
    params = lt.load_torrent_buffer(meta.raw)
    params.flags &= ~(lt.torrent_flags.paused | lt.torrent_flags.auto_managed)  # or it would begin in some seconds
    params.save_path, params.peers, params.download_limit = (
        str(directory / "stock"),
        [("127.0.0.1", holder.port)],
        200_000,
    )
    session.add_torrent(params)
    return session


async def made_anew(directory: Path, meta: Metafile) -> tuple[list[list[float]], list[str]]:
    """Four engines, of which three fetch from one. Returns when each made connections again, and
    the events of a stock client's connection. The holder refuses a stranger afterwards."""
    made, blocked, stock = [list[float]() for _ in range(4)], set[str](), list[str]()

    def count(number: int, fact: Fact) -> None:
        if isinstance(fact, PeerDropped) and fact.reason == "connecting anew":
            made[number].append(time.monotonic())
        if isinstance(fact, PeerConnected | PeerDropped) and fact.host == "127.0.0.3":
            stock.append(type(fact).__name__)

    holder = Engine(SLOW, tell=partial(count, 0), on_blocked=blocked.add)
    receivers = [Engine(SLOW, tell=partial(count, number)) for number in (1, 2, 3)]
    stranger = Engine(EngineConfig(listen_host="127.0.0.2"))
    try:
        for engine in (holder, *receivers):
            await engine.start()
            engine.allow(["127.0.0.1", "127.0.0.3"])
            engine.crowd(meta.digest, 3)
        holder.seed(meta, directory / "holder")
        other = stock_client(meta, directory, holder)
        peers = [PeerAddress(host="127.0.0.1", port=holder.port, role=PeerRole.MASTER, complete=True)]
        peers += [PeerAddress(host="127.0.0.1", port=r.port, role=PeerRole.SUPERVISOR) for r in receivers]
        transfers = [
            receiver.fetch(meta, directory / f"receiver-{number}", peers, SwarmPlace(number=number, receivers=3))
            for number, receiver in enumerate(receivers)
        ]
        async with asyncio.timeout(DEADLINE_SECS):
            while any(transfer.active for transfer in transfers):
                holder.conduct(meta.digest, None)  # it lacks nothing, and each answer tells it so
                holder.crowd(meta.digest, 3)  # a receiver announced itself
                await asyncio.sleep(0.05)
            await asyncio.gather(*(transfer.wait_done() for transfer in transfers))
            await stranger.start()
            stranger.fetch(meta, directory / "stranger", peers[:1])
            while "127.0.0.2" not in blocked:  # noqa: ASYNC110  # libtorrent decides when it reports this
                await asyncio.sleep(0.05)
        seen = list(stock)
        other.pause()
        return made, seen
    finally:
        for engine in (stranger, holder, *receivers):
            await engine.close()


def test_quick_connections_are_made_anew_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this failed, receivers on fast links would wait for every few blocks; or all of them would
    disconnect again and again, and finish late."""
    monkeypatch.setattr(request_window, "WIDE_SECS", 20.0)  # 200 kB a second are quick
    monkeypatch.setattr(request_window, "LONG_SECS", 0.0)
    made, stock = asyncio.run(made_anew(tmp_path, bundle(tmp_path, 32)))

    assert any(made)
    assert all(max(moments) - min(moments) < AT_ONCE_SECS for moments in made if moments)
    assert stock == ["PeerConnected"]


def test_slow_connections_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this failed, every transfer would stand still for a moment."""
    monkeypatch.setattr(request_window, "LONG_SECS", 0.0)
    made, _ = asyncio.run(made_anew(tmp_path, bundle(tmp_path)))

    assert not any(made)


async def windows_of_a_master_that_lacks_a_bundle(directory: Path, meta: Metafile) -> list[object]:
    """Returns the request limit of an engine before and after it begins to fetch a bundle that a
    crowd fetches too."""
    engine = Engine(EngineConfig())
    try:
        await engine.start()
        engine.crowd(meta.digest, 16)
        before = engine._session.setting("max_allowed_in_request_queue")
        engine.fetch(meta, directory / "master", [], None)
        return [before, engine._session.setting("max_allowed_in_request_queue")]
    finally:
        await engine.close()


def test_a_master_that_fetches_too_does_not_end_the_crowd(tmp_path: Path) -> None:
    """If this failed, all its connections would allow 4000 blocks at a time for as long as they
    last."""
    assert asyncio.run(windows_of_a_master_that_lacks_a_bundle(tmp_path, bundle(tmp_path))) == [2, 2]


def test_a_holder_has_all_before_it_and_a_receiver_what_it_lacks(tmp_path: Path) -> None:
    """If this failed, a holder would never widen its limit, or a receiver that has just finished
    would cut off the peers it serves."""
    meta = bundle(tmp_path)
    holder = Transfer(meta, tmp_path, Engine(EngineConfig()), phase=TransferPhase.SEEDING)
    before = holder.pace().left
    holder.take_place(SwarmPlace(number=0, receivers=2))

    assert (meta.size, 0) == (before, holder.pace().left)


async def fetch_with_holes(directory: Path, meta: Metafile) -> tuple[bool, list[str]]:
    """Returns whether the bundle counted as done while its second half had no priority, and what
    was wrong with it at the end."""
    holder, receiver = Engine(EngineConfig()), Engine(EngineConfig())
    try:
        await holder.start()
        await receiver.start()
        holder.seed(meta, directory / "holder")
        transfer = receiver.fetch(meta, directory / "receiver", [])
        done = asyncio.create_task(transfer.wait_done())
        async with asyncio.timeout(DEADLINE_SECS):
            while transfer.handle is None:  # noqa: ASYNC110  # libtorrent decides when it adds it
                await asyncio.sleep(0.01)
            transfer.handle.prioritize_pieces([1] * (meta.num_pieces // 2) + [0] * (meta.num_pieces // 2 + 1))
            transfer.add_peers([PeerAddress(host="127.0.0.1", port=holder.port, role=PeerRole.MASTER, complete=True)])
            while not transfer.handle.status(0).is_finished:  # noqa: ASYNC110  # finished in libtorrent's sense
                await asyncio.sleep(0.01)
            early, _ = await asyncio.wait({done}, timeout=1.0)
            transfer.handle.prioritize_pieces([1] * meta.num_pieces)
            await done
        damage = await asyncio.to_thread(verify_content, meta, directory / "receiver" / "content")
        return bool(early), [str(each.path) for each in damage]
    finally:
        await receiver.close()
        await holder.close()


def test_what_libtorrent_calls_finished_is_done_only_when_it_is_whole(tmp_path: Path) -> None:
    """If this failed, a bundle with holes would be published and passed on as verified."""

    assert (False, []) == asyncio.run(fetch_with_holes(tmp_path, bundle(tmp_path)))


def test_an_engine_on_all_addresses_has_one_port() -> None:
    """If this failed, others would be told a port that is right only on loopback, and dial in
    vain."""

    def listening() -> set[int]:
        descriptors = [Path(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
        ours = {os.readlink(path) for path in descriptors if path.is_symlink()}
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return {int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in ours}

    async def ports() -> tuple[int, set[int]]:
        before = listening()  # servers of other tests
        engine = Engine(EngineConfig(listen_host="0.0.0.0"))
        await engine.start()
        found = listening() - before
        await engine.close()
        return engine.port, found

    port, found = asyncio.run(ports())

    assert {port} == found


async def plans_of_a_slow_beginning(directory: Path, meta: Metafile) -> list[bool]:
    """Returns whether the receiver had a share of its own, at each look until its first piece was
    complete."""
    holder, receiver = Engine(EngineConfig(upload_limit=MiB // 4)), Engine(EngineConfig())
    try:
        for engine in (holder, receiver):
            await engine.start()
        holder.seed(meta, directory / "holder")
        master = PeerAddress(host="127.0.0.1", port=holder.port, role=PeerRole.MASTER, complete=True)
        place = SwarmPlace(number=0, receivers=2)
        transfer = receiver.fetch(meta, directory / "receiver", [master], place)
        plans = list[bool]()
        async with asyncio.timeout(DEADLINE_SECS):
            while transfer.run_from(0, 1) + transfer.run_from(1, 1) + transfer.run_from(2, 1) == 0:
                plans.append(conductor.OWN in transfer.priorities)
                await asyncio.sleep(0.1)
        return plans
    finally:
        for engine in (holder, receiver):
            await engine.close()


def test_a_first_piece_that_takes_long_is_no_stall(tmp_path: Path) -> None:
    """If this failed, all receivers would ask the holder for everything while the first piece is
    under way, because libtorrent counts only whole pieces."""
    write_tree(tmp_path / "holder" / "content", {"large.bin": some_bytes(3 * MiB, 5)})
    meta = make_metafile(tmp_path / "holder" / "content", piece_length=MiB)
    plans = asyncio.run(plans_of_a_slow_beginning(tmp_path, meta))

    assert all(plans[plans.index(True) :])
    assert len(plans) > 25  # longer than the wait after which a standstill counts
