"""Reads from any master and changes through the leader, for all commands.

Always: any master that can answer a read does, within two seconds (read_race.py). A change has one
request id across all retries, so it is made once. An error names what each master said.
Never: decide which master to ask next; leader_search.py does.
"""

import asyncio
import math
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Self, TypeVar

from msgspec.structs import replace

from torrentdist.client.client_access import access_of, only_https
from torrentdist.client.masters import leader_search
from torrentdist.client.masters.leader_search import Reply, Said
from torrentdist.client.masters.read_race import LEADER_SECS, READ_SECS, NoAnswer, Passed, first_answer
from torrentdist.client.masters.refusals import answers_of, judge_change, judge_read, no_leader_found
from torrentdist.client.masters.remembered_masters import Remembered, cache_dir, memory_path, recall, remember
from torrentdist.client.masters.seen_cluster import Seen, Stale
from torrentdist.http.access import AccessRule
from torrentdist.http.api_calls import Broken, Request, decode, error_in, expect_known, send
from torrentdist.http.connection_pool import Http
from torrentdist.http.http_values import Answer
from torrentdist.model.backoff import pause_secs
from torrentdist.model.configuration.config import ClientConfig
from torrentdist.model.errors import EXIT_UNAVAILABLE, TorrentdistError
from torrentdist.model.ids import new_random_id
from torrentdist.model.wire.headers import DRY_RUN_PATH, REQUEST_ID

T = TypeVar("T")

ANSWER_SECS = 3.0
"""A master that is silent for this long may be frozen, so another one is asked. A change is still
made only once."""
DOUBTED_SECS = 0.5
"""The same limit for a master that was silent before. It doubles each time, since the master may
only be slow."""
LEAST_READ = 512 * 1024
"""Bytes of a request that a busy master reads in a second. Asked again earlier, it would have the
metafile of many files to read once more, and so never answer."""
MOST_ANSWER_SECS = 8.0
"""Longest time for one answer. It exceeds a master's wait for ZooKeeper, so that the master's own
error arrives."""
TELL_SECS = 2.0
"""After this long without an answer, a call reports why it is waiting."""


def _open_http(access: AccessRule) -> Http:
    return Http(access=access)


class MasterRequests:
    """Reads and changes at the masters. Use it as an async context manager, or call close().

    `on_wait` is called with the reason when a call takes longer than `tell_secs`, because no master
    can answer it yet.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        on_wait: Callable[[str], None] = lambda why: None,
        tell_secs: float = TELL_SECS,
        open_http: Callable[[AccessRule], Http] = _open_http,
    ) -> None:
        self.config = config
        self._configured = list(leader_search.learned(config.masters))
        if not self._configured:
            raise TorrentdistError("config_missing", detail="client.masters names no master's URL")
        self._path = memory_path(self._configured)
        self._recalled = recall(self._path)
        self._learned = list(self._recalled.masters)
        self._is_confirmed = False
        """Whether a master has told us of the live masters."""
        self._start: str | None = self._recalled.leader
        self._seen = Seen(cache_dir(), self._recalled.cluster)
        self.dry_run = False
        """Whether changes are only tried: the leader checks them, and answers as if it had made
        them."""
        self.stale: Stale | None = None
        """The warning about the age of the last answer to a read."""
        self._on_wait = on_wait
        self._tell_secs = tell_secs
        self.http = open_http(access_of(config))
        self.http.only_https = only_https(config)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Saves what was learned for the user's next command, and closes the connections."""
        found = Remembered(masters=self._learned, leader=self._start, cluster=self._seen.cluster)
        if found != self._recalled or self._is_confirmed:
            await asyncio.to_thread(remember, self._path, found)
        await asyncio.to_thread(self._seen.keep)
        await self.http.aclose()

    @property
    def masters(self) -> list[str]:
        """The URLs of every known master: the configured ones, then those learned from answers."""
        return list(dict.fromkeys((*self._configured, *self._learned)))

    @property
    def zxid(self) -> int:
        """The newest transaction that this user has seen."""
        return self._seen.zxid

    def learn(self, masters: Iterable[str]) -> None:
        """Adopts the list of live masters in a master's answer."""
        if told := list(leader_search.learned(masters)):
            self._learned, self._is_confirmed = told, True

    async def read(self, method: str, path: str, kind: type[T], *, params: Mapping[str, str] | None = None) -> T:
        """Returns what any master knows, within READ_SECS. The answer may come from old records;
        then `stale` is set."""
        return await self._race(Request(method, path, params=params or {}), kind, READ_SECS)

    async def read_of_leader(self, path: str, kind: type[T], *, params: Mapping[str, str] | None = None) -> T:
        """Returns what the leader knows, within READ_SECS. If the leader does not answer, any
        master may."""
        clock = asyncio.get_running_loop().time
        end = clock() + READ_SECS
        request = Request("GET", path, params=params or {})
        try:
            return await self._race(request, kind, LEADER_SECS, rounds=1)
        except TorrentdistError as error:
            if error.exit_code != EXIT_UNAVAILABLE:
                raise
        anybody = replace(request, params={**request.params, "any": "true"})
        return await self._race(anybody, kind, max(READ_SECS - LEADER_SECS, end - clock()))

    async def ask_patiently(
        self, method: str, path: str, kind: type[T], *, params: Mapping[str, str] | None = None
    ) -> T:
        """Makes a read that a change depends on. It may take as long as the change itself."""
        request = Request(method, path, params=params or {}, timeout=MOST_ANSWER_SECS, silence=ANSWER_SECS)
        return await self.read_patiently(request, lambda response: decode(response, kind), self.config.deadline_secs)

    async def read_patiently(self, request: Request, parse: Callable[[Answer], T], secs: float) -> T:
        """Returns the first answer that `parse` accepts, asking one master after the other. If
        `parse` raises Broken, the next one is asked."""
        failed: list[TorrentdistError] = []

        def judge(error: TorrentdistError) -> Reply:
            failed[:] = [error]
            return judge_read(error)

        def fail(search: leader_search.Search, unsure: bool) -> TorrentdistError:
            if not failed:
                return TorrentdistError("unreachable", detail=search.story(), extra=answers_of(search))
            failed[0].extra.update(answers_of(search))
            return failed[0]

        return await self._search(request, parse, judge, fail, secs)

    async def mutate(self, request: Request, kind: type[T]) -> T:
        """Lets the leader make a change. It is made once, even if the search for the leader repeats
        the request. Each attempt may take MOST_ANSWER_SECS, or longer if `request` says so."""
        if self.dry_run:
            request = replace(request, path=request.path.replace("/v1/", DRY_RUN_PATH, 1))
        headers = {REQUEST_ID: new_random_id("req"), **request.headers}
        timeout = max(request.timeout, MOST_ANSWER_SECS)
        patience = len(request.content or b"") / LEAST_READ
        return await self._search(
            replace(request, headers=headers, timeout=timeout, silence=ANSWER_SECS + patience),
            lambda response: decode(response, kind),
            judge_change,
            no_leader_found,
            self.config.deadline_secs,
        )

    async def send_once(self, url: str, request: Request, *, takes_old: bool) -> tuple[Answer, Stale | None]:
        """Asks one master. Returns its answer, and a warning about the answer's age if needed.

        The master must include everything that we have seen, unless `takes_old`.
        """
        while True:
            demand = {} if takes_old else self._seen.demand()
            response = await send(self.http, url, replace(request, headers={**request.headers, **demand}))
            succeeded = response.status_code < 400
            told = self._seen.hear(demand, response.headers, answers=succeeded and not takes_old)
            if told or request.method != "GET":
                break
        return response, self._seen.warning(response.headers, takes_old=takes_old)

    async def _race(self, request: Request, kind: type[T], secs: float, rounds: int = 0) -> T:
        async def attempt(url: str, takes_old: bool, left: float) -> tuple[T, str, Stale | None]:
            try:
                response, stale = await self.send_once(url, replace(request, timeout=left), takes_old=takes_old)
                error = error_in(response)
                if error is None:
                    return decode(response, kind), url, stale
                reply = judge_read(expect_known(error, request))
            except Broken as broken:
                raise Passed(broken.detail) from None
            self.learn(reply.masters)
            raise Passed(reply.detail, error=error, leader=reply.leader, behind=reply.said is Said.BEHIND)

        try:
            found, self._start, self.stale = await first_answer(self._last_first, attempt, secs, rounds=rounds)
        except NoAnswer as nobody:
            error = nobody.error or TorrentdistError("unreachable", detail=str(nobody))
            error.extra.update({"answers": nobody.answers})
            raise error from None
        return found

    def _last_first(self) -> list[str]:
        """Returns every master, beginning with the one that answered last."""
        return sorted(self.masters, key=lambda url: url != self._start)

    async def _search(
        self,
        request: Request,
        parse: Callable[[Answer], T],
        judge: Callable[[TorrentdistError], Reply],
        fail: Callable[[leader_search.Search, bool], TorrentdistError],
        deadline_secs: float,
    ) -> T:
        clock = asyncio.get_running_loop().time
        began = clock()
        told_end = -math.inf
        search, first = leader_search.begin(self.masters, self._start, began, began + deadline_secs)
        action: leader_search.AskMaster | leader_search.GiveUp = first
        unsure = False
        while isinstance(action, leader_search.AskMaster):
            if action.wait:
                await asyncio.sleep(action.wait)
            secs = max(0.1, min(request.timeout, leader_search.ends_at(search) - clock()))
            silence = request.silence
            if action.silences:
                least = max(0.0, request.silence - ANSWER_SECS) if math.isfinite(request.silence) else 0.0
                silence = max(least, pause_secs(action.silences, DOUBTED_SECS, MOST_ANSWER_SECS))
            try:
                attempt = replace(request, timeout=secs, silence=silence)
                response, stale = await self.send_once(action.url, attempt, takes_old=search.content)
                error = error_in(response)
                if error is None:
                    result = parse(response)
                    self._start = action.url
                    self.stale = stale if request.method == "GET" else self.stale
                    return result
                reply = judge(expect_known(error, request))
            except Broken as broken:
                unsure = unsure or broken.sent
                reply = Reply(Said.SILENT if broken.sent else Said.NOTHING, broken.detail)
            self.learn(reply.masters)
            search, action = leader_search.step(search, reply, clock(), random.random())
            if clock() >= began + self._tell_secs and isinstance(action, leader_search.AskMaster):
                end = leader_search.ends_at(search)
                if end > told_end:  # The search may take longer than was announced before.
                    told_end = end
                    self._on_wait(f"for {end - clock():.0f} s more at most; {search.story()}")
        raise fail(search, unsure)
