"""What a pod wants mounted, from the request of its node's kubelet.

Always: names and paths are checked before anything else sees them. A path stays inside its bundle.
Pure: no I/O and no clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

import msgspec

from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.view import decode_json

KUBERNETES = "csi.storage.k8s.io/"
"""The kubelet's own attributes begin with this, where CSIDriver says `podInfoOnMount`."""
TOKENS = KUBERNETES + "serviceAccount.tokens"
ATTRIBUTES = ("bundle", "digest", "path")
READ_ONLY_OPTIONS = frozenset({"ro", "nosuid", "nodev"})
LONGEST_PATH = 1024
LONGEST_ID = 512
NO_SECRETS: Mapping[str, str] = MappingProxyType({})


class Refusal(StrEnum):
    """The reasons why a call is refused, each with a status of gRPC."""

    INVALID = "invalid_argument"
    NOT_FOUND = "not_found"
    DENIED = "permission_denied"
    CONFLICT = "already_exists"
    PRECONDITION = "failed_precondition"
    NO_ROOM = "resource_exhausted"
    NOT_YET = "unavailable"
    """The kubelet asks again, and takes nothing for granted until then."""
    BROKEN = "internal"


class VolumeRefused(Exception):
    def __init__(self, why: Refusal, message: str) -> None:
        super().__init__(message)
        self.why = why
        self.message = message


def invalid(message: str) -> VolumeRefused:
    return VolumeRefused(Refusal.INVALID, message)


class Pod(msgspec.Struct, frozen=True):
    """The pod that a volume is for, as the kubelet names it."""

    namespace: str
    name: str
    uid: str = ""
    account: str = ""
    """Its service account."""

    @property
    def shown(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class WantedVolume:
    volume: str
    target: str
    bundle: BundleId
    digest: Digest | None
    path: str
    pod: Pod | None
    """None: the kubelet names none, since CSIDriver lacks `podInfoOnMount`."""
    tokens: str = field(default="", repr=False)
    """The pod's service account tokens, as the kubelet passes them."""


class _BoundToken(msgspec.Struct, frozen=True):
    token: str


def wanted_volume(
    volume: str, target: str, context: Mapping[str, str], secrets: Mapping[str, str] = NO_SECRETS
) -> WantedVolume:
    """Returns what is wanted, or raises VolumeRefused. Tokens are among the secrets where CSIDriver
    says so, and in the context elsewhere."""
    check_id(volume)
    ours = {key: value for key, value in context.items() if not key.startswith((KUBERNETES, "storage.kubernetes.io/"))}
    if unknown := sorted(ours.keys() - set(ATTRIBUTES)):
        raise invalid(f"volume attribute {unknown[0][:100]!r} is unknown: there are {', '.join(ATTRIBUTES)}")
    if not ours.get("bundle"):
        raise invalid("volume attribute 'bundle' is missing: it names what is mounted")
    try:
        bundle = ids.bundle_id(ours["bundle"])
        digest = ids.digest(ours["digest"]) if ours.get("digest") else None
    except TorrentdistError as error:
        raise invalid(error.message) from error
    return WantedVolume(
        volume=volume,
        target=checked_target(target),
        bundle=bundle,
        digest=digest,
        path=inner_path(ours.get("path", "")),
        pod=_pod(context),
        tokens=secrets.get(TOKENS) or context.get(TOKENS, ""),
    )


def check_id(volume: str) -> None:
    if not volume:
        raise invalid("the request has no volume id")
    if len(volume) > LONGEST_ID:
        raise invalid(f"the volume id has more than {LONGEST_ID} characters")


def checked_target(target: str) -> str:
    """Returns an absolute path without dots, or raises VolumeRefused."""
    if not target:
        raise invalid("the request has no target path")
    parts = target.rstrip("/").split("/")
    if len(target) > 4096 or "\0" in target or parts[0] or len(parts) < 2 or {"", ".", ".."} & set(parts[1:]):
        raise invalid(f"the target path {target[:100]!r} is not an absolute path without dots")
    return target.rstrip("/")


def check_below(target: str, directory: str) -> None:
    """Refuses a target that is not below the kubelet's directory."""
    if not target.startswith(directory.rstrip("/") + "/"):
        raise invalid(f"the target path {target[:100]!r} is not below {directory}, where pods have their volumes")


def inner_path(path: str) -> str:
    """Returns a relative path that stays where it begins; empty: all of the bundle."""
    if not path:
        return ""
    parts = path.rstrip("/").split("/")
    if len(path) > LONGEST_PATH or "\0" in path or {"", ".", ".."} & set(parts):
        raise invalid(f"volume attribute 'path' {path[:100]!r} is not a path inside the bundle")
    return "/".join(parts)


def check_capability(*, is_mount: bool, options: Sequence[str]) -> None:
    """Refuses a volume that could not be a read-only directory."""
    if not is_mount:
        raise invalid("a bundle is mounted as a directory: the volume needs a capability of kind mount")
    if more := sorted(set(options) - READ_ONLY_OPTIONS):
        raise invalid(f"mount option {more[0][:100]!r} is not supported: a bundle is mounted read-only")


def _pod(context: Mapping[str, str]) -> Pod | None:
    told = {key: context.get(f"{KUBERNETES}{key}", "") for key in ("pod.namespace", "pod.name", "pod.uid")}
    if not told["pod.namespace"]:
        return None
    account = context.get(f"{KUBERNETES}serviceAccount.name", "")
    return Pod(told["pod.namespace"], told["pod.name"], told["pod.uid"], account)


def token_for(tokens: str, audience: str) -> str:
    """Returns the pod's token for this audience, or raises VolumeRefused."""
    try:
        known = decode_json(tokens.encode(), dict[str, _BoundToken]) if tokens else {}
    except msgspec.MsgspecError as exc:
        raise invalid("the service account tokens of the request are not understood") from exc
    if audience not in known:
        detail = f"the request has no service account token for {audience!r}: CSIDriver's tokenRequests asks for it"
        raise VolumeRefused(Refusal.DENIED, detail)
    return known[audience].token
