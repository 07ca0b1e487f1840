"""Plans the steps that mount a bundle, unmount it, and put in order what a crash has left.

Each step is planned anew from what is there now, so that a driver, a supervisor or a node may end
between any two of them.
Always: a bundle is held before it is mounted, and until it is unmounted. A hold ends only if
nothing is mounted where it says.
Pure: no I/O and no clock. volume_keeper.py carries out the steps.
"""

from collections.abc import Collection, Mapping
from hashlib import sha256

import msgspec

from torrentdist.csi.mount_table import Mount
from torrentdist.csi.volume_request import Refusal, WantedVolume
from torrentdist.model.ids import Digest
from torrentdist.model.wire.fleet_messages import HostBundleView, HostState
from torrentdist.model.wire.hold_messages import HoldView

UNMOUNTED_SECS = 60.0
"""How long a hold without a mount stays: the driver before this one may be about to mount."""


class TakeHold(msgspec.Struct, frozen=True):
    digest: Digest


class EndHold(msgspec.Struct, frozen=True):
    """End a hold at whose target nothing is mounted."""

    name: str


class MountContent(msgspec.Struct, frozen=True):
    digest: Digest
    path: str


class Unmount(msgspec.Struct, frozen=True):
    """Unmount what is on top at the target."""


class RemoveTarget(msgspec.Struct, frozen=True):
    pass


class AwaitBundle(msgspec.Struct, frozen=True):
    """Ask for the bundle, and look again a little later."""

    message: str


class Refuse(msgspec.Struct, frozen=True):
    why: Refusal
    message: str


class Settled(msgspec.Struct, frozen=True):
    pass


PublishStep = TakeHold | EndHold | MountContent | Unmount | AwaitBundle | Refuse | Settled
UnpublishStep = Unmount | RemoveTarget | EndHold | Settled


class TakeLostHold(msgspec.Struct, frozen=True):
    """Hold again what is mounted and not held: the supervisor has lost its records."""

    target: str
    digest: Digest


Repair = EndHold | TakeLostHold


def hold_name(target: str) -> str:
    """Returns the name of the hold for what is mounted at a target."""
    return f"csi-{sha256(target.encode(errors='surrogateescape')).hexdigest()[:32]}"


def publish_step(
    wanted: WantedVolume, mounts: Collection[Mount], hold: HoldView | None, view: HostBundleView | None
) -> PublishStep:
    """Returns the next step. `mounts`: what is mounted at the target, the last one on top. `hold`:
    the hold of the target. `view`: what the host says of the bundle; None: it has not been asked.
    """
    top = list(mounts)[-1] if mounts else None
    if top is None:
        return _mount_step(wanted, hold, view)
    if top.digest is None:
        return Refuse(Refusal.BROKEN, f"{wanted.target} has something else mounted")
    if top.is_gone or not top.read_only:
        return Unmount()
    if hold is None:
        return TakeHold(top.digest)
    if (hold.bundle, hold.path) != (wanted.bundle, wanted.path) or wanted.digest not in (None, top.digest):
        return Refuse(Refusal.CONFLICT, f"{wanted.target} has {hold.bundle} mounted, and not what is asked for")
    return Settled() if hold.digest == top.digest else Unmount()


def _mount_step(wanted: WantedVolume, hold: HoldView | None, view: HostBundleView | None) -> PublishStep:
    if view is None:
        return AwaitBundle("nobody has been asked for it yet")
    if view.state is HostState.FAILED or view.state is HostState.GONE:
        return Refuse(Refusal.NOT_YET, f"bundle {wanted.bundle} does not arrive: {view.reason or view.state}")
    if view.digest is not None and wanted.digest not in (None, view.digest):
        detail = f"bundle {wanted.bundle} has the digest {view.digest}, and the volume wants {wanted.digest}"
        return Refuse(Refusal.PRECONDITION, detail)
    if view.state is not HostState.DONE or view.digest is None:
        return AwaitBundle(progress(view))
    if hold is None:
        return TakeHold(view.digest)
    if (hold.bundle, hold.path, hold.digest) != (wanted.bundle, wanted.path, view.digest):
        return EndHold(hold.name)
    return MountContent(view.digest, wanted.path)


def progress(view: HostBundleView) -> str:
    """Says in words how much of a bundle has arrived."""
    moving = view.transfer
    if moving is None or not moving.size:
        return f"bundle {view.id} is being fetched"
    share = 100 * moving.done // moving.size
    return f"bundle {view.id} is being fetched: {share} % of {moving.size / 1e6:.1f} MB"


def unpublish_step(mounts: Collection[Mount], *, target_exists: bool, hold: str) -> UnpublishStep:
    """Returns the next step. `hold`: the name of the target's hold; empty: it has ended, or is left
    to the next look at what is left over."""
    if mounts:
        return Unmount()
    if target_exists:
        return RemoveTarget()
    return EndHold(hold) if hold else Settled()


def repairs(
    holds: Collection[HoldView],
    mounts: Mapping[str, Mount],
    busy: Collection[str],
    unmounted_secs: Mapping[str, float],
) -> list[Repair]:
    """Returns what to put in order. `mounts`: the mounts of bundles by target. `busy`: targets at
    which a call is under way. `unmounted_secs`: for how long each hold has been seen without a
    mount."""
    ours = [hold for hold in holds if hold.name == hold_name(hold.target)]
    held = {hold.target for hold in ours}
    ended: list[Repair] = [
        EndHold(hold.name)
        for hold in ours
        if hold.target not in mounts
        and hold.target not in busy
        and unmounted_secs.get(hold.name, 0.0) >= UNMOUNTED_SECS
    ]
    lost: list[Repair] = [
        TakeLostHold(target, mount.digest)
        for target, mount in sorted(mounts.items())
        if target not in held and target not in busy and mount.digest is not None and not mount.is_gone
    ]
    return ended + lost


def condition(mount: Mount, hold: HoldView | None) -> str:
    """Says what is wrong with a mounted volume; empty: nothing."""
    if mount.is_gone:
        return "its content was deleted"
    if hold is None:
        return "this host's supervisor does not know that it is mounted, and may remove its content"
    if not hold.content:
        return "its content is damaged, and is being fetched again"
    return ""
