"""Completes ids of bundles, jobs, hosts, groups and tokens, as the masters know them now.

Always: it ends within ANSWER_SECS. If no master answers by then, the names of the last completion
are offered.
Never: raise, or write anything, since a shell would mix it into the user's line.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from torrentdist.client.masters.remembered_masters import MAX_AGE_SECS, memory_path, remember_names
from torrentdist.model.wire.view import decode_json
from torrentdist_cli.frame.command import Session

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from torrentdist.client.masters.master_requests import MasterRequests
    from torrentdist.model.configuration.config import ClientConfig

ANSWER_SECS = 0.15
"""The user waits at the Tab key for this, and for the start of the command."""
FRESH_SECS = 5.0
"""The names of an earlier completion are good for this long."""
Complete = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]
Names = Callable[["MasterRequests"], Awaitable[list[str]]]


class _Named(msgspec.Struct):
    """What a completion needs of an entry of a list."""

    id: str


class _Cluster(msgspec.Struct):
    supervisors: list[_Named]
    masters: list[_Named]


class _Group(msgspec.Struct):
    group: str


class _Token(msgspec.Struct):
    name: str


async def _bundles(client: MasterRequests) -> list[str]:
    return await _ids(client, "/v1/bundles")


async def _jobs(client: MasterRequests) -> list[str]:
    return await _ids(client, "/v1/jobs", any="true")


async def _ids(client: MasterRequests, path: str, **params: str) -> list[str]:
    from torrentdist.client.masters.list_pages import all_pages

    found = await all_pages(
        lambda page: client.read("GET", path, list[_Named], params={**page, **params}), lambda entry: entry.id
    )
    return [entry.id for entry in found]


async def _supervisors(client: MasterRequests) -> list[str]:
    return [entry.id for entry in (await client.read("GET", "/v1/cluster", _Cluster)).supervisors]


async def _masters(client: MasterRequests) -> list[str]:
    return [entry.id for entry in (await client.read("GET", "/v1/cluster", _Cluster)).masters]


async def _groups(client: MasterRequests) -> list[str]:
    return [entry.group for entry in await client.read("GET", "/v1/groups", list[_Group])]


async def _tokens(client: MasterRequests) -> list[str]:
    return [entry.name for entry in await client.read("GET", "/v1/tokens", list[_Token])]


async def _hosts(client: MasterRequests) -> list[str]:
    return [entry.id for entry in await client.read("GET", "/v1/hosts", list[_Named])]


def _completing(kind: str, names: Names) -> Complete:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        try:
            found = _known(ctx.find_object(Session) or Session(), kind, names)
        except Exception:
            return []
        return [CompletionItem(name) for name in sorted(found) if name.startswith(incomplete)]

    return complete


def _known(session: Session, kind: str, names: Names) -> list[str]:
    """Returns the names that were asked for lately, or those that the masters answer now. If they
    answer too late, the last names are better than none."""
    config = session.config().client
    path = memory_path(config.masters).with_suffix(f".{kind}.json")
    recalled, age = _recall(path)
    if age < FRESH_SECS:
        return recalled
    import asyncio

    try:
        found = asyncio.run(_ask(config, names))
    except Exception:
        return recalled
    remember_names(path, found)
    return found


def _recall(path: Path) -> tuple[list[str], float]:
    """Returns the names that were asked for last, and their age in seconds."""
    try:
        age = time.time() - path.stat().st_mtime
        names = decode_json(path.read_bytes(), list[str])
    except (OSError, msgspec.MsgspecError):
        return [], math.inf
    return (names, age) if age < MAX_AGE_SECS else ([], math.inf)


async def _ask(config: ClientConfig, names: Names) -> list[str]:
    import asyncio

    from torrentdist.client.masters.master_requests import MasterRequests

    async with MasterRequests(config) as client, asyncio.timeout(ANSWER_SECS):
        return await names(client)


bundle_ids = _completing("bundles", _bundles)
job_ids = _completing("jobs", _jobs)
supervisor_ids = _completing("supervisors", _supervisors)
master_ids = _completing("masters", _masters)
group_names = _completing("groups", _groups)
token_names = _completing("tokens", _tokens)
host_ids = _completing("hosts", _hosts)
