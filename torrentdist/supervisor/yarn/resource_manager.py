"""Asks the ResourceManagers of a YARN cluster, by their REST interface, for the applications of a
job, and has one killed.

Always: only a complete answer of an active ResourceManager counts. What it says is bounded, and its
texts are taken only where they can be what they are said to be.
Never: decide what follows.
"""

import re
from collections.abc import Iterable

import msgspec

from torrentdist.http.connection_pool import Http
from torrentdist.http.http_values import Answer, HttpError
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.view import decode_json
from torrentdist.supervisor.yarn.application_plan import LIVE, YarnApplication
from torrentdist.supervisor.yarn.yarn_place import YarnPlace, fencing_in, tag_of_run

PATH = "/ws/v1/cluster/apps"
MOST_BYTES = 8 * 1024 * 1024
MOST_DIAGNOSTICS = 2_000
_ID = re.compile(r"application_[0-9]{1,20}_[0-9]{1,12}")
_JSON = {"Accept": "application/json"}
_DONE = (200, 202)


class _ListedApplication(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    state: str
    final_status: str = ""
    tracking_url: str | None = None
    diagnostics: str | None = None
    application_tags: str | None = None


class _ApplicationList(msgspec.Struct, frozen=True):
    app: list[_ListedApplication] | _ListedApplication | None = None


class _ApplicationPage(msgspec.Struct, frozen=True):
    apps: _ApplicationList | None


async def applications(http: Http, place: YarnPlace, fencing: int) -> list[YarnApplication]:
    """Returns the job's applications that are alive, and those of this run in every state.

    Raises `yarn_unavailable` if no ResourceManager says it.
    """
    alive = await _listed(http, place, {"applicationTags": place.tag, "states": ",".join(LIVE)})
    own = await _listed(http, place, {"applicationTags": tag_of_run(place.tag, fencing)})
    return list({application.id: application for application in (*alive, *own)}.values())


async def kill(http: Http, place: YarnPlace, application: str) -> None:
    """Has YARN kill an application, and returns when YARN has taken the order. Raises
    `yarn_unavailable`."""
    body = msgspec.json.encode({"state": "KILLED"})
    said: list[str] = []
    for url in place.resource_managers:
        target = f"{url}{PATH}/{application}/state"
        headers = {**_JSON, "Content-Type": "application/json"}
        try:
            answer = await http.request(
                "PUT", target, params={"user.name": place.user}, content=body, headers=headers, most_bytes=MOST_BYTES
            )
        except (HttpError, TimeoutError) as exc:
            said.append(f"{url}: {exc}")
            continue
        if answer.status_code in _DONE:
            return
        said.append(f"{url}: {application} is not killed, status {answer.status_code}")
    raise TorrentdistError("yarn_unavailable", detail="; ".join(said))


async def _listed(http: Http, place: YarnPlace, query: dict[str, str]) -> list[YarnApplication]:
    said: list[str] = []
    params = {**query, "deSelects": "resourceRequests", "user.name": place.user}
    for url in place.resource_managers:
        try:
            answer = await http.request("GET", url + PATH, params=params, headers=_JSON, most_bytes=MOST_BYTES)
            return list(_read(answer, place.tag))
        except (HttpError, TimeoutError, msgspec.MsgspecError, ValueError) as exc:
            said.append(f"{url}: {exc}")
    raise TorrentdistError("yarn_unavailable", detail="; ".join(said))


def _read(answer: Answer, tag: str) -> Iterable[YarnApplication]:
    """Reads a page. Raises ValueError if it is not one: a standby answers with another page."""
    if answer.status_code != 200:
        raise ValueError(f"status {answer.status_code}")
    page = decode_json(answer.content, _ApplicationPage)
    listed = page.apps.app if page.apps is not None else None
    for each in [listed] if isinstance(listed, _ListedApplication) else listed or []:
        fencing = fencing_in(each.application_tags or "", tag)
        if fencing is not None and _ID.fullmatch(each.id):
            url = each.tracking_url or ""
            diagnostics = (each.diagnostics or "")[:MOST_DIAGNOSTICS]
            shown = url if url.startswith(("http://", "https://")) else ""
            yield YarnApplication(each.id, fencing, each.state, each.final_status, shown, diagnostics)
