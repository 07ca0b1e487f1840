"""Uploads that go another way than by the swarm: over HTTP, of content that the cluster has under
ids which the uploader may not read, in pairs, and those that nobody ends.

Always: what must be refused is tried as well, each lie by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from simulation.faults import Faults
from simulation.record_history import ROOT
from simulation.simulated_cluster import SimulatedCluster
from simulation.steps import Step
from simulation.users import Users

from torrentdist.api.async_client import AsyncClient
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.client import access_client
from torrentdist.client.bundles.chunked_upload import read_chunk
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.model.access.token_messages import TokenBody
from torrentdist.model.configuration.config import ClientConfig, Config
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.security.private_files import write_private

T = TypeVar("T")
UPLOAD_SECS = 20.0
PAUSE_SECS = 8.0
"""Time between two parts of an upload over HTTP, in which masters look at their uploads."""
SOON_SECS = 3.0
LOOK_SECS = 0.5
FORGOTTEN_SECS = 14.0
"""How much later than it is told a silent upload may be forgotten."""


async def show_hidden(cluster: SimulatedCluster, users: Users, _: Faults, step: Step) -> str:
    """A user who may not read the content that the cluster has lies about it, and then uploads it.
    Returns what went wrong."""
    bundle, source = BundleId(step.what), users.desk.sources[step.number]
    meta = make_metafile(source)
    config = await _limited(cluster, f"of-{bundle}")
    lies = await _with_masters(cluster, config, lambda masters: _lie(masters, bundle, meta, source_bytes(meta, source)))
    if lies:
        return lies

    async def upload(_: AsyncClient) -> Any:
        return await AsyncClient.of(Config(client=config)).upload(source, bundle, timeout=UPLOAD_SECS)

    told = await _refusal(cluster.as_user(step.who, upload))
    return f"shows all of the content, and is told {told}" if told else ""


async def _lie(masters: MasterClient, bundle: BundleId, meta: Metafile, data: bytes) -> str:
    """Returns the first answer to a lie that is not as it must be."""
    half, digest = len(data) // 2, meta.digest

    def show(offset: int, part: bytes) -> Awaitable[Any]:
        return masters.prove(bundle, digest, offset, part)

    def open_() -> Awaitable[Any]:
        return masters.open_upload(bundle, meta.raw, None)

    tries: tuple[tuple[str, str, Callable[[], Awaitable[Any]]], ...] = (
        ("opens it without its content", "proof_needed", open_),
        ("shows it from its second byte on", "invalid_request", lambda: show(1, data[1:half])),
        ("shows the first half", "", lambda: show(0, data[:half])),
        ("opens it after half of its content", "proof_needed", open_),
        ("shows the first half again", "invalid_request", lambda: show(0, data[:half])),
        ("shows more than there is", "invalid_request", lambda: show(half, data[half:] + b"more")),
        ("shows other bytes", "corrupt", lambda: show(half, bytes(len(data) - half))),
        ("goes on after other bytes", "not_found", lambda: show(half, data[half:])),
        ("opens it after other bytes", "proof_needed", open_),
    )
    for what, wanted, attempt in tries:
        if (told := await _refusal(attempt())) != wanted:
            return f"{what}, and is told {told or 'that it went well'}"
    return ""


async def send_over_http(cluster: SimulatedCluster, users: Users, _: Faults, step: Step) -> str:
    """Uploads content that the cluster lacks in two parts, with a pause between. Returns what went
    wrong."""
    source = users.desk.sources[step.number]
    meta = make_metafile(source)
    wrong = await _with_masters(
        cluster,
        cluster.client_config(),
        lambda masters: _send_in_parts(masters, BundleId(step.what), meta, source_bytes(meta, source)),
    )
    return wrong or await _until_state(cluster, step.what, "available")


async def _send_in_parts(masters: MasterClient, bundle: BundleId, meta: Metafile, data: bytes) -> str:
    digest = meta.digest
    await masters.open_upload(bundle, meta.raw, None)
    span = await masters.upload_offset(digest)
    while span.until == span.offset:  # The leader copies what it has in other bundles.
        await asyncio.sleep(LOOK_SECS)
        span = await masters.upload_offset(digest)
    start, end = span.offset, len(data) if span.until is None else span.until
    half = (start + end) // 2
    for part in ("the first half", "the first half again"):
        if (at := (await masters.put_bytes(digest, start, data[start:half])).offset) != half:
            return f"{part} was sent, and it goes on at {at} and not at {half}"
    await asyncio.sleep(PAUSE_SECS)
    if (at := (await masters.upload_offset(digest)).offset) != half:
        return f"half was sent {PAUSE_SECS:.0f} s ago, and it goes on at {at} and not at {half}"
    if not await _refusal(masters.finish_upload(digest)):
        return "an upload ends well of which half was sent"
    await masters.put_bytes(digest, half, data[half:end])
    view = await masters.finish_upload(digest)
    return "" if (view.id, view.digest) == (bundle, digest) else f"the upload of {bundle} ends as {view.id}"


async def upload_twins(cluster: SimulatedCluster, users: Users, _: Faults, step: Step) -> str:
    """Two users upload one content under two ids at once. Returns what went wrong."""
    pair = [_upload_step(step, name) for name in step.what.split("+")]
    calls = await asyncio.gather(*(users.call(one) for one in pair))
    told = [
        f"the upload of {one.what} is told {call.error}" for one, call in zip(pair, calls, strict=True) if call.error
    ]
    return told[0] if told else ""


def _upload_step(step: Step, bundle: str) -> Step:
    return Step(step.at, "upload", step.who, bundle, number=step.number)


async def leave_upload(cluster: SimulatedCluster, users: Users, _: Faults, step: Step) -> str:
    """Opens an upload and goes away. Returns what is wrong with how long it is kept."""
    meta, began = make_metafile(users.desk.sources[step.number]), cluster.loop.now
    await _with_masters(
        cluster, cluster.client_config(), lambda masters: masters.open_upload(BundleId(step.what), meta.raw, None)
    )
    most = cluster.kept.silent_upload + FORGOTTEN_SECS
    if not await cluster.until(lambda: state_of(cluster, step.what) != "uploading", most):
        return f"nobody has sent anything for {most:.1f} s, and it is not forgotten"
    took = cluster.loop.now - began
    if state_of(cluster, step.what):
        return f"{took:.1f} s later it is {state_of(cluster, step.what)}"
    return f"it is forgotten after {took:.1f} s" if took < cluster.kept.silent_upload else ""


def source_bytes(meta: Metafile, source: Any) -> bytes:
    return read_chunk(meta, source, 0, meta.size)


def state_of(cluster: SimulatedCluster, bundle: str) -> str:
    """Returns what the record of a bundle says; empty: there is none."""
    node = cluster.zookeeper.nodes.get(f"{ROOT}/code-distributor/{bundle}")
    return "" if node is None else str(msgspec.json.decode(node.data)["state"])


async def _until_state(cluster: SimulatedCluster, bundle: str, state: str) -> str:
    is_so = await cluster.until(lambda: state_of(cluster, bundle) == state, SOON_SECS)
    return "" if is_so else f"{SOON_SECS:.0f} s later it is {state_of(cluster, bundle) or 'gone'}"


async def _limited(cluster: SimulatedCluster, name: str) -> ClientConfig:
    """Returns the configuration of a user who may read and upload bundles that begin with h."""
    body = TokenBody(name=name, role="uploader", bundles="h*")
    made = await _with_masters(
        cluster, cluster.client_config(), lambda masters: access_client.create_token(masters, body)
    )
    path = cluster.place / f"token-{name}"
    write_private(path, f"{made.token}\n".encode())
    return msgspec.structs.replace(cluster.client_config(), token_file=str(path))


async def _with_masters(
    cluster: SimulatedCluster, config: ClientConfig, act: Callable[[MasterClient], Awaitable[T]]
) -> T:
    """Lets a user's process call the masters."""

    async def call(_: AsyncClient) -> T:
        async with MasterClient(config) as masters:
            return await act(masters)

    found: T = await cluster.as_user("eve", call)
    return found


async def _refusal(attempt: Awaitable[Any]) -> str:
    """Returns the code of the error that a call ends with; empty: it goes well."""
    try:
        await attempt
    except TorrentdistError as error:
        return error.code
    return ""
