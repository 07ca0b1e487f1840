"""A master that is about to stop: whom it leaves its office to.

Always holds: the heir said just now that it is ready and lacks nothing; with none, the queue decides as it always does.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torrentdist.master.leading.leader_transfer import objection
from torrentdist.model.ids import MasterId
from torrentdist.model.wire.ha_views import RoleView


def heir(queue: Sequence[MasterId], roles: Iterable[RoleView]) -> MasterId | None:
    """The first of the queue that could lead at once. The leader itself is none: it isn't a standby."""
    able = {role.id for role in roles if objection(role) is None}
    return next((master for master in queue if master in able), None)
