"""What a master keeps of a distribution, and what it says of it."""

from __future__ import annotations

import msgspec
import pytest
from records_of import bundle

from torrentdist.master.history import distribution_runs as runs
from torrentdist.master.history.distribution_runs import (
    DistributionRun,
    HostLine,
    KeptHistory,
    followed,
    is_over,
    joined,
    merged,
    summary_of,
)
from torrentdist.model.ids import SupervisorId, bundle_id
from torrentdist.model.wire.fleet_messages import HostProgress, HostState
from torrentdist.model.wire.transfer_messages import Sources

A, B, C = (SupervisorId(name) for name in "abc")


def run(**lines: HostLine) -> DistributionRun:
    """Returns a run of a bundle of 1000 bytes that began at 100.0."""
    return DistributionRun(
        bundle=bundle_id("etl"), digest=bundle("etl").record.digest, size=1000, began_at=100.0, changed_at=101.0,
        hosts={SupervisorId(name): line for name, line in lines.items()}, had=1,
    )  # fmt: skip


def said(state: HostState, done: int = 0, **fields: object) -> HostProgress:
    return HostProgress(supervisor=A, state=state, done=done, size=1000, **fields)  # type: ignore[arg-type]


def test_a_host_that_has_the_bundle_stays_counted() -> None:
    """A host that restarts later would take back what a distribution has reached."""
    fetching = followed(run(a=HostLine()), {A: said(HostState.FETCHING, 400, from_peers=300, reason="slow")}, [], 110.0)
    done = followed(fetching, {A: said(HostState.DONE, 0, from_masters=250, from_peers=750)}, [], 120.0)

    assert HostLine(HostState.FETCHING, done=400, peers=300, reason="slow") == fetching.hosts[A]
    assert HostLine(HostState.DONE, at=120.0, done=1000, masters=250, peers=750) == done.hosts[A]
    assert (110.0, 120.0) == (fetching.changed_at, done.changed_at)
    assert followed(done, {A: said(HostState.FETCHING, 5), B: said(HostState.DONE)}, [A, B], 130.0) is done


def test_a_host_that_is_away_says_nothing_of_what_it_had() -> None:
    """The bytes of a host would vanish from a distribution's sum while the host is away."""
    before = HostLine(HostState.FETCHING, done=400, masters=100, peers=300)
    away = followed(run(a=before), {A: said(HostState.GONE, reason="x" * 300)}, [], 110.0).hosts[A]

    assert (HostState.GONE, 400, 100, 300) == (away.state, away.done, away.masters, away.peers)
    assert runs.MOST_REASON == len(away.reason)


def test_hosts_that_are_told_to_stop_leave_the_run() -> None:
    """A distribution would wait for them, and never be complete."""
    left = followed(run(a=HostLine(), b=HostLine(at=105.0), c=HostLine()), {}, [A, B], 110.0)

    assert ([B, C], 1, 110.0) == ([*left.hosts], left.left, left.changed_at)


def test_hosts_join_once_and_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that is told twice would begin anew, and a run could grow without bound."""
    monkeypatch.setattr(runs, "MOST_HOSTS", 2)
    begun = run(a=HostLine(at=105.0))
    more = joined(begun, [A, B, C], 110.0)

    assert ({A: HostLine(at=105.0), B: HostLine()}, 110.0) == (more.hosts, more.changed_at)
    assert joined(more, [A, C], 120.0) is more


@pytest.mark.parametrize(
    ("at", "now", "goes_on", "over"),
    [(105.0, 106.0, False, True), (105.0, 106.0, True, False), (0.0, 700.9, False, False), (0.0, 701.0, True, True)],
)
def test_a_run_ends_complete_or_without_any_change(at: float, now: float, goes_on: bool, over: bool) -> None:
    """A distribution whose hosts are gone would stay open for ever, or waves end too soon."""
    assert over is is_over(run(a=HostLine(at=at)), now, goes_on)


def test_a_summary_says_how_long_it_took_and_where_the_bytes_came_from() -> None:
    """An operator would draw conclusions from wrong figures."""
    done = HostLine(HostState.DONE, at=104.0, done=1000, masters=504, peers=400, local=60, plugin=30, outside=10)
    second = HostLine(HostState.DONE, at=102.00049, done=1000, peers=1000)
    said = summary_of(run(a=done, b=second, c=HostLine(reason="full")), 130.0)
    late = [(one.supervisor, one.seconds, one.reason) for one in said.late]

    assert ("etl@100000", 1000, 100.0, 130.0) == (said.run, said.size, said.began_at, said.ended_at)
    assert (4, 3, 0) == (said.hosts, said.done, said.left)
    assert (2.0, None, None) == (said.half_secs, said.most_secs, said.all_secs)
    assert Sources(masters=504, peers=1400, local=1060, plugin=30, outside=10) == said.sources
    assert 0.5 == said.copies_from_masters
    assert [(C, None, "full"), (A, 4.0, ""), (B, 2.0, "")] == late
    assert Sources(masters=504, peers=400, local=60, plugin=30, outside=10) == said.late[1].sources
    assert [(0.0, 0.25), (2.0, 0.5), (4.0, 0.75)] == said.reached


@pytest.mark.parametrize(
    ("began", "ended", "kept"),
    [(100.0, 169.0, True), (100.0, 170.0, False), (210.0, 220.0, False), (230.0, 240.0, False), (231.0, 240.0, True)],
)
def test_a_run_that_two_masters_saw_is_one(began: float, ended: float, kept: bool) -> None:
    """The history would show each distribution twice after a failover, or lack one of two that
    followed each other."""
    theirs = msgspec.structs.replace(summary_of(run(), 200.0), run="theirs", began_at=200.0)
    ours = msgspec.structs.replace(summary_of(run(), ended), run="ours", began_at=began)
    both = merged(KeptHistory(past={"theirs": theirs}), KeptHistory(past={"ours": ours}))

    assert kept is ("ours" in both.past)


def test_the_curve_of_many_hosts_has_few_points_and_their_last() -> None:
    """A page would draw 10,000 points, or never show that all hosts have the bundle."""
    many = run(**{f"s{number}": HostLine(HostState.DONE, at=101.0 + number) for number in range(100)})
    said = summary_of(many)

    assert runs.MOST_POINTS >= len(said.reached) > 30
    assert (100.0, 1.0) == said.reached[-1]
    assert (said.reached[0], said.all_secs) == ((2.0, 0.0297), 100.0)
    assert runs.MOST_LATE == len(said.late)
