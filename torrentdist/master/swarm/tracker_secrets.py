"""Makes the secret behind the keys in tracker URLs. It changes whenever a host is revoked.

Always: all masters make the same secret from the same records, so nothing has to be stored or sent.
The secret before a revocation is good for GRACE_SECS more, so that downloads of stock clients go
on.
Pure: no I/O and no clock.
"""

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

GRACE_SECS: Final = 3600.0


@dataclass(frozen=True)
class TrackerSecrets:
    current: str = field(repr=False)
    former: tuple[str, ...] = field(default=(), repr=False)
    """Earlier ones that are still good, the latest first."""


def tracker_secrets(secret: str, revoked: Mapping[str, float], now: float) -> TrackerSecrets:
    """Returns the secrets after these revocations. `revoked` maps the id of each revoked host to
    the moment of its revocation; `secret` is what all masters know.
    """
    past = sorted((at, id_) for id_, at in revoked.items())
    recent = sum(at > now - GRACE_SECS for at, _ in past)
    former = (_made(secret, past[: len(past) - count]) for count in range(1, recent + 1))
    return TrackerSecrets(_made(secret, past), tuple(former))


def _made(secret: str, revocations: Iterable[tuple[float, str]]) -> str:
    message = "".join(f"\0{id_}@{at!r}" for at, id_ in revocations)
    return hmac.new(secret.encode(), f"torrentdist tracker{message}".encode(), hashlib.sha256).hexdigest()
