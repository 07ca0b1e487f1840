"""What the Events page says of an entry of the audit."""

from __future__ import annotations

import re

import msgspec
import pytest

from torrentdist.master.console.event_lines import EventLine, of_audit, once, verb, without_repeats
from torrentdist.master.console.forms.actions import ACTIONS, PARAMETERS
from torrentdist.model.access.audit_messages import AuditView

ENTRY = AuditView(
    at=1000.0, who="ann", role="operator", operation="PUT /v1/supervisors/{supervisor}/drain", target="h1",
    source="10.0.0.1", result="ok",
)  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("POST /v1/bundles/{id}/distribute", "distribute"),
        ("DELETE /v1/bundles/{id}/distribution", "cancel the distribution"),
        ("DELETE /v1/bundles/{id}", "remove"),
        ("POST /ui/hosts/{supervisor}/drain", "drain"),
        ("POST /v1/jobs", "submit"),
        ("GET /v1/backup", "read /v1/backup"),
    ],
)
def test_an_operation_is_a_verb(operation: str, expected: str) -> None:
    """If this fails, an operator reads paths of the API instead of what was done."""
    assert expected == verb(operation)


def test_a_form_and_its_operation_are_the_same_verb() -> None:
    """If this fails, a change from the console is called otherwise than one by a command."""
    said = [(verb(f"POST /ui/{a.kind}/{{{PARAMETERS[a.kind]}}}/{a.name}"), verb(a.request)) for a in ACTIONS]
    longer = {"transfer": "transfer the leadership"}

    assert [] == [pair for pair in said if longer.get(pair[0], pair[0]) != pair[1]]
    assert [] == [name for _, name in said if re.search(r"[/{]", name)]


def test_a_line_says_who_did_what_to_what() -> None:
    """If this fails, nobody can follow a line to its host."""
    line = of_audit(ENTRY)

    assert ("ann", "drain", "h1", "hosts") == (line.who, line.what, line.about, line.page)
    assert "the shared token" == of_audit(msgspec.structs.replace(ENTRY, who="token")).who


def test_a_change_is_told_once_and_a_look_at_the_sign_in_page_is_not() -> None:
    """If this fails, one distribution is four lines, and each visitor is a red line."""
    retry = msgspec.structs.replace(ENTRY, at=1001.0)
    later = msgspec.structs.replace(ENTRY, at=2000.0)
    elsewhere = msgspec.structs.replace(ENTRY, at=999.0, result="not_leader")
    visitor = msgspec.structs.replace(ENTRY, operation="GET /ui/", result="unauthorized", who="anonymous")
    wrong = msgspec.structs.replace(ENTRY, operation="POST /ui/sign-in", result="unauthorized", who="anonymous")

    assert [2000.0, 1001.0, 1000.0] == [entry.at for entry in once([ENTRY, retry, later, elsewhere, visitor, wrong])]


def test_a_distribution_begins_once() -> None:
    """If this fails, the leader's line repeats what the operator's line says."""
    asked = EventLine(at=1000.0, who="ann", what="distribute", about="etl")
    began = EventLine(at=1003.0, who="leader", what="distribution began", about="etl")
    other = EventLine(at=1003.0, who="leader", what="distribution began", about="job-code")

    assert [asked, other] == [*without_repeats([asked, began, other])]
