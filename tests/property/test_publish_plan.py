"""The steps that mount and unmount a bundle, with a world that changes and ends between any two."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from property_size import examples

from torrentdist.csi import publish_plan as plan
from torrentdist.csi.mount_table import Mount
from torrentdist.csi.publish_plan import hold_name, publish_step, repairs, unpublish_step
from torrentdist.csi.volume_request import Pod, Refusal, WantedVolume
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.fleet_messages import HostBundleView, HostState
from torrentdist.model.wire.hold_messages import HoldView

BUNDLES = {BundleId("a"): Digest("a" * 64), BundleId("b"): Digest("b" * 64)}
TARGETS = ("/pods/1/mount", "/pods/2/mount")
MOST_STEPS = 30


@dataclass
class Node:
    """A node whose driver may end after any step, and the supervisor that keeps its holds."""

    mounts: dict[str, list[Mount]] = field(default_factory=lambda: {target: [] for target in TARGETS})
    holds: dict[str, HoldView] = field(default_factory=dict)
    directories: set[str] = field(default_factory=set)

    def check(self) -> None:
        """Nothing is mounted that is not held."""
        for target, mounts in self.mounts.items():
            for mount in mounts:
                hold = self.holds.get(hold_name(target))

                assert hold is not None, f"{mount} is not held"
                assert hold.digest == mount.digest

    def publish(self, wanted: WantedVolume, ends_after: int) -> object:
        """Returns the last step: a refusal, or that it is mounted; None: the driver ended."""
        view: HostBundleView | None = None
        for _ in range(min(ends_after, MOST_STEPS)):
            step = publish_step(wanted, self.mounts[wanted.target], self.holds.get(hold_name(wanted.target)), view)
            match step:
                case plan.AwaitBundle():
                    digest = BUNDLES[wanted.bundle]
                    view = HostBundleView(id=wanted.bundle, digest=digest, state=HostState.DONE, size=1, files=1)
                case plan.TakeHold(digest):
                    self.take(wanted.target, wanted.bundle, digest, wanted.path)
                case plan.EndHold(name):
                    del self.holds[name]
                case plan.MountContent(digest, path):
                    root = f"/objects/{digest}/content" + (f"/{path}" if path else "")
                    self.mounts[wanted.target].append(Mount(wanted.target, root, read_only=True))
                    self.directories.add(wanted.target)
                case plan.Unmount():
                    self.mounts[wanted.target].pop()
                case _:
                    return step
            self.check()
        assert ends_after < MOST_STEPS, "it does not come to an end"
        return None

    def unpublish(self, target: str, ends_after: int) -> object:
        hold = hold_name(target)
        for _ in range(min(ends_after, MOST_STEPS)):
            match step := unpublish_step(self.mounts[target], target_exists=target in self.directories, hold=hold):
                case plan.Unmount():
                    self.mounts[target].pop()
                case plan.RemoveTarget():
                    assert not self.mounts[target], "the directory of a mount cannot be removed"
                    self.directories.discard(target)
                case plan.EndHold(name):
                    self.holds.pop(name, None)
                    hold = ""
                case plan.Settled():
                    return step
            self.check()
        assert ends_after < MOST_STEPS, "it does not come to an end"
        return None

    def take(self, target: str, bundle: BundleId, digest: Digest, path: str = "") -> None:
        name = hold_name(target)
        self.holds[name] = HoldView(name=name, bundle=bundle, digest=digest, target=target, path=path, taken_at=1.0)

    def repair(self, waited: float = plan.UNMOUNTED_SECS) -> None:
        mounted = {target: mounts[-1] for target, mounts in self.mounts.items() if mounts}
        bare = {hold.name: waited for hold in self.holds.values() if hold.target not in mounted}
        for repair in repairs(list(self.holds.values()), mounted, (), bare):
            match repair:
                case plan.EndHold(name):
                    del self.holds[name]
                case plan.TakeLostHold(target, digest):
                    self.take(target, BundleId(digest[0]), digest)
        self.check()

    def reboot(self) -> None:
        for mounts in self.mounts.values():
            mounts.clear()


def wanted(target: str, bundle: str, path: str = "") -> WantedVolume:
    return WantedVolume("v", target, BundleId(bundle), None, path, Pod("team", "pod"))


targets, bundles, paths = st.sampled_from(TARGETS), st.sampled_from(sorted(BUNDLES)), st.sampled_from(["", "lib"])
steps = st.integers(0, 8) | st.just(MOST_STEPS)
events = st.one_of(
    st.tuples(st.just("publish"), targets, bundles, paths, steps),
    st.tuples(st.just("unpublish"), targets, steps),
    st.tuples(st.just("reboot")),
    st.tuples(st.just("repair"), st.sampled_from([0.0, plan.UNMOUNTED_SECS])),
)


@settings(max_examples=examples(300))
@given(st.lists(events, max_size=12), targets, bundles, paths)
def test_whatever_ended_where_a_pod_gets_its_volume_and_nothing_is_left(
    story: list[tuple[object, ...]], target: str, bundle: BundleId, path: str
) -> None:
    """A pod would wait for ever after a crash, lose its files, or keep them on the node after its
    end."""
    node = Node()
    for event in story:
        match event:
            case ("publish", str(where), str(what), str(part), int(ends)):
                node.publish(wanted(where, what, part), ends)
            case ("unpublish", str(where), int(ends)):
                node.unpublish(where, ends)
            case ("reboot",):
                node.reboot()
            case ("repair", float(waited)):
                node.repair(waited)
    for where in TARGETS:
        assert plan.Settled() == node.unpublish(where, MOST_STEPS)
    assert plan.Settled() == node.publish(wanted(target, bundle, path), MOST_STEPS)
    assert plan.Settled() == node.publish(wanted(target, bundle, path), MOST_STEPS), "again"
    (mount,) = node.mounts[target]
    assert (BUNDLES[bundle], f"content{'/' if path else ''}{path}") == (mount.digest, mount.root.split("/", 3)[3])
    node.unpublish(target, MOST_STEPS)
    node.repair()

    assert ({}, set()) == (node.holds, node.directories)


@given(targets, bundles, st.booleans(), st.floats(0.0, plan.UNMOUNTED_SECS, exclude_max=True))
def test_a_hold_ends_only_when_it_is_certain_that_nothing_is_mounted(
    target: str, bundle: BundleId, is_busy: bool, waited: float
) -> None:
    """A bundle that is about to be mounted would be evicted."""
    node = Node()
    node.publish(wanted(target, bundle), 2)
    bare = list(node.holds.values())
    name = hold_name(target)
    busy = (target,) if is_busy else ()

    assert 1 == len(bare)
    assert [] == repairs(bare, {}, busy, {name: waited})
    assert [] == repairs(bare, {}, busy, {})
    assert ([] if is_busy else [plan.EndHold(name)]) == repairs(bare, {}, busy, {name: plan.UNMOUNTED_SECS})


@given(st.text(max_size=40), bundles)
def test_holds_of_others_are_left_alone(name: str, bundle: BundleId) -> None:
    """The holds of another program would end, because this driver knows no mount of theirs."""
    other = HoldView(name=name, bundle=bundle, digest=BUNDLES[bundle], target="/elsewhere", taken_at=1.0)

    assert [] == repairs([other], {}, (), {name: 1e9})


def test_what_is_mounted_and_unsound_is_mounted_anew() -> None:
    """A pod would see an empty directory for ever, or one that it can change."""
    node, volume = Node(), wanted(TARGETS[0], "a")
    node.publish(volume, MOST_STEPS)
    (sound,) = node.mounts[volume.target]
    for unsound in (replace(sound, read_only=False), replace(sound, root=sound.root + "//deleted")):
        node.mounts[volume.target] = [unsound]

        assert plan.Settled() == node.publish(volume, MOST_STEPS)
        assert [sound] == node.mounts[volume.target]


def test_a_hold_of_something_else_ends_before_the_mount() -> None:
    """A pod whose volume names another bundle now would wait for it for ever, or get the old one
    under the new name."""
    volume, digest = wanted(TARGETS[0], "a"), BUNDLES[BundleId("a")]
    view = HostBundleView(id=volume.bundle, digest=digest, state=HostState.DONE, size=1, files=1)
    right = HoldView(name="h", bundle=volume.bundle, digest=digest, target=volume.target, taken_at=1.0)
    changes = ({"path": "lib"}, {"bundle": BundleId("b")}, {"digest": Digest("b" * 64)})
    others = [msgspec.structs.replace(right, **change) for change in changes]

    assert plan.MountContent(digest, "") == publish_step(volume, [], right, view)
    assert [plan.EndHold("h")] * 3 == [publish_step(volume, [], other, view) for other in others]


def test_what_is_mounted_and_not_held_is_held_again() -> None:
    """A bundle could be evicted under its pod, or one whose mount has gone would stay for ever."""
    node, volume = Node(), wanted(TARGETS[0], "a")
    node.publish(volume, MOST_STEPS)
    (sound,), digest = node.mounts[volume.target], BUNDLES[BundleId("a")]
    gone, foreign = replace(sound, root=sound.root + "//deleted"), replace(sound, root="/other")

    assert plan.TakeHold(digest) == publish_step(volume, [sound], None, None)
    assert [plan.TakeLostHold(volume.target, digest)] == repairs([], {volume.target: sound}, (), {})
    assert [] == repairs([], {volume.target: sound}, (volume.target,), {})
    assert [] == repairs(list(node.holds.values()), {volume.target: sound}, (), {})
    assert [[], []] == [repairs([], {volume.target: mount}, (), {}) for mount in (gone, foreign)]


def test_what_somebody_else_mounted_stays() -> None:
    """A volume of another driver would be unmounted under its pod, or shown as the bundle."""
    node, volume = Node(), wanted(TARGETS[0], "a")
    node.mounts[volume.target] = [Mount(volume.target, "/other", read_only=True)]

    assert isinstance(publish_step(volume, node.mounts[volume.target], None, None), plan.Refuse)
    assert {} == node.holds


def test_a_digest_that_the_volume_names_is_the_one_that_is_mounted() -> None:
    """A pod that asks for one version would run another."""
    node, volume = Node(), wanted(TARGETS[0], "a")
    node.publish(volume, MOST_STEPS)
    (mount,), (hold,) = node.mounts[volume.target], node.holds.values()
    digest, other = BUNDLES[volume.bundle], BUNDLES[BundleId("b")]
    view = HostBundleView(id=volume.bundle, digest=digest, state=HostState.DONE, size=1, files=1)
    unknown = msgspec.structs.replace(view, digest=None, state=HostState.WAITING)
    same, another = dataclasses.replace(volume, digest=digest), dataclasses.replace(volume, digest=other)

    assert plan.Settled() == publish_step(same, [mount], hold, None)
    for changed in (
        another,
        dataclasses.replace(volume, path="lib"),
        dataclasses.replace(volume, bundle=BundleId("b")),
    ):
        assert refused_with(Refusal.CONFLICT, publish_step(changed, [mount], hold, None))
    assert plan.TakeHold(digest) == publish_step(same, [], None, view)
    assert refused_with(Refusal.PRECONDITION, publish_step(another, [], None, view))
    assert isinstance(publish_step(same, [], None, unknown), plan.AwaitBundle)


def test_a_bundle_that_does_not_arrive_is_refused_with_the_reason() -> None:
    """A pod would wait for a bundle that has gone, and its events would not say why."""
    volume = wanted(TARGETS[0], "a")
    for state in (HostState.FAILED, HostState.GONE):
        view = HostBundleView(id=volume.bundle, digest=None, state=state, reason="no room", size=1, files=1)
        step = publish_step(volume, [], None, view)

        assert isinstance(step, plan.Refuse)
        assert (Refusal.NOT_YET, True) == (step.why, "no room" in step.message)


def test_an_unmounted_volume_goes_in_this_order() -> None:
    """The kubelet would be told that all is gone while a hold or a directory is left."""
    mount = Mount(TARGETS[0], "/x", read_only=True)

    assert plan.Unmount() == unpublish_step([mount], target_exists=True, hold="h")
    assert plan.RemoveTarget() == unpublish_step([], target_exists=True, hold="h")
    assert plan.EndHold("h") == unpublish_step([], target_exists=False, hold="h")
    assert plan.Settled() == unpublish_step([], target_exists=False, hold="")


def refused_with(why: Refusal, step: plan.PublishStep) -> bool:
    return isinstance(step, plan.Refuse) and why is step.why


def test_a_hold_without_a_mount_a_moment_ago_stays_once_it_is_mounted() -> None:
    """A bundle would be evicted under a pod that got it just now."""
    node, volume = Node(), wanted(TARGETS[0], "a")
    node.publish(volume, MOST_STEPS)
    (mount,), (hold,) = node.mounts[volume.target], node.holds.values()

    assert [] == repairs([hold], {volume.target: mount}, (), {hold.name: plan.UNMOUNTED_SECS})


def test_the_name_of_a_hold_is_the_same_in_every_release() -> None:
    """After an upgrade, the holds of the old driver would keep bundles for ever, since their names
    would be nobody's."""
    assert "csi-2b381f8b156fda0b854fe1d2a0331d28" == hold_name("/pods/1/mount")
    assert "csi-675c3d1004361d0a44bfdb9032424210" == hold_name("/pods/\udcff/mount")
