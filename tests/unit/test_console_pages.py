"""What the console's pages say: of hostile names, of nothing, of much, and of what is not known."""

from __future__ import annotations

import re
from urllib.parse import parse_qs

import pytest
from records_of import digest_of

from torrentdist.master.console import console_markup as m
from torrentdist.master.console.console_door import error_page, sign_in_page
from torrentdist.master.console.console_markup import Visit
from torrentdist.master.console.console_views import (
    DistributionView,
    JobOutputView,
    OutputLine,
    OverviewView,
    distribution_view,
)
from torrentdist.master.console.event_lines import EventFilter, EventLine, moment_of, newest
from torrentdist.master.console.forms.action_forms import ActionView, DistributionOutlook, action_html, action_links
from torrentdist.master.console.forms.actions import ACTIONS
from torrentdist.master.console.pages.bundle_pages import bundles_html, distribution_part
from torrentdist.master.console.pages.distribution_pages import history_table, run_html
from torrentdist.master.console.pages.event_pages import events_html
from torrentdist.master.console.pages.job_pages import output_html
from torrentdist.master.console.pages.overview_pages import overview_part
from torrentdist.master.reads.time_left import eta_of
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, JobId, MasterId, SupervisorId
from torrentdist.model.wire.cluster_messages import AttentionView, BundleCounts
from torrentdist.model.wire.fleet_messages import (
    DistributionSummary,
    FleetView,
    HostArrival,
    HostProgress,
    HostState,
)
from torrentdist.model.wire.transfer_messages import Sources
from torrentdist.security.authorization import Principal, Proof, Role

NOW = 1_700_010_000.0
HOSTILE = "\"><script>alert('x')</script>"
GIB = 1024**3
READER = Principal("looks", Role.READER, Proof.TOKEN)
OPERATOR = Principal("ops", Role.OPERATOR, Proof.SESSION)


def visit(sender: Principal = OPERATOR, leader: str = "master-1", stale: float | None = None) -> Visit:
    return Visit(
        master="master-1", path="/ui/", query="", sender=sender, form_key="key", leader=leader, stale_secs=stale
    )


def overview(found: list[AttentionView] | None = None, leader: str | None = "master-1", gone: int = 0) -> OverviewView:
    return OverviewView(
        leader=None if leader is None else MasterId(leader),
        epoch=7,
        masters=3,
        supervisors=12_345,
        gone_masters=0,
        gone_supervisors=gone,
        jobs=0,
        bundles=BundleCounts(total=1_234_567, available=1, uploading=0, lost=0, under_replicated=0),
        health="All is well.",
        attention=found or [],
        attention_total=len(found or []),
        distributions=[],
        distributions_total=0,
    )


def fleet(*hosts: HostProgress, size: int = GIB) -> DistributionView:
    view = FleetView(id=BundleId("etl-42"), digest=digest_of("x"), size=size, hosts=list(hosts))
    return distribution_view(view, hosts)


def host(name: str, state: HostState, *, done: int = 0, rate: float = 0.0, reason: str = "") -> HostProgress:
    return HostProgress(supervisor=SupervisorId(name), state=state, done=done, size=GIB, rate=rate, reason=reason)


def past(**changes: object) -> DistributionSummary:
    fields: dict[str, object] = {
        "run": "etl-42@1700000000000",
        "bundle": "etl-42",
        "digest": digest_of("x"),
        "size": GIB,
        "began_at": 1_700_000_000.0,
        "ended_at": 1_700_000_060.0,
        "hosts": 500,
        "done": 499,
        "half_secs": 20.0,
        "most_secs": 40.0,
        "sources": Sources(masters=2 * GIB, peers=497 * GIB),
        "copies_from_masters": 2.0,
        "late": [HostArrival(supervisor=SupervisorId("h9"), state=HostState.STUCK, reason="the disk is full")],
        "reached": [(1.0, 0.5), (40.0, 0.998)],
        **changes,
    }
    return DistributionSummary(**fields)  # type: ignore[arg-type]


def lines(*texts: str) -> list[EventLine]:
    return [
        EventLine(at=1_700_000_000.0 + n, who=text, what="PUT /v1/bundles", about=text, result="ok", detail=text)
        for n, text in enumerate(texts)
    ]


def output(text: str, *silent: str) -> JobOutputView:
    shown = OutputLine(supervisor=SupervisorId("h1"), worker=0, stream="stdout", size=1, at=1.0)
    hosts = [SupervisorId(name) for name in silent]
    return JobOutputView(job=JobId("etl"), lines=[shown], shown=shown, text=text, silent=hosts)


def test_text_from_outside_stays_text() -> None:
    """A reason, a log line or a sender's name could run a script in an operator's browser."""
    found = AttentionView(
        what="stuck", severe=True, kind="hosts", subjects=[HOSTILE], count=9, detail=HOSTILE, page="docs/x.md"
    )
    pages = [
        overview_part(overview([found])),
        distribution_part(fleet(host("h1", HostState.STUCK, reason=HOSTILE))),
        run_html(
            visit(), past(late=[HostArrival(supervisor=SupervisorId("h"), state=HostState.GONE, reason=HOSTILE)]), NOW
        ),
        events_html(visit(), lines(HOSTILE), dict.fromkeys(("who", "what", "about", "since", "until"), HOSTILE)),
        output_html(visit(), output(HOSTILE)),
        error_page("internal", HOSTILE, HOSTILE),
        sign_in_page(f"/ui/{HOSTILE}", HOSTILE),
        bundles_html(visit(Principal(HOSTILE, Role.READER, Proof.TOKEN)), [], {"q": HOSTILE, "state": HOSTILE}),
    ]

    assert [] == [page for page in pages if "<script>alert" in page or '">' + "<" + "script>a" in page]
    assert all("&lt;script&gt;" in page for page in pages)


def test_nothing_is_said_in_words() -> None:
    """An empty table would look like a page that failed."""
    assert "Nothing." in overview_part(overview())
    assert "None just now." in overview_part(overview())
    assert "No bundle matches." in bundles_html(visit(), [], {"q": "", "state": ""})
    assert "No host is told to keep it." in distribution_part(fleet())
    assert "None is kept." in history_table([], "None is kept.")
    assert "Nothing matches." in events_html(visit(), [], dict.fromkeys(("who", "what", "about", "since", "until"), ""))
    assert "Nothing yet." in output_html(visit(), output(""))
    assert "<table" not in bundles_html(visit(), [], {"q": "", "state": ""})


def test_big_numbers_can_be_read() -> None:
    """Somebody would count digits, and be wrong by a thousand."""
    hosts = [host(f"h{n:04}", HostState.DONE, done=GIB) for n in range(2000)]

    assert "1,234,567" in overview_part(overview())
    assert "12,345" in overview_part(overview())
    assert "2,000 of 2,000" in distribution_part(fleet(*hosts))
    assert "497 GiB" in run_html(visit(), past(), NOW)
    assert "6.0 h" in distribution_part(fleet(host("h1", HostState.FETCHING, rate=GIB / 21_600)))


def test_what_is_not_known_is_not_zero() -> None:
    """An operator would believe that a host is ready in no time, or that nobody leads by choice."""
    waiting = distribution_part(fleet(host("h1", HostState.FETCHING)))

    assert "unknown" in waiting
    assert "nothing arrives just now" in waiting
    assert "none" in overview_part(overview(leader=None))
    assert "is 1.5 h old" not in m.page(visit(), "x")
    assert "what you see is 2.0 h old" in m.page(visit(stale=7200.0), "x")
    assert "no leader is known" in m.page(visit(leader=""), "x")
    assert "No answer from h2, h3." in output_html(visit(), output("line", "h2", "h3"))


def test_who_is_missing_is_seen_at_once() -> None:
    """The Overview would go from 24 hosts to 23 without a word."""
    assert ">12,345 of 12,346</a>" in overview_part(overview(gone=1))


def test_an_incomplete_distribution_says_who_lacks_it() -> None:
    """The morning after, nobody could say which host has not got it, and why."""
    page = run_html(visit(), past(), NOW)

    assert "499 of 500" in page
    assert "Hosts without it, and the last ones" in page
    assert "the disk is full" in page
    assert "incomplete" in history_table([past()], "")
    assert "complete" in history_table([past(done=500)], "")
    assert "running" in history_table([past(ended_at=None)], "")


def test_a_distribution_that_runs_is_shown_live() -> None:
    """The figures and the curve of a distribution under way would stand still until a reload."""
    live = 'data-live="/ui/live/distributions/etl-42%401700000000000"'

    assert live in run_html(visit(), past(ended_at=None), NOW)
    assert "data-live" not in run_html(visit(), past(), NOW)


def test_the_slowest_come_in_the_order_in_which_they_worry() -> None:
    """The host that never finishes would hide below four that finish in a moment."""
    view = fleet(
        host("soon", HostState.FETCHING, done=GIB // 2, rate=GIB / 10),
        host("late", HostState.FETCHING, done=GIB // 2, rate=GIB / 1000),
        host("idle", HostState.FETCHING, done=GIB // 3),
        host("new", HostState.WAITING),
        host("full", HostState.STUCK, done=GIB // 2, reason="the disk is full"),
        host("away", HostState.GONE, reason="its supervisor is not running"),
        host("done", HostState.DONE, done=GIB),
    )

    assert ["away", "full", "new", "idle", "late"] == [slow.supervisor for slow in view.slowest]
    assert 500.0 == eta_of(host("late", HostState.FETCHING, done=GIB // 2, rate=GIB / 1000))


def test_a_page_waits_for_a_share_of_the_hosts() -> None:
    """An operator would count hosts until enough of them have it."""
    hosts = [host("h1", HostState.DONE, done=GIB), host("h2", HostState.WAITING), host("h3", HostState.WAITING)]
    view = fleet(*hosts)

    assert "Waiting: 1 of 2 hosts have it." in distribution_part(view, "50 %")
    assert "100 % of the hosts have it." in distribution_part(fleet(hosts[0]), "100 %")
    assert "Waiting" not in distribution_part(view, HOSTILE)


def test_only_what_applies_is_offered() -> None:
    """Pages would offer to pin what is pinned, and to readers what only operators may."""
    offered = action_links(visit(), "bundles", "b", {"unpin", "distribute"}, "b")

    assert ["distribute", "unpin"] == re.findall(r">(\w+)</a>", offered)
    assert "" == action_links(visit(READER), "bundles", "b", {"unpin", "distribute"}, "b")


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: f"{action.kind} {action.name}")
def test_every_change_asks_and_shows_its_command(action: object) -> None:
    """A click would change the cluster at once, and nobody could do the same from a script."""
    found = next(one for one in ACTIONS if one is action)
    view = ActionView(
        action=found.name,
        subject="x",
        effect=found.effect,
        role=found.role,
        command=found.command.format("x"),
        allowed=True,
        outlook=DistributionOutlook(hosts=3, have_it=1, bytes=GIB, waves=2) if found.name == "distribute" else None,
    )
    asked = action_html(visit(), found, view, {})
    elsewhere = action_html(visit(leader="master-2"), found, view, {})

    assert f"<button>Yes, {found.name} x</button>" in asked
    assert f'data-copy="{view.command}"' in asked
    assert 'name="form_key" value="key"' in asked
    assert "only the leader changes" in elsewhere
    assert "<button>Yes" not in elsewhere


def test_older_events_of_the_same_second_are_shown() -> None:
    """What comes after a hundred lines of one second would never be seen."""
    found = [EventLine(at=1_700_000_000 + n / 256, who="ann", what="PUT") for n in range(150)]
    shown = newest(found, EventFilter(), 100)
    page = events_html(visit(), shown, dict.fromkeys(("who", "what", "about", "since", "until"), ""))
    [query] = re.findall(r'rel="next" href="[^"?]*[?]([^"]*)"', page)
    until = moment_of(parse_qs(query)["until"][0], 0.0)

    assert found[49::-1] == newest(found, EventFilter(until=until), 100)


def test_events_are_filtered_by_who_what_and_when() -> None:
    """Somebody who looks for one change would read through all of them."""
    found = lines("ann", "bob", "ann")

    assert [found[2], found[0]] == newest(found, EventFilter(who="ann"), 10)
    assert [found[2]] == newest(found, EventFilter(who="ann"), 1)
    assert [found[1]] == newest(found, EventFilter(since=found[1].at, until=found[2].at), 10)
    assert [] == newest(found, EventFilter(what="DELETE"), 10)


def test_a_moment_is_read_as_people_write_it() -> None:
    """A filter would silently show everything."""
    assert 1_767_225_600.0 == moment_of("2026-01-01", 0.0) == moment_of("2026-01-01T00:00", 0.0)
    assert 5.0 == moment_of("", 5.0)
    with pytest.raises(TorrentdistError, match="no time such as"):
        moment_of("yesterday", 0.0)


def test_pages_bring_nothing_from_elsewhere_and_no_script_of_their_own() -> None:
    """The pages' own policy would forbid it, and a style or script would be missing."""
    page = run_html(visit(), past(), NOW) + distribution_part(fleet(host("h1", HostState.DONE, done=GIB)))

    assert [] == re.findall(r"style=|onclick=|<style|<script>|https?://", page)
