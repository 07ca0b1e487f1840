"""What the znodes of a resource group hold.

Always holds: what cannot be read is no order to anybody. Must not do: hold anything that grows with
time.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

import msgspec

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.records import Record, decode

MAX_RESOURCES = 5000
"""Of one group: its plan is one znode, and ZooKeeper takes no more than a megabyte."""


class Algorithm(StrEnum):
    RESOURCE_BARRIER = "resource_barrier"
    """A barrier for each resource; only those who gain or lose something stop."""
    GLOBAL_BARRIER = "global_barrier"
    """Everybody stops before anything moves; the number of requests does not depend on the number
    of resources."""


class GroupRecord(Record, frozen=True, kw_only=True):
    """/groups/<group>"""

    algorithm: Algorithm | None = None
    """Of every member; set by the first one that joins."""


class MemberRecord(Record, frozen=True, kw_only=True):
    """/groups/<group>/members/<unique>-<seq>, ephemeral"""

    id: str
    """For people; the znode's name is the member."""


class PlanRecord(Record, frozen=True, kw_only=True):
    """/groups/<group>/plan: who is to have what."""

    generation: int = 0
    members: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class GroupStatus(StrEnum):
    STOP_ACTIVITY = "stop_activity"
    RESOURCES_ASSIGNED = "resources_assigned"


class StatusRecord(Record, frozen=True, kw_only=True):
    """/groups/<group>/status: how far the global barrier is."""

    status: GroupStatus = GroupStatus.RESOURCES_ASSIGNED
    generation: int = 0


R = TypeVar("R", bound=Record)


def read(data: bytes, kind: type[R], path: str) -> R:
    """The record; the empty one if there is none yet, or none that can be understood: then nobody
    is told anything."""
    try:
        return decode(data, kind, path=path) if data else kind()
    except TorrentdistError:
        return kind()
