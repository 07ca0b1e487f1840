"""The doctor's findings about the whole fleet, and the pages that its hints name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from records_of import snapshot, supervisor

from torrentdist.client import diagnosis, doctor, tls_diagnosis, trust_diagnosis
from torrentdist.client.diagnosis import (
    FIRST_NEEDS,
    PAGES,
    MasterFacts,
    judge_expiring,
    judge_isolation,
    judge_leader,
    judge_quotas,
    judge_reading,
    judge_records,
    judge_room,
    judge_silence,
    warning,
    with_page,
)
from torrentdist.master.bundles.bundle_views import cluster_view
from torrentdist.model.access.token_messages import QuotaView, TokenState, TokenView
from torrentdist.model.ids import MasterId, PeerId, SupervisorId
from torrentdist.model.wire.cluster_messages import BundleCounts, ClusterView
from torrentdist.model.wire.doctor_views import Finding, IsolationView, Verdict
from torrentdist.model.wire.ha_views import MasterState, RoleView

DOCS = Path(__file__).parents[2] / "docs"
SOURCES = [Path(module.__file__ or "") for module in (diagnosis, doctor, tls_diagnosis, trust_diagnosis)]
PAGE = re.compile(r"docs/([a-z-]+\.md)#([a-z0-9-]+)")
OPERATIONS = "docs/operations.md#"


def anchors(page: str) -> set[str]:
    """Returns the anchors of a page's headings, as Markdown makes them."""
    titles = (line.lstrip("# ") for line in (DOCS / page).read_text().splitlines() if line.startswith("#"))
    return {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}


def names_of_checks() -> Iterator[str]:
    """Returns the name of every check of which the doctor may find fault."""
    for source in SOURCES:
        for call in ast.walk(ast.parse(source.read_text())):
            if not isinstance(call, ast.Call):
                continue
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            if name in ("failure", "warning", "of_error") and call.args and isinstance(call.args[0], ast.Constant):
                yield str(call.args[0].value)


def test_every_check_has_a_page_that_exists() -> None:
    """A hint would lead to a page or a section that does not exist, or to none."""
    texts = [source.read_text() for source in SOURCES]
    named = {found for text in texts for found in PAGE.findall(text)}
    bare = [found for text in texts for found in re.findall(r"docs/[a-z-]+\.md(?!#)", text)]

    assert set() == {*names_of_checks(), "access", "reachable"} - PAGES.keys()
    assert [] == [(page, anchor) for page, anchor in sorted(named) if anchor not in anchors(page)]
    assert [] == [page for page in PAGES.values() if not PAGE.fullmatch(page)]
    assert [] == bare


def test_a_hint_names_one_page() -> None:
    """An operator would read two links, and not know which one helps."""
    assert f"Run an NTP client. See {FIRST_NEEDS}" == with_page("clock", "Run an NTP client.")
    assert "docs/signing.md#a-first-session" == warning("clock", "", "", "docs/signing.md#a-first-session").hint


def cluster(**changes: object) -> ClusterView:
    seen = snapshot(masters=["m1"], supervisors=[supervisor("a"), supervisor("b")])
    view = cluster_view(seen, MasterId("m1"), 0.0)
    return msgspec.structs.replace(view, **changes)


def pages_of(findings: list[Finding]) -> list[str]:
    return [finding.hint.rpartition(OPERATIONS)[2] for finding in findings]


def test_troubles_lead_to_their_section() -> None:
    """In an outage an operator would search the pages for what to do."""
    counts = BundleCounts(total=3, available=0, uploading=0, lost=1, under_replicated=2)
    idle = RoleView(id=MasterId("m1"), url="u", state=MasterState.STANDBY, version="1")
    leaderless = MasterFacts("u", role=idle, cluster=cluster(leader=None))

    assert ["lost", "under-replicated"] == pages_of(judge_records(cluster(bundles=counts)))
    assert ["when-zookeeper-is-away-or-its-data-is-gone"] == pages_of(judge_records(cluster(stale_secs=9.0)))
    assert ["no-leader"] == pages_of(judge_leader([leaderless]))
    assert "docs/security.md#" in judge_isolation("u", IsolationView(namespaces=True, exposed=True)).hint


def test_stores_without_room_are_named() -> None:
    """A disk that is full, or a mark that is passed for days, would be found only on its host."""
    seen = snapshot(masters=["m1", "m2"], supervisors=[supervisor("a")])
    why = {PeerId("m2"): "no disk", PeerId("a"): "its bundles take more than store.high"}
    found = judge_room(cluster_view(seen, MasterId("m1"), 0.0, full=why))

    assert Verdict.OK == judge_room(cluster()).verdict
    assert "2 without room: m2: no disk, a: its bundles take more than store.high" == found.detail
    assert ["disk-nearly-full"] == pages_of([found])


def test_certificates_that_end_are_named() -> None:
    """The doctor would find a certificate that is not renewed only on its own host."""
    found = judge_expiring(cluster(expiring={"m1": 86_400.0, "a": -5.0}))

    assert Verdict.OK == judge_expiring(cluster()).verdict
    assert (Verdict.WARN, "2 to end: m1 in 1.0 days, a already") == (found.verdict, found.detail)
    assert ["certificate-expires"] == pages_of([found])


@pytest.mark.parametrize(("secs", "expected"), [(None, Verdict.OK), (10.0, Verdict.OK), (31.0, Verdict.WARN)])
def test_silent_hosts_are_named(secs: float | None, expected: Verdict) -> None:
    """A host whose workers move away would look healthy until somebody asks for its state."""
    silent = None if secs is None else {SupervisorId("b"): secs}
    seen = snapshot(supervisors=[supervisor("a"), supervisor("b")])
    found = judge_silence(cluster_view(seen, MasterId("m1"), 0.0, silent))

    assert expected == found.verdict
    if expected is Verdict.WARN:
        assert "1 of 2 silent: b for 31 s" == found.detail
        assert ["host-silent"] == pages_of([found])


def test_tokens_that_read_everything_in_spite_of_a_pattern_are_named() -> None:
    """An operator would take the patterns of old tokens for a protection of what others read."""
    bound = TokenView(
        name="new", role="uploader", bundles="etl-*", state=TokenState.USABLE, created_at=0.0, created_by="",
        expires_at=None, reads="etl-*",
    )  # fmt: skip
    old = msgspec.structs.replace(bound, name="old", reads=None)
    ended = msgspec.structs.replace(old, name="ended", state=TokenState.REVOKED)
    found = judge_reading([bound, old, ended])

    assert Verdict.OK == judge_reading([bound, ended]).verdict
    assert "1 token with a pattern may read every bundle: old" == found.detail


@pytest.mark.parametrize(
    ("used", "running", "expected"),
    [(0, 0, []), (89, 1, []), (90, 0, ["90% of its 100 bytes are used"]), (0, 2, ["all of its 2 distributions run"])],
)
def test_quotas_that_are_reached_or_nearly_are_named(used: int, running: int, expected: list[str]) -> None:
    """The owner of a quota would learn of it from a refused upload in the middle of the night."""
    quota = QuotaView(name="ci", max_bytes=100, bytes=used, max_distributions=2, distributions=running)
    unlimited = QuotaView(name="ops", max_bytes=0, bytes=10**12, max_distributions=0, distributions=9)
    found = judge_quotas([quota, unlimited])

    assert expected == [one.detail.partition(":")[0] for one in found if one.verdict is not Verdict.OK]
    assert all("docs/distribution.md#limits" in one.hint for one in found if one.verdict is not Verdict.OK)
