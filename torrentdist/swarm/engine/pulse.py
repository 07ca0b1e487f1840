"""Looks after an engine's running transfers at a steady rhythm while there is any traffic.

Always: there is no timer while nothing is transferred, but for a few seconds after the start. Long
waits for libtorrent's network thread happen in a thread.
Never: decide anything about pieces or peers. The transfer and the conductor do.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from torrentdist.swarm import native_process
from torrentdist.swarm.engine.transfer import Transfer
from torrentdist.swarm.engine.transfers import Transfers
from torrentdist.swarm.plan.conductor import look_secs

PULSE_SECS: Final = 1.0
"""Most age of an active transfer's view, and the most work that a kill -9 loses."""
QUIET_PULSES: Final = 2
"""Number of pulses without news after which the pulse stops."""
PEERS_SECS: Final = 2.0
"""Interval between readings of what each peer has sent."""


class TransferPulse:
    """Two timers: one asks for news of all transfers, the other applies the conductor's plan."""

    def __init__(
        self, transfers: Transfers, refresh: Callable[[], None], keep_apart: Callable[[Iterable[str]], bool]
    ) -> None:
        """`refresh` asks libtorrent for news, which arrives as alerts. `keep_apart` blocks these
        hosts and no others, and returns whether that changed anything."""
        self._transfers = transfers
        self._refresh = refresh
        self._keep_apart = keep_apart
        self._pulse: asyncio.TimerHandle | None = None
        self._conducting: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None
        self._peers_at = float("-inf")
        self._quiet = 0
        """Number of pulses since the last news."""
        self._is_stopped = False

    def beat(self) -> None:
        """Starts the pulse unless it is running."""
        self._quiet = 0
        if self._pulse is None and not self._is_stopped:
            self._pulse = asyncio.get_running_loop().call_later(PULSE_SECS, self._on_pulse)

    def go_on(self) -> None:
        """Keeps a running pulse going, because there was news."""
        self._quiet = 0

    def conduct(self) -> None:
        """Starts applying the conductor's plan regularly, unless that is happening."""
        if self._conducting is None:
            self._conduct()

    def stop(self) -> None:
        self._is_stopped = True
        for timer in (self._pulse, self._conducting):
            if timer is not None:
                timer.cancel()

    async def wait_idle(self) -> None:
        """Returns once no thread reads peers any more."""
        if self._looking is not None:
            await asyncio.shield(self._looking)

    def _on_pulse(self) -> None:
        self._pulse = None
        self._refresh()
        moving = self._transfers.moving()
        for transfer in moving:
            if transfer.active:
                transfer.save()
                if not transfer.view().peers:
                    transfer.dial()  # libtorrent gives a peer up after three refusals.
            transfer.disconnect_complete_peers()
        if (self._looking is None or self._looking.done()) and time.monotonic() - self._peers_at >= PEERS_SECS:
            self._peers_at = time.monotonic()
            self._looking = asyncio.get_running_loop().create_task(self._look_at_peers())
        busy = any(transfer.active or transfer.all_complete for transfer in moving)
        self._quiet = 0 if busy else self._quiet + 1
        if self._quiet < QUIET_PULSES:
            self._pulse = asyncio.get_running_loop().call_later(PULSE_SECS, self._on_pulse)
        else:
            native_process.return_free_memory()

    async def _look_at_peers(self) -> None:
        for transfer in [transfer for transfer in self._transfers.moving() if transfer.active]:
            transfer.count_peers(await asyncio.to_thread(transfer.seen_peers))

    def _conduct(self) -> None:
        self._conducting = None
        conducted = [transfer for transfer in self._transfers.moving() if transfer.conducted]
        for transfer in conducted:
            transfer.conduct()
        self._leave_holders([transfer for transfer in self._transfers.moving() if transfer.active])
        if conducted and not self._is_stopped:
            paces = [(transfer.pace(), transfer.meta.piece_length) for transfer in conducted]
            secs = look_secs(
                sum(transfer.meta.num_pieces for transfer in conducted),
                sum(pace.left // length for pace, length in paces),
                sum(pace.rate / length for pace, length in paces),
                has_share=any(transfer.has_share for transfer in conducted),
            )
            self._conducting = asyncio.get_running_loop().call_later(secs, self._conduct)

    def _leave_holders(self, active: Sequence[Transfer]) -> None:
        """Disconnects the holders that no active transfer needs, and connects those again that one
        needs."""
        leaving = {transfer.digest: transfer.holders_to_leave() for transfer in active}
        hosts = set[str]().union(*leaving.values())
        if hosts:
            hosts -= {
                p.host for transfer in active for p in transfer.known_peers() if p.host not in leaving[transfer.digest]
            }
        if self._keep_apart(hosts):
            for transfer in active:
                transfer.dial()
