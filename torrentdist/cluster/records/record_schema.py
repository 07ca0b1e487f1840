"""Converts records to the schema that the cluster uses, which its /cluster record names.

Always: while a daemon of the previous release is registered, records are written as that release
would write them. Only the leader raises the schema (master/leading/schema_upgrade.py).
Pure: no I/O and no clock.
Never: depend on the record types.
"""

from collections.abc import Iterable

import msgspec

from torrentdist.cluster import paths
from torrentdist.model import records
from torrentdist.model.records import MasterRecord, SupervisorRecord

ADDED: dict[str, dict[str, int]] = {
    "/jobs/*": {"ended_on": 2, "signature": 2},
    "/code-distributor/*": {"signatures": 2, "recipe": 2, "owner": 2, "sources": 2},
    "/assignments/*": {"terms": 2},
    "/hosts/*": {"bundles": 2},
    "/invitations/*": {"bundles": 2},
}
"""Fields that each schema added, by the shape of the path, such as `/code-distributor/*`.

Every field has a default. Do not rely on its value before the cluster uses the field's schema."""


def shape(path: str) -> str:
    first, *rest = path.split("/")[1:]
    return "/" + "/".join([first, *("*" for _ in rest)])


def spoken(path: str, data: bytes, schema: int) -> bytes:
    """Returns a record as `schema` writes it. The record /cluster states its schema itself."""
    if schema >= records.SCHEMA or path == paths.CLUSTER or not data.startswith(b"{"):
        return data
    document = msgspec.json.decode(data)
    for field, since in ADDED.get(shape(path), {}).items():
        if since > schema:
            document.pop(field, None)
    return msgspec.json.encode({**document, "schema": min(schema, document["schema"])})


def newest_for_all(masters: Iterable[MasterRecord], supervisors: Iterable[SupervisorRecord]) -> int:
    """Returns the newest schema that every registered daemon can read."""
    return min([records.SCHEMA, *(m.speaks for m in masters), *(s.speaks for s in supervisors)])
