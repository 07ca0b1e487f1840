"""What a bundle's page says of its new bytes and of what goes next for room."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from records_of import bundle, digest_of, job, snapshot, supervisor

from torrentdist.cluster.records.record_index import RecordIndex
from torrentdist.master.bundles.bundle_views import bundle_view
from torrentdist.master.console.pages.bundle_facts import bundle_line, bundles_table, eviction, new_bytes, retention
from torrentdist.master.policies.retention_rules import retained
from torrentdist.master.policies.room_outlook import RoomOutlook, room_view
from torrentdist.master.reads import earlier_content
from torrentdist.master.reads.earlier_content import EarlierContent, earlier_bundles
from torrentdist.model.ids import BundleId
from torrentdist.model.policies.policy_messages import RoomView
from torrentdist.model.policies.retention_record import RetentionRecord
from torrentdist.model.records import BundleState
from torrentdist.model.wire.bundle_messages import EarlierView

MIB = 1024**2
RULE = RetentionRecord(pattern="etl-*", keep=2, for_secs=0.0, created_by="ops")
SEEN = snapshot(
    [
        bundle("etl-1", created_at=1.0, holders=["m1"]),
        bundle("etl-2", created_at=2.0, holders=["m1"], pinned=True),
        bundle("etl-3", created_at=3.0, holders=["m1"]),
        bundle("etl-4", created_at=4.0, holders=["m1"]),
        bundle("code", created_at=5.0, holders=["m1"]),
        bundle("lost", created_at=6.0, state=BundleState.LOST),
    ],
    supervisors=[supervisor("h1")],
    assigned={"h1": ["etl-4"]},
    jobs=[job("etl", ["code"])],
    retention=[RULE],
)


def room(name: str) -> RoomView:
    index = RecordIndex.of(SEEN)
    return room_view(SEEN, BundleId(name), retained(SEEN, {RULE.pattern: RULE}, 100.0, index), index)


def earlier(new: int, *names: str, not_compared: int = 0) -> EarlierView:
    found = [BundleId(name) for name in names]
    whole = 400 * MIB
    return EarlierView(
        size=whole, new_bytes=new, reused_bytes=whole - new, reused_from=found, not_compared=not_compared
    )


def test_a_bundle_is_compared_with_what_was_there_before_it() -> None:
    """A version would be compared with its successor, with itself, or with what nobody has."""
    seen = snapshot(
        [
            bundle("old", created_at=1.0),
            bundle("twin", content="old", created_at=2.0),
            bundle("gone", created_at=2.0, state=BundleState.REMOVED),
            bundle("lost", created_at=2.0, state=BundleState.LOST),
            bundle("mid", created_at=3.0),
            bundle("own", created_at=4.0),
            bundle("same moment, later name", created_at=4.0),
            bundle("new", created_at=5.0),
        ]
    )

    assert [(digest_of("mid"), "mid"), (digest_of("old"), "twin")] == list(
        earlier_bundles(seen, BundleId("own")).items()
    )
    assert {} == earlier_bundles(seen, BundleId("old"))


@pytest.mark.case("I1")
def test_visitors_with_other_rights_leave_each_others_comparisons_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison that takes longer than an answer would begin anew with each look of either, and
    neither would ever see it."""
    monkeypatch.setattr(earlier_content, "ANSWER_SECS", 0.0)
    begun: list[str] = []

    async def of(digest: str) -> bytes:
        begun.append(digest)
        await asyncio.Event().wait()
        return b""

    unused: Any = None
    metafiles: Any = SimpleNamespace(of=of)

    async def play() -> None:
        content = EarlierContent(unused, metafiles, unused)
        narrow = replace(SEEN, bundles={id_: SEEN.bundles[id_] for id_ in map(BundleId, ("etl-2", "etl-3"))})
        for seen in (SEEN, narrow, SEEN, narrow):
            assert await content.of(seen, BundleId("etl-3")) is None
            await asyncio.sleep(0)

    asyncio.run(play())

    assert 2 == len(begun)


def test_what_goes_next_says_why() -> None:
    """An operator would look for the rule that took a bundle, after it was gone."""
    going = room("etl-1")

    assert going == RoomView(rules=["etl-*"], goes="2 newer ones match etl-*", stays=[])
    assert "goes next" in retention(going)
    assert "2 newer ones match etl-*" in retention(going)
    assert "may go: nobody uses it" in eviction(going)


@pytest.mark.case("I1")
def test_what_goes_next_names_no_rule_that_is_hidden() -> None:
    """A team would learn the patterns of others from the page of an own bundle."""
    records: Any = SimpleNamespace(snapshot=lambda: SEEN, server_now=lambda: 100.0)
    outlook, id_ = RoomOutlook(records), BundleId("etl-1")
    shown = asyncio.run(outlook.of(replace(SEEN, retention={}), [id_]))[id_]

    assert ([], "a rule applies") == (shown.rules, shown.goes)
    assert room("etl-1") == asyncio.run(outlook.of(SEEN, [id_]))[id_]


def test_what_stays_says_why() -> None:
    """A disk would fill, and nobody could say what keeps the bundles on it."""
    assert "stays by etl-*: it is pinned" == retention(room("etl-2"))
    assert "stays: it is pinned" == eviction(room("etl-2"))
    assert "stays by etl-*: it is one of the newest" == retention(room("etl-4"))
    assert "stays: a host is told to keep it" == eviction(room("etl-4"))
    assert "no rule matches it" == retention(room("code"))
    assert "stays: a live job needs it" == eviction(room("code"))
    assert "stays: no live master holds it" == eviction(room("lost"))


def test_the_list_says_it_in_short() -> None:
    """Somebody would open every bundle to find those that go."""
    views = [bundle_line(bundle_view(SEEN, BundleId(name), 9.0), room(name)) for name in ("etl-1", "etl-2", "etl-3")]
    listed = bundles_table(views)

    assert "goes next" in listed
    assert '<td data-of="For room">stays</td>' in listed
    assert '<td data-of="For room">may go</td>' in listed
    assert "unknown" in bundles_table([bundle_line(views[0], None)])


def test_new_bytes_are_told_with_what_has_the_rest() -> None:
    """A number without its other side says nothing, and one that is not known would look like
    none."""
    names = [f"env-{number}" for number in range(5)]

    assert "unknown" in new_bytes(None)
    assert "all of it: no earlier bundle has any of it" == new_bytes(earlier(400 * MIB))
    assert '24.0 MiB (6%); the rest is in <a href="/ui/bundles/env-0">env-0</a>' == new_bytes(
        earlier(24 * MIB, "env-0")
    )
    assert new_bytes(earlier(0, *names)).startswith("nothing: all of it is in <a")
    assert new_bytes(earlier(0, *names)).endswith("env-2</a> and 2 more")
    assert "; 1 earlier bundle not here to compare with" in new_bytes(earlier(400 * MIB, not_compared=1))
    assert "&lt;script" in new_bytes(earlier(0, "<script>"))
