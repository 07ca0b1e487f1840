"""What the cluster remembers of its masters and hosts, and when one of them counts as gone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from records_of import bundle, job, snapshot, supervisor

from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import AssignmentEntry, ClusterSnapshot, HostEntry, PresenceEntry
from torrentdist.cluster.session.znode_operations import Create, Delete, Op, Set
from torrentdist.master.console.event_lines import lane_of, of_absence
from torrentdist.master.jobs.heartbeats import Heartbeats
from torrentdist.master.presence import presence_plan
from torrentdist.master.presence.presence_plan import (
    Heard,
    forget_ops,
    gone,
    next_look,
    presence_ops,
    restarting,
    returned,
)
from torrentdist.model.access.host_record import HostRecord, PresenceRecord
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import JobId, SupervisorId
from torrentdist.model.records import AssignmentRecord, WorkerAssignment, decode
from torrentdist.model.wire.cluster_messages import GoneView

WEEK = 7 * 86_400.0
MASTERS = [PresenceRecord(id=id_, host="127.0.0.1") for id_ in ("m1", "m2", "m3")]


def seen(*hosts: str, known: Sequence[PresenceRecord] = ()) -> ClusterSnapshot:
    return snapshot(
        supervisors=[supervisor(id_) for id_ in hosts], known=known, known_masters=MASTERS, assigned={"h1": ["etl"]}
    )


def host(id_: str, absent_at: float = 0.0) -> PresenceRecord:
    return PresenceRecord(id=id_, host="127.0.0.1", absent_at=absent_at)


def due(of: ClusterSnapshot, now: float = 1000.0, left: Collection[str] = (), forget_after: float = WEEK) -> list[Op]:
    return presence_ops(of, Heard(left), now, forget_after)


def after(before: ClusterSnapshot, ops: Sequence[Op]) -> ClusterSnapshot:
    """Returns the snapshot after the hosts' records were written."""
    known = dict(before.known_supervisors)
    for op in ops:
        id_ = SupervisorId(paths.name(op.path))
        if isinstance(op, Delete):
            del known[id_]
        elif isinstance(op, Create | Set):
            known[id_] = PresenceEntry(decode(op.data, PresenceRecord, path=op.path), 0)
    return msgspec.structs.replace(before, known_supervisors=known)


def test_a_killed_host_is_gone_with_what_it_kept_until_it_returns() -> None:
    """If this fails, the Overview goes from 24 hosts to 23 and says that all is well."""
    dead = seen("h2", known=[host("h1"), host("h2")])
    left = after(dead, due(dead))
    back = msgspec.structs.replace(left, supervisors=seen("h1", "h2").supervisors)
    returned = after(back, due(back, 2000.0))

    assert [] == gone(left, 1000.0 + presence_plan.ABSENT_SECS - 1)
    view = GoneView(id="h1", role="supervisor", host="127.0.0.1", since=1000.0, gone_secs=10.0, bundles=1, jobs=[])
    assert [view] == gone(left, 1000.0 + presence_plan.ABSENT_SECS)
    assert [] == gone(back, 3000.0)
    assert [] == gone(msgspec.structs.replace(returned, supervisors={}), 3000.0), "it counts from its next absence"


def test_a_new_leader_counts_on_and_writes_nothing() -> None:
    """If this fails, a leader that changes every few seconds never names a dead host."""
    assert [] == due(seen("h2", known=[host("h1", absent_at=900.0), host("h2")]))


def test_a_host_that_comes_is_remembered_from_then_on() -> None:
    """If this fails, a host that dies on its first day is missed by nobody, or counts as silent."""
    (op,) = due(seen("h1"))

    assert isinstance(op, Create)
    assert host("h1") == decode(op.data, PresenceRecord, path=op.path)


def test_a_dead_master_is_gone() -> None:
    """If this fails, a cluster with one of two masters says that all is well."""
    dead = msgspec.structs.replace(seen(), masters=snapshot(masters=["m1", "m2"]).masters)
    kept = snapshot(
        [bundle("a", holders=["m3"]), bundle("b", holders=["m1", "m3"]), bundle("c", holders=["m1"])],
        masters=["m1"],
        known_masters=[PresenceRecord(id="m3", host="10.0.0.3", absent_at=980.04, ran=(JobId("old"),))],
    )
    view = GoneView(id="m3", role="master", host="10.0.0.3", since=980.04, gone_secs=20.0, bundles=2, jobs=[])

    assert [view] == gone(kept, 1000.0)
    (op,) = due(dead)

    assert isinstance(op, Set)
    assert "/known-masters/m3" == op.path
    assert 1000.0 == decode(op.data, PresenceRecord, path=op.path).absent_at


def test_a_host_with_a_certificate_is_missed_until_it_is_revoked() -> None:
    """If this fails, no host of a cluster with TLS is ever missed."""
    of = msgspec.structs.replace(seen(known=[host("h1")]), hosts={"h1": HostEntry(HostRecord(id="h1"), 0)})

    assert [Set] == [type(op) for op in due(of)]
    assert [Set] == [type(op) for op in due(msgspec.structs.replace(of, assignments={}))]


@pytest.mark.parametrize("how", ["stopped", "drained", "revoked"])
@pytest.mark.parametrize("absent_at", [0.0, 900.0])
def test_a_host_that_left_on_purpose_is_not_missed(how: str, absent_at: float) -> None:
    """If this fails, each rolling restart and each removal of a host rings an alarm."""
    of = seen("h2", known=[host("h1", absent_at), host("h2")])
    drained = {SupervisorId("h1"): AssignmentEntry(AssignmentRecord(draining=True), 0)}
    of = msgspec.structs.replace(of, assignments=drained if how == "drained" else {})
    shut_out = {"h1": HostEntry(HostRecord(id="h1", is_revoked=True), 0)}
    of = msgspec.structs.replace(of, hosts=shut_out if how == "revoked" else {})

    assert [Delete("/known-supervisors/h1", 0)] == due(of, left={"h1"} if how == "stopped" else ())


def test_the_jobs_of_a_host_are_noted_before_they_move() -> None:
    """If this fails, nobody knows what ran on the host that died."""
    of = seen("h2", known=[host("h1"), host("h2")])
    workers = tuple(WorkerAssignment(job=JobId(name), worker=0) for name in ("b", "a"))
    busy = {SupervisorId("h1"): AssignmentEntry(AssignmentRecord(workers=workers), 0)}
    left = after(of, due(msgspec.structs.replace(of, assignments=busy)))
    left = msgspec.structs.replace(left, jobs={JobId(name): job(name, ["etl"]) for name in ("a", "b", "c")})

    assert [["a", "b"]] == [view.jobs for view in gone(left, 1011.0)]


def test_the_gone_are_forgotten_after_a_while_and_never_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a cluster that grows and shrinks by itself fills ZooKeeper and its pages."""
    of = seen("h2", known=[host("h1", 900.0), host("h0", 800.0), host("h2")])

    assert [] == due(of)
    assert ["/known-supervisors/h0"] == [op.path for op in due(of, forget_after=200.0)]
    assert [100.0, 0.0] == [next_look(of, 1000.0, forget_after) for forget_after in (300.0, 50.0)]
    assert float("inf") == next_look(seen("h2", known=[host("h2")]), 1000.0, 300.0)
    monkeypatch.setattr(presence_plan, "MOST_GONE", 1)
    assert ["/known-supervisors/h0"] == [op.path for op in due(of)], "the one that is gone for longest"
    back = seen("h1", "h2", known=[host("h1", 900.0), host("h0", 800.0), host("h2")])
    assert ["/known-supervisors/h1"] == [op.path for op in due(back)], "one that has returned is not gone"
    newly = [host("h1", 900.0), *(host(id_) for id_ in ("h3", "h4"))]
    assert [Set, Set] == [type(op) for op in due(seen(known=newly))], "these are not gone yet"
    monkeypatch.setattr(presence_plan, "MOST_KNOWN", 1)
    assert [] == due(seen("h2", "h3", known=[host("h2")]))


def test_an_operator_forgets_what_is_gone_alone() -> None:
    """If this fails, a slip of the finger hides a host that runs, or a typo seems to work."""
    of = seen("h2", known=[host("h1", 900.0), host("h2")])

    assert [Delete("/known-supervisors/h1", 0)] == forget_ops(of, "h1")
    with pytest.raises(TorrentdistError) as running:
        forget_ops(of, "h2")
    with pytest.raises(TorrentdistError) as unknown:
        forget_ops(of, "h9")
    assert ("host_running", "not_found") == (running.value.code, unknown.value.code)


def test_a_host_that_moved_is_remembered_at_its_new_address() -> None:
    """If this fails, an operator looks for a dead host at an address that it no longer had."""
    moved = msgspec.structs.replace(supervisor("h1"), host="10.0.0.9")
    of = snapshot(supervisors=[moved], known=[host("h1")], known_masters=MASTERS)
    (op,) = due(of)

    assert isinstance(op, Set)
    assert "10.0.0.9" == decode(op.data, PresenceRecord, path=op.path).host


def test_a_host_that_returned_is_remembered_with_its_absences() -> None:
    """If this fails, a night in which a host died and came back looks like any other."""
    now, records = 1000.0, seen("h1", known=[host("h1")])
    for _ in range(presence_plan.MOST_ABSENCES + 1):
        records = after(records, due(msgspec.structs.replace(records, supervisors={}), now))
        records = after(records, due(records, now + 60.0))
        now += 1000.0

    assert [(1000.0 * n, 1000.0 * n + 60.0) for n in range(2, 7)] == [
        (left, back) for _, _, left, back in returned(records)
    ]
    assert {("supervisor", "h1")} == {(role, id_) for role, id_, _, _ in returned(records)}
    lines = [line for absence in returned(records) for line in of_absence(*absence)]
    assert ["Gone"] * 10 == [lane_of(line) for line in lines]
    assert ("is back", "h1", "hosts", "it was gone for 60 s") == (
        lines[-1].what, lines[-1].about, lines[-1].page, lines[-1].detail,
    )  # fmt: skip


def test_a_short_absence_is_none() -> None:
    """A session that ends and begins anew would fill the timeline."""
    left = after(seen("h1", known=[host("h1")]), due(seen(known=[host("h1")])))

    assert [] == [*returned(after(left, due(left, 1000.0 + presence_plan.ABSENT_SECS - 1)))]
    assert 1 == len([*returned(after(left, due(left, 1000.0 + presence_plan.ABSENT_SECS)))])


def test_a_host_that_starts_again_and_again_is_named_until_it_runs_for_a_while() -> None:
    """If this fails, a daemon in a loop of crashes counts as up, because each of its registrations
    replaces the last one."""
    records, named = after(seen("h1"), due(seen("h1"))), []
    for start in range(presence_plan.LOOP_STARTS + 1):
        restarted = msgspec.structs.replace(records.supervisors[SupervisorId("h1")], started_at=100.0 + start)
        records = msgspec.structs.replace(records, supervisors={SupervisorId("h1"): restarted})
        records = after(records, due(records, 1000.0 + start * 60.0))
        named.append(restarting(records, 1000.0 + start * 60.0)["supervisor"])

    assert [{}, {}, {}, {}, {"h1": "it started 4 times within 3 min"}] == named
    assert [] == due(records)
    assert ["h1"] == [*restarting(records, 1060.0 + presence_plan.LOOP_SECS)["supervisor"]]
    assert {} == restarting(records, 1060.0 + presence_plan.LOOP_SECS + 1)["supervisor"]


def test_since_when_a_host_is_silent_is_noted_until_it_is_heard() -> None:
    """If this fails, the next leader does not know that a host hangs."""
    here = seen("h1", known=[host("h1")])
    noted = after(here, presence_ops(here, Heard(unheard={SupervisorId("h1"): 990.0}), 1000.0, WEEK))
    (known,) = noted.known_supervisors.values()
    later = presence_ops(noted, Heard(unheard={SupervisorId("h1"): 1500.0}), 1510.0, WEEK)
    (heard,) = after(noted, due(noted)).known_supervisors.values()

    assert 990.0 == known.record.silent_since
    assert [] == later, "the first leader's word counts"
    assert 0.0 == heard.record.silent_since


def test_a_new_leader_goes_on_with_the_silence_that_it_finds_noted() -> None:
    """If this fails, a new leader calls a host silent for years that was silent for a minute, and
    moves its workers at once."""
    noted = seen("h1", known=[msgspec.structs.replace(host("h1"), silent_since=940.0)])
    session: Any = SimpleNamespace(mirror=None, zookeeper=SimpleNamespace(server_now=lambda: 1000.0))
    leads: Any = SimpleNamespace(is_leader=lambda: True, led_for=lambda: 30.0)
    sees: Any = SimpleNamespace(seen_for=lambda: 30.0)
    heartbeats = Heartbeats(session, leads, sees, 90.0)

    assert {"h1": 60.0} == heartbeats.silent_secs(noted)
    assert frozenset() == heartbeats.silent(noted)


def test_a_record_in_the_schema_of_the_release_before_is_not_written_again_and_again() -> None:
    """If this fails, the leader writes without end for as long as a rolling upgrade takes."""
    older = msgspec.structs.replace(host("h1"), schema=1)

    assert [] == due(seen("h1", known=[older]))
