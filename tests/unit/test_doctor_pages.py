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
    judge_attention,
    judge_isolation,
    judge_leader,
    judge_quotas,
    judge_reading,
    judge_records,
    warning,
    with_page,
)
from torrentdist.master.bundles.bundle_views import cluster_view
from torrentdist.master.presence.attention import Troubles, attention
from torrentdist.model.access.token_messages import QuotaView, TokenState, TokenView
from torrentdist.model.ids import MasterId
from torrentdist.model.wire.cluster_messages import BundleCounts, ClusterView, GoneView
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
    idle = RoleView(id=MasterId("m1"), url="u", state=MasterState.STANDBY, version="1")
    leaderless = MasterFacts("u", role=idle, cluster=cluster(leader=None))

    assert ["when-zookeeper-is-away-or-its-data-is-gone"] == pages_of(judge_records(cluster(stale_secs=9.0)))
    assert ["no-leader"] == pages_of(judge_leader([leaderless]))
    assert "docs/security.md#" in judge_isolation("u", IsolationView(namespaces=True, exposed=True)).hint


def test_what_needs_attention_is_found_with_its_page() -> None:
    """If this fails, the doctor finds nothing while the Overview says that a host is gone."""
    gone = GoneView(id="h9", role="supervisor", host="h", since=0.0, gone_secs=60.0, bundles=2, jobs=[])
    view = cluster(gone=[gone], bundles=BundleCounts(total=3, available=2, uploading=0, lost=1, under_replicated=0))
    seen = attention(view, Troubles(lost=["etl"], jobs={"j": "it failed: x"}), 0.0)
    well, found = judge_attention(cluster()), judge_attention(msgspec.structs.replace(view, attention=seen))
    bad = [finding for finding in found if finding.verdict is Verdict.WARN]

    assert {Verdict.OK} == {finding.verdict for finding in well}
    assert ["bundles", "hosts", "jobs"] == [finding.check for finding in bad]
    assert ["lost", "gone", "job-fails"] == pages_of(bad)
    assert "gone: h9: gone since 1970-01-01 00:00:00 UTC; should keep 2 bundles" == bad[1].detail
    assert {finding.check for finding in well} == {finding.check for finding in found}


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
    [(0, 0, []), (89, 1, []), (90, 0, ["90% of its 100 B are used"]), (0, 2, ["all of its 2 distributions run"])],
)
def test_quotas_that_are_reached_or_nearly_are_named(used: int, running: int, expected: list[str]) -> None:
    """The owner of a quota would learn of it from a refused upload in the middle of the night."""
    quota = QuotaView(name="ci", max_bytes=100, bytes=used, max_distributions=2, distributions=running)
    unlimited = QuotaView(name="ops", max_bytes=0, bytes=10**12, max_distributions=0, distributions=9)
    found = judge_quotas([quota, unlimited])

    assert expected == [one.detail.partition(":")[0] for one in found if one.verdict is not Verdict.OK]
    assert all("docs/distribution.md#limits" in one.hint for one in found if one.verdict is not Verdict.OK)
