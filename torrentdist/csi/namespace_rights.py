"""Which bundles the pods of a namespace may have, by `kubernetes.namespaces` of the configuration.

Always: a namespace that no key matches may have nothing. Keys are `namespace` or
`namespace/service account`, with `*` and `?`; the rights of all that match add up.
Pure: no I/O and no clock.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from torrentdist.csi.volume_request import Refusal, VolumeRefused, WantedVolume
from torrentdist.security.authorization import matches_one

Rights = Mapping[str, str | Sequence[str]]


def patterns_for(rights: Rights, namespace: str, account: str) -> tuple[str, ...]:
    """Returns the patterns of the bundles that this service account may have."""
    return tuple(
        pattern
        for key, value in rights.items()
        if _matches(key, namespace, account)
        for pattern in ([value] if isinstance(value, str) else value)
    )


def _matches(key: str, namespace: str, account: str) -> bool:
    its_namespace, slash, its_account = key.partition("/")
    return fnmatchcase(namespace, its_namespace) and (not slash or fnmatchcase(account, its_account))


def check_rights(rights: Rights, wanted: WantedVolume) -> None:
    """Raises VolumeRefused unless the pod may have the bundle. The words are the same whether there
    is such a bundle or not."""
    if wanted.pod is None:
        raise VolumeRefused(Refusal.DENIED, "the request names no pod: CSIDriver needs podInfoOnMount: true")
    namespace, account = wanted.pod.namespace, wanted.pod.account
    if not matches_one(patterns_for(rights, namespace, account), wanted.bundle):
        who = f"{namespace}/{account}" if account else namespace
        detail = f"pods of {who} may not have bundle {wanted.bundle}: kubernetes.namespaces says what they may have"
        raise VolumeRefused(Refusal.DENIED, detail)
