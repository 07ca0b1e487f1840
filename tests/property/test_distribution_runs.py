"""The history of distributions: what is kept says what the hosts said, and stays small."""

from __future__ import annotations

import math

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from torrentdist.master.history import distribution_runs as runs
from torrentdist.master.history.distribution_events import ended_event
from torrentdist.master.history.distribution_runs import DistributionRun, HostLine, KeptHistory
from torrentdist.master.history.history_file import decode_history, encode_history
from torrentdist.model.events import LackingHost
from torrentdist.model.ids import BundleId, Digest, SupervisorId
from torrentdist.model.wire.fleet_messages import HostProgress, HostState

SIZE = 1000
DIGEST = Digest("d" * 64)
HOSTS = [SupervisorId(f"h{n}") for n in range(8)]
BEGAN = 1_700_000_000.0

progresses = st.builds(
    HostProgress,
    supervisor=st.sampled_from(HOSTS),
    state=st.sampled_from(HostState),
    done=st.integers(0, SIZE),
    size=st.just(SIZE),
    from_masters=st.integers(0, SIZE),
    from_peers=st.integers(0, SIZE),
    reason=st.text(max_size=400),
)
rounds = st.lists(st.lists(progresses, max_size=8, unique_by=lambda one: one.supervisor), max_size=12)
"""What hosts say, once a second. A host that says nothing is no longer told to keep the bundle."""
lines = st.builds(HostLine, state=st.sampled_from(HostState), at=st.just(0.0) | st.floats(BEGAN, BEGAN + 1e6))
open_runs = st.builds(
    lambda name, began, hosts: DistributionRun(
        bundle=BundleId(name), digest=DIGEST, size=SIZE, began_at=began, changed_at=began, hosts=hosts
    ),
    st.sampled_from("ab"),
    st.integers(0, 300).map(float),
    st.dictionaries(st.sampled_from(HOSTS), lines, min_size=1),
)
summaries = st.builds(
    lambda run, secs: runs.summary_of(run, run.began_at + secs), open_runs, st.integers(0, 300).map(float)
)
kepts = st.builds(
    lambda opened, past, told: KeptHistory(
        open={run.id: run for run in opened},
        past={one.run: one for one in past},
        told=frozenset(one.run for one in past[:told]),
    ),
    st.lists(open_runs, max_size=4),
    st.lists(summaries, max_size=6),
    st.integers(0, 6),
)


def new_run(*hosts: SupervisorId) -> DistributionRun:
    run = DistributionRun(bundle=BundleId("b"), digest=DIGEST, size=SIZE, began_at=BEGAN, changed_at=BEGAN, hosts={})
    return runs.joined(run, hosts, BEGAN)


def told(run: DistributionRun, heard: list[list[HostProgress]]) -> DistributionRun:
    for second, said in enumerate(heard, 1):
        news = {one.supervisor: one for one in said}
        run = runs.followed(run, news, [host for host in HOSTS if host not in news], BEGAN + second)
    return run


@given(rounds)
def test_a_summary_says_what_the_hosts_said(heard: list[list[HostProgress]]) -> None:
    """The history would show times and bytes that no host ever had."""
    run = told(new_run(*HOSTS), heard)
    summary = runs.summary_of(run)

    first: dict[SupervisorId, float] = {}
    left = set(HOSTS)
    for second, said in enumerate(heard, 1):
        there = {one.supervisor: one for one in said}
        left &= there.keys() | first.keys()
        for host in left & there.keys():
            if there[host].state is HostState.DONE:
                first.setdefault(host, float(second))
    arrivals = sorted(first.values())
    assert (len(left), len(first)) == (summary.hosts, summary.done)
    for share, found in ((0.5, summary.half_secs), (0.9, summary.most_secs), (1.0, summary.all_secs)):
        needed = math.ceil(share * len(left))
        assert (arrivals[needed - 1] if 0 < needed <= len(arrivals) else None) == found
    assert sum(line.masters for line in run.hosts.values()) == summary.sources.masters


@given(rounds, rounds)
def test_a_host_that_has_it_stays_counted(before: list[list[HostProgress]], after: list[list[HostProgress]]) -> None:
    """A host that restarts, or is told to keep less, would vanish from what happened."""
    middle = told(new_run(*HOSTS), before)
    end = told(middle, after)

    assert {host: line for host, line in middle.hosts.items() if line.at}.items() <= end.hosts.items()


@given(st.lists(st.floats(0, 1e6), max_size=300), st.integers(0, 300))
def test_a_summary_is_small_and_its_curve_rises(arrivals: list[float], lacking: int) -> None:
    """The history of a large fleet would fill the masters' disks, or show a host that loses the
    bundle again."""
    hosts = {SupervisorId(f"d{n}"): HostLine(HostState.DONE, BEGAN + at) for n, at in enumerate(arrivals)}
    hosts |= {SupervisorId(f"l{n}"): HostLine(HostState.STUCK, reason="x" * 200) for n in range(lacking)}
    run = msgspec.structs.replace(new_run(), hosts=hosts)
    summary = runs.summary_of(run, BEGAN)

    assert len(msgspec.json.encode(summary)) < 16_000
    assert summary.reached == sorted(summary.reached)
    assert not arrivals or round(len(arrivals) / len(hosts), 4) == summary.reached[-1][1]
    assert min(lacking, runs.MOST_LATE) == sum(one.seconds is None for one in summary.late)


@given(st.integers(1, 2000))
def test_a_run_in_which_nothing_changes_ends(secs: int) -> None:
    """A host that never comes back would keep a distribution running for ever."""
    run = new_run(HOSTS[0])
    gone = HostProgress(supervisor=HOSTS[0], state=HostState.GONE, size=SIZE)
    run = runs.followed(run, {HOSTS[0]: gone}, [], BEGAN)

    assert runs.is_over(runs.followed(run, {HOSTS[0]: gone}, [], BEGAN + secs), BEGAN + secs) == (secs >= 600)


@given(kepts, kepts)
def test_merging_keeps_what_the_other_says_and_repeats_nothing(theirs: KeptHistory, ours: KeptHistory) -> None:
    """A standby would show a distribution twice, or not as the leader saw it."""
    theirs = runs.bounded(
        msgspec.structs.replace(theirs, open={i: r for i, r in theirs.open.items() if i not in theirs.past})
    )
    both = runs.merged(theirs, ours)

    assert theirs.open.items() <= both.open.items()
    assert theirs.past.items() <= both.past.items()
    assert theirs.told <= both.told <= both.past.keys()
    assert ours.told & both.past.keys() <= both.told
    assert both == runs.merged(theirs, both)
    assert (both.open.keys() | both.past.keys()) <= (
        theirs.open.keys() | theirs.past.keys() | ours.open.keys() | ours.past.keys()
    )


def test_the_newest_stay() -> None:
    """The history would grow without bound, or lose the newest."""
    one = runs.summary_of(new_run(HOSTS[0]), BEGAN)
    many = [msgspec.structs.replace(one, run=f"b@{n}", ended_at=BEGAN + n) for n in range(runs.MOST_SUMMARIES + 3)]
    left = runs.bounded(KeptHistory(past={past.run: past for past in many}))

    assert {past.run for past in many[3:]} == left.past.keys()


@given(kepts)
def test_the_file_brings_back_what_was_kept(kept: KeptHistory) -> None:
    """A restart of all masters would lose the history."""
    assert kept == decode_history(encode_history(kept))


@given(kepts)
def test_ends_that_an_older_release_saw_are_not_told_after_an_upgrade(kept: KeptHistory) -> None:
    """The first leader of a new release would write events of two hundred old distributions."""
    file = msgspec.json.decode(encode_history(kept))
    del file["tells"], file["kept"]["told"]

    assert [] == decode_history(msgspec.json.encode(file)).untold


def test_an_end_says_what_lacks_it_and_why() -> None:
    """The report would name no host that did not get a bundle."""
    stuck = HostProgress(supervisor=HOSTS[1], state=HostState.STUCK, size=SIZE, reason="the disk is full")
    has = HostProgress(supervisor=HOSTS[0], state=HostState.DONE, done=SIZE, size=SIZE, from_masters=SIZE)
    run = runs.followed(new_run(*HOSTS[:3]), {HOSTS[0]: has, HOSTS[1]: stuck}, [HOSTS[2]], BEGAN + 5)
    event = ended_event(runs.summary_of(run, BEGAN + 9, cancelled=True))

    assert (2, 1, 1, True) == (event.hosts, event.done, event.left, event.cancelled)
    assert (5.0, None, None, SIZE) == (event.secs_50, event.secs_90, event.secs_100, event.from_masters)
    assert [LackingHost(host=HOSTS[1], state="stuck", reason="the disk is full")] == event.failures


def test_a_distribution_goes_on_between_its_waves() -> None:
    """Each wave would be a distribution of its own, and end with an event of its own."""
    has = HostProgress(supervisor=HOSTS[0], state=HostState.DONE, done=SIZE, size=SIZE)
    run = runs.followed(new_run(HOSTS[0]), {HOSTS[0]: has}, [], BEGAN + 1)

    assert not runs.is_over(run, BEGAN + 2, goes_on=True)
    assert runs.is_over(run, BEGAN + 2)
    assert runs.is_over(run, BEGAN + 1 + runs.GIVE_UP_SECS, goes_on=True)
