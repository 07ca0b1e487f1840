"""What a master remembers of a mutation, what it forgets, and which requests wait until it has
caught up."""

from __future__ import annotations

import asyncio
from typing import cast

import msgspec
import pytest

from torrentdist.cluster import paths
from torrentdist.cluster.election.fence import Fence
from torrentdist.cluster.session.znode_operations import (
    BadVersion,
    Create,
    Delete,
    NoNode,
    Op,
    Set,
    Stat,
    TransactionFailed,
    ZNodeError,
)
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.master.changes.answered_requests import (
    A_DRY_RUN,
    MAX_ANSWER_BYTES,
    Kept,
    Mutation,
    Requests,
    expired,
    make_buckets,
    mutation,
    note,
)
from torrentdist.master.reads.answer_freshness import answered_here, seen
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import RequestId
from torrentdist.model.records import RequestRecord, decode, encode

ID = RequestId("req-1")
ASKED = mutation(ID, "POST", b"/v1/bundles/a", b"min_replicas=2", b"body")


def kept(record: RequestRecord) -> Kept:
    return Kept(record, version=3, zxid=9)


@pytest.mark.parametrize(
    "other",
    [
        ("PUT", b"/v1/bundles/a", b"min_replicas=2", b"body"),
        ("POST", b"/v1/bundles/b", b"min_replicas=2", b"body"),
        ("POST", b"/v1/bundles/a", b"min_replicas=3", b"body"),
        ("POST", b"/v1/bundles/a", b"min_replicas=2", b"other"),
        ("POST", b"/v1/bundles/amin", b"_replicas=2", b"body"),
    ],
)
def test_whatever_is_asked_for_is_part_of_the_content(other: tuple[str, bytes, bytes, bytes]) -> None:
    """If this failed, a request would get the answer to another one with the same id."""
    assert ASKED.content != mutation(ID, *other).content


def test_the_same_request_is_recognised() -> None:
    """If this failed, no retry would ever be recognised."""
    assert mutation(ID, "POST", b"/v1/bundles/a", b"min_replicas=2", b"body") == ASKED


def test_a_request_without_an_id_is_not_remembered() -> None:
    """If this failed, requests of curl would fill ZooKeeper with answers that nobody can ask
    for."""
    assert note(None, None, b"{}") == []


def test_a_claim_says_that_it_is_not_done() -> None:
    """If this failed, a retry after half of the batches would be told that all are done."""
    [op] = note(ASKED, None, None)

    assert isinstance(op, Create)
    assert paths.request(ID) == op.path
    assert kept(RequestRecord(content=ASKED.content)) == kept(decode(op.data, RequestRecord, path=op.path))
    assert not kept(RequestRecord(content=ASKED.content)).done


def test_an_answer_replaces_the_claim_that_was_seen() -> None:
    """If this failed, two attempts could both finish one request."""
    [op] = note(ASKED, kept(RequestRecord(content=ASKED.content)), b'{"a":1}')

    assert isinstance(op, Set)
    assert (paths.request(ID), 3) == (op.path, op.version)
    written = kept(decode(op.data, RequestRecord, path=op.path))
    assert b'{"a":1}' == written.body
    assert kept(RequestRecord(content=ASKED.content, status=200, body='{"a":1}')) == kept(
        decode(op.data, RequestRecord, path=op.path)
    )


def test_an_answer_too_large_to_keep_is_still_an_answer() -> None:
    """If this failed, a large fleet's answer would make its transaction fail, or its retry run
    again."""
    [op] = note(ASKED, None, msgspec.json.encode("x" * MAX_ANSWER_BYTES))
    assert isinstance(op, Create)
    found = kept(decode(op.data, RequestRecord, path=op.path))

    assert len(op.data) < 1000
    assert found.done
    assert found.body is None


def test_a_request_is_found_by_its_id_alone() -> None:
    """If this failed, a lookup would have to list znodes, or one znode would have all requests as
    its children."""
    buckets = {paths.parent(paths.request(RequestId(f"req-{n}"))) for n in range(5000)}

    assert len(buckets) == 256
    assert {paths.REQUESTS} == {paths.parent(bucket) for bucket in buckets}


def test_only_what_is_too_old_is_forgotten() -> None:
    """If this failed, a retry in time would run a second time, or no record would ever be
    deleted."""
    old = Stat(version=2, ephemeral_owner=0, mtime=99.0, created_zxid=1, modified_zxid=1)
    young = Stat(version=2, ephemeral_owner=0, mtime=100.0, created_zxid=1, modified_zxid=1)

    assert [Delete("/old", 2)] == expired({"/old": old, "/young": young, "/gone": None}, 700.0, 600.0)


@pytest.mark.parametrize(("header", "zxid"), [(None, 0), ("0", 0), ("17", 17), (str(2**63 - 1), 2**63 - 1)])
def test_what_was_seen_is_read_from_the_header(header: str | None, zxid: int) -> None:
    """If this failed, a client would be shown an older state than it has seen."""
    assert zxid == seen(header)


@pytest.mark.parametrize("header", ["", "x", "-1", "1.0", "0x10", " 7", "٣", "9" * 19, "9" * 5000])
def test_nonsense_in_the_header_is_refused(header: str) -> None:
    """If this failed, a master would silently accept a number that it cannot reach."""
    with pytest.raises(TorrentdistError) as caught:
        seen(header)

    assert caught.value.code == "invalid_request"


@pytest.mark.parametrize(
    ("method", "path", "leads", "here"),
    [
        ("GET", "/v1/bundles", False, True),
        ("GET", "/v1/bundles", True, True),
        ("POST", "/v1/bundles/a", True, True),
        ("POST", "/v1/bundles/a", False, False),
        ("GET", "/v1/uploads/d", False, False),
        ("GET", "/livez", True, False),
    ],
)
def test_only_who_answers_has_to_catch_up(method: str, path: str, leads: bool, here: bool) -> None:
    """B1: if this failed, a standby cut off from ZooKeeper would keep a mutation waiting instead of
    naming the leader."""
    assert here == answered_here(method, path, leads)


def test_a_mutation_is_a_value() -> None:
    """If this failed, a value that is passed along could be changed on its way."""
    with pytest.raises(AttributeError):
        ASKED.content = "other"  # type: ignore[misc]

    assert Mutation(ID, ASKED.content) == ASKED


class Stored:
    """The znodes of some requests."""

    def __init__(self, **records: RequestRecord) -> None:
        self._found = {paths.request(RequestId(id_)): encode(record) for id_, record in records.items()}

    async def get(self, path: str) -> tuple[bytes, Stat] | None:
        data = self._found.get(path)
        return None if data is None else (data, Stat(3, 0, 0.0, 5, 9))


def found(stored: Stored, asked: Mutation | None) -> Kept | None:
    return asyncio.run(Requests(cast(ZooKeeper, stored)).find(asked))


def test_a_retry_finds_its_record() -> None:
    """B7: if this failed, a retry would make its change a second time."""
    record = RequestRecord(content=ASKED.content, status=200, body="{}")

    assert kept(record) == found(Stored(**{ID: record}), ASKED)
    assert None is found(Stored(), ASKED)
    assert None is found(Stored(**{ID: record}), None)


def test_an_id_that_comes_with_other_content_is_refused() -> None:
    """B7: if this failed, a client that uses an id twice would get the answer to its other
    request."""
    record = RequestRecord(content="other", status=200, body="{}")
    with pytest.raises(TorrentdistError) as caught:
        found(Stored(**{ID: record}), ASKED)

    assert ("request_reused", ID) == (caught.value.code, caught.value.fields["id"])


def test_a_dry_run_asks_for_no_record() -> None:
    """If this failed, a client whose request has the id of dry runs would end all of them."""
    record = RequestRecord(content="other", status=200, body="{}")

    assert None is found(Stored(**{A_DRY_RUN.id: record}), A_DRY_RUN)


def test_attempts_of_one_request_take_turns_and_others_do_not_wait() -> None:
    """B7: if this failed, a retry would run beside the first attempt, or all requests would wait
    for one slow upload."""

    async def run() -> list[bool]:
        requests = Requests(cast(ZooKeeper, Stored()))
        other = mutation(RequestId("req-2"), "POST", b"", b"", b"")
        waits = []
        for first, second in ((ASKED, ASKED), (ASKED, other), (None, None), (A_DRY_RUN, A_DRY_RUN)):
            async with requests.turn(first):
                turn = asyncio.create_task(take_turn(requests, second))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                waits.append(not turn.done())
            await turn
        return waits

    assert [True, False, False, False] == asyncio.run(run())


async def take_turn(requests: Requests, asked: Mutation | None) -> None:
    async with requests.turn(asked):
        pass


def bucket_ops(names: list[str] | None) -> list[Op]:
    """Returns what a leader writes when it finds these buckets."""
    written: list[Op] = []

    class Found:
        async def children(self, path: str) -> list[str] | None:
            return names if path == paths.REQUESTS else []

    class Writes:
        async def commit(self, ops: list[Op]) -> None:
            written.extend(ops)

    asyncio.run(make_buckets(cast(ZooKeeper, Found()), cast(Fence, Writes())))
    return written


def test_missing_buckets_are_made_with_their_root() -> None:
    """If this failed, the first request of a new cluster, or of a bucket that somebody deleted,
    would fail again and again."""
    buckets = paths.request_buckets()
    names = [paths.name(bucket) for bucket in buckets]

    assert [Create(path) for path in (paths.REQUESTS, *buckets)] == bucket_ops(None)
    assert [Create(bucket) for bucket in buckets[3:]] == bucket_ops(names[:3])
    assert [] == bucket_ops(names)


@pytest.mark.parametrize(
    ("path", "reason", "asked", "makes"),
    [
        (paths.request(ID), NoNode, ASKED, True),
        (paths.request(ID), BadVersion, ASKED, False),
        ("/bundles/a", NoNode, ASKED, False),
        (paths.request(ID), NoNode, None, False),
    ],
)
def test_only_a_missing_bucket_is_made_after_a_refusal(
    path: str, reason: type[ZNodeError], asked: Mutation | None, makes: bool
) -> None:
    """If this failed, a leader would write buckets after each conflict, or never."""
    looked: list[str] = []

    class Looks:
        async def children(self, path: str) -> list[str]:
            looked.append(path)
            return [paths.name(bucket) for bucket in paths.request_buckets()]

    failure = TransactionFailed([Create(path)], 0, reason(path))
    asyncio.run(Requests(cast(ZooKeeper, Looks())).refused(asked, cast(Fence, None), failure))

    assert makes is bool(looked)
