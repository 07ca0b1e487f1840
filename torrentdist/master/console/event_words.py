"""Says in words what an entry of the audit did, and tells each thing once.

Pure: values in, values out.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from torrentdist.host.http.operation import ELSEWHERE
from torrentdist.model.access.audit_messages import AuditView

VERBS: Final = {
    "POST bundles": "upload",
    "DELETE bundles": "remove",
    "DELETE bundles distribution": "cancel the distribution",
    "PUT bundles pin": "pin",
    "DELETE bundles pin": "unpin",
    "POST bundles signatures": "sign",
    "PUT uploads": "upload",
    "POST uploads finish": "upload",
    "POST jobs": "submit",
    "DELETE jobs": "kill",
    "PUT supervisors drain": "drain",
    "DELETE supervisors drain": "undrain",
    "DELETE presence": "forget",
    "POST transfer": "transfer the leadership",
    "POST tokens": "make a token",
    "DELETE tokens": "revoke the token",
    "PUT tokens quota": "set the quota",
    "POST invitations": "invite",
    "POST invitations redeem": "join",
    "POST hosts renew": "renew the certificate",
    "POST hosts place": "get a place in ZooKeeper",
    "PUT hosts bundles": "set which bundles it may have",
    "DELETE hosts": "revoke",
    "PUT retention": "set the retention rule",
    "DELETE retention": "end the retention rule",
    "POST sign-in": "sign in",
    "POST bundles cancel": "cancel the distribution",
    "POST tokens quota": "set the quota",
    "POST tokens revoke": "revoke the token",
    "POST retention set": "set the retention rule",
    "POST retention end": "end the retention rule",
}
"""What operations do, by their method and the fixed words of their path. The last word of any
other is a verb, such as `distribute`."""
_WHO: Final = {"token": "the shared token", "anonymous": "a local user"}
AGAIN_SECS: Final = 60.0
"""Within this time the same entry is a retry of the client, or one change that two masters tell."""


def verb(operation: str) -> str:
    """Returns what an operation does, such as `remove` for `DELETE /v1/bundles/{id}`."""
    method, _, path = operation.partition(" ")
    words = [word for word in path.split("/")[2:] if word and not word.startswith("{")]
    if method == "GET":
        return f"read {path}"
    return VERBS.get(" ".join([method, *words])) or (words[-1] if words else operation)


def sender(entry: AuditView) -> str:
    return _WHO.get(entry.who, entry.who)


def is_worth_a_line(entry: AuditView) -> bool:
    """Whether people want to read it. A browser that is sent to the sign-in page has done nothing,
    and what a standby refused is told by the leader."""
    opens_a_page = entry.result == "unauthorized" and re.match(r"GET /(ui\b|$)", entry.operation) is not None
    return not opens_a_page and entry.result not in ELSEWHERE


def once(entries: Iterable[AuditView]) -> Iterator[AuditView]:
    """Yields the entries that are worth a line, the newest first, without repetitions."""
    told: dict[tuple[str, ...], float] = {}
    for entry in sorted(entries, key=lambda entry: -entry.at):
        key = entry.who, verb(entry.operation), entry.target, entry.result
        if is_worth_a_line(entry) and told.get(key, float("inf")) - entry.at > AGAIN_SECS:
            yield entry
        told[key] = entry.at
