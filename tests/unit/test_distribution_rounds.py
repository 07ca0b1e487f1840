"""How often the leader looks at running distributions."""

from __future__ import annotations

import pytest

from torrentdist.master.policies.policy_loop import ROUND_SHARE, RUNNING_SECS, SOON_SECS, secs_until_next_round


@pytest.mark.parametrize(
    ("round_secs", "pause"), [(0.0, SOON_SECS), (0.001, SOON_SECS), (0.01, 0.2), (0.1, RUNNING_SECS)]
)
def test_the_next_hosts_are_told_soon_and_rounds_take_little_of_a_leader(round_secs: float, pause: float) -> None:
    """Each wave would begin half a second late, or a leader of many hosts would do nothing else."""
    assert pause == pytest.approx(secs_until_next_round(round_secs))
    assert round_secs <= ROUND_SHARE * pause or pause == RUNNING_SECS
