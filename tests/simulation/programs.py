"""Programs on a host that use a bundle for a while. One uses it by its id, as
`spark.pyspark.python` does: it asks for a lease, and locks the bundle's file. Another one has it
mounted, as pods do: it takes a hold, and ends it.

Always: a program dies with nothing but the story. What it holds must stay as it is, whatever
becomes of the bundle and of the host's daemon.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar, overload

import msgspec
from simulation.invariants import Tree, wrong_in

from torrentdist.http.access import with_token
from torrentdist.http.api_calls import Broken, Request, error_in, send
from torrentdist.http.connection_pool import Http
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.bundle_messages import PruneView
from torrentdist.model.wire.fleet_messages import HostBundleView, HostState, LeaseView
from torrentdist.model.wire.hold_messages import HoldBody, HoldView
from torrentdist.model.wire.view import decode_json

WAIT_SECS = 5
ANSWER_SECS = 20.0
LOOK_SECS = 0.5
END_TRIES = 90
S3_CODES = {"NoSuchBucket": "bundle_not_found", "NoSuchKey": "not_found", "InternalError": "internal"}
View = TypeVar("View")


async def use_by_id(gateway: str, bundle: str, tree: Tree, secs: float, most_secs: float) -> None:
    """Raises an AssertionError if what the program holds changes, and a TorrentdistError if it does
    not get it."""
    loop = asyncio.get_running_loop()
    async with Http() as http:
        began, until = loop.time(), loop.time() + most_secs
        view = await _asked(http, gateway, bundle, 0.0)
        while view.state is not HostState.DONE or not _is_current(view):
            if loop.time() > until:
                raise TorrentdistError("timed_out", what=f"the lease of {bundle}", seconds=most_secs)
            await asyncio.sleep(LOOK_SECS)
            view = await _asked(http, gateway, bundle, loop.time() - began)
    with _locked(view.lock):
        await _use(bundle, _target(view), tree, secs)


async def use_mounted(gateway: str, token: str, bundle: str, tree: Tree, secs: float, most_secs: float) -> None:
    """The same for a bundle that is mounted."""
    loop = asyncio.get_running_loop()
    async with Http(access=with_token(token)) as http:
        began, path = loop.time(), f"/v1/host/bundles/{bundle}"
        until = began + most_secs
        view = await _ask(http, gateway, Request("POST", f"{path}/fetch"), HostBundleView)
        while view.digest is None or view.state is not HostState.DONE:
            if loop.time() > until:
                raise TorrentdistError("timed_out", what=f"the mount of {bundle}", seconds=most_secs)
            await asyncio.sleep(LOOK_SECS)
            query = f"?wait={WAIT_SECS}&asked={loop.time() - began:.3f}"
            view = await _ask(http, gateway, Request("GET", path + query), HostBundleView)
        body = msgspec.json.encode(HoldBody(bundle=bundle, digest=view.digest, target=f"/pods/{loop.time()}"))
        hold = f"/v1/host/holds/h{loop.time():.3f}"
        try:
            taken = await _ask(http, gateway, Request("PUT", hold, content=body), HoldView)
            await _use(bundle, Path(taken.content), tree, secs)
        finally:
            await _end(http, gateway, hold)


async def prune(gateway: str, token: str) -> PruneView:
    """Has a host drop what nothing needs."""
    async with Http(access=with_token(token)) as http:
        return await _ask(http, gateway, Request("POST", "/v1/host/prune?older_than=0"), PruneView)


async def get(http: Http, gateway: str, path: str, most_secs: float) -> bytes:
    """Returns the bytes that a door of the gateway gives."""
    request = Request("GET", path, timeout=most_secs)
    try:
        answer = await send(http, gateway, request)
    except Broken as broken:
        raise TorrentdistError("supervisor_unreachable", url=gateway, detail=broken.detail) from broken
    if answer.status_code >= 400 and path.startswith("/s3/"):
        told = answer.content.decode().partition("<Code>")[2].partition("<")[0]
        raise TorrentdistError(S3_CODES.get(told, "not_ready"), id=path, what=path, detail=told)
    if (error := error_in(answer)) is not None:
        raise error
    return answer.content


async def _end(http: Http, gateway: str, hold: str) -> None:
    """Ends a hold, as the kubelet does: again and again, until the host's daemon says so."""
    for _ in range(END_TRIES):
        try:
            await _ask(http, gateway, Request("DELETE", hold), None)
        except TorrentdistError:
            await asyncio.sleep(1.0)
        else:
            return


async def _use(bundle: str, content: Path, tree: Tree, secs: float) -> None:
    until = asyncio.get_running_loop().time() + secs
    while asyncio.get_running_loop().time() < until:
        if wrong := wrong_in(content, tree):
            raise AssertionError(f"a program uses {bundle}, and {wrong}")
        await asyncio.sleep(LOOK_SECS)


async def _asked(http: Http, gateway: str, bundle: str, secs: float) -> LeaseView:
    path = f"/v1/host/bundles/{bundle}/lease?wait={WAIT_SECS}&asked={secs:.3f}"
    return await _ask(http, gateway, Request("POST", path), LeaseView)


@overload
async def _ask(http: Http, gateway: str, request: Request, kind: type[View]) -> View: ...
@overload
async def _ask(http: Http, gateway: str, request: Request, kind: None) -> None: ...
async def _ask(http: Http, gateway: str, request: Request, kind: type[View] | None) -> View | None:
    try:
        answer = await send(http, gateway, msgspec.structs.replace(request, timeout=ANSWER_SECS))
    except Broken as broken:
        raise TorrentdistError("supervisor_unreachable", url=gateway, detail=broken.detail) from broken
    if (error := error_in(answer)) is not None:
        raise error
    return None if kind is None else decode_json(answer.content, kind)


def _is_current(view: LeaseView) -> bool:
    """Whether the file to lock is there. The daemon removes it when nobody has used the bundle for
    long, and makes it again when it is asked."""
    return os.path.exists(view.lock)


def _target(view: LeaseView) -> Path:
    return Path(view.path).resolve()


@contextmanager
def _locked(path: str) -> Iterator[None]:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    finally:
        os.close(file)
