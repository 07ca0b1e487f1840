"""What the console's pages say of bundles, jobs, masters, tokens and rules, row by row."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import msgspec
import pytest
from cluster_by_script import BUNDLE
from msgspec.structs import replace
from records_of import digest_of

from torrentdist.master.console.console_markup import Visit
from torrentdist.master.console.console_views import DistributionView, GrowthView, MastersPageView, distribution_view
from torrentdist.master.console.forms.access_pages import TokenLineView, certificates_html, rules_html, tokens_html
from torrentdist.master.console.pages import bundle_pages
from torrentdist.master.console.pages.bundle_facts import BundlePageView, bundle_line, eviction, new_bytes, retention
from torrentdist.master.console.pages.bundle_pages import bundle_html, bundles_html, distribution_part
from torrentdist.master.console.pages.job_pages import job_html, jobs_html
from torrentdist.master.console.pages.master_pages import gone_html, master_html, masters_html
from torrentdist.master.console.pages.room_growth import DAYS_FROM, growth_words
from torrentdist.model.access.host_messages import HostView, MembershipState
from torrentdist.model.access.token_messages import QuotaView, TokenState, TokenView
from torrentdist.model.ids import BundleId, JobId, MasterId, SupervisorId
from torrentdist.model.policies.policy_messages import RetentionView, RoomView
from torrentdist.model.records import BundleState, JobEvent, JobEventKind, JobStatus
from torrentdist.model.wire.bundle_messages import EarlierView
from torrentdist.model.wire.cluster_messages import GoneView
from torrentdist.model.wire.fleet_messages import FleetView, HostProgress, HostState
from torrentdist.model.wire.ha_views import FailoverView, MasterState, RoleView
from torrentdist.model.wire.job_messages import JobView, WorkerState, WorkerView
from torrentdist.security.authorization import LOCAL, Principal, Proof, Role

GIB = 1024**3
VISIT = Visit(master="m1", path="/ui/x", query="", sender=LOCAL, form_key="key", leader="m1")
READERS_VISIT = replace(VISIT, sender=Principal("r", Role.READER, Proof.TOKEN))
EPOCH = "1970-01-01 00:00:01 UTC"


def words(markup: str) -> str:
    """Returns the text of markup, with single blanks."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", markup)).split())


def rows(page: str) -> list[list[str]]:
    """Returns the cells of all rows of tables."""
    return [
        [words(cell) for cell in re.findall(r"<td.*?</td>", row, re.S)]
        for row in re.findall(r"<tr>.*?</tr>", page, re.S)
    ]


def facts(page: str) -> dict[str, str]:
    pairs = re.findall(r"<dt>(.*?)</dt>\s*<dd>(.*?)</dd>", page, re.S)
    return {words(name): words(value) for name, value in pairs}


def room(**given: Any) -> RoomView:
    return RoomView(**{"rules": [], "stays": [], **given})


def replaced(view: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(view, **changes)


def page_of(bundle: Any = BUNDLE, distribution: DistributionView | None = None, **given: Any) -> str:
    fleet = FleetView(id=BUNDLE.id, digest=BUNDLE.digest, size=BUNDLE.size, hosts=[])
    fields = {"jobs": [], "past": [], "earlier": None, "room": None, **given}
    view = BundlePageView(bundle=bundle, distribution=distribution or distribution_view(fleet, []), **fields)
    return bundle_html(VISIT, view, {"state": "", "wait": ""}, "")


def test_a_list_of_bundles_says_what_goes_next() -> None:
    """An operator would be surprised by what retention removes, or look for copies in vain."""
    views = [
        bundle_line(replaced(BUNDLE, pinned=True, age_secs=90.0, signers=["k"]), room(goes="it is old")),
        bundle_line(replaced(BUNDLE, state=BundleState.LOST, replicas=1), room(stays=["needed"])),
        bundle_line(replaced(BUNDLE, id=BundleId("c")), room()), bundle_line(BUNDLE, None),
    ]  # fmt: skip
    page = bundles_html(VISIT, views, {"q": "", "state": ""})

    assert [
        ["etl-42", "available", "1.5 KiB", "3", "2 of 2", "pinned", "1", "90 s", "goes next"],
        ["etl-42", "lost", "1.5 KiB", "3", "1 of 2", "", "0", "unknown", "stays"],
        ["c", "available", "1.5 KiB", "3", "2 of 2", "", "0", "unknown", "may go"],
        ["etl-42", "available", "1.5 KiB", "3", "2 of 2", "", "0", "unknown", "unknown"],
    ] == [row for row in rows(page) if row]
    assert ('badge warn">1 of 2' in page, 'badge bad">lost' in page) == (True, True)
    assert "Next page" not in page
    full = bundles_html(VISIT, views[:1] * 100, {"q": "e", "state": ""})
    assert 'href="/ui/x?q=e&amp;after=etl-42"' in full


def test_a_page_of_a_bundle_says_who_holds_and_needs_it() -> None:
    """Somebody would remove a bundle that a job needs."""
    used = replaced(BUNDLE, pinned=True, signers=["k1", "k2"])
    known, unknown = facts(page_of(used, jobs=["j1", "j2"])), facts(page_of(replaced(BUNDLE, holders=[])))

    assert {
        "State": "available", "Digest": BUNDLE.digest, "Size": "1.5 KiB in 3 files", "New": "unknown",
        "Copies": "2 of 2 wanted", "Held by": "m1 , m2", "Pinned": "yes", "Signed by": "k1, k2",
        "Used by jobs": "j1 , j2", "Retention": "unknown", "If room is needed": "unknown", "Created": EPOCH,
    } == known  # fmt: skip
    assert ("nobody", "no", "nobody", "none") == tuple(
        unknown[name] for name in ("Held by", "Pinned", "Signed by", "Used by jobs")
    )


@pytest.mark.parametrize(
    ("bundle", "given", "offered"),
    [
        (BUNDLE, {}, {"distribute", "pin", "remove"}), (BUNDLE, {"jobs": ["j"]}, {"distribute", "pin"}),
        (replaced(BUNDLE, pinned=True), {}, {"distribute", "unpin"}),
        (replaced(BUNDLE, state=BundleState.UPLOADING), {}, {"pin", "remove"}),
    ],
)  # fmt: skip
def test_only_changes_that_can_be_made_are_offered(bundle: Any, given: dict[str, Any], offered: set[str]) -> None:
    """A click would lead to an error, or a change could not be made here."""
    assert offered == set(re.findall(r'href="/ui/bundles/etl-42/(\w+)', page_of(bundle, **given)))


@pytest.mark.parametrize(
    ("state", "offered"),
    [("running", {"repeat", "cancel"}), ("standing", {"repeat", "cancel"}), ("complete", {"repeat"})],
)
def test_a_distribution_that_runs_can_be_cancelled(state: str, offered: set[str]) -> None:
    """An operator could not stop what should not go on."""
    fleet = FleetView(id=BUNDLE.id, digest=BUNDLE.digest, size=1, hosts=[])
    found = page_of(distribution=replaced(distribution_view(fleet, []), state=state))

    assert offered == {"repeat", "cancel"} & set(re.findall(r'href="/ui/bundles/etl-42/(\w+)', found))


def progress(name: str, state: HostState, **given: Any) -> HostProgress:
    return HostProgress(supervisor=SupervisorId(name), state=state, size=GIB, **given)


def test_a_distribution_says_how_far_each_host_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator would wait for a host that is stuck."""
    hosts = [
        progress("h1", HostState.DONE, from_peers=GIB), progress("h3", HostState.STUCK, reason="no room"),
        progress("h2", HostState.FETCHING, done=GIB // 2, rate=GIB / 4, from_masters=GIB // 2),
    ]  # fmt: skip
    fleet = FleetView(id=BUNDLE.id, digest=digest_of("x"), size=GIB, hosts=hosts)
    view = replaced(distribution_view(fleet, hosts), stopped="a canary failed", state="stopped", wave=1, waves=3)
    page = distribution_part(view)
    table = [[cell for cell in row if "no bytes" not in cell] for row in rows(page) if row]

    assert ["h3", "stuck", "unknown", "no room"] == table[0]
    assert [["h1", "done", "100%", "", ""], ["h3", "stuck", "0%", "", ""]] == [
        [row[0], row[1], *row[3:]] for row in rows(page) if len(row) == 6 and row[0] in ("h1", "h3")
    ]
    assert ["h2", "fetching", "50%", "256 MiB/s", "2 s"] == next(
        [row[0], row[1], *row[3:]] for row in rows(page) if len(row) == 6 and row[0] == "h2"
    )
    said = words(page)
    for part in ("1 of 3", "50%", "256 MiB/s", "The distribution was stopped: a canary failed", "1 of 3", "stuck 1"):
        assert part in said
    assert "mosaic" not in page
    monkeypatch.setattr(bundle_pages, "MOSAIC_FROM", 2)
    assert "mosaic" in distribution_part(view)
    assert "The distribution was" not in distribution_part(replaced(view, stopped=""))


EARLIER = EarlierView(
    size=100, new_bytes=25, reused_bytes=75, reused_from=[BundleId(name) for name in "abcd"], not_compared=0
)


@pytest.mark.parametrize(
    ("earlier", "said"),
    [
        (EARLIER, "25 B (25%); the rest is in a , b , c and 1 more"),
        (replaced(EARLIER, reused_from=[BundleId("a")], not_compared=1),
         "25 B (25%); the rest is in a ; 1 earlier bundle not here to compare with"),
        (replaced(EARLIER, new_bytes=0, reused_from=[BundleId("a")]), "nothing: all of it is in a"),
        (replaced(EARLIER, reused_bytes=0), "all of it: no earlier bundle has any of it"), (None, "unknown"),
    ],
)  # fmt: skip
def test_a_bundle_says_what_is_new_in_it(earlier: EarlierView | None, said: str) -> None:
    """A developer would not notice that a small change sends everything."""
    assert said == words(new_bytes(earlier))


@pytest.mark.parametrize(
    ("view", "kept", "removed"),
    [
        (room(rules=["a*"], goes="it is old"), "goes next it is old",
         "may go: nobody uses it, so hosts drop it, and bundle prune --cluster removes it"),
        (room(rules=["a*", "b*"], rules_keep=["newest", "pinned"], stays=["pinned"]),
         "stays by a*, b*: it is one of the newest; it is pinned", "stays: it is pinned"),
        (room(stays=["needed"]), "no rule matches it", "stays: a live job needs it"),
        (None, "unknown", "unknown"),
    ],
)  # fmt: skip
def test_a_bundle_says_why_it_stays(view: RoomView | None, kept: str, removed: str) -> None:
    """An operator would not know which rule removes a bundle."""
    assert (kept, removed) == (words(retention(view)), words(eviction(view)))


JOB = JobView(
    id=JobId("etl"), name="n", status=JobStatus.ACTIVE, bundle=BundleId("code"), wanted=3,
    dependencies=[BundleId("lib")],
    workers=[
        WorkerView(worker=0, supervisor=SupervisorId("h1"), slot=0, state=WorkerState.RUNNING, pid=77, restarts=2),
        WorkerView(worker=1, supervisor=None, slot=None, state=WorkerState.UNASSIGNED, pid=0, exit_code=0,
                   detail="full"),
    ],
    created_at=1.0, due_in=12.4, reason="waits",
    events=[JobEvent(at=1.0, event=JobEventKind.REBALANCING, worker=1, supervisor=SupervisorId("h9"), detail="moved")],
)  # fmt: skip
UNHEARD = WorkerView(worker=2, supervisor=None, slot=None, state=None, pid=None, restarts=None)


def test_a_job_says_what_its_workers_do() -> None:
    """A worker that nobody has heard of would be called one that runs."""
    page = job_html(VISIT, replaced(JOB, workers=[*JOB.workers, UNHEARD]))

    assert {
        "Status": "active", "Note": "waits", "Bundle": "code", "Needs also": "lib", "Submitted": EPOCH,
        "Next change": "in 12 s",
    } == facts(page)  # fmt: skip
    assert [
        ["0", "h1", "running", "77", "2", "", ""], ["1", "none", "unassigned", "", "0", "0", "full"],
        ["2", "none", "unknown", "unknown", "unknown", "", ""], [EPOCH, "rebalancing", "1", "h9", "moved"],
    ] == [row for row in rows(page) if row]  # fmt: skip
    plain = replaced(JOB, reason="", dependencies=[], due_in=None, events=None)
    assert ("none", "nothing", "none") == tuple(
        facts(job_html(VISIT, plain))[name] for name in ("Note", "Needs also", "Next change")
    )
    assert "Unknown: ZooKeeper does not answer." in job_html(VISIT, plain)


@pytest.mark.parametrize(
    ("status", "offered"),
    [
        (JobStatus.ACTIVE, {"deactivate", "rebalance", "kill"}),
        (JobStatus.INACTIVE, {"activate", "rebalance", "kill"}), (JobStatus.REBALANCING, {"kill"}),
    ],
)  # fmt: skip
def test_only_changes_that_a_job_allows_are_offered(status: JobStatus, offered: set[str]) -> None:
    """A click would lead to an error."""
    page = job_html(VISIT, replaced(JOB, status=status))

    assert offered == set(re.findall(r'href="/ui/jobs/etl/(?!output)(\w+)', page))


def test_a_list_of_jobs_counts_only_what_is_known() -> None:
    """A job whose hosts have not been heard would look like one that does nothing."""
    lost = replaced(JOB, id=JobId("b"), workers=[*JOB.workers, UNHEARD], status=JobStatus.FAILED)
    page = jobs_html(VISIT, [JOB, lost], {"q": "", "status": ""})

    assert [
        ["etl", "active", "code", "1 of 3", EPOCH, "waits"], ["b", "failed", "code", "? of 3", EPOCH, "waits"]
    ] == [row for row in rows(page) if row]  # fmt: skip
    assert ('badge good">active' in page, 'badge bad">failed' in page) == (True, True)


ROLE = RoleView(
    id=MasterId("m1"), url="http://m1", state=MasterState.LEADER, epoch=7, lag=2, version="1", granted_secs=10.0,
    write_secs=0.0125, failing={"disk": "full", "clock": "wrong"},
)  # fmt: skip


def test_masters_say_what_fails_and_who_led() -> None:
    """An operator would not see which master is ill."""
    mute = RoleView(id=MasterId("m2"), url="u", state=MasterState.UNREACHABLE, version="1")
    past = [FailoverView(previous=None, current=MasterId("m1"), at=1.0, reason="died")]
    lost = GoneView(
        id="m3", role="master", host="h3", since=1.0, gone_secs=9.0, bundles=2, jobs=[JobId("j"), JobId("k")]
    )
    page = masters_html(VISIT, MastersPageView(masters=[ROLE, mute], gone=[lost], failovers=past))

    assert [
        ["m1", "leader", "7", "2", "10 s", "12.5 ms", "1", "disk: full; clock: wrong"],
        ["m2", "unreachable", "unknown", "unknown", "unknown", "unknown", "1", ""],
        ["m3", "gone", "h3", EPOCH, "2", "j , k"], [EPOCH, "nobody", "m1", "died"],
    ] == [row for row in rows(page) if row]  # fmt: skip
    assert "unknown" in words(masters_html(VISIT, MastersPageView(masters=[], gone=[], failovers=None)))
    assert "Gone" not in words(masters_html(VISIT, MastersPageView(masters=[], gone=[], failovers=[])))
    gone = gone_html(VISIT, lost, [BundleId("etl")])
    assert {
        "State": "gone", "Since": EPOCH, "Last address": "h3", "Should keep": "2 bundles", "Ran": "j , k"
    } == facts(gone)  # fmt: skip
    assert "/ui/bundles/etl" in gone
    assert "nothing" == facts(gone_html(VISIT, replaced(lost, jobs=[]), []))["Ran"]


def test_a_master_says_how_it_is() -> None:
    """An operator would give the lead to a master that is ill."""
    growing = GrowthView(free_bytes=GIB, fills_in_secs=None, freed_bytes=0)
    leader, standby = (
        master_html(VISIT, ROLE, growing),
        master_html(VISIT, replaced(ROLE, state=MasterState.STANDBY), None),
    )

    assert {
        "State": "leader", "URL": "http://m1", "Epoch": "7", "Bundles it lacks": "2", "ZooKeeper session": "10 s",
        "ZooKeeper's last write": "12.5 ms", "Version": "1", "Failing": "disk: full; clock: wrong",
    } == facts(leader)  # fmt: skip
    assert (True, False) == ("It has room for 1.0 GiB" in leader, "It has room" in standby)
    assert (False, True) == ("m1/transfer" in leader, "m1/transfer" in standby)
    assert "nothing" == facts(master_html(VISIT, replaced(ROLE, failing={}), None))["Failing"]


@pytest.mark.parametrize(
    ("view", "said"),
    [
        (GrowthView(free_bytes=None, fills_in_secs=None, freed_bytes=GIB),
         "How much room it has is not known yet. Retention frees 1.0 GiB next."),
        (GrowthView(free_bytes=GIB, fills_in_secs=None, freed_bytes=0), "It has room for 1.0 GiB of bundles."),
        (GrowthView(free_bytes=GIB, fills_in_secs=DAYS_FROM * 180, freed_bytes=0),
         "It has room for 1.0 GiB of bundles, which is used up in 360 days at the pace of the last week."),
        (GrowthView(free_bytes=GIB, fills_in_secs=DAYS_FROM, freed_bytes=0),
         "It has room for 1.0 GiB of bundles, which is used up in 2 days at the pace of the last week."),
        (GrowthView(free_bytes=GIB, fills_in_secs=90.0, freed_bytes=1),
         "It has room for 1.0 GiB of bundles, which is used up in 90 s at the pace of the last week. "
         "Retention frees 1 B next."),
    ],
)  # fmt: skip
def test_a_store_says_when_it_is_full(view: GrowthView, said: str) -> None:
    """An operator would buy a disk too late."""
    assert said == growth_words(view)


TOKEN = TokenView(
    name="ann", role="uploader", bundles="etl-*", state=TokenState.USABLE, created_at=1.0, created_by="ops",
    expires_at=None, reads="etl-*",
)  # fmt: skip


def test_tokens_say_what_their_holders_use() -> None:
    """An operator would not see who fills the cluster."""
    quota = QuotaView(name="ann", max_bytes=2 * GIB, bytes=GIB, max_distributions=0, distributions=3)
    old = replaced(TOKEN, name="bob", state=TokenState.EXPIRED, expires_at=1.0, reads=None)
    views = [
        TokenLineView(token=TOKEN, quota=quota), TokenLineView(token=old, quota=None),
        TokenLineView(token=TOKEN, quota=replaced(quota, max_bytes=0, max_distributions=5)),
    ]  # fmt: skip
    page = tokens_html(VISIT, views)

    ann = ["ann", "uploader", "etl-*", "etl-*", "usable", "never"]
    assert [
        [*ann, "1.0 GiB of 2.0 GiB", "3 of any number", "ops", "quota revoke"],
        ["bob", "uploader", "etl-*", "everything", "expired", EPOCH, "", "", "ops", ""],
        [*ann, "1.0 GiB of any number", "3 of 5", "ops", "quota revoke"],
    ] == [row for row in rows(page) if row]
    assert "Next page" in tokens_html(VISIT, views[:1] * 100)
    assert "revoke" not in words(tokens_html(READERS_VISIT, views))


def test_certificates_say_who_is_shut_out() -> None:
    """An operator would think that a host is a member that is not."""
    host = HostView(
        id="h1", role="supervisor", serial="ab", expires_at=1.0, state=MembershipState.LIVE, addresses=["a", "b"]
    )
    gone = replaced(host, state=MembershipState.REVOKED, bundles="")
    page = certificates_html(VISIT, [host, gone], "")

    assert [
        ["h1", "supervisor", "live", "ab", EPOCH, "a, b", "*", "revoke"],
        ["h1", "supervisor", "revoked", "ab", EPOCH, "a, b", "what is assigned to it", ""],
    ] == [row for row in rows(page) if row]
    assert ('badge good">live' in page, 'badge bad">revoked' in page) == (True, True)
    assert "Next page" in certificates_html(VISIT, [host] * 100, "h")


def test_rules_name_what_goes_next() -> None:
    """An operator would find out by the loss what a rule removes."""
    goes = {BundleId(f"etl-{n}"): "old" for n in range(7)}
    rule = RetentionView(pattern="etl-*", keep=1234, for_secs=90.0, created_by="ops", bundles=5678, goes=goes)
    plain = replaced(rule, for_secs=0.0, goes={BundleId("x"): "old"})
    page = rules_html(VISIT, [rule, plain, replaced(rule, goes={})])

    assert [
        ["etl-*", "1,234", "90 s", "5,678", "etl-0 , etl-1 , etl-2 , etl-3 , etl-4 and 2 more", "ops", "set end"],
        ["etl-*", "1,234", "", "5,678", "x", "ops", "set end"],
        ["etl-*", "1,234", "90 s", "5,678", "none", "ops", "set end"],
    ] == [row for row in rows(page) if row]
    assert "pattern=etl-%2A&amp;keep=1234&amp;for=90" in page
    assert "A new rule" in page
    assert ("A new rule" in (read := rules_html(READERS_VISIT, [rule])), "set" in rows(read)[-1][-1]) == (
        False,
        False,
    )
