"""The client of the masters' HTTP API: typed calls that survive the loss of any master.

Always holds: a read is answered by any master that can, within two seconds (read_race.py); a mutation carries one
request id over all its retries, so that however often it is sent it is made once; an error names what each master said.
Must not do: decide whom to ask next (failover.py does), or touch the swarm.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Self, TypeVar

import msgspec
from msgspec.structs import replace

from torrentdist.bundle.metafile import Metafile, metafile_of
from torrentdist.client.masters import leader_search
from torrentdist.client.masters.leader_search import Reply, Said
from torrentdist.client.masters.list_pages import all_pages
from torrentdist.client.masters.read_race import LEADER_SECS, READ_SECS, NoAnswer, Passed, first_answer
from torrentdist.client.masters.remembered_masters import Remembered, cache_dir, memory_path, recall, remember
from torrentdist.client.masters.request_exchange import (
    Broken,
    Request,
    decode,
    error_in,
    expect_known,
    read_token,
    send,
)
from torrentdist.client.masters.seen_cluster import Seen, Stale
from torrentdist.http11 import Answer, Http
from torrentdist.model.backoff import pause_secs
from torrentdist.model.configuration.config import ClientConfig
from torrentdist.model.errors import EXIT_UNAVAILABLE, TorrentdistError
from torrentdist.model.ids import BundleId, Digest, MasterId, SupervisorId, new_random_id
from torrentdist.model.records import BundleState
from torrentdist.model.wire.bundle_messages import BundleView, UploadOffset
from torrentdist.model.wire.cluster_messages import ClusterView
from torrentdist.model.wire.fleet_messages import DistributeBody, FleetView
from torrentdist.model.wire.ha_views import FailoverView, LeaderTransferView, LeaderView, RoleView, TransferBody
from torrentdist.model.wire.headers import DIGEST, REQUEST_ID

T = TypeVar("T")

ANSWER_SECS = 3.0
"""A master that is silent for so long may be frozen: another one is asked. A change is made once all the same."""
DOUBTED_SECS = 0.5
"""The same for a master that was silent before, if it may be frozen; doubled each time, as it may only be slow."""
MOST_ANSWER_SECS = 8.0
"""Longer than a master waits for ZooKeeper, so that its own word about it arrives."""
BACKUP_SECS = 10.0
"""It is made of what ZooKeeper holds, which takes a master a while."""
CHUNK_SECS = 60.0
TELL_SECS = 2.0
"""A call that is not answered by then says why: who waits may want to look after ZooKeeper."""
LONGEST_POLL_SECS = 2.0
"""Then it is asked again, which also tells what is being waited for."""
POLL_PAUSE_SECS = 0.2
"""Between polls that a master answers at once without the news that was waited for."""

_ANOTHER_MAY_KNOW = frozenset(
    {"not_ready", "zookeeper_unavailable", "closing", "not_leader", "bundle_unavailable", "internal"}
)
_ANOTHER_MAY_LEAD = frozenset({"no_leader", "zookeeper_unavailable", "leadership_lost", "closing", "outcome_unknown"})


class MasterClient:
    """Use as an async context manager, or call close()."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self._configured = list(leader_search.learned(config.masters))
        if not self._configured:
            raise TorrentdistError("config_missing", detail="client.masters names no master's URL")
        self._path = memory_path(self._configured)
        self._recalled = recall(self._path)
        self._learned = list(self._recalled.masters)
        self._start: str | None = self._recalled.leader
        self._seen = Seen(cache_dir(), self._recalled.cluster)
        self.stale: Stale | None = None
        """What is to be said of the last answer to a read."""
        self.on_wait: Callable[[str], None] = lambda why: None
        """Called once when a call takes longer than `tell_secs` because no master can answer it yet."""
        self.tell_secs = TELL_SECS
        self.http = Http()
        token = read_token(config.token_file)
        if token:
            self.http.headers["Authorization"] = f"Bearer {token}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        found = Remembered(masters=self._learned, leader=self._start, cluster=self._seen.cluster)
        if found != self._recalled:
            await asyncio.to_thread(remember, self._path, found)
        await asyncio.to_thread(self._seen.keep)
        await self.http.aclose()

    @property
    def masters(self) -> list[str]:
        """The URLs of every master known: the configured ones, then those learned from answers."""
        return list(dict.fromkeys((*self._configured, *self._learned)))

    def learn(self, masters: Iterable[str]) -> None:
        """Take over the list of live masters that a master has just given."""
        self._learned = list(leader_search.learned(masters)) or self._learned

    # Typed calls

    async def cluster(self) -> ClusterView:
        """As the leader sees it, who alone hears the supervisors, if it answers at once."""
        clock = asyncio.get_running_loop().time
        end = clock() + READ_SECS
        view = await self.read("GET", "/v1/cluster", ClusterView)
        self.learn(master.url for master in view.masters)
        leader = next((master.url for master in view.masters if master.is_leader), None)
        left = min(LEADER_SECS, end - clock())
        if leader is not None and left > 0 and any(supervisor.silent_secs is None for supervisor in view.supervisors):
            with contextlib.suppress(Broken, TorrentdistError):
                response, _ = await self._send(leader, Request("GET", "/v1/cluster", timeout=left), False)
                view = decode(response, ClusterView) if response.status_code == 200 else view
        return view

    async def leader(self) -> LeaderView:
        return await self.read("GET", "/v1/leader", LeaderView)

    async def roles(self) -> list[RoleView]:
        return await self.read("GET", "/v1/roles", list[RoleView])

    async def failovers(self, count: int) -> list[FailoverView]:
        return await self.read("GET", "/v1/failovers", list[FailoverView], params={"n": str(count)})

    async def transfer(self, master: MasterId) -> LeaderTransferView:
        content = msgspec.json.encode(TransferBody(master))
        return await self.mutate("POST", "/v1/transfer", LeaderTransferView, content=content)

    async def backup(self) -> bytes:
        """Every persistent record of the cluster, as a file that decode_backup() checks."""
        request = Request("GET", "/v1/backup", timeout=CHUNK_SECS, silence=BACKUP_SECS)
        return await self._read(request, lambda response: response.content, BACKUP_SECS)

    async def bundles(self) -> list[BundleView]:
        return await all_pages(
            lambda page: self.read("GET", "/v1/bundles", list[BundleView], params=page), lambda bundle: bundle.id
        )

    async def bundle(self, bundle_id: BundleId) -> BundleView:
        return await self.read("GET", f"/v1/bundles/{bundle_id}", BundleView)

    async def hosts(self, bundle_id: BundleId) -> FleetView:
        return await self.read("GET", f"/v1/bundles/{bundle_id}/hosts", FleetView)

    async def metafile(self, bundle_id: BundleId) -> Metafile:
        """The metafile of a bundle, from a master whose copy is sound; `corrupt` if none is."""
        damaged: list[TorrentdistError] = []

        def parse(response: Answer) -> Metafile:
            try:
                return metafile_of(response.content, response.headers.get(DIGEST, ""))
            except TorrentdistError as exc:
                damaged[:] = [exc]
                raise Broken(exc.message, sent=True) from exc

        request = Request("GET", f"/v1/bundles/{bundle_id}/metafile", timeout=CHUNK_SECS, silence=ANSWER_SECS)
        try:
            return await self._read(request, parse, self.config.deadline_secs)
        except TorrentdistError as error:
            if error.code != "unreachable" or not damaged:
                raise
            damaged[0].extra.update(error.extra)
            raise damaged[0] from None

    async def wait_replicas(
        self,
        bundle_id: BundleId,
        replicas: int,
        timeout: float,
        progress: Callable[[BundleView], None] = lambda view: None,
    ) -> BundleView:
        """Wait until that many live masters hold it and it can be downloaded, or for `timeout` seconds."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout
        seen = -1
        while True:
            asked_at = clock()
            secs = max(0.0, min(LONGEST_POLL_SECS, deadline - asked_at))
            # One more than there is: every single replica is news worth showing.
            params = {"replicas": str(min(replicas, seen + 1)), "timeout": f"{secs:.3f}"}
            view = await self.ask_patiently("GET", f"/v1/bundles/{bundle_id}/wait", BundleView, params=params)
            progress(view)
            usable = view.state is not BundleState.UPLOADING or replicas == 0
            if (view.replicas >= replicas and usable) or clock() >= deadline:
                return view
            if view.replicas <= seen and clock() - asked_at < POLL_PAUSE_SECS:
                await asyncio.sleep(min(POLL_PAUSE_SECS, deadline - clock()))
            seen = view.replicas

    async def open_upload(self, bundle_id: BundleId, raw_metafile: bytes, min_replicas: int | None) -> BundleView:
        params = {} if min_replicas is None else {"min_replicas": str(min_replicas)}
        headers = {"Content-Type": "application/x-bittorrent"}
        return await self.mutate(
            "POST", f"/v1/bundles/{bundle_id}", BundleView, params=params, content=raw_metafile, headers=headers,
            timeout=CHUNK_SECS,
        )  # fmt: skip

    async def remove(self, bundle_id: BundleId) -> BundleView:
        return await self.mutate("DELETE", f"/v1/bundles/{bundle_id}", BundleView)

    async def pin(self, bundle_id: BundleId) -> BundleView:
        return await self.mutate("PUT", f"/v1/bundles/{bundle_id}/pin", BundleView)

    async def unpin(self, bundle_id: BundleId) -> BundleView:
        return await self.mutate("DELETE", f"/v1/bundles/{bundle_id}/pin", BundleView)

    async def distribute(
        self, bundle_id: BundleId, *, supervisors: Iterable[SupervisorId] = (), labels: Mapping[str, str] | None = None
    ) -> FleetView:
        """Put the bundle into the assignments of these supervisors, of those with the labels, or of all."""
        content = msgspec.json.encode(DistributeBody(supervisors=list(supervisors) or None, labels=dict(labels or {})))
        return await self.mutate("POST", f"/v1/bundles/{bundle_id}/distribute", FleetView, content=content)

    async def upload_offset(self, digest: Digest) -> int:
        return (await self.mutate("GET", f"/v1/uploads/{digest}", UploadOffset)).offset

    async def put_bytes(self, digest: Digest, offset: int, data: bytes) -> int:
        """Append to an opened upload; the offset to go on from, which after a failover may be an earlier one."""
        params = {"offset": str(offset)}
        headers = {"Content-Type": "application/octet-stream"}
        try:
            answer = await self.mutate(
                "PUT", f"/v1/uploads/{digest}", UploadOffset, params=params, content=data, headers=headers,
                timeout=CHUNK_SECS,
            )  # fmt: skip
        except TorrentdistError as error:
            right = error.extra.get("offset")
            if error.code != "invalid_request" or not isinstance(right, int):
                raise
            return right
        return answer.offset

    async def finish_upload(self, digest: Digest) -> BundleView:
        return await self.mutate("POST", f"/v1/uploads/{digest}/finish", BundleView, timeout=CHUNK_SECS)

    # Reads and mutations

    async def read(self, method: str, path: str, kind: type[T], *, params: Mapping[str, str] | None = None) -> T:
        """What any master knows, within READ_SECS: from old records if need be, which `stale` tells."""
        return await self._look(Request(method, path, params=params or {}), kind, READ_SECS)

    async def read_of_leader(self, path: str, kind: type[T], *, params: Mapping[str, str] | None = None) -> T:
        """What the leader knows best, also within READ_SECS: without its answer, what any master knows."""
        clock = asyncio.get_running_loop().time
        end = clock() + READ_SECS
        request = Request("GET", path, params=params or {})
        try:
            return await self._look(request, kind, LEADER_SECS, rounds=1)
        except TorrentdistError as error:
            if error.exit_code != EXIT_UNAVAILABLE:
                raise
        anybody = replace(request, params={**request.params, "any": "true"})
        return await self._look(anybody, kind, max(READ_SECS - LEADER_SECS, end - clock()))

    async def _look(self, request: Request, kind: type[T], secs: float, rounds: int = 0) -> T:
        async def attempt(url: str, takes_old: bool, left: float) -> tuple[T, str, Stale | None]:
            try:
                response, stale = await self._send(url, replace(request, timeout=left), takes_old)
                error = error_in(response)
                if error is None:
                    return decode(response, kind), url, stale
                reply = _judge_read(expect_known(error, request))
            except Broken as broken:
                raise Passed(broken.detail) from None
            self.learn(reply.masters)
            raise Passed(reply.detail, error=error, leader=reply.leader, behind=reply.said is Said.BEHIND)

        try:
            found, self._start, self.stale = await first_answer(self._order, attempt, secs, rounds=rounds)
        except NoAnswer as nobody:
            error = nobody.error or TorrentdistError("unreachable", detail=str(nobody))
            error.extra.update({"answers": nobody.answers})
            raise error from None
        return found

    def _order(self) -> list[str]:
        """Every master, the one that answered last first."""
        return sorted(self.masters, key=lambda url: url != self._start)

    async def ask_patiently(
        self, method: str, path: str, kind: type[T], *, params: Mapping[str, str] | None = None
    ) -> T:
        """A read that a change depends on: as long as there is time for the change, there is for this."""
        request = Request(method, path, params=params or {}, timeout=MOST_ANSWER_SECS, silence=ANSWER_SECS)
        return await self._read(request, lambda response: decode(response, kind), self.config.deadline_secs)

    async def _read(self, request: Request, parse: Callable[[Answer], T], secs: float) -> T:
        failed: list[TorrentdistError] = []

        def judge(error: TorrentdistError) -> Reply:
            failed[:] = [error]
            return _judge_read(error)

        def fail(search: leader_search.Search, unsure: bool) -> TorrentdistError:
            if not failed:
                return TorrentdistError("unreachable", detail=search.story(), extra=_answers(search))
            failed[0].extra.update(_answers(search))
            return failed[0]

        return await self._search(request, parse, judge, fail, secs)

    async def mutate(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        params: Mapping[str, str] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = MOST_ANSWER_SECS,
        silence: float = ANSWER_SECS,
    ) -> T:
        """Have the leader do it, once, however often it has to be looked for."""
        headers = {REQUEST_ID: new_random_id("req"), **(headers or {})}
        request = Request(
            method, path, params=params or {}, content=content, headers=headers, timeout=timeout, silence=silence
        )
        deadline_secs = self.config.deadline_secs
        return await self._search(
            request, lambda response: decode(response, kind), _judge_refusal, _no_leader_found, deadline_secs
        )

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
                silence = pause_secs(action.silences, DOUBTED_SECS, MOST_ANSWER_SECS)
            try:
                attempt = replace(request, timeout=secs, silence=silence)
                response, stale = await self._send(action.url, attempt, search.content)
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
            if clock() >= began + self.tell_secs and isinstance(action, leader_search.AskMaster):
                end = leader_search.ends_at(search)
                if end > told_end:  # it may turn out to be longer than was said before
                    told_end = end
                    self.on_wait(f"for {end - clock():.0f} s more at most; {search.story()}")
        raise fail(search, unsure)

    async def _send(self, url: str, request: Request, content: bool) -> tuple[Answer, Stale | None]:
        """Have what was seen shown, unless we are `content` with what there is; and what is to be said of its age."""
        while True:
            demand = {} if content else self._seen.demand()
            response = await send(self.http, url, replace(request, headers={**request.headers, **demand}))
            succeeded = response.status_code < 400
            told = self._seen.hear(demand, response.headers, answers=succeeded and not content)
            if told or request.method != "GET":
                break
        return response, self._seen.warning(response.headers, takes_old=content)


def _judge_read(error: TorrentdistError) -> Reply:
    """What a refused read means for the search; an error that no other master would lift is raised."""
    if error.code not in _ANOTHER_MAY_KNOW:
        raise error
    if error.code == "not_leader":
        return _judge_refusal(error)
    return Reply(Said.BEHIND if error.extra.get("behind") else Said.UNABLE, error.message)


def _judge_refusal(error: TorrentdistError) -> Reply:
    """What a refused mutation means for the search; an error that no other master would lift is raised."""
    if error.code == "not_leader":
        leader, masters = error.extra.get("leader"), error.extra.get("masters")
        named = [url for url in masters if isinstance(url, str)] if isinstance(masters, list) else []
        return Reply(
            Said.NOT_LEADER,
            f"not the leader, which is {leader}" if leader else "not the leader, and knows none",
            leader=leader if isinstance(leader, str) else None,
            masters=leader_search.learned(named),
        )
    if error.code == "not_ready":
        return Reply(Said.NOT_READY, error.message)
    if error.code in _ANOTHER_MAY_LEAD:
        return Reply(Said.UNABLE, error.message)
    raise error


def _no_leader_found(search: leader_search.Search, unsure: bool) -> TorrentdistError:
    code = "outcome_unknown" if unsure else "leader_not_found" if search.ever_heard else "unreachable"
    return TorrentdistError(code, detail=search.story(), extra=_answers(search))


def _answers(search: leader_search.Search) -> dict[str, object]:
    return {"answers": dict(search.answers)}
