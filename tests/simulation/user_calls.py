"""The calls that users of a story make, by the kind of their step: the Python API and the client
below it, as the command line uses them.

Always: one call is one command of a user, with its own connections.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from simulation import programs
from simulation.invariants import Tree
from simulation.simulated_cluster import SIGNER
from simulation.steps import Step

from torrentdist.api.async_client import AsyncClient
from torrentdist.client import access_client, job_client
from torrentdist.client.bundles.signed_content import sign_bundle
from torrentdist.client.masters import policy_client
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.cluster.records.tree_backup import restore
from torrentdist.cluster.session.founding import found_at
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.http.connection_pool import Http
from torrentdist.model.access.token_messages import TokenBody
from torrentdist.model.backup import decode_backup
from torrentdist.model.configuration.config import ClientConfig, ZooKeeperConfig
from torrentdist.model.ids import BundleId, MasterId, SupervisorId
from torrentdist.model.wire.bundle_messages import BundleView
from torrentdist.security.private_files import write_private
from torrentdist.testing.sample_trees import read_tree, write_tree

CALL_SECS = 35.0
GATEWAY = "http://127.0.0.1:7070"
PATTERN = "b*"
"""The bundles of the users. Those of jobs have ids that are made from their content."""


@dataclass(frozen=True)
class Listing:
    """What a user was told of the bundles, and whether the answer said that it is old."""

    bundles: tuple[BundleView, ...]
    is_old: bool


@dataclass
class Desk:
    """What users have at hand."""

    sources: dict[int, Path]
    jobs: dict[str, Path]
    tokens: dict[str, str]
    """The texts of the tokens that were made, by their names."""
    token_file: str
    zookeeper: ZooKeeperConfig
    backups: list[bytes]


Call = Callable[[Desk, AsyncClient, MasterClient, Step, Path], Awaitable[Any]]


async def _upload(desk: Desk, api: AsyncClient, _: MasterClient, step: Step, __: Path) -> Any:
    return await api.upload(desk.sources[step.number], step.what, timeout=CALL_SECS)


async def _distribute(_: Desk, api: AsyncClient, __: MasterClient, step: Step, ___: Path) -> Any:
    return await api.distribute(step.what, timeout=CALL_SECS)


async def _stand(_: Desk, api: AsyncClient, __: MasterClient, step: Step, ___: Path) -> Any:
    return await api.distribute(step.what, everywhere=True, timeout=CALL_SECS)


async def _wave(_: Desk, api: AsyncClient, __: MasterClient, step: Step, ___: Path) -> Any:
    everywhere, keep = step.number == 2, 15.0 if step.number == 3 else 0.0
    return await api.distribute(
        step.what, canary=1, concurrency=1, everywhere=everywhere, keep=keep, wait=0.0, timeout=CALL_SECS
    )


async def _hurt_wave(_: Desk, api: AsyncClient, __: MasterClient, step: Step, ___: Path) -> Any:
    size = 1 if step.kind == "hurt wave" else 2
    return await api.distribute(step.what, canary=size % 2, concurrency=size, wait=0.0, timeout=CALL_SECS)


async def _send(_: Desk, api: AsyncClient, __: MasterClient, step: Step, ___: Path) -> Any:
    return await api.distribute(step.what, supervisors=[f"supervisor-{step.number}"], timeout=CALL_SECS)


async def _cancel(_: Desk, __: AsyncClient, masters: MasterClient, step: Step, ___: Path) -> Any:
    return await policy_client.cancel_distribution(masters, BundleId(step.what))


async def _remove(_: Desk, api: AsyncClient, __: MasterClient, step: Step, ___: Path) -> Any:
    return await api.remove(step.what)


async def _download(_: Desk, api: AsyncClient, __: MasterClient, step: Step, dest: Path) -> Any:
    return await api.download(step.what, dest, timeout=CALL_SECS)


async def _open(desk: Desk, _: AsyncClient, __: MasterClient, step: Step, dest: Path) -> Any:
    """Reads each file as Spark does, or as programs for S3 do."""
    door = "s3/{}" if step.kind == "objects" else "bundles/{}/files"
    async with Http() as http:
        for name in sorted(_tree(desk.sources[step.number])):
            found = await programs.get(http, GATEWAY, f"/{door.format(step.what)}/{name}", CALL_SECS)
            write_tree(dest, {name: found})


async def _untar(_: Desk, __: AsyncClient, ___: MasterClient, step: Step, dest: Path) -> Any:
    async with Http() as http:
        found = await programs.get(http, GATEWAY, f"/bundles/{step.what}/all.tar", CALL_SECS)
    with tarfile.open(fileobj=io.BytesIO(found)) as archive:
        archive.extractall(dest, filter="data")


def _tree(source: Path) -> Tree:
    return {source.name: source.read_bytes()} if source.is_file() else read_tree(source)


async def _lease(desk: Desk, _: AsyncClient, __: MasterClient, step: Step, ___: Path) -> Any:
    await programs.use_by_id(GATEWAY, step.what, _tree(desk.sources[step.number]), step.secs, CALL_SECS)


async def _mount(desk: Desk, _: AsyncClient, __: MasterClient, step: Step, ___: Path) -> Any:
    tree = _tree(desk.sources[step.number])
    await programs.use_mounted(GATEWAY, _operator(desk), step.what, tree, step.secs, CALL_SECS)


async def _prune(desk: Desk, _: AsyncClient, __: MasterClient, ___: Step, ____: Path) -> Any:
    return await programs.prune(GATEWAY, _operator(desk))


def _operator(desk: Desk) -> str:
    return Path(desk.token_file).read_text(encoding="ascii").strip()


async def _read(_: Desk, __: AsyncClient, masters: MasterClient, ___: Step, ____: Path) -> Listing:
    found = await masters.bundles()
    return Listing(tuple(found), masters.stale is not None)


async def _pin(_: Desk, __: AsyncClient, masters: MasterClient, step: Step, ___: Path) -> Any:
    return await masters.pin(BundleId(step.what))


async def _unpin(_: Desk, __: AsyncClient, masters: MasterClient, step: Step, ___: Path) -> Any:
    return await masters.unpin(BundleId(step.what))


async def _retain(_: Desk, __: AsyncClient, masters: MasterClient, step: Step, ___: Path) -> Any:
    return await policy_client.put_retention(masters, PATTERN, step.number, step.secs)


async def _unretain(_: Desk, __: AsyncClient, masters: MasterClient, step: Step, ___: Path) -> Any:
    return await policy_client.remove_retention(masters, PATTERN)


async def _sign(_: Desk, __: AsyncClient, masters: MasterClient, step: Step, ___: Path) -> Any:
    return await sign_bundle(masters, BundleId(step.what), SIGNER, None)


async def _token(desk: Desk, _: AsyncClient, masters: MasterClient, step: Step, __: Path) -> Any:
    made = await access_client.create_token(masters, TokenBody(name=step.what, role="reader", bundles=PATTERN))
    desk.tokens[step.what] = made.token
    return made


async def _revoke(_: Desk, __: AsyncClient, masters: MasterClient, step: Step, ___: Path) -> Any:
    return await access_client.revoke_token(masters, step.what)


async def _use_token(desk: Desk, _: AsyncClient, masters: MasterClient, step: Step, dest: Path) -> Listing:
    """Lists the bundles with a token that was made in the story."""
    write_private(dest, f"{desk.tokens.get(step.what, 'none')}\n".encode())
    config = msgspec.structs.replace(masters.config, token_file=str(dest))
    async with MasterClient(config) as masters:
        found = await masters.bundles()
        return Listing(tuple(found), masters.stale is not None)


async def _transfer(_: Desk, __: AsyncClient, masters: MasterClient, step: Step, ___: Path) -> Any:
    return await masters.transfer(MasterId(step.what))


async def _backup(desk: Desk, _: AsyncClient, masters: MasterClient, __: Step, ___: Path) -> Any:
    desk.backups.append(await masters.backup())


async def _restore(desk: Desk, _: AsyncClient, __: MasterClient, ___: Step, ____: Path) -> Any:
    """Does what `ha restore` does, or `ha init` if there is no backup."""
    if not desk.backups:
        return await found_at(desk.zookeeper, CALL_SECS)
    zookeeper = ZooKeeper(desk.zookeeper)
    try:
        await zookeeper.start(CALL_SECS)
        return await restore(zookeeper, decode_backup(desk.backups[-1], "the backup"))
    finally:
        await zookeeper.close()


async def _submit(desk: Desk, _: AsyncClient, masters: MasterClient, step: Step, __: Path) -> Any:
    return await job_client.submit(masters, str(desk.jobs[step.what]), timeout=CALL_SECS)


async def _rebalance(_: Desk, __: AsyncClient, masters: MasterClient, step: Step, ___: Path) -> Any:
    return await job_client.rebalance(masters, step.what, wait=1.0, workers=step.number)


async def _kill_job(_: Desk, __: AsyncClient, masters: MasterClient, step: Step, ___: Path) -> Any:
    return await job_client.kill(masters, step.what, wait=1.0)


async def _rest(_: Desk, __: AsyncClient, masters: MasterClient, step: Step, ___: Path) -> Any:
    return await job_client.deactivate(masters, step.what)


async def _wake(_: Desk, __: AsyncClient, masters: MasterClient, step: Step, ___: Path) -> Any:
    return await job_client.activate(masters, step.what)


async def _drain(_: Desk, __: AsyncClient, masters: MasterClient, step: Step, ___: Path) -> Any:
    return await job_client.drain(masters, SupervisorId(step.what))


async def _undrain(_: Desk, __: AsyncClient, masters: MasterClient, step: Step, ___: Path) -> Any:
    return await job_client.undrain(masters, SupervisorId(step.what))


async def _look(_: Desk, __: AsyncClient, masters: MasterClient, ___: Step, ____: Path) -> Any:
    return await masters.cluster(), await job_client.jobs(masters)


async def _history(_: Desk, __: AsyncClient, masters: MasterClient, step: Step, ___: Path) -> Any:
    return await masters.distributions(BundleId(step.what))


CALLS: dict[str, Call] = {
    "look": _look, "history": _history,
    "upload": _upload, "distribute": _distribute, "stand": _stand, "wave": _wave, "send": _send, "cancel": _cancel,
    "remove": _remove,
    "hurt wave": _hurt_wave, "hurt pairs": _hurt_wave,
    "download": _download, "read": _read, "open": _open, "objects": _open, "untar": _untar,
    "lease": _lease, "mount": _mount, "prune": _prune,
    "pin": _pin, "unpin": _unpin,
    "retain": _retain, "unretain": _unretain,
    "sign": _sign, "make token": _token, "revoke token": _revoke, "use token": _use_token, "transfer": _transfer,
    "backup": _backup, "restore": _restore, "submit": _submit, "rebalance": _rebalance, "kill job": _kill_job,
    "deactivate": _rest, "activate": _wake, "drain": _drain, "undrain": _undrain,
}  # fmt: skip


async def make_call(
    desk: Desk, api: AsyncClient, config: ClientConfig, step: Step, dest: Path, on_wait: Callable[[str], None]
) -> Any:
    """Does what the step says. Returns what the user was told. `on_wait`: hears why it waits."""
    async with MasterClient(config, on_wait=on_wait) as masters:
        return await CALLS[step.kind](desk, api, masters, step, dest)
