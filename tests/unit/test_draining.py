"""The standby that a master hands leadership to when it stops."""

from __future__ import annotations

from torrentdist.master.leading.leader_transfer import successor
from torrentdist.model.ids import MasterId
from torrentdist.model.wire.ha_views import MasterState, RoleView

QUEUE = [MasterId("m1"), MasterId("m2"), MasterId("m3")]


def role(id_: str, state: MasterState = MasterState.STANDBY, *, lag: int = 0, ready: bool = True) -> RoleView:
    return RoleView(id=MasterId(id_), url=f"http://{id_}", state=state, version="1", lag=lag, ready=ready)


def test_the_first_that_is_able_inherits() -> None:
    """If this failed, a clean stop would leave the leadership to a master that lacks a bundle, and
    the cluster without a leader."""
    leader = role("m1", MasterState.LEADER)

    assert successor(QUEUE, [leader, role("m2"), role("m3")]) == "m2"
    assert successor(QUEUE, [leader, role("m2", lag=1), role("m3")]) == "m3"
    assert successor(QUEUE, [leader, role("m2", MasterState.UNREACHABLE), role("m3", ready=False)]) is None
