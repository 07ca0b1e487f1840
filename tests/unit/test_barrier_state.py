"""What a host knows of the barrier of a worker: torrentdist/supervisor/exclusivity/barriers.py."""

from torrentdist.cluster import paths
from torrentdist.cluster.rebalance.barrier_ownership import BarrierOwnership
from torrentdist.cluster.rebalance.group_requests import Commit, Errand, RequestKind
from torrentdist.supervisor.exclusivity.barriers import barrier_state
from torrentdist.supervisor.worker.worker_types import Barrier

OURS = BarrierOwnership(paths.JOB_GROUP, "host", session=1, owned={"w": 7})
RELEASE = Errand(RequestKind.RELEASE, Commit(()), ("w",))


def test_a_barrier_that_is_to_be_released_is_not_held() -> None:
    """If this fails, a worker that comes back at once starts, and then loses its barrier."""
    assert barrier_state("w", OURS, None, (), ()) is Barrier.UNCLEAR
    assert barrier_state("w", OURS, RELEASE, ("w",), ()) is Barrier.UNCLEAR


def test_a_barrier_is_held_while_it_is_wanted_or_its_worker_runs() -> None:
    """If this fails, no worker starts, or each one is killed once it is not wanted any more."""
    assert barrier_state("w", OURS, None, ("w",), ()) is Barrier.HELD
    assert barrier_state("w", OURS, None, (), ("w",)) is Barrier.HELD


def test_a_barrier_that_is_not_ours_is_asked_for_or_free() -> None:
    """If this fails, a host runs a worker without its barrier."""
    assert barrier_state("other", OURS, None, ("other",), ()) is Barrier.ASKED
    assert barrier_state("other", OURS, None, (), ()) is Barrier.FREE
