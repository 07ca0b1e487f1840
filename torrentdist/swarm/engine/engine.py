"""The BitTorrent engine: one libtorrent session, with asyncio outside.

Always holds: libtorrent's news come through the alert pump; there is no thread of ours, and no timer while nothing is
fetched or exchanged; every wait ends. Must not do: delete files, choose peers, or know what a bundle is for.
"""

from __future__ import annotations

import asyncio
import ctypes
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence, Set
from pathlib import Path
from typing import Any, Final, cast

import libtorrent as lt

from torrentdist.bundle.files.durability import disk_failure
from torrentdist.bundle.metafile import Metafile
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.events import Fact, HashFailed, PeerConnected, PeerDropped
from torrentdist.model.ids import Digest
from torrentdist.model.swarm_place import SwarmPlace
from torrentdist.model.wire.swarm_messages import PeerAddress
from torrentdist.model.wire.transfer_messages import TransferPhase
from torrentdist.swarm.engine import address_filter, native_process, session_settings, target_files, torrent_parameters
from torrentdist.swarm.engine.alerts import AlertPump
from torrentdist.swarm.engine.byte_sources import Endpoint, ours_alone
from torrentdist.swarm.engine.engine_statistics import EngineStatistics, later
from torrentdist.swarm.engine.native_process import giving_way
from torrentdist.swarm.engine.ready_torrent import ReadyTorrent, ready_to_fetch, ready_to_seed
from torrentdist.swarm.engine.request_limits import RequestLimits
from torrentdist.swarm.engine.session_settings import EngineConfig
from torrentdist.swarm.engine.transfer import Transfer
from torrentdist.swarm.plan.conductor import look_secs

__all__ = ["Engine", "EngineConfig", "EngineStatistics", "Transfer"]

PULSE_SECS: Final = 1.0
"""How old a picture of something active gets, and what a kill -9 may cost."""
FRESH_SECS: Final = 0.5
"""Whoever looks at a picture has it made anew if it is older than this."""
QUIET_PULSES: Final = 2
"""So many pulses without news end the pulse."""
PEERS_SECS: Final = 2.0
"""How old it gets what each peer has sent."""
LISTEN_SECS: Final = 5.0
REMOVE_SECS: Final = 30.0
CLOSE_SECS: Final = 1.5


class Engine:
    """`start` it, hand it bundles, `close` it. Everything is called in one event loop."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.host = config.listen_host
        """The address that it listens on."""
        self.port = 0
        self.on_blocked: Callable[[str], None] | None = None
        """An address was refused: the directory may know more by now."""
        self.rtt = 0.0
        """Seconds to the others and back, as far as somebody knows; 0: nobody does."""
        self.tell: Callable[[Fact], None] = lambda _: None
        """What the log of events should have."""
        self._session: lt.session | None = None
        self._pump: AlertPump | None = None
        self._transfers: dict[Digest, Transfer] = {}
        self._awake: dict[Digest, Transfer] = {}
        """The transfers that may not be at rest. What happens every second looks at these alone."""
        self._removals: dict[Digest, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Future[int] | None = None
        self._allowed: frozenset[str] | None = None
        self._pulse: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None
        self._peers_at = float("-inf")
        self._quiet = 0
        self._conducting: asyncio.TimerHandle | None = None
        self._queues = RequestLimits()
        self._asked_at = 0.0
        self._statistics = EngineStatistics(at=time.monotonic())
        self._closed = False

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._listening = loop.create_future()
        try:
            self.host = await address_filter.resolve(self.config.listen_host)
        except OSError as exc:
            raise session_settings.port_in_use(self.config, str(exc)) from None
        native_process.share_one_heap()
        with giving_way(self.config.nice):
            self._session = lt.session(session_settings.session_params(self.config, self.host))
        session_settings.limit_everybody(self._session)
        self._pump = AlertPump(self._session, self._handlers())
        try:
            async with asyncio.timeout(LISTEN_SECS):
                self.port = await self._listening
        except TimeoutError:
            await self.close()
            raise session_settings.port_in_use(self.config, "no answer") from None
        except BaseException:
            await self.close()
            raise
        self._session.apply_settings({"user_agent": session_settings.user_agent(self.port)})

    def seed(self, meta: Metafile, save_dir: Path, ready: ReadyTorrent | None = None) -> Transfer:
        """Offer complete and trusted content: it is never hashed again nor written to. What is in a transfer already
        stays in it. `ready`: made in a thread, where there may be many files."""
        if (known := self._transfers.get(meta.digest)) is not None:
            return known
        self._open_session()
        params = (ready or ready_to_seed(meta, save_dir)).params
        transfer = self._transfers[meta.digest] = Transfer(meta, save_dir, self, phase=TransferPhase.SEEDING)
        self._add(transfer, params, local=meta.size)
        return transfer

    def fetch(
        self, meta: Metafile, save_dir: Path, peers: Sequence[PeerAddress] = (), place: SwarmPlace | None = None,
        ready: ReadyTorrent | None = None,
    ) -> Transfer:  # fmt: skip
        """Get what is missing in `save_dir`, by a plan if there is one. A failed transfer has to be removed before."""
        self._open_session()
        if (transfer := self._transfers.get(meta.digest)) is not None:
            transfer.add_peers(peers)
            return transfer
        params, empty = ready or ready_to_fetch(meta, save_dir)
        self._queues.begin(placed=place is not None, now=time.monotonic())
        if place is not None:
            self.crowd(meta.digest, place.receivers)  # before anybody is dialled
        self._set_queues()
        transfer = Transfer(meta, save_dir, self, phase=TransferPhase.FETCHING if empty else TransferPhase.CHECKING)
        self._transfers[meta.digest] = self._awake[meta.digest] = transfer
        transfer.add_peers(peers)
        if empty and not params.have_pieces:
            self._add(transfer, params, local=0)
        else:
            self._spawn(self._fetch_rest(transfer, params))
        self.conduct(meta.digest, place)
        self._beat()
        return transfer

    def transfer(self, digest: Digest) -> Transfer | None:
        return self._transfers.get(digest)

    def transfers(self, but: Set[Digest] = frozenset()) -> list[Transfer]:
        return [self._transfers[d] for d in self._transfers.keys() - but] if but else list(self._transfers.values())

    async def remove(self, digest: Digest) -> None:
        """Until it is out of the session and its files are closed. Its files stay."""
        self.crowd(digest, None)
        transfer = self._transfers.pop(digest, None)
        self._awake.pop(digest, None)
        if transfer is not None:
            transfer.fail(TorrentdistError("closing", what="the transfer"))
            if self._session is not None and transfer.handle is not None:
                self._removals[digest] = asyncio.get_running_loop().create_future()
                self._session.remove_torrent(transfer.handle)
        if (removal := self._removals.get(digest)) is not None:
            try:
                async with asyncio.timeout(REMOVE_SECS):
                    await asyncio.shield(removal)
            except TimeoutError:
                raise TorrentdistError(
                    "timed_out", what=f"closing the files of {digest}", seconds=REMOVE_SECS
                ) from None

    def allow(self, addresses: Iterable[str] | None) -> None:
        """The only addresses that connections are accepted from and made to; None: all. Others are disconnected."""
        allowed = address_filter.clean_addresses(addresses)
        if allowed == self._allowed:
            return
        self._open_session().set_ip_filter(address_filter.filter_for(allowed))
        self._allowed = allowed
        for transfer in self._moving().values():
            if transfer.active:
                transfer.dial(transfer.endpoints())

    def statistics(self) -> EngineStatistics:
        """The last picture; asking for it renews it."""
        self.refresh()
        return self._statistics

    async def close(self) -> None:
        """Ends within two seconds. What is fetched stays on disk as far as it is."""
        if self._closed:
            return
        self._closed = True
        for task in self._tasks:
            task.cancel()
        for timer in (self._pulse, self._conducting):
            if timer is not None:
                timer.cancel()
        for transfer in self._transfers.values():
            transfer.fail(TorrentdistError("closing", what="the engine"))
        if self._session is None or self._pump is None:
            return
        try:
            async with asyncio.timeout(CLOSE_SECS):
                async with asyncio.TaskGroup() as group:
                    for digest in list(self._transfers):
                        group.create_task(self.remove(digest))
                if self._looking is not None:
                    await asyncio.shield(self._looking)
        except TimeoutError:
            # A disk that hangs. Destroying the session would wait for it, and hold up the whole interpreter.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._session))
        self._pump.stop()
        pump, self._pump, self._session = self._pump, None, None
        pump.close_sockets()

    # What transfers ask for.

    def is_own(self, endpoint: Endpoint) -> bool:
        return endpoint == (self.host, self.port)

    def refresh(self) -> None:
        if self._session is not None and time.monotonic() - self._asked_at > FRESH_SECS:
            self._asked_at = time.monotonic()
            self._session.post_torrent_updates(0)
            self._session.post_session_stats()

    def crowd(self, digest: Digest, receivers: int | None) -> None:
        """So many receivers share a swarm from now on; None: it is no crowd any more. In a crowd each peer is asked for
        little at a time, so that no small message waits behind much. Holds for connections that are made after it."""
        if not self._closed and self._queues.crowd(digest, receivers):
            self._set_queues()

    def _set_queues(self) -> None:
        if self._session is not None and (news := self._queues.news(self._statistics, self.rtt, time.monotonic())):
            self._session.apply_settings(cast(Any, news))

    def conduct(self, digest: Digest, place: SwarmPlace | None) -> None:
        """Fetch by the conductor's plan from now on; None: there is none."""
        transfer = self._transfers.get(digest)
        if transfer is None or not (place or transfer.placed):
            return
        self.crowd(digest, place.receivers if place else None)
        transfer.take_place(place)
        if place is not None and self._conducting is None:
            self._conduct()

    # Inside.

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _open_session(self) -> lt.session:
        if self._session is None or self._closed:
            raise TorrentdistError("closing", what="the engine")
        return self._session

    def _add(self, transfer: Transfer, params: lt.add_torrent_params, *, local: int | None) -> None:
        params.peers = transfer.endpoints()
        try:
            transfer.added(self._open_session().add_torrent(params), local=local)
        except RuntimeError as exc:
            transfer.fail(TorrentdistError("internal", detail=f"libtorrent refused the transfer: {exc}"))

    async def _fetch_rest(self, transfer: Transfer, params: lt.add_torrent_params) -> None:
        try:
            await asyncio.to_thread(target_files.prepare, transfer.meta, transfer.save_dir / torrent_parameters.CONTENT)
        except OSError as exc:
            transfer.fail(disk_failure(exc, transfer.save_dir))
        if transfer.active:
            self._add(transfer, params, local=None)

    async def _reconnect(self, digests: Collection[Digest]) -> None:
        """To the peers of ours in these swarms; other swarms lose these hosts too, and are connected again."""
        busy = [transfer for transfer in self.transfers() if transfer.digest in digests or transfer.pace().peers]
        company = [(transfer, await asyncio.to_thread(transfer.seen_peers)) for transfer in busy]
        crowds = [peer for transfer, seen in company if transfer.digest in digests for peer in seen]
        hosts = ours_alone(crowds, [peer for _, seen in company for peer in seen])
        if self._session is not None:
            address_filter.part_from(self._session, hosts, self._allowed)
            for transfer, seen in company:
                transfer.meet((p.remote[0], p.listening) for p in seen if p.listening and p.remote[0] in hosts)

    def _beat(self) -> None:
        """Ask for news now and then, for as long as there are any."""
        self._quiet = 0
        if self._pulse is None and not self._closed:
            self._pulse = asyncio.get_running_loop().call_later(PULSE_SECS, self._on_pulse)

    def _moving(self) -> dict[Digest, Transfer]:
        """The transfers that are not at rest. Costs nothing for the many bundles that nobody fetches."""
        self._awake = {digest: transfer for digest, transfer in self._awake.items() if not transfer.at_rest}
        return self._awake

    def _conduct(self) -> None:
        self._conducting = None
        conducted = [transfer for transfer in self._moving().values() if transfer.conducted]
        for transfer in conducted:
            transfer.conduct()
        if conducted and not self._closed:
            pieces = sum(transfer.meta.num_pieces for transfer in conducted)
            pace = sum(transfer.pace().rate / transfer.meta.piece_length for transfer in conducted)
            secs = look_secs(pieces, pace, has_share=any(transfer.has_share for transfer in conducted))
            self._conducting = asyncio.get_running_loop().call_later(secs, self._conduct)

    async def _look_at_peers(self) -> None:
        for transfer in [transfer for transfer in self._moving().values() if transfer.active]:
            transfer.count_peers(await asyncio.to_thread(transfer.seen_peers))

    def _on_pulse(self) -> None:
        self._pulse = None
        if self._session is None:
            return
        self.refresh()
        for transfer in self._moving().values():
            if transfer.active:
                transfer.save()
            transfer.part()
        if (self._looking is None or self._looking.done()) and time.monotonic() - self._peers_at >= PEERS_SECS:
            self._peers_at = time.monotonic()
            self._looking = asyncio.get_running_loop().create_task(self._look_at_peers())
        busy = any(transfer.active or transfer.wants_to_part for transfer in self._awake.values())
        self._quiet = 0 if busy else self._quiet + 1
        if self._quiet < QUIET_PULSES:
            self._pulse = asyncio.get_running_loop().call_later(PULSE_SECS, self._on_pulse)
        else:
            native_process.give_back()

    def _handlers(self) -> dict[type[lt.alert], Callable[..., None]]:
        return {
            lt.listen_succeeded_alert: self._on_listening,
            lt.listen_failed_alert: self._on_listen_failed,
            lt.state_update_alert: self._on_states,
            lt.session_stats_alert: self._on_session_stats,
            lt.torrent_finished_alert: lambda alert: self._each(alert, Transfer.on_finished),
            lt.cache_flushed_alert: lambda alert: self._each(alert, Transfer.on_flushed),
            lt.hash_failed_alert: self._on_hash_failed,
            lt.file_error_alert: lambda alert: self._each(
                alert, lambda t: t.on_file_error(alert.error, alert.filename())
            ),
            lt.torrent_error_alert: lambda alert: self._each(alert, lambda t: t.on_file_error(alert.error, "")),
            lt.state_changed_alert: self._on_state_changed,
            lt.torrent_removed_alert: self._on_removed,
            lt.peer_connect_alert: self._on_peer_connected,
            lt.peer_disconnected_alert: self._on_peer_dropped,
            lt.peer_blocked_alert: self._on_peer_blocked,
        }

    def _each(self, alert: lt.torrent_alert, act: Callable[[Transfer], None]) -> None:
        if (transfer := self._transfers.get(_digest(alert.handle.info_hashes()))) is not None:
            act(transfer)

    def _on_listening(self, alert: lt.listen_succeeded_alert) -> None:
        tcp = lt.socket_type_t.tcp
        if self._listening is not None and not self._listening.done() and alert.socket_type == tcp:
            self._listening.set_result(alert.port)

    def _on_listen_failed(self, alert: lt.listen_failed_alert) -> None:
        if self._listening is not None and not self._listening.done():
            self._listening.set_exception(session_settings.port_in_use(self.config, alert.error.message()))

    def _on_states(self, alert: lt.state_update_alert) -> None:
        if alert.status:
            self._quiet = 0
        for status in alert.status:
            if (transfer := self._transfers.get(_digest(status.info_hashes))) is not None:
                transfer.on_status(status)
                if not transfer.at_rest:
                    self._awake[transfer.digest] = transfer

    def _on_state_changed(self, alert: lt.state_changed_alert) -> None:
        if alert.state not in (lt.torrent_status.finished, lt.torrent_status.seeding):
            self._each(alert, Transfer.on_left_seeding)

    def _on_removed(self, alert: lt.torrent_removed_alert) -> None:
        if (removal := self._removals.pop(_digest(alert.info_hashes), None)) is not None and not removal.done():
            removal.set_result(None)

    def _on_hash_failed(self, alert: lt.hash_failed_alert) -> None:
        self._each(alert, Transfer.on_hash_failed)
        self.tell(HashFailed(digest=_digest(alert.handle.info_hashes()), piece=int(alert.piece_index)))

    def _on_peer_connected(self, alert: lt.peer_connect_alert) -> None:
        self._beat()
        if (digest := self._known_digest(alert)) is not None:
            host, port = alert.endpoint
            self.tell(PeerConnected(digest=digest, host=host, port=port))

    def _on_peer_dropped(self, alert: lt.peer_disconnected_alert) -> None:
        if (digest := self._known_digest(alert)) is not None:
            host, port = alert.endpoint
            reason = address_filter.why(alert.error, host, self._allowed)
            self.tell(PeerDropped(digest=digest, host=host, port=port, reason=reason))

    def _known_digest(self, alert: lt.torrent_alert) -> Digest | None:
        """None for connections that were refused before they named a torrent, or whose torrent is gone."""
        digest = _digest(alert.handle.info_hashes()) if alert.handle.is_valid() else None
        return digest if digest in self._transfers else None

    def _on_peer_blocked(self, alert: lt.peer_blocked_alert) -> None:
        if self.on_blocked is not None:
            self.on_blocked(alert.endpoint[0])

    def _on_session_stats(self, alert: lt.session_stats_alert) -> None:
        self._statistics = later(self._statistics, alert.values, len(self._transfers), time.monotonic())
        quick = self._queues.outgrown(self._statistics, {d: t.pace() for d, t in self._moving().items()})
        self._set_queues()
        if quick and not self._closed:
            self._spawn(self._reconnect(quick))


def _digest(hashes: lt.info_hash_t) -> Digest:
    return cast(Digest, str(hashes.v2))
