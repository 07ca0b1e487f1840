"""What a pod wants mounted: the checks of its request, its namespace's rights, and the table of
mounts."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import pytest

from torrentdist.csi import mounting
from torrentdist.csi.host_gateway import HostGateway
from torrentdist.csi.mount_table import Mount, mounted_at, parse_mounts, surrounding, volume_mounts
from torrentdist.csi.namespace_rights import check_rights, patterns_for
from torrentdist.csi.publish_plan import condition, progress
from torrentdist.csi.volume_keeper import VolumeKeeper
from torrentdist.csi.volume_request import (
    LONGEST_ID,
    LONGEST_PATH,
    TOKENS,
    Pod,
    Refusal,
    VolumeRefused,
    WantedVolume,
    check_below,
    check_capability,
    check_id,
    checked_target,
    inner_path,
    token_for,
    wanted_volume,
)
from torrentdist.http.connection_pool import Http
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.fleet_messages import HostBundleView, HostState
from torrentdist.model.wire.hold_messages import HoldView
from torrentdist.model.wire.transfer_messages import TransferPhase, TransferView

DIGEST = Digest("0123456789abcdef" * 4)
POD = {
    "csi.storage.k8s.io/pod.name": "etl-0",
    "csi.storage.k8s.io/pod.namespace": "team-a",
    "csi.storage.k8s.io/pod.uid": "u1",
    "csi.storage.k8s.io/serviceAccount.name": "runner",
    "csi.storage.k8s.io/ephemeral": "true",
}


def test_a_request_of_the_kubelet_becomes_a_value() -> None:
    """A pod would get another bundle than its spec names, or none."""
    context = POD | {"bundle": "env-43", "digest": DIGEST, "path": "lib/a/", TOKENS: "{}"}

    assert WantedVolume(
        "v", "/pods/1/mount", BundleId("env-43"), DIGEST, "lib/a", Pod("team-a", "etl-0", "u1", "runner"), "{}"
    ) == wanted_volume("v", "/pods/1/mount/", context)
    assert wanted_volume("v", "/t", {"bundle": "b"}).pod is None


@pytest.mark.parametrize("path", ["/etc", "..", "a/../b", "a//b", "./a", ".", "a/.", "x" * 1025, "a\0b"])
def test_a_path_stays_inside(path: str) -> None:
    """A pod would read other files of the node."""
    with pytest.raises(VolumeRefused) as refused:
        inner_path(path)

    assert Refusal.INVALID is refused.value.why


@pytest.mark.parametrize("target", ["", "/", "pods/1", "/pods/../1", "/pods//1", "/pods/./1", "/a\0", "/" + "x" * 4096])
def test_a_target_is_one_absolute_path(target: str) -> None:
    """Two spellings of a target would be two volumes."""
    with pytest.raises(VolumeRefused):
        checked_target(target)


def test_what_is_as_long_as_it_may_be_is_taken() -> None:
    """A pod with a long path would wait for ever, or one without an id would share its volume with
    others."""
    check_id("v" * LONGEST_ID)

    assert "x" * LONGEST_PATH == inner_path("x" * LONGEST_PATH)
    assert "" == inner_path("")
    assert 4096 == len(checked_target("/" + "x" * 4095))
    for volume in ("", "v" * (LONGEST_ID + 1)):
        with pytest.raises(VolumeRefused):
            check_id(volume)


@pytest.mark.parametrize(
    ("context", "words"),
    [
        ({"bundle": "b", "digset": DIGEST}, "'digset' is unknown"),
        ({}, "'bundle' is missing"),
        ({"bundle": ""}, "'bundle' is missing"),
        ({"bundle": "a/b"}, "a/b"),
        ({"bundle": "b", "digest": "ab"}, "ab"),
        ({"bundle": "b", "path": "/etc"}, "/etc"),
    ],
)
def test_a_wrong_attribute_is_named(context: dict[str, str], words: str) -> None:
    """A pod with a typing error would get another version, or its user would search for hours."""
    with pytest.raises(VolumeRefused, match=words) as refused:
        wanted_volume("v", "/t", POD | {"storage.kubernetes.io/csiProvisionerIdentity": "x"} | context)

    assert Refusal.INVALID is refused.value.why


def test_a_capability_that_cannot_be_kept_is_refused() -> None:
    """A pod would start with a volume that is not what it asks for."""
    check_capability(is_mount=True, options=["ro", "nodev"])
    for is_mount, options in ((False, ()), (True, ["rw"]), (True, ["ro", "exec"])):
        with pytest.raises(VolumeRefused):
            check_capability(is_mount=is_mount, options=options)


@pytest.mark.parametrize(
    ("rights", "namespace", "account", "expected"),
    [
        ({}, "team-a", "runner", ()),
        ({"team-a": "etl-*"}, "team-a", "runner", ("etl-*",)),
        ({"team-a": "etl-*"}, "team-ab", "runner", ()),
        ({"team-*": ["a", "b"], "*": "public-*"}, "team-a", "", ("a", "b", "public-*")),
        ({"team-a/runner": "x", "team-a/*": "y", "*/other": "z"}, "team-a", "runner", ("x", "y")),
        ({"team-a/runner": "x"}, "team-a", "", ()),
    ],
)
def test_rights_of_all_keys_that_match_add_up(
    rights: dict[str, str | list[str]], namespace: str, account: str, expected: tuple[str, ...]
) -> None:
    """A namespace would read what is another's."""
    assert expected == patterns_for(rights, namespace, account)


def test_a_pod_gets_what_its_namespace_may_have() -> None:
    """A pod would get the bundles of others, or one without a name would get any."""
    rights = {"team-a": "env-*"}
    check_rights(rights, wanted_volume("v", "/t", POD | {"bundle": "env-43"}))
    for context in (POD | {"bundle": "model-1"}, {"bundle": "env-43"}):
        with pytest.raises(VolumeRefused) as refused:
            check_rights(rights, wanted_volume("v", "/t", context))
        assert Refusal.DENIED is refused.value.why


def test_the_token_of_our_audience_is_taken() -> None:
    """A pod would be refused although it proves who it is, or by its token for another service."""
    tokens = json.dumps({"torrentdist": {"token": "t1", "expirationTimestamp": "x"}, "vault": {"token": "t2"}})

    assert "t1" == token_for(tokens, "torrentdist")
    for text in ("", "{}", '{"torrentdist": "t1"}', "["):
        with pytest.raises(VolumeRefused):
            token_for(text, "torrentdist")


TABLE = rf"""
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 254:1 /pods /var/lib/kubelet rw master:2 shared:7 - ext4 /dev/vda rw
31 30 254:1 /td/objects/{DIGEST}/content /var/lib/kubelet/pods/1/my\040mount ro,nosuid shared:7 - ext4 /dev/vda rw
32 30 254:1 /td/objects/{DIGEST}/content/lib/a /var/lib/kubelet/pods/2/mount rw - ext4 /dev/vda rw
33 30 254:1 /td/objects/{DIGEST}/content//deleted /var/lib/kubelet/pods/3/mount ro - ext4 /dev/vda rw
34 30 0:33 / /var/lib/kubelet/pods/4/mount ro - tmpfs tmpfs rw
36 22 254:1 /td /var/lib/td ro - ext4 /dev/vda rw
37 30 254:1 /pods/5/vol/objects/{DIGEST}/content /var/lib/kubelet/pods/5/volume-subpaths/v/c/0 rw - ext4 /dev/vda rw
38 30 0:44 /td/objects/{DIGEST}/content /var/lib/kubelet/pods/6/mount rw - tmpfs tmpfs rw
nonsense
35 30 0:33 /
39 30 0:33 / /var/lib/kubelet/pods/7/mount ro shared:7 tmpfs tmpfs rw
"""


def test_the_kernels_table_is_read() -> None:
    """A volume would be mounted twice, or be taken for unmounted."""
    mounts = parse_mounts(TABLE)
    at = "/var/lib/kubelet/pods"
    places = ("1/my mount", "2/mount", "3/mount", "4/mount")
    one, part, gone, other = (mounted_at(mounts, f"{at}/{place}")[0] for place in places)

    assert [True, False, True, True] == [mount.read_only for mount in (one, part, gone, other)]
    assert [DIGEST, DIGEST, DIGEST, None] == [mount.digest for mount in (one, part, gone, other)]
    assert [False, False, True, False] == [mount.is_gone for mount in (one, part, gone, other)]
    assert {one.target, part.target, gone.target} == volume_mounts(mounts, "/var/lib/td").keys()
    around = surrounding(mounts, f"{at}/9")
    assert around is not None
    assert ("/var/lib/kubelet", True) == (around.target, around.shared)
    assert "/" == getattr(surrounding(mounts, "/var/lib/kubelet2"), "target", None)


@pytest.mark.parametrize("sign", ["\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_a_directory_may_have_any_name(sign: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of a bundle whose name holds such a sign would be mounted twenty times at each
    attempt, since none of these mounts is seen, and its pod would never end."""
    target, root = f"/pods/1/a{sign}b", f"/td/objects/{DIGEST}/content/lib{sign}x"
    table = tmp_path / "mountinfo"
    line = f"31 30 254:1 {root} {target} ro,nosuid shared:7 - ext4 /dev/vda rw\n"
    table.write_text(line, encoding="utf-8", newline="\n")
    monkeypatch.setattr(mounting, "TABLE", str(table))

    assert [(target, root, DIGEST)] == [(one.target, one.root, one.digest) for one in mounting.read_mounts()]


@pytest.mark.parametrize("store", ["/td", "/var/lib/td"])
def test_a_pods_own_directory_is_no_bundle(store: str) -> None:
    """A pod with a subPath called objects/DIGEST/content would have the driver hold that bundle for
    it, against eviction and removal, without any right to it."""
    mounts = parse_mounts(TABLE)
    forged = {"/var/lib/kubelet/pods/5/volume-subpaths/v/c/0", "/var/lib/kubelet/pods/6/mount"}

    assert forged <= {mount.target for mount in mounts if mount.digest == DIGEST}
    assert not forged & volume_mounts(mounts, store).keys()
    assert 3 == len(volume_mounts(mounts, store))
    assert {} == volume_mounts([], store)


@pytest.mark.parametrize("target", ["/etc", "/var/lib/kubelet/pods", "/var/lib/kubelet/pods2/x", "/var/lib/kubelet"])
def test_nothing_is_mounted_outside_the_pods(target: str) -> None:
    """A caller at the socket could mount over the node's own files, or unmount them."""
    check_below("/var/lib/kubelet/pods/1/mount", "/var/lib/kubelet/pods")
    with pytest.raises(VolumeRefused):
        check_below(target, "/var/lib/kubelet/pods/")


def test_tokens_are_in_no_text_about_a_volume() -> None:
    """A log with a volume in it would have the token of its pod."""
    context = {"bundle": "env-43", "csi.storage.k8s.io/serviceAccount.tokens": "SECRET"}

    assert "SECRET" not in repr(wanted_volume("v", "/t", context))


def test_tokens_among_the_secrets_count_rather_than_an_attribute() -> None:
    """Where CSIDriver has tokens passed as secrets, a pod's author could write another one into
    the volume, or no pod would get anything."""
    attributes, secret = {"bundle": "b", TOKENS: "written by the author"}, {TOKENS: "from the kubelet"}

    assert "from the kubelet" == wanted_volume("v", "/t", attributes, secret).tokens
    assert "from the kubelet" == wanted_volume("v", "/t", {"bundle": "b"} | secret).tokens


def test_words_say_how_far_a_bundle_is_and_what_is_wrong_with_a_volume() -> None:
    """The events of a pod would say nothing of why it waits."""
    moving = TransferView(digest=DIGEST, phase=TransferPhase.FETCHING, size=4_000_000, done=1_000_000)
    view = HostBundleView(id=BundleId("env"), digest=DIGEST, state=HostState.FETCHING)
    hold = HoldView(name="n", bundle=BundleId("env"), digest=DIGEST, target="/t", taken_at=1.0, content="/c")
    sound = Mount("/t", "/", read_only=True)

    assert "bundle env is being fetched" == progress(view)
    seen = HostBundleView(id=view.id, digest=DIGEST, state=view.state, transfer=moving)
    assert "bundle env is being fetched: 25 % of 4.0 MB" == progress(seen)
    assert "" == condition(sound, hold)
    bad = HoldView(name="n", bundle=hold.bundle, digest=DIGEST, target="/t", taken_at=1.0)
    wrong = [condition(Mount("/t", "/x//deleted", True), hold), condition(sound, None), condition(sound, bad)]
    assert ["deleted", "does not know", "damaged"] == [
        word for word, text in zip(("deleted", "does not know", "damaged"), wrong, strict=True) if word in text
    ]


def test_a_call_that_is_given_up_ends_after_its_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a volume is mounted after its pod has gone, and holds its bundle for ever: the
    kubelet gives a slow call up, and unmounts while the thread of that call still mounts."""
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()

    def mount(*_: object) -> None:
        begun.set()
        release.wait(20)
        ended.set()

    monkeypatch.setattr(mounting, "mount_content", mount)

    async def play() -> bool:
        async with Http() as http:
            keeper = VolumeKeeper(HostGateway(http, "http://127.0.0.1:9", "/td"), Path("/td"))
            mounted = asyncio.create_task(keeper._mount(DIGEST, "", Path("/pods/1/mount")))
            await asyncio.to_thread(begun.wait, 20)
            mounted.cancel()
            await asyncio.wait({mounted}, timeout=0.2)
            early = mounted.done()
            release.set()
            with pytest.raises(asyncio.CancelledError):
                await mounted
            return early or not ended.is_set()

    assert not asyncio.run(play())
