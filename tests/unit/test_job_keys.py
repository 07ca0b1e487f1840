"""Which job a token proves at a master."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace
from records_of import job, snapshot

from torrentdist.cluster.records.snapshot import HostEntry
from torrentdist.master.access.job_keys import JobKeys
from torrentdist.model.access.host_record import HostRecord
from torrentdist.model.ids import BundleId, JobId, SupervisorId
from torrentdist.security.authorization import Principal
from torrentdist.security.job_token import key_of_host, token_of_job

pytestmark = pytest.mark.case("F1")
SHARED, H1, H2 = b"s" * 32, SupervisorId("h1"), SupervisorId("h2")
ETL, OTHER = JobId("etl"), JobId("other")


def proven(
    token: str,
    *,
    running: Iterable[SupervisorId] = (H1,),
    shared: bytes = SHARED,
    revoked: str = "",
    key: str = "key of ",
) -> Principal | None:
    records = [HostRecord(id=id_, is_revoked=id_ == revoked) for id_ in ("h1", "h2")] if revoked else []
    hosts = {record.id: HostEntry(record, 0) for record in records}
    seen: Any = replace(snapshot(jobs=[job("etl", ["etl-1", "lib"]), job("other", ["secret"])]), hosts=hosts)
    keys = JobKeys(lambda: seen, lambda id_: running if id_ == ETL else (), lambda host: key and f"{key}{host}", shared)
    return keys.principal(token)


def of_host(host: str, job_id: JobId = ETL) -> str:
    return token_of_job(key_of_host(f"key of {host}"), job_id)


def test_a_job_proves_itself_by_the_shared_key_or_by_that_of_its_host() -> None:
    """If this fails, no job reads its own state from a master."""
    for token in (token_of_job(SHARED, ETL), of_host("h1")):
        found = proven(token)

        assert found is not None
        assert {ETL} == found.jobs
        assert {BundleId("etl-1"), BundleId("lib")} == found.own_bundles
    assert proven(of_host("h1"), shared=b"") is not None
    assert proven(of_host("h2"), running=(H1, H2)) is not None


def test_a_token_of_another_host_proves_nothing() -> None:
    """If this fails, a host speaks for jobs that do not run on it."""
    assert proven(of_host("h2")) is None
    assert proven(of_host("h1", OTHER)) is None
    assert proven(of_host("h1"), running=()) is None


def test_the_tokens_of_a_host_end_with_its_revocation() -> None:
    """If this fails, a stolen host reads the bundles of its jobs after it was shut out."""
    assert proven(of_host("h1"), revoked="h1") is None
    assert proven(of_host("h1"), revoked="h2") is not None
    assert proven(of_host("h2"), running=(H1, H2), revoked="h1") is not None


def test_nothing_else_proves_a_job() -> None:
    """If this fails, a forged token opens the bundles of a job."""
    forged = token_of_job(b"x" * 32, ETL)
    gone = token_of_job(SHARED, JobId("gone"))

    assert [None] * 4 == [proven(token) for token in (forged, gone, "", "job:etl:")]
    assert proven(token_of_job(b"", ETL), shared=b"", key="") is None
