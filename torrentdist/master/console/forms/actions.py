"""The changes that the console offers: what each does, which operation of the API makes it, and
what its form asks for.

Pure: a table.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from torrentdist.master.console.console_markup import Field
from torrentdist.master.console.forms.form_fields import (
    Fields,
    distribution_request,
    quota_request,
    rule_end_request,
    rule_request,
    transfer_request,
    wait_request,
)
from torrentdist.model import ids
from torrentdist.model.policies.bundle_terms import Priority
from torrentdist.security.authorization import Role, checked_pattern

PARAMETERS: Final = {
    "bundles": "id", "jobs": "job", "hosts": "supervisor", "masters": "master",
    "tokens": "name", "certificates": "id", "retention": "pattern",
}  # fmt: skip
"""The name of the path's parameter on each kind of page."""
CHECKED: Final[Mapping[str, Callable[[str], str]]] = {
    "bundles": ids.bundle_id, "jobs": ids.job_id, "hosts": ids.supervisor_id, "masters": ids.master_id,
    "tokens": ids.token_name, "certificates": ids.peer_id, "retention": checked_pattern,
}  # fmt: skip
LISTS_ALONE: Final = ("tokens", "certificates", "retention")
"""The kinds that have a list, and no page for each."""
GOES: Final = ("remove", "forget")
"""The changes after which the page of their subject is gone."""
WAIT = (Field("wait", "Seconds to wait", "0"),)


class Action(msgspec.Struct, frozen=True):
    kind: str
    name: str
    request: str
    """Method and path of the API's operation."""
    role: Role
    effect: str
    done: str
    """What the page says after the change."""
    command: str
    """The command that does the same, with `{}` for the subject."""
    inputs: tuple[Field, ...] = ()
    """What the form asks for."""
    asked: Callable[[str, Fields], tuple[dict[str, str], bytes]] = lambda subject, fields: ({}, b"")
    """Returns the query and the body for the operation, from the subject and the form's fields."""


DISTRIBUTION: Final = (
    Field("supervisors", "Only these hosts"),
    Field("labels", "Only hosts with the labels NAME=VALUE"),
    Field("share", "Share of them, such as 50%", "100%"),
    Field("canary", "Hosts that get it first", "0"),
    Field("concurrency", "Hosts at the same time; 0: all", "0"),
    Field("rate", "Most bytes per second for each, such as 10M; 0: no limit", "0"),
    Field("priority", "Priority", Priority.NORMAL, tuple(Priority)),
    Field("keep", "How long they keep it, such as 7d; 0: for good", "0"),
)
QUOTA: Final = (
    Field("max_bytes", "Most bytes of its bundles, such as 50G; 0: no limit; empty: as before"),
    Field("max_distributions", "Most distributions at once; 0: no limit; empty: as before"),
)
RULE: Final = (
    Field("pattern", "Bundles that match"),
    Field("keep", "Keep so many of the newest", "3"),
    Field("for", "And those younger than, such as 30d", "0"),
)

ACTIONS: Final = (
    Action("bundles", "distribute", "POST /v1/bundles/{id}/distribute", Role.UPLOADER,
           "Hosts are told to fetch and keep it: all, or those you choose.",
           "Hosts are told to fetch it. How far they are is below.",
           "torrentdist bundle distribute {}", DISTRIBUTION, distribution_request),
    Action("bundles", "cancel", "DELETE /v1/bundles/{id}/distribution", Role.UPLOADER,
           "Its distribution ends: hosts that have it keep it, the others give up.",
           "Its distribution was cancelled.", "torrentdist bundle cancel {}"),
    Action("bundles", "pin", "PUT /v1/bundles/{id}/pin", Role.OPERATOR,
           "It is never removed, nor dropped for room.", "It was pinned.", "torrentdist bundle pin {}"),
    Action("bundles", "unpin", "DELETE /v1/bundles/{id}/pin", Role.OPERATOR,
           "It may be removed, and dropped for room.", "It is no longer pinned.", "torrentdist bundle unpin {}"),
    Action("bundles", "remove", "DELETE /v1/bundles/{id}", Role.OPERATOR,
           "It is removed from every master and host. Its id is never used again for other content.",
           "It was removed.", "torrentdist bundle rm {}"),
    Action("jobs", "activate", "POST /v1/jobs/{job}/activate", Role.SUBMITTER,
           "Its workers run.", "It was activated.", "torrentdist job activate {}"),
    Action("jobs", "deactivate", "POST /v1/jobs/{job}/deactivate", Role.SUBMITTER,
           "Its workers stop and keep their places.", "It was deactivated.", "torrentdist job deactivate {}"),
    Action("jobs", "rebalance", "POST /v1/jobs/{job}/rebalance", Role.SUBMITTER,
           "Its workers are spread anew.", "Its workers are being spread anew.",
           "torrentdist job rebalance {}", WAIT, wait_request),
    Action("jobs", "kill", "DELETE /v1/jobs/{job}", Role.SUBMITTER,
           "Its workers stop now, and it is removed after the wait.", "It is being killed.",
           "torrentdist job kill {}", WAIT, wait_request),
    Action("hosts", "drain", "PUT /v1/supervisors/{supervisor}/drain", Role.OPERATOR,
           "It gets no new workers, and those it has move away.", "It is draining.", "torrentdist supervisor drain {}"),
    Action("hosts", "undrain", "DELETE /v1/supervisors/{supervisor}/drain", Role.OPERATOR,
           "It gets workers again.", "It gets workers again.", "torrentdist supervisor undrain {}"),
    Action("hosts", "forget", "DELETE /v1/presence/{id}", Role.OPERATOR,
           "It is missed no longer. If it returns, it is known again.", "It was forgotten.",
           "torrentdist host forget {}"),
    Action("masters", "forget", "DELETE /v1/presence/{id}", Role.OPERATOR,
           "It is missed no longer. If it returns, it is known again.", "It was forgotten.",
           "torrentdist host forget {}"),
    Action("masters", "transfer", "POST /v1/transfer", Role.OPERATOR,
           "It leads, as soon as it is ready.", "It was asked to lead.", "torrentdist ha transfer {}",
           asked=transfer_request),
    Action("tokens", "quota", "PUT /v1/tokens/{name}/quota", Role.OPERATOR,
           "Its holder may use no more than this. What is there stays.", "Its quota was set.",
           "torrentdist token quota {}", QUOTA, quota_request),
    Action("tokens", "revoke", "DELETE /v1/tokens/{name}", Role.OPERATOR,
           "Every master refuses it within seconds.", "It was revoked.", "torrentdist token revoke {}"),
    Action("certificates", "revoke", "DELETE /v1/hosts/{id}", Role.OPERATOR,
           "The host is shut out, with every certificate that it has.", "It was revoked.",
           "torrentdist host revoke {}"),
    Action("retention", "set", "PUT /v1/retention", Role.OPERATOR,
           "The newest bundles of the pattern stay. The leader removes the others, unless something needs them.",
           "The rule was set.", "torrentdist bundle retention {}", RULE, rule_request),
    Action("retention", "end", "DELETE /v1/retention", Role.OPERATOR,
           "The rule ends. Bundles that it would have removed stay.", "The rule was ended.",
           "torrentdist bundle retention {} --remove", asked=rule_end_request),
)  # fmt: skip


def action_of(kind: str, name: str) -> Action | None:
    return next((action for action in ACTIONS if (action.kind, action.name) == (kind, name)), None)
