"""Bounds the texts and times of a worker's report, which come from the job itself or its host.

Always: what a leader keeps of a report is short, whatever a job or a supervisor says. The leader
writes it into the records of jobs, whose size ZooKeeper limits, and pages can show each time.
Never: refuse a report. The rest of it is still good.
"""

import re

import msgspec

from torrentdist.model.wire.job_messages import WorkerReport

MOST_DETAIL = 1_000
MOST_UI = 1_000
"""Most characters of these two texts."""
MOST_TIME = 250e9
"""Latest time: in the year 9892. Calendars end soon after that."""
_APPLICATION = re.compile(r"[A-Za-z0-9_.-]{1,128}")


def application_id(text: str) -> str:
    """Returns `text` if Spark could have assigned it as an application's id, else nothing."""
    return text if _APPLICATION.fullmatch(text) else ""


def short_detail(text: str) -> str:
    return text if len(text) <= MOST_DETAIL else text[: MOST_DETAIL - 1] + "…"


def sensible_time(at: float) -> float:
    """Returns a time that a host has told, or 0, which stands for none, if no calendar has it."""
    return at if 0.0 <= at <= MOST_TIME else 0.0


def bounded(report: WorkerReport) -> WorkerReport:
    """Returns the report with a short detail, and without an application, a URL or a time that is
    none.

    A URL is never cut, because its beginning leads somewhere else.
    """
    short = msgspec.structs.replace(
        report,
        detail=short_detail(report.detail),
        application=application_id(report.application),
        ui=report.ui if len(report.ui) <= MOST_UI else "",
        since=sensible_time(report.since),
        fetched_at=sensible_time(report.fetched_at),
        ended_at=sensible_time(report.ended_at),
    )
    return report if short == report else short
