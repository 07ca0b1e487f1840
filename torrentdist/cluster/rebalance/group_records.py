"""The contents of a resource group's znodes.

Always: what cannot be read gives nobody an order.
Never: hold anything that grows with time.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

import msgspec

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.records import Record, decode

MAX_RESOURCES = 5000
"""Resources of one group at most: its plan is one znode of at most a megabyte."""


class Algorithm(StrEnum):
    RESOURCE_BARRIER = "resource_barrier"
    """A barrier for each resource. Only members that gain or lose something stop."""
    GLOBAL_BARRIER = "global_barrier"
    """Everybody stops before anything moves. The number of requests doesn't depend on the number of
    resources.
    """


class GroupRecord(Record, frozen=True, kw_only=True):
    """/groups/<group>"""

    algorithm: Algorithm | None = None
    """The algorithm of every member, set by the first one that joins."""


class MemberRecord(Record, frozen=True, kw_only=True):
    """/groups/<group>/members/<unique>-<seq>, ephemeral"""

    id: str
    """A name for people. The znode's name identifies the member."""


class PlanRecord(Record, frozen=True, kw_only=True):
    """/groups/<group>/plan: which member gets what."""

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
    """Reads a record. Returns an empty one if it is missing or unreadable, so that nobody gets an
    order."""
    try:
        return decode(data, kind, path=path) if data else kind()
    except TorrentdistError:
        return kind()
