"""What the console's forms ask of the API, and what they say before they do it."""

from __future__ import annotations

import msgspec
import pytest
from records_of import bundle, snapshot, supervisor

from torrentdist.master.console.console_markup import Visit
from torrentdist.master.console.forms.access_pages import TokenLineView, rules_html, tokens_html
from torrentdist.master.console.forms.action_forms import (
    DistributionOutlook,
    command_line,
    fields_again,
    outlook,
    outlook_words,
)
from torrentdist.master.console.forms.actions import action_of
from torrentdist.master.console.forms.form_fields import distribute_body, quota_request, rule_request
from torrentdist.model.access.token_messages import QuotaView, TokenState, TokenView
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, SupervisorId
from torrentdist.model.policies.bundle_terms import BundleTerms, Priority
from torrentdist.model.policies.distribution_record import DistributionRecord
from torrentdist.model.policies.policy_messages import RetentionView
from torrentdist.model.wire.fleet_messages import DistributeBody, HostProgress, HostState
from torrentdist.security.authorization import Principal, Proof, Role

OPERATOR = Principal("ops", Role.OPERATOR, Proof.SESSION)
READER = Principal("looks", Role.READER, Proof.TOKEN)
FILLED = {
    "supervisors": "h1 h2", "labels": "", "share": "50%", "canary": "1", "concurrency": "20", "rate": "10M",
    "priority": "high", "keep": "7d",
}  # fmt: skip


def visit(sender: Principal = OPERATOR) -> Visit:
    return Visit(master="m1", path="/ui/tokens", query="", sender=sender, form_key="key", leader="m1")


def record(*hosts: str, **changes: object) -> DistributionRecord:
    named = tuple(SupervisorId(host) for host in hosts)
    return msgspec.structs.replace(DistributionRecord(bundle=BundleId("b"), hosts=named), **changes)


def test_a_form_asks_for_all_that_the_command_can() -> None:
    """An operator at the page could not send a canary first, or limit a rate."""
    wanted = DistributeBody(
        supervisors=["h1", "h2"],
        share=0.5,
        canary=1,
        concurrency=20,
        rate=10 * 1024**2,
        priority=Priority.HIGH,
        keep_secs=7 * 86400.0,
    )

    assert wanted == distribute_body(FILLED)
    assert DistributeBody() == distribute_body({})


@pytest.mark.parametrize(
    ("name", "text"),
    [("share", "half"), ("canary", "-1"), ("rate", "9" * 29 + "P"), ("keep", "soon"), ("concurrency", "9" * 40)],
)
def test_a_wrong_field_is_named(name: str, text: str) -> None:
    """A typing error would distribute to every host, or be an error without a reason."""
    with pytest.raises(TorrentdistError, match=name):
        distribute_body({name: text})


def test_the_command_beside_a_form_does_the_same() -> None:
    """A script made from the page would forget the canary."""
    action = action_of("bundles", "distribute")
    assert action is not None

    assert "torrentdist bundle distribute b --label gpu=yes --canary 1 --keep 7d" == command_line(
        action, "b", {"labels": "gpu=yes", "canary": "1", "rate": "", "keep": "7d"}
    )


def test_a_distribution_says_how_many_hosts_and_bytes_it_moves() -> None:
    """A click would fill a network for an hour, and nobody was told."""
    size = 1024**3
    hosts = [
        HostProgress(supervisor=SupervisorId("h1"), state=HostState.DONE, size=size),
        HostProgress(supervisor=SupervisorId("h2"), state=HostState.FETCHING, done=size // 2, size=size),
        HostProgress(supervisor=SupervisorId("h3"), state=HostState.WAITING, size=size),
    ]
    plan = outlook(record("h1", "h2", "h3", canary=1, concurrency=1), hosts)

    assert DistributionOutlook(hosts=3, have_it=1, bytes=3 * size // 2, waves=3) == plan
    assert "It tells 3 hosts, in 3 waves. Already there: 1 host. To move: 1.5 GiB at most." == outlook_words(plan)


def test_a_repeated_distribution_asks_for_the_same() -> None:
    """A repetition would go to other hosts, without the canary or the limit."""
    seen = snapshot([bundle("b")], supervisors=[supervisor("h1", gpu="yes"), supervisor("h2")])
    terms = BundleTerms(rate=100, priority=Priority.LOW)

    assert {"supervisors": "h1", "canary": "1"} == fields_again(seen, record("h1", canary=1))
    assert {"labels": "gpu=yes"} == fields_again(seen, record("h1", labels={"gpu": "yes"}))
    assert {"rate": "100", "priority": "low", "keep": "60"} == fields_again(
        seen, record("h1", "h2", terms=terms, begun_at=40.0, ends_at=100.0)
    )


def test_an_empty_field_of_a_quota_leaves_it_as_it_is() -> None:
    """A limit of bytes would be lifted by a change of the number of distributions."""
    _, body = quota_request("ann", {"max_bytes": "", "max_distributions": "2"})

    assert {"max_bytes": None, "max_distributions": 2} == msgspec.json.decode(body)
    assert {"pattern": "etl-*", "keep": 3, "for_secs": 3600.0} == msgspec.json.decode(
        rule_request("*", {"pattern": "etl-*", "keep": "3", "for": "1h"})[1]
    )


def test_quotas_are_shown_in_units_and_only_operators_change_them() -> None:
    """Nobody reads 53687091200, and a reader would press buttons that refuse."""
    token = TokenView(
        name="ann", role="uploader", bundles="etl-*", state=TokenState.USABLE, created_at=0.0, created_by="ops",
        expires_at=None, has_quota=True,
    )  # fmt: skip
    quota = QuotaView(name="ann", max_bytes=50 * 1024**3, bytes=1024**3, max_distributions=0, distributions=1)
    page = tokens_html(visit(), [TokenLineView(token=token, quota=quota)])

    assert "1.0 GiB of 50.0 GiB" in page
    assert "1 of any number" in page
    assert "/ui/tokens/ann/quota" in page
    assert "/ui/tokens/ann/revoke" in page
    assert "/ui/tokens/ann/" not in tokens_html(visit(READER), [TokenLineView(token=token, quota=quota)])


def test_rules_say_what_goes_next() -> None:
    """A rule would remove what nobody expected."""
    rule = RetentionView(
        pattern="etl-*", keep=3, for_secs=0.0, created_by="ops", bundles=9, goes={BundleId("etl-1"): "older"}
    )
    page = rules_html(visit(), [rule])

    assert "/ui/bundles/etl-1" in page
    assert "/ui/retention/etl-%2A/end" in page
    assert "/ui/retention/etl-%2A/set?pattern=etl-%2A&amp;keep=3&amp;for=0" in page
    assert "/set" not in rules_html(visit(READER), [rule])
