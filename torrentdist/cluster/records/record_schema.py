"""In which schema records are written: the one that the cluster has agreed on, which is that of its
/cluster record.

Always holds: while a daemon of the release before is registered, everything is written as it would
be by that release; the leader alone raises the schema (master/leading/schema_upgrade.py). Pure: no
I/O, no clock. Never: know the types of the records.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from torrentdist.cluster import paths
from torrentdist.model import records
from torrentdist.model.records import MasterRecord, SupervisorRecord

ADDED: dict[str, dict[str, int]] = {"/jobs/*": {"ended_on": 2}}
"""By the shape of a path, as in `/code-distributor/*`: the fields that a schema brought. Every one
of them has a default, and what it stands for is not to be relied on before the cluster's schema is
that one."""


def shape(path: str) -> str:
    first, *rest = path.split("/")[1:]
    return "/" + "/".join([first, *("*" for _ in rest)])


def spoken(path: str, data: bytes, schema: int) -> bytes:
    """A record as that schema has it. The cluster's own record says itself what it is of."""
    if schema >= records.SCHEMA or path == paths.CLUSTER or not data.startswith(b"{"):
        return data
    document = msgspec.json.decode(data)
    for field, since in ADDED.get(shape(path), {}).items():
        if since > schema:
            document.pop(field, None)
    return msgspec.json.encode({**document, "schema": min(schema, document["schema"])})


def newest_for_all(masters: Iterable[MasterRecord], supervisors: Iterable[SupervisorRecord]) -> int:
    """The newest schema that every registered daemon reads."""
    return min([records.SCHEMA, *(m.speaks for m in masters), *(s.speaks for s in supervisors)])
