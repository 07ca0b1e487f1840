"""Says what a distribution would do before it begins, and how one that was is asked for again.

Pure.
"""

from collections.abc import Iterable

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.master.console import console_markup as m
from torrentdist.master.console.forms.actions import DISTRIBUTION
from torrentdist.master.console.forms.form_fields import Fields
from torrentdist.master.policies.distribution_changes import with_labels
from torrentdist.master.policies.wave_plan import waves
from torrentdist.model.policies.distribution_record import DistributionRecord
from torrentdist.model.wire.fleet_messages import HostProgress, HostState
from torrentdist.model.wire.view import View
from torrentdist.model.wording import counted

MOST_NAMES = 4_000
"""Most characters of hosts' names in an address."""


class DistributionOutlook(View, frozen=True, kw_only=True):
    """What a distribution would do now."""

    hosts: int
    have_it: int
    """The hosts that have it all."""
    bytes: int
    """The bytes that the other hosts lack."""
    waves: int


def outlook(record: DistributionRecord, progress: Iterable[HostProgress]) -> DistributionOutlook:
    """`progress`: how far each host of the record is."""
    hosts = list(progress)
    lacking = [host for host in hosts if host.state is not HostState.DONE]
    return DistributionOutlook(
        hosts=len(hosts),
        have_it=len(hosts) - len(lacking),
        bytes=sum(host.size - host.done for host in lacking),
        waves=len(waves(record)) if record.hosts else 0,
    )


def outlook_words(plan: DistributionOutlook) -> str:
    if not plan.hosts:
        return "No host is meant."
    in_waves = f", in {counted(plan.waves, 'wave')}" if plan.waves > 1 else ""
    have = f" Already there: {counted(plan.have_it, 'host')}." if plan.have_it else ""
    return f"It tells {counted(plan.hosts, 'host')}{in_waves}.{have} To move: {m.bytes_of(plan.bytes)} at most."


def fields_again(seen: ClusterSnapshot, record: DistributionRecord) -> Fields:
    """Returns the fields of the form that asks for the same distribution again: for the same hosts,
    if their names fit into an address."""
    names = ""
    if set(record.hosts) != set(with_labels(seen, record.labels)):
        names = " ".join(host for host in record.hosts if host in seen.supervisors)
    given = {
        "supervisors": names if len(names) <= MOST_NAMES else "",
        "labels": " ".join(f"{name}={value}" for name, value in sorted(record.labels.items())),
        "canary": str(record.canary),
        "concurrency": str(record.concurrency),
        "rate": str(record.terms.rate),
        "priority": record.terms.priority.value,
        "keep": f"{record.ends_at - record.begun_at:.0f}" if record.ends_at is not None else "0",
    }
    usual = {field.name: str(field.value) for field in DISTRIBUTION}
    return {name: value for name, value in given.items() if value != usual[name]}
