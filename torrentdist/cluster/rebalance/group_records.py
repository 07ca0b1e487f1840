"""The contents of a resource group's znodes.

Always: an unreadable record gives no member an order.
Never: store anything that grows over time.
"""

from enum import StrEnum
from typing import TypeVar

import msgspec

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.records import Record, decode

MAX_RESOURCES = 5000
"""Most resources of one group: its plan is one znode of at most a megabyte."""


class Algorithm(StrEnum):
    RESOURCE_BARRIER = "resource_barrier"
    """Each resource has a barrier. Only members that gain or lose a resource stop."""
    GLOBAL_BARRIER = "global_barrier"
    """Every member stops before any resource moves. The number of requests does not depend on the
    number of resources."""


class GroupRecord(Record, frozen=True, kw_only=True):
    """The record at /groups/<group>."""

    algorithm: Algorithm | None = None
    """The algorithm of every member. The first member to join sets it."""


class MemberRecord(Record, frozen=True, kw_only=True):
    """The record at /groups/<group>/members/<unique>-<seq>, which is ephemeral."""

    id: str
    """A name for display. The znode's name identifies the member."""


class PlanRecord(Record, frozen=True, kw_only=True):
    """The record at /groups/<group>/plan: which member gets which resources."""

    generation: int = 0
    members: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class GroupStatus(StrEnum):
    STOP_ACTIVITY = "stop_activity"
    RESOURCES_ASSIGNED = "resources_assigned"


class StatusRecord(Record, frozen=True, kw_only=True):
    """The record at /groups/<group>/status: the progress of the global barrier."""

    status: GroupStatus = GroupStatus.RESOURCES_ASSIGNED
    generation: int = 0


R = TypeVar("R", bound=Record)


def read(data: bytes, kind: type[R], path: str) -> R:
    """Reads a record. Returns an empty record if it is missing or unreadable, so that no member
    gets an order."""
    try:
        return decode(data, kind, path=path) if data else kind()
    except TorrentdistError:
        return kind()
