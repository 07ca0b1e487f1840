"""How long a distribution is said to take: from what has to be sent, in waves."""

from __future__ import annotations

from records_of import digest_of

from torrentdist.cluster.records.snapshot import DistributionEntry
from torrentdist.master.console.console_views import slowest
from torrentdist.master.reads.time_left import with_time_left
from torrentdist.model.ids import BundleId, SupervisorId
from torrentdist.model.policies.distribution_record import DistributionRecord
from torrentdist.model.wire.fleet_messages import LATER_WAVE, FleetView, HostProgress, HostState

ETL = BundleId("etl")
NAMES = tuple(SupervisorId(f"h{n:02}") for n in range(20))


def fleet(done: int, told: int) -> FleetView:
    """Makes 20 hosts: some have the bundle, some fetch it, and the rest are in later waves."""

    def host(n: int) -> HostProgress:
        if n < done:
            return HostProgress(supervisor=NAMES[n], state=HostState.DONE, done=100, size=100)
        if n < told:
            return HostProgress(supervisor=NAMES[n], state=HostState.FETCHING, done=0, size=100, rate=50.0)
        return HostProgress(supervisor=NAMES[n], state=HostState.WAITING, size=100, reason=LATER_WAVE)

    return FleetView(id=ETL, digest=digest_of("etl"), size=100, hosts=[host(n) for n in range(20)])


def test_the_waves_that_have_not_begun_take_their_time() -> None:
    """If this fails, 20 hosts in waves of 5 are promised in 2 s, and take 131."""
    order = DistributionEntry(DistributionRecord(bundle=ETL, hosts=NAMES, concurrency=5, begun_at=1000.0), 0)
    said = with_time_left(fleet(5, 10), order, 1033.0)
    last = with_time_left(fleet(15, 20), order, 1099.0)

    assert (2, 4, 99.0) == (said.wave, said.waves, said.time_left)
    assert (4, 4, 2.0) == (last.wave, last.waves, last.time_left)
    assert with_time_left(fleet(0, 5), order, 1001.0).time_left is None, "nobody knows the pace yet"
    assert 2.0 == with_time_left(fleet(15, 20), None, 1099.0).time_left


def test_a_host_whose_wave_has_not_begun_is_not_slow() -> None:
    """If this fails, the hosts that an operator looks at are those that nobody has told."""
    assert {"h05", "h06", "h07", "h08", "h09"} == {host.supervisor for host in slowest(fleet(5, 10).hosts)}
