"""Answers of the `group` commands."""

import msgspec

from torrentdist.model.wire.view import View


class GroupMemberView(View, frozen=True, kw_only=True):
    member: str
    """The name of its znode."""
    id: str
    coordinator: bool
    resources: list[str]
    """Resources that the plan gives this member."""


class GroupLineView(View, frozen=True, kw_only=True):
    group: str
    algorithm: str | None
    """None: the first member will choose it."""
    members: int
    resources: int


class GroupView(View, frozen=True, kw_only=True):
    group: str
    algorithm: str | None
    state: str
    """`assigned`, or `stopping` while the global barrier waits for every member to stop."""
    members: list[GroupMemberView]
    resources: list[str]
    unassigned: list[str]


class GroupChangeView(View, frozen=True, kw_only=True):
    group: str
    changed: list[str]
    """Resources that this command added or removed."""


class GroupIdentityView(View, frozen=True, kw_only=True):
    """`group identity`"""

    group: str
    auth: str
    """The content of the zookeeper.auth_file of the group's members."""


class ResourcesBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/groups/{group}/resources"""

    resources: list[str]
