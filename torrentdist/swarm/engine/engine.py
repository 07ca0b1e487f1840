"""The BitTorrent engine of this process: seeds and fetches the bundles that it is given.

Always: libtorrent's events arrive through the alert pump. There is no thread of ours, and no timer
while nothing is transferred. Every wait ends.
Never: delete files, choose peers, or know what a bundle is for.
Longer than most files: it is the engine's whole interface.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import libtorrent as lt

from torrentdist.bundle.files.durability import disk_failure
from torrentdist.bundle.metafile import Metafile
from torrentdist.model.access.swarm_membership import SwarmMembership
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.events import Fact
from torrentdist.model.ids import Digest
from torrentdist.model.swarm_place import SwarmPlace
from torrentdist.model.wire.swarm_messages import PeerAddress
from torrentdist.model.wire.transfer_messages import TransferPhase
from torrentdist.swarm.engine import preparation
from torrentdist.swarm.engine.connections import Connections
from torrentdist.swarm.engine.preparation import ReadyTorrent, ready_to_fetch, ready_to_seed
from torrentdist.swarm.engine.pulse import TransferPulse
from torrentdist.swarm.engine.request_limits import RequestLimits
from torrentdist.swarm.engine.session import Handlers, LibtorrentSession
from torrentdist.swarm.engine.session_settings import EngineConfig, usable_rate
from torrentdist.swarm.engine.traffic import Endpoint, EngineStatistics, next_statistics, own_hosts
from torrentdist.swarm.engine.transfer import Transfer
from torrentdist.swarm.engine.transfers import REMOVE_SECS, Transfers
from torrentdist.swarm.membership.member_torrents import MemberTorrents

__all__ = ["Engine", "EngineConfig", "EngineStatistics", "Transfer"]

FRESH_SECS: Final = 0.5
"""A reading older than this is renewed when a caller asks for it."""
CLOSE_SECS: Final = 1.5


class Engine:
    """One BitTorrent engine: `start` it, give it bundles, `close` it. Call everything in one event
    loop."""

    def __init__(
        self,
        config: EngineConfig,
        *,
        tell: Callable[[Fact], None] | None = None,
        on_blocked: Callable[[str], None] | None = None,
    ) -> None:
        """`tell` receives events for the event log. `on_blocked` receives each address that was
        refused.

        The directory may have learned of a refused address meanwhile.
        """
        tell = tell or (lambda _: None)
        self._on_blocked = on_blocked
        self._config = config
        self._session = LibtorrentSession(config)
        self._transfers = Transfers(self._session, tell)
        self._members = MemberTorrents(self._transfers, self._spawn, plain_too=config.plain_too) if config.tls else None
        self._connections = Connections(self._session.set_filter, self._transfers.known_digest, tell)
        self._pulse = TransferPulse(self._transfers, self.refresh, self._connections.keep_apart)
        self._limits = RequestLimits()
        self._rtt = 0.0
        """Round-trip time to the other hosts in seconds; 0 if unknown."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._preparing: dict[Transfer, asyncio.Task[None]] = {}
        """What makes the files of transfers, in threads, before libtorrent writes to them."""
        self._asked_at = 0.0
        self._statistics = EngineStatistics(at=time.monotonic())

    @property
    def host(self) -> str:
        """The address on which the engine listens."""
        return self._session.host

    @property
    def port(self) -> int:
        """The port on which the engine listens; 0 until it has started."""
        return self._session.port

    @property
    def tls_port(self) -> int:
        """The port for peers with TLS: `port`, a second one, or 0 if there is none."""
        return self._session.tls_port

    async def start(self) -> None:
        """Returns once the engine listens. Raises `port_in_use`, after closing the engine."""
        try:
            await self._session.open({**self._handlers(), **self._transfers.handlers()})
        except BaseException:
            await self.close()
            raise
        self._pulse.beat()  # its end returns the memory that the start has left free

    def join(self, memberships: Sequence[SwarmMembership]) -> None:
        """Takes what proves that this process is a member of the swarm, at the start and after each
        renewal.

        In a swarm with TLS, transfers begin only after the first call.
        """
        if self._members is not None:
            self._members.join(memberships)

    def seed(self, meta: Metafile, save_dir: Path, ready: ReadyTorrent | None = None) -> Transfer:
        """Seeds complete, trusted content, which is never hashed again or written to.

        An existing transfer of the bundle stays as it is. If there may be many files, create
        `ready` in a thread.
        """
        if (known := self._transfers.get(meta.digest)) is not None:
            return known
        self._session.check_open()
        ready = ready or ready_to_seed(meta, save_dir)
        transfer = Transfer(meta, save_dir, self, phase=TransferPhase.SEEDING)
        self._transfers.enter(transfer)
        self._add(transfer, ready.params, local=meta.size)
        return transfer

    def fetch(
        self, meta: Metafile, save_dir: Path, peers: Sequence[PeerAddress] = (), place: SwarmPlace | None = None,
        ready: ReadyTorrent | None = None,
    ) -> Transfer:  # fmt: skip
        """Fetches what is missing in `save_dir`, by the conductor's plan if `place` is given.

        Remove a failed transfer first. `ready` may tell which pieces are here already.
        """
        self._session.check_open()
        if (transfer := self._transfers.get(meta.digest)) is not None:
            transfer.add_peers(peers)
            return transfer
        ready = ready or ready_to_fetch(meta, save_dir)
        self._limits.begin(placed=place is not None, now=time.monotonic())
        if place is not None:
            self.crowd(meta.digest, place.receivers)  # This must precede the first connection.
        self._set_limits()
        phase = TransferPhase.FETCHING if ready.is_checked else TransferPhase.CHECKING
        transfer = Transfer(meta, save_dir, self, phase=phase)
        self._transfers.enter(transfer)
        transfer.add_peers(peers)
        if ready.needs_files:
            self._preparing[transfer] = self._spawn(self._add_with_files(transfer, ready))
            self._preparing[transfer].add_done_callback(lambda _: self._preparing.pop(transfer))
        else:
            self._add(transfer, ready.params, local=ready.local)
        self.conduct(meta.digest, place)
        self._pulse.beat()
        return transfer

    def transfer(self, digest: Digest) -> Transfer | None:
        return self._transfers.get(digest)

    def transfers(self, among: Iterable[Digest] | None = None) -> list[Transfer]:
        """The transfers of these digests; None: all."""
        return self._transfers.all() if among is None else self._transfers.among(among)

    def digests(self) -> list[Digest]:
        """The bundles that have transfers, the newest last."""
        return [transfer.digest for transfer in self._transfers.all()]

    def moving(self) -> list[Transfer]:
        """The transfers that aren't at rest."""
        return self._transfers.moving()

    @property
    def on_entered(self) -> list[Callable[[Digest], None]]:
        """Called with the digest of each new transfer."""
        return self._transfers.on_entered

    async def remove(self, digest: Digest) -> None:
        """Returns once the transfer is out of the session and its files are closed. The files
        stay."""
        self.crowd(digest, None)
        preparing = {task for transfer, task in self._preparing.items() if transfer.digest == digest}
        await self._transfers.remove(digest)
        if preparing and (await asyncio.wait(preparing, timeout=REMOVE_SECS))[1]:
            raise TorrentdistError("timed_out", what=f"preparing the files of {digest}", seconds=REMOVE_SECS)

    def allow(self, addresses: Iterable[str] | None) -> None:
        """Sets the only addresses that may connect, in both directions (None: all). Disconnects all
        others."""
        if self._connections.allow(addresses):
            for transfer in self._transfers.moving():
                if transfer.active:
                    transfer.dial()

    def statistics(self) -> EngineStatistics:
        """Returns the last statistics, and renews them in the background."""
        self.refresh()
        return self._statistics

    def set_rtt(self, seconds: float) -> None:
        """Sets the round-trip time to the other hosts; 0 if unknown. A long one widens the request
        limits."""
        self._rtt = seconds

    @property
    def rate_limits(self) -> tuple[int, int]:
        """The configured limits of upload and download in bytes per second; 0: none."""
        return self._config.upload_limit, self._config.download_limit

    def set_rate(self, *, upload: int | None = None, download: int | None = None) -> None:
        """Changes what this engine may move, because other parts of the process use a part of the
        configured limits."""
        for key, rate in (("upload_rate_limit", upload), ("download_rate_limit", download)):
            if rate is not None and self._session.is_open:
                self._session.apply({key: usable_rate(rate)})

    def crowd(self, digest: Digest, receivers: int | None) -> None:
        """Sets how many receivers share a swarm (None: no longer a crowd).

        In a crowd, little is requested from each peer at a time, so that small messages do not wait
        behind data. It applies to connections made from now on.
        """
        self.crowd_all({digest: receivers})

    def crowd_all(self, receivers: Mapping[Digest, int | None]) -> None:
        """Does the same for several swarms, at the cost of one: the limits depend on all crowds."""
        if self._session.is_closing:
            return
        if [digest for digest, count in receivers.items() if self._limits.crowd(digest, count)]:
            self._set_limits()

    def conduct(self, digest: Digest, place: SwarmPlace | None) -> None:
        """Follows the conductor's plan from now on, or no plan if `place` is None."""
        transfer = self._transfers.get(digest)
        if transfer is None or not (place or transfer.placed):
            return
        self.crowd(digest, place.receivers if place else None)
        transfer.take_place(place)
        if place is not None:
            self._pulse.conduct()

    async def close(self) -> None:
        """Returns within two seconds. Everything fetched so far stays on disk."""
        if not self._session.begin_closing():
            return
        self._pulse.stop()
        for task in self._tasks:
            task.cancel()
        for transfer in self._transfers.all():
            transfer.fail(TorrentdistError("closing", what="the engine"))
        disk_hangs = False
        if self._session.is_open:
            try:
                async with asyncio.timeout(CLOSE_SECS):
                    async with asyncio.TaskGroup() as group:
                        for transfer in self._transfers.all():
                            group.create_task(self.remove(transfer.digest))
                    await self._pulse.wait_idle()
            except TimeoutError:
                disk_hangs = True
        self._session.close(disk_hangs=disk_hangs)

    # interface for transfers

    def is_own(self, endpoint: Endpoint) -> bool:
        return endpoint == (self.host, self.port)

    def refresh(self) -> None:
        """Asks libtorrent for news, unless the last news is recent."""
        if self._session.is_open and time.monotonic() - self._asked_at > FRESH_SECS:
            self._asked_at = time.monotonic()
            self._session.ask_for_news()

    # internals

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _add(self, transfer: Transfer, params: lt.add_torrent_params, *, local: int | None) -> None:
        if self._members is None:
            self._transfers.add(transfer, params, local=local)
        else:
            self._spawn(self._members.add(transfer, params, local=local))

    async def _add_with_files(self, transfer: Transfer, ready: ReadyTorrent) -> None:
        try:
            await asyncio.to_thread(preparation.prepare_files, transfer.meta, transfer.save_dir)
        except OSError as exc:
            transfer.fail(disk_failure(exc, transfer.save_dir))
        if transfer.active:
            self._add(transfer, ready.params, local=ready.local)

    def _set_limits(self) -> None:
        if self._session.is_open and (news := self._limits.news(self._statistics, self._rtt, time.monotonic())):
            self._session.apply(news)

    async def _reconnect(self, digests: Collection[Digest]) -> None:
        """Reconnects to our own peers in these swarms, so that they learn the wider limit.

        Other swarms lose these hosts too, and reconnect to them.
        """
        busy = [transfer for transfer in self.transfers() if transfer.digest in digests or transfer.pace().peers]
        company = [(transfer, await asyncio.to_thread(transfer.seen_peers)) for transfer in busy]
        crowds = [peer for transfer, seen in company if transfer.digest in digests for peer in seen]
        hosts = own_hosts(crowds, [peer for _, seen in company for peer in seen])
        if not self._session.is_closing:
            self._connections.disconnect(hosts)
            for transfer, seen in company:
                transfer.connect_again((p.remote[0], p.listening) for p in seen if p.listening and p.remote[0] in hosts)

    def _handlers(self) -> Handlers:
        return {
            lt.state_update_alert: self._on_states,
            lt.session_stats_alert: self._on_session_stats,
            lt.peer_connect_alert: self._on_peer_connected,
            lt.peer_disconnected_alert: self._connections.on_dropped,
            lt.peer_blocked_alert: self._on_peer_blocked,
        }

    def _on_states(self, alert: lt.state_update_alert) -> None:
        if alert.status:
            self._pulse.go_on()
        self._transfers.on_states(alert)

    def _on_session_stats(self, alert: lt.session_stats_alert) -> None:
        self._statistics = next_statistics(self._statistics, alert.values, len(self._transfers), time.monotonic())
        quick = self._limits.outgrown(self._statistics, {t.digest: t.pace() for t in self._transfers.moving()})
        self._set_limits()
        if quick and not self._session.is_closing:
            self._spawn(self._reconnect(quick))

    def _on_peer_connected(self, alert: lt.peer_connect_alert) -> None:
        self._pulse.beat()
        self._connections.on_connected(alert)

    def _on_peer_blocked(self, alert: lt.peer_blocked_alert) -> None:
        if self._on_blocked is not None:
            self._on_blocked(alert.endpoint[0])
