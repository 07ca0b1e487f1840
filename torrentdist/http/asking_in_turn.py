"""How a daemon asks the masters: one after the other, until one of them gives an answer that can be
used.

A daemon asks again by itself after a while, so one round is enough; commands search longer
(client/masters/).
Always: a master that is down costs one short deadline.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from torrentdist.http.api_calls import Broken, error_in, result_of
from torrentdist.http.connection_pool import Http
from torrentdist.http.http_values import Answer, HttpError
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.headers import age_in

T = TypeVar("T")

MOST_ASKED = 64
"""More masters than any cluster has."""


async def first_sound(
    http: Http,
    urls: Sequence[str],
    path: str,
    read: Callable[[Answer], Awaitable[T]],
    is_final: Callable[[TorrentdistError], bool] = lambda refusal: False,
) -> T:
    """Returns the first answer that `read` accepts.

    A refusal that `is_final` is raised at once. Otherwise the first refusal is raised after all
    masters were asked; without any, the error is `unreachable` and names what happened at each.
    That old records do not know a bundle is no refusal: it may be new.
    """
    refusals: list[TorrentdistError] = []
    silent: list[str] = []
    for url in urls:
        try:
            answer = await http.get(url + path)
            refusal = error_in(answer)
            if refusal is None:
                return await read(answer)
        except (HttpError, Broken) as exc:
            silent.append(f"{url}: {exc}")
            continue
        except TorrentdistError as damaged:
            refusal = damaged
        if refusal.code == "bundle_not_found" and age_in(answer.headers).stale_secs is not None:
            silent.append(f"{url}: {refusal.message}, by old records")
            continue
        if is_final(refusal):
            raise refusal
        refusals.append(refusal)
    if refusals:
        raise refusals[0]
    raise TorrentdistError("unreachable", detail=", ".join(silent) or "no master is known")


async def ask_leader(
    http: Http, likely: str, urls: Iterable[str], path: str, body: msgspec.Struct, kind: type[T]
) -> tuple[str, T] | None:
    """Posts `body` to the leader. Returns the leader's URL and its answer; None: no master answers
    as the leader.

    The `likely` leader is asked first, then the one that a refusal names, then the others.
    """
    content = msgspec.json.encode(body)
    asked: set[str] = set()
    ahead = list(dict.fromkeys([likely, *urls]))
    while ahead and len(asked) < MOST_ASKED:
        url = ahead.pop(0)
        if not url or url in asked:
            continue
        asked.add(url)
        try:
            return url, result_of(await http.post(url + path, content=content), kind)
        except TorrentdistError as refusal:
            if isinstance(named := refusal.extra.get("leader"), str):
                ahead.insert(0, named)
        except (HttpError, Broken):
            pass
    return None
