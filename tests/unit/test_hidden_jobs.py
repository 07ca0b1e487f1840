"""What a name leads to where some jobs, bundles and events are hidden from the sender."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from records_of import bundle, job, snapshot
from starlette.requests import Request

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.host.http.operation import Operation
from torrentdist.host.http.web import PRINCIPAL
from torrentdist.master.access.audit_trail import may_see
from torrentdist.master.http.routes import RequestedChange
from torrentdist.master.jobs.job_api import JobApi
from torrentdist.master.leading.leader_rounds import LeaderRounds
from torrentdist.master.presence.attention_sight import READS
from torrentdist.master.presence.presence_api import asked_for
from torrentdist.master.reads.readable_records import readable
from torrentdist.model.access.audit_messages import AuditView
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, JobId
from torrentdist.model.records import JobStatus
from torrentdist.model.wire.job_messages import JobView
from torrentdist.security.authorization import TOKEN_HOLDER, Principal, Proof, Role

pytestmark = [pytest.mark.anyio, pytest.mark.case("I1")]

TEAM = Principal("ann", Role.SUBMITTER, Proof.TOKEN, bundles="etl-*", reads=("etl-*",))


def named(id_: str, name: str, needs: list[str], status: JobStatus) -> Any:
    entry = job(id_, needs, status)
    return msgspec.structs.replace(entry, record=msgspec.structs.replace(entry.record, name=name))


def namesakes() -> ClusterSnapshot:
    """A hidden job that runs, an own job that has ended and had its name, and one that has its id
    for a name."""
    return snapshot(
        [bundle("etl-1"), bundle("secret")],
        jobs=[
            named("theirs", "nightly", ["secret"], JobStatus.ACTIVE),
            named("mine", "nightly", ["etl-1"], JobStatus.FINISHED),
            named("trap", "theirs", ["etl-1"], JobStatus.ACTIVE),
        ],
    )


def asked(wanted: str, sender: Principal = TEAM, **query: str) -> Request:
    return Request(
        {
            "type": "http",
            "method": "DELETE",
            "raw_path": b"",
            "path_params": {"job": wanted},
            "headers": [],
            "query_string": urlencode(query).encode(),
            PRINCIPAL: sender,
        }
    )


def jobs_api(changed: list[str], seen: Callable[[], ClusterSnapshot] = namesakes, kept: bytes | None = None) -> JobApi:
    async def recall(mutation: object) -> bytes | None:
        return kept

    async def happen(mutation: object, wanted: str, event: object) -> bytes:
        changed.append(wanted)
        return b""

    requests: Any = SimpleNamespace(happen=happen, recall=recall, server_now=lambda: 0.0)
    secrets = SimpleNamespace(new_pass=lambda *_: "a pass")
    records: Any = SimpleNamespace(snapshot=seen, readable_by=lambda sender: readable(seen(), sender), secrets=secrets)
    leads: Any = SimpleNamespace(fence=lambda: None)
    return JobApi(requests, leads, records)


@pytest.mark.parametrize(("wanted", "changed"), [("nightly", "mine"), ("theirs", "trap"), ("mine", "mine")])
async def test_a_name_changes_no_job_that_is_hidden(wanted: str, changed: str) -> None:
    """A team would kill another team's job, whose name or id an own job has for its name."""
    found: list[str] = []
    await jobs_api(found).kill(RequestedChange(asked(wanted), None, b"", None))

    assert [JobId(changed)] == found


async def test_a_name_opens_the_output_of_no_job_that_is_hidden() -> None:
    """A team would read another team's output, by the pass for an own job that has its id for a
    name."""
    api = jobs_api([])
    with pytest.raises(TorrentdistError) as caught:
        await api.output_pass(asked("theirs"))

    assert "job_not_found" == caught.value.code
    assert 200 == (await api.output_pass(asked("mine"))).status_code
    assert 200 == (await api.output_pass(asked("theirs", TOKEN_HOLDER))).status_code


@pytest.mark.parametrize("reads", [(), ("etl-*",), ("etl-*", "lib"), ("*",)])
async def test_a_master_asks_another_for_what_its_sender_may_read(reads: tuple[str, ...]) -> None:
    """A host that may have nothing but what is assigned to it would see the events of every bundle,
    because it asks a master that asks the others."""
    assert reads == asked_for(asked("", TOKEN_HOLDER, **{READS: ",".join(reads)})).reads


@pytest.mark.parametrize(("bundle_", "shown"), [("secret", False), ("etl-1", True)])
async def test_a_master_asks_another_for_nobodys_own_changes(bundle_: str, shown: bool) -> None:
    """Masters and operators may share a token. A team would see whatever was done with it to hidden
    bundles, as if the team had done it."""
    entry = AuditView(
        at=0.0,
        who=TOKEN_HOLDER.name,
        role=TOKEN_HOLDER.role,
        operation="POST /v1/bundles/{id}",
        target=bundle_,
        bundle=bundle_,
        source="",
        result="ok",
        master="m2",
    )

    assert shown is may_see(asked_for(asked("", TOKEN_HOLDER, **{READS: "etl-*"})), entry)


async def test_nobody_widens_what_it_may_read() -> None:
    """Any reader would name a pattern of its choice."""
    assert TEAM == asked_for(asked("", TEAM, **{READS: "*"}))
    assert TOKEN_HOLDER == asked_for(asked("", TOKEN_HOLDER))


async def test_why_a_leader_gave_way_names_no_bundle() -> None:
    """Everybody may read the changes of leader, and with them the id of a hidden bundle."""
    unused: Any = SimpleNamespace()
    copies: Any = SimpleNamespace(published=frozenset, lost=unused)
    session: Any = SimpleNamespace(zookeeper=unused, mirror=SimpleNamespace(on_change=[]))
    told: list[str] = []
    office: Any = SimpleNamespace(give_way=told.append)
    seen = snapshot([bundle("secret", holders=["m2"])], jobs=[job("theirs", ["secret"])])
    LeaderRounds(session, unused, copies, unused, told.append)._give_way_if_behind(office, seen, None)  # type: ignore[arg-type]

    assert ["gave way: it lacks a bundle of a live job"] == told


def kill_of(api: JobApi) -> Operation:
    return next(op for op in api.operations() if (op.method, op.path) == ("DELETE", "/v1/jobs/{job}"))


async def test_the_job_that_was_checked_is_the_one_that_is_killed() -> None:
    """A job that is submitted under the name in between would be killed by who may not touch it."""
    seen, killed = snapshot(jobs=[named("mine", "nightly", ["etl-1"], JobStatus.FINISHED)]), list[str]()
    later = snapshot(jobs=[*seen.jobs.values(), named("theirs", "nightly", ["secret"], JobStatus.ACTIVE)])
    shown = iter([seen, later, later])
    api, request = jobs_api(killed, lambda: next(shown)), asked("nightly", msgspec.structs.replace(TEAM, reads=("*",)))
    kill = kill_of(api)
    assert kill.target is not None
    bundles = await kill.target(request)
    await kill.handler(request)

    assert (("etl-1",), ["mine"]) == (bundles, killed)


@pytest.mark.parametrize(("reads", "answer"), [(("etl-*",), b"kept"), (("other-*",), "job_not_found")])
async def test_a_kill_that_is_repeated_when_the_job_is_gone_gets_its_answer(
    reads: tuple[str, ...], answer: bytes | str
) -> None:
    """A user whose answer was lost would be told that there is no such job. Who may not see the job
    is told just that."""
    view = JobView(
        id=JobId("mine"), name="nightly", status=JobStatus.KILLED, bundle=BundleId("etl-1"), dependencies=[], wanted=1,
        workers=[], created_at=0.0,
    )  # fmt: skip
    kept = msgspec.json.encode(view)
    api, request = jobs_api([], snapshot, kept), asked("nightly", msgspec.structs.replace(TEAM, reads=reads))
    kill = kill_of(api)
    assert kill.target is not None
    if isinstance(answer, str):
        with pytest.raises(TorrentdistError, match="there is no job") as refused:
            await kill.target(request)
        assert answer == refused.value.code
    else:
        assert ("etl-1",) == await kill.target(request)
        assert kept == (await kill.handler(request)).body
