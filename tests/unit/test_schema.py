"""Records in the schema of the previous release."""

from __future__ import annotations

import msgspec
import pytest
from records_of import bundle, job, master, snapshot, supervisor

from torrentdist.cluster import paths
from torrentdist.cluster.records import record_schema
from torrentdist.cluster.records.record_schema import newest_for_all, spoken
from torrentdist.cluster.session.znode_operations import Set
from torrentdist.master.leading.schema_upgrade import outdated
from torrentdist.model import records
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import SupervisorId
from torrentdist.model.records import BundleRecord, JobRecord, JobStatus, decode, encode

PATH = "/code-distributor/b"


@pytest.fixture
def next_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later release than this one, which added `pinned`."""
    monkeypatch.setattr(records, "SCHEMA", records.SCHEMA + 1)
    monkeypatch.setitem(record_schema.ADDED, "/code-distributor/*", {"pinned": records.SCHEMA})


@pytest.mark.usefixtures("next_release")
def test_what_a_schema_brought_is_left_out_of_older_ones() -> None:
    """If this failed, the previous release would meet a field that it does not know, and write the
    record back without it."""
    record = bundle("b", pinned=True).record
    old, new = (msgspec.json.decode(spoken(PATH, encode(record), n)) for n in (records.SCHEMA - 1, records.SCHEMA))

    assert (records.SCHEMA - 1, None) == (old["schema"], old.get("pinned"))
    assert (records.SCHEMA, True) == (new["schema"], new["pinned"])
    assert b"master-1" == spoken("/election/a-1", b"master-1", 1)


@pytest.mark.usefixtures("next_release")
def test_a_schema_keeps_the_fields_that_it_brought(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this failed, a field would be lost each time that a cluster is about to go one schema
    further."""
    brought = records.SCHEMA
    monkeypatch.setattr(records, "SCHEMA", brought + 1)
    kept = msgspec.json.decode(spoken(PATH, encode(bundle("b", pinned=True).record), brought))

    assert (brought, True) == (kept["schema"], kept["pinned"])


def test_no_field_is_of_a_later_schema() -> None:
    """If this failed, a field would be left out of records that all daemons can read."""
    newest = max(since for fields in record_schema.ADDED.values() for since in fields.values())

    assert newest <= records.SCHEMA


def test_a_job_record_for_the_release_before_has_no_supervisors_of_ended_workers() -> None:
    """If this fails, a leader of schema 1 meets `ended_on`, does not know it, and writes the job
    back without it."""
    entry = job("j", ["b"], JobStatus.ACTIVE).record
    record = msgspec.structs.replace(entry, exits={"0": 0}, ended_on={"0": SupervisorId("h1")})
    old, new = (spoken("/jobs/j", encode(record), schema) for schema in (1, 2))

    assert msgspec.structs.replace(record, schema=1, ended_on={}) == decode(old, JobRecord, path="/jobs/j")
    assert b"ended_on" not in old
    assert record == decode(new, JobRecord, path="/jobs/j")


@pytest.mark.usefixtures("next_release")
def test_a_record_of_the_older_schema_is_written_anew_once() -> None:
    """If this failed, records would stay that the release after the next cannot read, or be
    rewritten for ever."""
    entry = bundle("b")
    seen = snapshot([entry])
    assert seen.cluster is not None
    raised = msgspec.structs.replace(seen.cluster, schema=records.SCHEMA)

    assert [] == list(outdated(seen))
    assert [Set(PATH, encode(entry.record), entry.version)] == list(
        outdated(msgspec.structs.replace(seen, cluster=raised))
    )


def test_a_later_releases_record_is_refused_by_name() -> None:
    """If this failed, a daemon that was left behind would call the cluster's records damaged, or
    read half of them."""
    later = msgspec.json.encode({**msgspec.to_builtins(bundle("b").record), "schema": records.SCHEMA + 1})
    with pytest.raises(TorrentdistError) as caught:
        decode(later, BundleRecord, path=PATH)

    assert "later_release" == caught.value.code


def test_the_cluster_record_and_texts_stay_as_they_are() -> None:
    """If this failed, the record that names the schema would name an older one than it stands
    for."""
    data = encode(bundle("b").record)

    assert data == spoken(paths.CLUSTER, data, 1)
    assert data == spoken(PATH, data, records.SCHEMA)
    assert 1 == msgspec.json.decode(spoken(PATH, data, 1))["schema"]


def test_the_schema_is_the_newest_that_all_daemons_read() -> None:
    """If this failed, a daemon of the last release would meet records that it can't read, or a new
    field would never be used."""
    new_master = msgspec.structs.replace(master("m1"), speaks=records.SCHEMA)
    new_host = msgspec.structs.replace(supervisor("h1"), speaks=records.SCHEMA)

    assert records.SCHEMA == newest_for_all([], [])
    assert records.SCHEMA == newest_for_all([new_master], [new_host])
    assert 1 == newest_for_all([new_master, master("m2")], [new_host])
    assert 1 == newest_for_all([new_master], [supervisor("h2")])
