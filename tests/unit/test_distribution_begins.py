"""When a run of the history begins."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from records_of import bundle, digest_of, snapshot, supervisor

from torrentdist.http.connection_pool import Http
from torrentdist.master.bundles.bundle_views import fleet_view
from torrentdist.master.history.distribution_history import DistributionHistory
from torrentdist.master.history.distribution_runs import DistributionRun, HostLine, KeptHistory, summary_of
from torrentdist.master.history.history_file import HistoryFile
from torrentdist.master.history.run_begins import FRESH_SECS, begun
from torrentdist.model.ids import BundleId, Digest, PeerId, SupervisorId
from torrentdist.model.policies.distribution_record import DistributionRecord
from torrentdist.model.wire.swarm_messages import SwarmEntry

pytestmark = pytest.mark.anyio
ETL, HOST = BundleId("etl"), SupervisorId("h1")
NOW = 1000.0


def begin(kept: KeptHistory, ordered: float | None, now: float = NOW) -> float:
    """Returns when the run begins of which a master hears at `now`."""
    orders = [] if ordered is None else [DistributionRecord(bundle=ETL, hosts=(HOST,), begun_at=ordered)]
    seen = snapshot([bundle("etl")], assigned={"h1": ["etl"]}, distributions=orders)
    (run,) = begun(kept, seen, ETL, [HOST], now, {}).open.values()
    return run.began_at


@pytest.mark.parametrize(
    ("ordered", "expected"),
    [(NOW - 0.9, NOW - 0.9), (NOW - FRESH_SECS - 1, NOW), (NOW + 1, NOW), (None, NOW)],
)
def test_a_run_begins_with_its_order(ordered: float | None, expected: float) -> None:
    """A quick distribution would seem to begin after its hosts had the bundle."""
    assert expected == begin(KeptHistory(), ordered)


def test_a_distribution_that_goes_on_is_another_run() -> None:
    """The run of a second wave would replace that of the first."""
    seen = snapshot([bundle("etl")], assigned={"h1": ["etl"]})
    (first,) = begun(KeptHistory(), seen, ETL, [HOST], NOW - 3, {}).open.values()
    over = KeptHistory(past={first.id: msgspec.structs.replace(summary_of(first), ended_at=NOW - 1)})

    assert NOW == begin(over, NOW - 3)


def test_a_run_counts_the_hosts_that_the_bundles_page_counts() -> None:
    """Two pages would disagree: `2 of 3` beside `1 of 503`, or `2 of 10` beside `2 of 20`."""
    names = [f"h{n}" for n in range(6)]
    order = DistributionRecord(bundle=ETL, hosts=tuple(map(SupervisorId, ["h1", "h4", "h5"])), concurrency=1)
    seen = snapshot([bundle("etl")], assigned={name: ["etl"] for name in names[:4]}, distributions=[order])
    before = {SupervisorId("h0"): True, SupervisorId("h2"): True, SupervisorId("h3"): False}
    kept = begun(KeptHistory(), seen, ETL, [HOST], NOW, before)
    again = begun(kept, seen, ETL, [SupervisorId("h4")], NOW + 1, {**before, HOST: False})
    (found,) = map(summary_of, again.open.values())

    assert len(fleet_view(seen, ETL, {}).hosts) == found.hosts == len(names)
    assert (2, None) == (found.done, found.half_secs)


async def test_the_run_of_a_bundle_without_a_record_ends(tmp_path: Path) -> None:
    """If this fails, a distribution whose bundle was removed while no master ran goes on for
    ever."""
    line = {HOST: HostLine()}
    run = DistributionRun(bundle=ETL, digest=digest_of(ETL), size=1, began_at=NOW - 9, changed_at=NOW - 9, hosts=line)
    await HistoryFile(tmp_path).write(KeptHistory(open={run.id: run}))
    session: Any = SimpleNamespace(zookeeper=SimpleNamespace(server_now=lambda: NOW))
    swarms: Any = SimpleNamespace(directory=SimpleNamespace(entry=lambda peer, digest: None))
    async with Http() as http:
        history = DistributionHistory(session, swarms, lambda: True, http, HistoryFile(tmp_path), lambda fact: None)
        await history.load()
        history._follow(snapshot([], supervisors=[supervisor(HOST)]))

    assert [("etl", NOW)] == [(one.bundle, one.ended_at) for one in history.summaries()]


async def test_a_run_that_cannot_be_followed_hides_no_other(tmp_path: Path) -> None:
    """If this fails, one strange distribution keeps all that begin meanwhile out of the history."""
    odd = BundleId("a-odd")
    line = {HOST: HostLine()}
    run = DistributionRun(bundle=odd, digest=digest_of(odd), size=1, began_at=NOW - 9, changed_at=NOW - 9, hosts=line)
    await HistoryFile(tmp_path).write(KeptHistory(open={run.id: run}))

    def entry(peer: PeerId, digest: Digest) -> SwarmEntry:
        if digest == run.digest:
            raise ZeroDivisionError
        return SwarmEntry(digest=digest, complete=True, done=1)

    session: Any = SimpleNamespace(zookeeper=SimpleNamespace(server_now=lambda: NOW))
    swarms: Any = SimpleNamespace(directory=SimpleNamespace(entry=entry))
    bundles, hosts = [bundle(odd), bundle("etl")], [supervisor(HOST)]
    before, after = (
        msgspec.structs.replace(snapshot(bundles, supervisors=hosts, assigned={HOST: told}), version=number)
        for number, told in enumerate(([odd], [odd, ETL]))
    )
    async with Http() as http:
        history = DistributionHistory(session, swarms, lambda: True, http, HistoryFile(tmp_path), lambda fact: None)
        await history.load()
        for seen in (before, after, after):
            history._follow(seen)

    assert {("a-odd", 0, None), ("etl", 1, NOW)} == {
        (one.bundle, one.done, one.ended_at) for one in history.summaries()
    }
