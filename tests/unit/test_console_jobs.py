"""The console's list of jobs: what its filters find among many."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from records_of import bundle, job, snapshot
from starlette.requests import Request

from torrentdist.host.http.web import PRINCIPAL
from torrentdist.master.console.pages.job_pages import ROWS, JobPages
from torrentdist.master.jobs.job_requests import JobRequests
from torrentdist.model.configuration.config import JobsConfig
from torrentdist.model.records import JobStatus
from torrentdist.security.authorization import LOCAL

JOBS = [f"job-{number:03}" for number in range(150)]
FAILED = set(JOBS[::2])


async def shown(**query: str) -> list[str]:
    """Returns the ids that /ui/jobs shows a program for this query."""
    entries = [job(id_, ["code"], JobStatus.FAILED if id_ in FAILED else JobStatus.ACTIVE) for id_ in JOBS]
    seen = snapshot([bundle("code")], jobs=entries)
    unused: Any = None
    session: Any = SimpleNamespace(mirror=unused, zookeeper=SimpleNamespace(server_now=lambda: 0.0))
    heartbeats: Any = SimpleNamespace(reports=lambda _: {}, recent=dict)
    records: Any = SimpleNamespace(snapshot=lambda: seen, readable_by=lambda _: seen)
    config = JobsConfig()
    jobs = JobRequests(session, unused, heartbeats, unused, unused, config)
    scope = {"type": "http", "method": "GET", "path": "/ui/jobs", "headers": [], PRINCIPAL: LOCAL}
    request = Request({**scope, "query_string": urlencode(query).encode()})
    answer = await JobPages(unused, jobs, records).jobs_page(request)
    return [view["id"] for view in msgspec.json.decode(answer.body)]


@pytest.mark.anyio
async def test_a_filter_finds_jobs_beyond_the_first_page() -> None:
    """If this fails, the console says that no job matches while the job that is looked for runs."""
    assert [JOBS[120]] == await shown(q=JOBS[120])
    assert JOBS[1::2] == await shown(status=JobStatus.ACTIVE)


@pytest.mark.anyio
async def test_pages_of_a_filtered_list_have_every_job_once() -> None:
    """If this fails, following `next` skips jobs, or shows some of them twice."""
    first = await shown(q="job-")
    following = await shown(q="job-", after=first[-1])

    assert JOBS == first + following
    assert ROWS == len(first)
