"""Carries out publish_plan.py: mounts bundles for the pods of this node, unmounts them, and puts in
order what a crash has left.

Always: calls for one target take turns. What an attempt has begun and cannot finish is put in
order by the next call, or by the next look at what is left over.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ParamSpec
from weakref import WeakValueDictionary

import msgspec

from torrentdist.csi import mounting
from torrentdist.csi.host_gateway import HostGateway
from torrentdist.csi.mount_table import Mount, mounted_at, volume_mounts
from torrentdist.csi.publish_plan import (
    AwaitBundle,
    EndHold,
    MountContent,
    PublishStep,
    Refuse,
    RemoveTarget,
    Settled,
    TakeHold,
    TakeLostHold,
    Unmount,
    condition,
    hold_name,
    publish_step,
    repairs,
    unpublish_step,
)
from torrentdist.csi.volume_request import Refusal, VolumeRefused, WantedVolume
from torrentdist.host.process.heavy_work import until_ended
from torrentdist.log import get_logger
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.fleet_messages import HostBundleView
from torrentdist.model.wire.hold_messages import HoldView

log = get_logger()
P = ParamSpec("P")

MOST_STEPS = 20
"""Steps of one call, waiting not counted. It takes four; more mean that somebody undoes them."""
LOOK_SECS = 30.0


class VolumeStats(msgspec.Struct, frozen=True):
    size: int
    files: int
    wrong: str
    """What is wrong with the volume; empty: nothing."""


class VolumeKeeper:
    """`data_dir` is the supervisor's directory, in which its bundles lie."""

    def __init__(self, gateway: HostGateway, data_dir: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._gateway = gateway
        self._data_dir = data_dir
        self._clock = clock
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._busy: set[str] = set()
        self._unmounted: dict[str, float] = {}
        """Holds without a mount, each with when that was first seen."""

    async def publish(self, wanted: WantedVolume, seconds: float) -> None:
        """Returns once the bundle is mounted. Raises VolumeRefused after `seconds` at the latest,
        if it is not here by then."""
        began, view, steps = self._clock(), None, 0
        async with self._turn(wanted.target):
            while not isinstance(step := await self._next(wanted, view), Settled):
                if isinstance(step, AwaitBundle):
                    if view is not None and self._clock() >= began + seconds:
                        raise VolumeRefused(Refusal.NOT_YET, step.message)
                    view = await self._look(wanted.bundle, None if view is None else self._clock() - began)
                    continue
                steps += 1
                if steps > MOST_STEPS:
                    raise VolumeRefused(Refusal.NOT_YET, f"{wanted.target} does not stay as it is left")
                await self._carry_out(step, wanted)
        log.info("volume mounted", bundle=wanted.bundle, target=wanted.target)

    async def _next(self, wanted: WantedVolume, view: HostBundleView | None) -> PublishStep:
        mounts = await self._mounts_at(wanted.target)
        return publish_step(wanted, mounts, await self._hold_of(wanted.target), view)

    async def _look(self, bundle: BundleId, asked_secs: float | None) -> HostBundleView:
        return await (self._gateway.fetch(bundle) if asked_secs is None else self._gateway.wait(bundle, asked_secs))

    async def _carry_out(self, step: PublishStep, wanted: WantedVolume) -> None:
        target = Path(wanted.target)
        match step:
            case TakeHold(digest):
                user = wanted.pod.shown if wanted.pod else wanted.volume
                await self._gateway.take(wanted.bundle, digest, wanted.target, wanted.path, user)
            case EndHold(name):
                await self._gateway.end(name)
            case MountContent(digest, path):
                await self._mount(digest, path, target)
            case Unmount():
                await self._unmount(target)
            case Refuse(why, message):
                raise VolumeRefused(why, message)

    async def _mount(self, digest: str, path: str, target: Path) -> None:
        # Not the path that the gateway names: only what lies in the store is ever mounted.
        content = f"objects/{digest}/content"
        try:
            await _to_its_end(mounting.mount_content, self._data_dir, content, path, target)
        except VolumeRefused:
            await self._gateway.end(hold_name(str(target)))
            await _to_its_end(mounting.remove_target, target)
            raise
        except OSError as exc:
            raise VolumeRefused(Refusal.BROKEN, f"cannot mount at {target}: {exc}") from exc

    async def _unmount(self, target: Path) -> None:
        try:
            await _to_its_end(mounting.unmount, target)
        except OSError as exc:
            raise VolumeRefused(Refusal.BROKEN, f"cannot unmount {target}: {exc}") from exc

    async def unpublish(self, target: str) -> None:
        """Returns once nothing is mounted. Without the supervisor, the hold ends later."""
        place, hold = Path(target), hold_name(target)
        async with self._turn(target):
            for _ in range(MOST_STEPS):
                mounts, exists = await self._mounts_at(target), await asyncio.to_thread(os.path.lexists, target)
                match unpublish_step(mounts, target_exists=exists, hold=hold):
                    case Settled():
                        log.info("volume unmounted", target=target)
                        return
                    case Unmount():
                        await self._unmount(place)
                    case RemoveTarget():
                        await self._remove(place)
                    case EndHold(name):
                        hold = ""
                        await self._end_if_possible(name)
        raise VolumeRefused(Refusal.BROKEN, f"{target} does not stay as it is left")

    async def _remove(self, target: Path) -> None:
        try:
            await _to_its_end(mounting.remove_target, target)
        except OSError as exc:
            raise VolumeRefused(Refusal.BROKEN, f"cannot remove {target}: {exc}") from exc

    async def _end_if_possible(self, name: str) -> None:
        try:
            await self._gateway.end(name)
        except VolumeRefused as refused:
            log.warning("a hold is left, and ends later", hold=name, reason=refused.message)

    async def stats(self, target: str) -> VolumeStats:
        """Returns what is mounted, or raises VolumeRefused if no bundle is."""
        mounts = await self._mounts_at(target)
        if not mounts or mounts[-1].digest is None:
            raise VolumeRefused(Refusal.NOT_FOUND, f"{target} has no bundle mounted")
        try:
            hold = await self._hold_of(target)
        except VolumeRefused as refused:
            return VolumeStats(0, 0, refused.message)
        size, files = (0, 0) if hold is None else (hold.size, hold.files)
        return VolumeStats(size, files, condition(mounts[-1], hold))

    # what is left over

    async def keep_order(self) -> None:
        """Puts in order what was left over, again and again."""
        while True:
            try:
                await self.repair()
            except (VolumeRefused, OSError) as exc:
                log.warning("cannot look for what is left over", reason=str(exc))
            await asyncio.sleep(LOOK_SECS)

    async def repair(self) -> None:
        holds = await self._gateway.holds()  # before the mounts: what is held afterwards may be mounted
        table, now = await asyncio.to_thread(mounting.read_mounts), self._clock()
        mounts = volume_mounts(table, str(self._data_dir))
        bare = [hold.name for hold in holds if hold.target not in mounts]
        self._unmounted = {name: self._unmounted.get(name, now) for name in bare}
        waited = {name: now - since for name, since in self._unmounted.items()}
        targets = {hold.name: hold.target for hold in holds}
        for repair in repairs(holds, mounts, self._busy, waited):
            match repair:
                case EndHold(name):
                    await self._end_bare(name, targets[name])
                case TakeLostHold(target, digest):
                    await self._take_again(target, digest)

    async def _end_bare(self, name: str, target: str) -> None:
        """Ends a hold unless something is mounted by now. In its turn, no call mounts meanwhile."""
        if target in self._busy:
            return
        async with self._turn(target):
            if not await self._mounts_at(target):
                log.info("a hold without a mount ends", hold=name, target=target)
                await self._end_if_possible(name)

    async def _take_again(self, target: str, digest: str) -> None:
        log.warning("a mounted bundle was not held, and is held again", target=target, digest=digest)
        async with self._turn(target):
            if any(mount.digest == digest for mount in await self._mounts_at(target)):
                try:
                    await self._gateway.take("", Digest(digest), target, "", "")
                except VolumeRefused as refused:
                    log.error("a mounted bundle is not held", target=target, reason=refused.message)

    @asynccontextmanager
    async def _turn(self, target: str) -> AsyncIterator[None]:
        """Holds up other calls for the same target."""
        turn = self._turns.setdefault(target, asyncio.Lock())
        async with turn:
            self._busy.add(target)
            try:
                yield
            finally:
                self._busy.discard(target)

    async def _mounts_at(self, target: str) -> list[Mount]:
        return mounted_at(await asyncio.to_thread(mounting.read_mounts), target)

    async def _hold_of(self, target: str) -> HoldView | None:
        name = hold_name(target)
        return next((hold for hold in await self._gateway.holds() if hold.name == name), None)


async def _to_its_end(step: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """Runs a step in a thread. When this returns, also by being cancelled, the step has ended, so
    that the next call for the target sees what it did."""
    work = asyncio.ensure_future(asyncio.to_thread(step, *args, **kwargs))
    await until_ended(work)
    work.result()
