"""What a master says of a bundle, decided on snapshots."""

from __future__ import annotations

import pytest
from records_of import bundle, snapshot

from torrentdist.master.viewing import replicated
from torrentdist.model.ids import BundleId
from torrentdist.model.records import BundleState

B = BundleId("b")


@pytest.mark.parametrize(
    ("state", "holders", "over"),
    [
        (BundleState.UPLOADING, [], False),
        (BundleState.UPLOADING, ["m1", "m2"], False),
        (BundleState.AVAILABLE, ["m1"], False),
        (BundleState.AVAILABLE, ["m1", "m2"], True),
        (BundleState.AVAILABLE, ["m1", "m2", "m3"], True),
    ],
)
def test_an_upload_is_done_when_it_can_be_downloaded(state: BundleState, holders: list[str], over: bool) -> None:
    """A7: broken, an upload would be acknowledged that nobody finds once the leader of that moment is dead."""
    assert over is replicated(snapshot([bundle("b", state=state, holders=holders)]), B, 2)


def test_a_wait_for_none_or_for_what_is_gone_is_over() -> None:
    """Broken, a wait for what never comes would last to its deadline."""
    assert replicated(snapshot([bundle("b", state=BundleState.UPLOADING)]), B, 0)
    assert replicated(snapshot([]), B, 2)
