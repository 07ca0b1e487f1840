"""Bounds the texts of a worker's report, which come from the job itself or from its host.

Always: what a leader keeps of a report is short, whatever a job or a supervisor says. The leader
writes these texts into the records of jobs, whose size ZooKeeper limits.
Never: refuse a report. The rest of it is still good.
"""

import re

import msgspec

from torrentdist.model.wire.job_messages import WorkerReport

MOST_DETAIL = 1_000
MOST_UI = 1_000
"""Most characters of these two texts."""
_APPLICATION = re.compile(r"[A-Za-z0-9_.-]{1,128}")


def application_id(text: str) -> str:
    """Returns `text` if Spark could have assigned it as an application's id, else nothing."""
    return text if _APPLICATION.fullmatch(text) else ""


def short_detail(text: str) -> str:
    return text if len(text) <= MOST_DETAIL else text[: MOST_DETAIL - 1] + "…"


def bounded(report: WorkerReport) -> WorkerReport:
    """Returns the report with a short detail, and without an application or a URL that is none.

    A URL is never cut, because its beginning leads somewhere else.
    """
    detail, application = short_detail(report.detail), application_id(report.application)
    ui = report.ui if len(report.ui) <= MOST_UI else ""
    if (detail, application, ui) == (report.detail, report.application, report.ui):
        return report
    return msgspec.structs.replace(report, detail=detail, application=application, ui=ui)
