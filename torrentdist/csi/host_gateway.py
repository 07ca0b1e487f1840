"""Asks the supervisor of this node: for bundles, and for holds that keep them.

Always: nothing is believed of a listener that neither root nor the owner of the supervisor's
directory runs. Any process of the node could take the port while the supervisor is away.
"""

import asyncio
from typing import TypeVar

import msgspec

from torrentdist.csi.publish_plan import hold_name
from torrentdist.csi.volume_request import Refusal, VolumeRefused
from torrentdist.http.api_calls import Broken, Request, ask, send
from torrentdist.http.connection_pool import Http
from torrentdist.http.port_owner import is_trusted_listener
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.fleet_messages import HostBundleView
from torrentdist.model.wire.hold_messages import HoldBody, HoldView

T = TypeVar("T")

CALL_SECS = 5.0
CHECK_SECS = 60.0
"""A bundle whose files changed their times is read before it is given out."""
POLL_SECS = 2.0
LONGEST_USER = 512
REFUSALS = {
    "bundle_not_found": Refusal.NOT_FOUND,
    "bundle_lost": Refusal.NOT_FOUND,
    "unsigned_bundle": Refusal.DENIED,
    "unknown_signer": Refusal.DENIED,
    "bad_signature": Refusal.DENIED,
    "forbidden": Refusal.DENIED,
    "not_for_host": Refusal.DENIED,
    "role_needed": Refusal.DENIED,
    "disk_full": Refusal.NO_ROOM,
    "conflict": Refusal.CONFLICT,
    "invalid_id": Refusal.INVALID,
}
"""The refusals of errors of the table. Any other error may be over when the kubelet asks again."""


def refusal_of(error: TorrentdistError) -> VolumeRefused:
    return VolumeRefused(REFUSALS.get(error.code, Refusal.NOT_YET), f"{error.message}. {error.hint}")


class HostGateway:
    def __init__(self, http: Http, url: str, data_dir: str) -> None:
        self._http = http
        self._url = url.rstrip("/")
        self._data_dir = data_dir

    async def is_alive(self) -> bool:
        try:
            return (await send(self._http, self._url, Request("GET", "/livez", timeout=CALL_SECS))).status_code == 200
        except Broken:
            return False

    async def fetch(self, bundle: BundleId) -> HostBundleView:
        """Has the bundle fetched unless it is here. Returns what the host has of it now."""
        return await self._ask(Request("POST", f"/v1/host/bundles/{bundle}/fetch", timeout=CHECK_SECS), HostBundleView)

    async def wait(self, bundle: BundleId, asked_secs: float) -> HostBundleView:
        """Returns what the host has of a bundle once it is there, or after a moment. `asked_secs`:
        for how long a pod has waited for it; an error that is older does not count."""
        params = {"wait": f"{POLL_SECS:g}", "asked": f"{asked_secs:.3f}"}
        request = Request("GET", f"/v1/host/bundles/{bundle}", params=params, timeout=CHECK_SECS)
        return await self._ask(request, HostBundleView)

    async def holds(self) -> list[HoldView]:
        return await self._ask(Request("GET", "/v1/host/holds", timeout=CALL_SECS), list[HoldView])

    async def take(self, bundle: str, digest: Digest, target: str, path: str, user: str) -> HoldView:
        body = HoldBody(bundle=bundle, digest=digest, target=target, path=path, user=user[:LONGEST_USER])
        content = msgspec.json.encode(body)
        request = Request("PUT", f"/v1/host/holds/{hold_name(target)}", content=content, timeout=CHECK_SECS)
        return await self._ask(request, HoldView)

    async def end(self, name: str) -> None:
        await self._ask(Request("DELETE", f"/v1/host/holds/{name}", timeout=CALL_SECS), list[HoldView])

    async def _ask(self, request: Request, kind: type[T]) -> T:
        """Returns the supervisor's answer. Raises VolumeRefused for an error, or without one."""
        try:
            found = await ask(self._http, self._url, request, kind)
        except Broken as broken:
            raise VolumeRefused(Refusal.NOT_YET, f"this node's supervisor does not answer: {broken.detail}") from broken
        except TorrentdistError as error:
            raise refusal_of(error) from error
        # Looked at after the answer: who has the port now had it when it was given, or nobody did.
        if not await asyncio.to_thread(is_trusted_listener, self._url, self._data_dir):
            detail = f"the program at {self._url} runs neither as root nor as the owner of {self._data_dir}"
            raise VolumeRefused(Refusal.NOT_YET, detail)
        return found
