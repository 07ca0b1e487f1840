"""Checks that a pod is who the kubelet says it is, by its service account token and the keys that
the cluster publishes.

Always: keys are read again when a token names one that is not known, and after KEEP_SECS. Without
keys, nobody is believed.
"""

import asyncio
import ssl
import time
from collections.abc import Callable
from pathlib import Path

from torrentdist.csi.volume_request import Refusal, VolumeRefused, WantedVolume, token_for
from torrentdist.http.access import Trust, with_token
from torrentdist.http.connection_pool import Http
from torrentdist.http.http_values import HttpError
from torrentdist.log import get_logger
from torrentdist.model.configuration.config import KubernetesConfig
from torrentdist.security.service_account_tokens import (
    ExpectedToken,
    PodIdentity,
    PodTokenRefused,
    PublishedKey,
    candidates,
    key_id,
    parse_keys,
    verify,
)

log = get_logger()

OWN_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The driver's own token and the cluster's CA, where the kubelet puts them."""
KEEP_SECS = 300.0
PAUSE_SECS = 5.0
"""Shortest interval between two reads, also of failed ones: anybody can name a key that does not
exist, and all pods wait for a read of a source that does not answer."""
MOST_BYTES = 1024 * 1024


class PodProofs:
    def __init__(self, config: KubernetesConfig, clock: Callable[[], float] = time.time) -> None:
        self._source = config.keys
        self._expected = ExpectedToken(config.audience, config.issuer)
        self._clock = clock
        self._keys: list[PublishedKey] = []
        self._read_at = float("-inf")
        """When they were read last, or could not be."""
        self._known_at = float("-inf")
        self._turn = asyncio.Lock()

    async def check(self, wanted: WantedVolume) -> None:
        """Raises VolumeRefused unless the pod has proven who it is, or nobody has to."""
        if not self._source:
            return
        token = token_for(wanted.tokens, self._expected.audience)
        keys = await self._known(key_id(token))
        try:
            proven = await asyncio.to_thread(verify, token, keys, self._expected, self._clock())
        except PodTokenRefused as refused:
            raise VolumeRefused(Refusal.DENIED, f"the pod's service account token is refused: {refused}") from refused
        if wanted.pod is None or not _is_same(proven, wanted):
            raise VolumeRefused(Refusal.DENIED, "the service account token belongs to another pod")

    async def _known(self, wanted: str) -> list[PublishedKey]:
        async with self._turn:
            now = time.monotonic()
            is_due = now - self._known_at >= KEEP_SECS or not candidates(self._keys, wanted)
            if is_due and now - self._read_at >= PAUSE_SECS:
                try:
                    self._keys = parse_keys(await self._read())
                    self._known_at = time.monotonic()
                except (OSError, ValueError, HttpError) as exc:
                    log.error("cannot read the cluster's keys", source=self._source, reason=str(exc))
                finally:
                    self._read_at = time.monotonic()
            if not self._keys:
                raise VolumeRefused(Refusal.NOT_YET, "the cluster's keys cannot be read; the driver's log says why")
            return self._keys

    async def _read(self) -> bytes:
        if not self._source.startswith("https://"):
            return await asyncio.to_thread(Path(self._source).read_bytes)
        token = (await asyncio.to_thread((OWN_ACCOUNT / "token").read_text)).strip()
        context = await asyncio.to_thread(ssl.create_default_context, cafile=str(OWN_ACCOUNT / "ca.crt"))
        async with Http(access=with_token(token, lambda: Trust(context))) as http:
            answer = await http.request("GET", self._source, most_bytes=MOST_BYTES)
        if answer.status_code != 200:
            raise ValueError(f"HTTP {answer.status_code}")
        return answer.content


def _is_same(proven: PodIdentity, wanted: WantedVolume) -> bool:
    pod = wanted.pod
    named = None if pod is None else PodIdentity(pod.namespace, pod.account, pod.name, pod.uid)
    return proven == named
