"""Makes the event of a distribution that is over, from the summary that the masters keep.

Pure: values in, values out.
"""

from torrentdist.model.events import DistributionEnded, LackingHost
from torrentdist.model.wire.fleet_messages import DistributionSummary
from torrentdist.model.wire.view import view_of


def ended_event(summary: DistributionSummary) -> DistributionEnded:
    lacking = [one for one in summary.late if one.seconds is None]
    return view_of(
        DistributionEnded,
        summary,
        distribution=summary.run,
        ended_at=summary.began_at if summary.ended_at is None else summary.ended_at,
        secs_50=summary.half_secs,
        secs_90=summary.most_secs,
        secs_100=summary.all_secs,
        from_masters=summary.sources.masters,
        from_peers=summary.sources.peers,
        from_plugin=summary.sources.plugin,
        local=summary.sources.local,
        outside=summary.sources.outside,
        failures=[LackingHost(host=one.supervisor, state=one.state.value, reason=one.reason) for one in lacking],
    )
