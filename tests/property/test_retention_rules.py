"""Retention rules remove old versions, and never what somebody needs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from property_size import examples
from records_of import bundle, digest_of, job, snapshot

from torrentdist.cluster.records.snapshot import BundleEntry, ClusterSnapshot
from torrentdist.master.bundles.bundle_operations import removal_ops
from torrentdist.master.changes.predicted_records import predicted
from torrentdist.master.policies.retention_operations import rule_view, rule_views
from torrentdist.master.policies.retention_rules import doomed, retained
from torrentdist.model.ids import BundleId
from torrentdist.model.policies.distribution_record import DistributionRecord, DistributionState
from torrentdist.model.policies.retention_record import RetentionRecord
from torrentdist.model.records import BundleState

NOW = 1000.0
NAMES = [f"{family}-{n}" for family in ("etl", "ml") for n in range(6)]


@st.composite
def clusters(draw: st.DrawFn) -> ClusterSnapshot:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=10))
    bundles = [
        bundle(
            name,
            content=draw(st.sampled_from(["x", "y", None])),
            state=draw(st.sampled_from([BundleState.AVAILABLE] * 4 + [*BundleState])),
            holders=draw(st.lists(st.sampled_from(["m1", "m2", "gone"]), unique=True)),
            pinned=draw(st.sampled_from([False, False, False, True])),
            mtime=draw(st.floats(0.0, NOW)),
            created_at=draw(st.floats(0.0, NOW)),
        )
        for name in names
    ]
    some = st.lists(st.sampled_from(names), unique=True, min_size=1, max_size=2) if names else st.just([])
    needed = draw(some)
    distributed = [
        DistributionRecord(
            bundle=BundleId(name),
            state=draw(st.sampled_from([*DistributionState])),
            ends_at=draw(st.sampled_from([None, NOW + 1])),
        )
        for name in draw(some)
    ]
    rules = [
        RetentionRecord(pattern=pattern, keep=draw(st.integers(1, 4)), for_secs=draw(st.floats(0.0, NOW)))
        for pattern in draw(st.lists(st.sampled_from(["etl-*", "*", "ml-?", "etl-1"]), unique=True))
    ]
    jobs = [job("lives", needed)] if needed else []
    assigned = {"h1": draw(some)}
    return snapshot(bundles, jobs=jobs, distributions=distributed, retention=rules, assigned=assigned)


@settings(max_examples=examples(300))
@given(clusters())
def test_what_somebody_needs_stays(seen: ClusterSnapshot) -> None:
    """If this fails, a rule takes the code of a running job, what an operator pinned, what is on
    its way to hosts, or the only bytes that another bundle lives on."""
    going = doomed(seen, NOW)
    needed = {id_ for entry in seen.jobs.values() for id_ in entry.record.needs}

    for id_ in going:
        record, order = seen.bundles[id_].record, seen.distributions.get(id_)
        assert (record.pinned, record.state, id_ in needed) == (False, BundleState.AVAILABLE, False)
        assert order is None or (order.record.is_over and order.record.ends_at is None)
    after = predicted(seen, [op for id_ in going for op in removal_ops(seen, id_)])
    for entry in after.bundles.values():
        twins = [e for e in after.bundles.values() if e.record.digest == entry.record.digest]
        lost = all(e.record.state is BundleState.REMOVED for e in twins if after.holders(e.record.id))
        living = [e.record.id for e in twins if seen.bundles[e.record.id].record.state is not BundleState.REMOVED]
        held = any(seen.holders(id_) for id_ in living)
        assert entry.record.state is BundleState.REMOVED or not held or not lost


@settings(max_examples=examples(300))
@given(clusters())
def test_a_rule_keeps_as_many_as_it_says(seen: ClusterSnapshot) -> None:
    """If this fails, a rule removes more than it was told to, or hides why something stays."""
    going = set(doomed(seen, NOW))
    rules = {name: entry.record for name, entry in seen.retention.items()}
    for name, found in retained(seen, rules, NOW).items():
        rule = rules[name]
        usable = [id_ for id_ in (*found.goes, *found.stays) if seen.bundles[id_].record.state is BundleState.AVAILABLE]
        young = [id_ for id_ in found.goes if NOW - seen.bundles[id_].mtime < rule.for_secs]

        assert len(set(usable) & set(found.stays)) >= min(rule.keep, len(usable))
        assert [] == young
        assert set(found.goes) <= going
        assert all(found.stays.values())


@settings(max_examples=examples(100))
@given(clusters())
def test_the_list_of_rules_shows_each_as_it_is(seen: ClusterSnapshot) -> None:
    """If this fails, an operator reads of a rule what another one does."""
    rules = sorted((entry.record for entry in seen.retention.values()), key=lambda rule: rule.pattern)

    assert [rule_view(seen, rule, NOW) for rule in rules] == rule_views(seen, NOW)
    assert [{}] * len(rules) == [view.goes for view in rule_views(seen, None)]


@pytest.mark.parametrize("state", [BundleState.UPLOADING, BundleState.LOST])
def test_a_bundle_without_its_bytes_stays_as_unavailable(state: BundleState) -> None:
    """If this fails, a script takes a lost bundle for an upload that is under way."""
    rule = RetentionRecord(pattern="etl-*", keep=1)
    seen = snapshot([bundle("etl-1", state=state), bundle("etl-2", created_at=2.0)], retention=[rule])

    assert {"etl-1": ["unavailable"], "etl-2": ["newest"]} == rule_view(seen, rule, NOW).stays


@pytest.mark.parametrize("state", [BundleState.UPLOADING, BundleState.LOST])
def test_a_newer_bundle_without_its_bytes_replaces_none(state: BundleState) -> None:
    """If this fails, an upload that has only begun removes the last version that can be used."""
    rule = RetentionRecord(pattern="etl-*", keep=1)
    seen = snapshot([bundle("etl-1"), bundle("etl-2", state=state, created_at=2.0)], retention=[rule])

    assert [] == doomed(seen, NOW)
    assert {"etl-1": ["newest"], "etl-2": ["unavailable"]} == rule_view(seen, rule, NOW).stays


@pytest.mark.parametrize(("path", "stays"), [("/jobs/j", True), ("/distributions/etl-1", True), ("/jobs/j/x", False)])
def test_what_a_damaged_record_may_need_is_kept_by_each_rule(path: str, stays: bool) -> None:
    """If this fails, a rule takes the code of a running job whose record cannot be read, or a
    bundle on its way to hosts."""
    rule = RetentionRecord(pattern="etl-*", keep=1)
    names = [bundle("etl-1"), bundle("etl-2", created_at=2.0)]
    seen = replace(snapshot(names, retention=[rule]), damaged=frozenset({path}))

    assert ([] if stays else ["etl-1"]) == doomed(seen, NOW)
    assert (["unreadable"] if stays else None) == rule_view(seen, rule, NOW).stays.get(BundleId("etl-1"))


@pytest.mark.parametrize("pattern", ["etl-?", "etl-[0-9]", "etl-*1"])
def test_a_rule_reaches_only_what_matches_all_of_its_pattern(pattern: str) -> None:
    """If this fails, a rule removes bundles that only begin like its pattern."""
    names = ["etl-1", "etl-x-2", "etl-", "ml-1"]
    seen = snapshot([bundle(name) for name in names], retention=[RetentionRecord(pattern=pattern, keep=1)])

    assert {"etl-1": ["newest"]} == rule_view(seen, RetentionRecord(pattern=pattern, keep=1), NOW).stays


def test_a_removed_bundle_is_in_no_rule() -> None:
    """If this fails, the list of a rule grows for ever, and removes again what is gone."""
    seen = snapshot([bundle("etl-1", state=BundleState.REMOVED), bundle("etl-2")])
    view = rule_view(seen, RetentionRecord(pattern="etl-*", keep=1), NOW)

    assert ({"etl-2": ["newest"]}, {}) == (view.stays, view.goes)


def test_a_bundle_is_young_until_its_time_is_over() -> None:
    """If this fails, a rule for 30 days takes a bundle too early, or keeps it for ever."""
    rule = RetentionRecord(pattern="etl-*", keep=1, for_secs=100.0)
    ages = {"etl-1": 100.0, "etl-2": 99.0, "etl-3": 0.0}
    seen = snapshot(
        [bundle(name, mtime=NOW - age, created_at=NOW - age) for name, age in ages.items()], retention=[rule]
    )

    assert ["etl-1"] == doomed(seen, NOW)
    assert {"etl-2": ["young"], "etl-3": ["newest", "young"]} == rule_view(seen, rule, NOW).stays


@pytest.mark.parametrize(("keep", "why"), [(1, "1 newer one matches etl-*"), (2, "2 newer ones match etl-*")])
def test_a_removal_names_its_rule(keep: int, why: str) -> None:
    """If this fails, a user can't tell from an event which rule took a bundle."""
    rule = RetentionRecord(pattern="etl-*", keep=keep)
    seen = snapshot([bundle(f"etl-{n}", created_at=float(n)) for n in range(keep + 1)])

    assert {"etl-0": why} == rule_view(seen, rule, NOW).goes


def test_a_bundle_that_another_rule_keeps_says_so() -> None:
    """If this fails, a user reads of no reason why a bundle is still there."""
    rules = [RetentionRecord(pattern="etl-*", keep=1), RetentionRecord(pattern="*", keep=2)]
    seen = snapshot([bundle("etl-1"), bundle("etl-2", created_at=2.0)], retention=rules)

    assert [] == doomed(seen, NOW)
    assert ["other_rule"] == rule_view(seen, rules[0], NOW).stays[BundleId("etl-1")]


def test_the_newest_five_stay() -> None:
    """If this fails, a nightly upload fills the disk, or the rule takes the newest version."""
    seen = snapshot(
        [bundle(f"etl-{n}", created_at=float(n), holders=["m1"]) for n in range(8)],
        retention=[RetentionRecord(pattern="etl-*", keep=5)],
        assigned={"h1": ["etl-0"]},
    )

    assert ["etl-0", "etl-1", "etl-2"] == doomed(seen, NOW)


def test_a_bundle_that_lives_on_anothers_copies_keeps_them() -> None:
    """If this fails, the removal of one name deletes the only bytes of another that stays."""
    seen = snapshot(
        [
            bundle("etl-1", content="same", created_at=1.0, holders=["m1"]),
            bundle("etl-2", created_at=2.0, holders=["m1"]),
            bundle("other", content="same"),
        ],
        retention=[RetentionRecord(pattern="etl-*", keep=1)],
    )
    (found,) = retained(seen, {"r": RetentionRecord(pattern="etl-*", keep=1)}, NOW).values()

    assert [] == doomed(seen, NOW)
    assert {"etl-1": ("last_copy",), "etl-2": ("newest",)} == found.stays
    assert digest_of("same") == seen.bundles[BundleId("other")].record.digest
    gone = replace(
        seen, bundles={**seen.bundles, BundleId("other"): bundle("other", state=BundleState.REMOVED, content="same")}
    )
    assert ["etl-1"] == doomed(gone, NOW), "what is removed needs no copies"


class CountedReads(dict[BundleId, BundleEntry]):
    reads = 0

    def __getitem__(self, key: BundleId) -> BundleEntry:
        self.reads += 1
        return super().__getitem__(key)


def test_many_bundles_with_one_content_cost_what_others_cost() -> None:
    """If this fails, the leader stands still while it decides on thousands of versions that are all
    the same, and loses its leadership."""
    reads = {}
    for content in ("same", None):
        made = [bundle(f"etl-{n:03}", content=content, created_at=float(n), holders=["m1"]) for n in range(300)]
        seen = snapshot(made, retention=[RetentionRecord(pattern="etl-*", keep=5)])
        counted = CountedReads(seen.bundles)
        going = doomed(replace(seen, bundles=counted), NOW)
        reads[content] = counted.reads

        assert len(going) == 295
    assert reads["same"] <= 2 * reads[None]
