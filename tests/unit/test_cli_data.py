"""What the commands print about a cluster, in every format, and how they end. The cluster here is
its HTTP protocol."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cluster_by_script import BUNDLE, DIGEST, Answers

from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.model.backup import Backup, Node, encode_backup
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, MasterId, SupervisorId
from torrentdist.model.wire.bundle_messages import PruneView
from torrentdist.model.wire.cluster_messages import BundleCounts, ClusterView, MasterView, SupervisorView
from torrentdist.model.wire.fleet_messages import FleetView, HostProgress, HostState
from torrentdist.model.wire.ha_views import FailoverView, LeaderTransferView, LeaderView, MasterState, RoleView
from torrentdist_cli.main import main

Capture = pytest.CaptureFixture[str]

MASTER = MasterView(
    id=MasterId("m1"), host="a", port=1, url="https://a:1", uptime_secs=90.0, is_leader=True, version="0.1.0"
)
SUPERVISOR = SupervisorView(
    id=SupervisorId("s1"),
    host="b",
    gateway="http://127.0.0.1:2",
    slots=4,
    slots_used=1,
    labels={"zone": "a"},
    bundles=2,
    version="0.1.0",
    uptime_secs=1.0,
)
CLUSTER = ClusterView(
    leader=MasterId("m1"),
    epoch=7,
    masters=[MASTER],
    supervisors=[SUPERVISOR],
    jobs=[],
    bundles=BundleCounts(total=1, available=1, uploading=0, lost=0, under_replicated=0),
)


HA: Answers = {
    "GET /v1/roles": [
        RoleView(
            id=MasterId("m1"), url="http://a:1", state=MasterState.LEADER, epoch=7, lag=0, version="1", ready=True
        ),
        RoleView(
            id=MasterId("m2"), url="http://b:1", state=MasterState.UNREACHABLE, version="1", failing={"reachable": "no"}
        ),
    ],
    "GET /v1/failovers": [FailoverView(previous=MasterId("m2"), current=MasterId("m1"), at=1.0, reason="died")],
    "POST /v1/transfer": LeaderTransferView(previous=MasterId("m2"), leader=MasterId("m1"), seconds=0.05),
    "GET /v1/backup": encode_backup(Backup(cluster="c", epoch=7, zxid=1, made_at=1.0, nodes=(Node("/cluster"),))),
    "digest": "",
}


def fleet(*hosts: HostProgress) -> FleetView:
    return FleetView(id=BundleId("etl-42"), digest=DIGEST, size=100, hosts=list(hosts))


def out_of(capsys: Capture, *args: str, code: int = 0) -> str:
    assert main(args) == code
    return capsys.readouterr().out


def json_of(capsys: Capture, *args: str, code: int = 0) -> Any:
    return msgspec.json.decode(out_of(capsys, *args, "-o", "json", code=code))


def test_the_promised_keys_are_there(answers: Answers, capsys: Capture) -> None:
    """Scripts rely on these keys; a missing one breaks them without a message."""
    answers.update(
        {
            "GET /v1/cluster": CLUSTER,
            "GET /v1/bundles": [BUNDLE],
            "GET /v1/bundles/etl-42": BUNDLE,
            "GET /v1/leader": LeaderView(leader=MasterId("m1"), epoch=7, since=1.0),
        }
    )
    cluster = json_of(capsys, "cluster")
    promised = ["id", "digest", "size", "files", "replicas", "holders", "created_at", "state"]

    assert cluster.keys() >= {"leader", "epoch", "masters", "supervisors", "jobs", "bundles"}
    assert cluster["masters"][0].keys() >= {"id", "host", "port", "uptime_secs", "is_leader", "version"}
    assert json_of(capsys, "bundle", "ls")[0].keys() >= set(promised)
    assert json_of(capsys, "bundle", "show", "etl-42").keys() >= set(promised)
    assert json_of(capsys, "ha", "leader").keys() >= {"leader", "epoch", "since"}


def test_jsonl_is_a_line_for_each_item(answers: Answers, capsys: Capture) -> None:
    """A program that reads line by line needs each line to be whole."""
    answers["GET /v1/bundles"] = [BUNDLE, BUNDLE]
    lines = out_of(capsys, "bundle", "ls", "-o", "jsonl").splitlines()

    assert [msgspec.json.decode(line)["id"] for line in lines] == ["etl-42", "etl-42"]


@pytest.mark.parametrize(
    ("args", "value"),
    [
        ("cluster", "m1\n"),
        ("supervisor ls", "s1\n"),
        ("bundle ls", "etl-42\n"),
        ("bundle show etl-42", f"{DIGEST}\n"),
        ("bundle pin etl-42", "etl-42\n"),
        ("bundle unpin etl-42", "etl-42\n"),
        ("bundle rm etl-42", "etl-42\n"),
        ("bundle prune --older-than 7d", "1536\n"),
        ("ha leader", "m1\n"),
        ("ha roles", "m1\nm2\n"),
        ("ha failovers", "m1\n"),
        ("ha transfer m1", "m1\n"),
        ("ha backup saved.json", "saved.json\n"),
    ],
)
def test_quiet_prints_the_one_value_and_nothing_else(answers: Answers, capsys: Capture, args: str, value: str) -> None:
    """`$(torrentdist ... -q)` must yield the bare value."""
    answers.update(
        {
            "GET /v1/cluster": CLUSTER,
            "GET /v1/bundles": [BUNDLE],
            "GET /v1/bundles/etl-42": BUNDLE,
            "DELETE /v1/bundles/etl-42": BUNDLE,
            "PUT /v1/bundles/etl-42/pin": BUNDLE,
            "DELETE /v1/bundles/etl-42/pin": BUNDLE,
            "POST /v1/host/prune": PruneView(removed=[DIGEST], freed_bytes=1536, kept=2),
            "GET /v1/leader": LeaderView(leader=MasterId("m1"), epoch=7, since=1.0),
            **HA,
        }
    )
    code = main([*args.split(), "-q"])

    assert (code, *capsys.readouterr()) == (0, value, "")


def test_the_tables_of_ha_say_who_leads_and_why(answers: Answers, capsys: Capture) -> None:
    """An operator reads these in the middle of the night."""
    answers.update(HA)
    roles = out_of(capsys, "ha", "roles").splitlines()
    failovers = out_of(capsys, "ha", "failovers").splitlines()

    assert roles[1].split() == ["m1", "leader", "yes", "7", "0", "1"]
    assert roles[2].split() == ["m2", "unreachable", "no", "?", "?", "1", "reachable:", "no"]
    assert failovers[1].split()[2:] == ["m2", "m1", "died"]
    assert out_of(capsys, "ha", "transfer", "m1") == "m1 leads, after 0.1s\n"
    assert json_of(capsys, "ha", "failovers")[0].keys() == {"previous", "current", "at", "reason"}
    assert json_of(capsys, "ha", "backup", "b.json").keys() >= {"path", "cluster", "epoch", "records", "size"}


def test_a_backup_replaces_no_device(answers: Answers, capsys: Capture, tmp_path: Path) -> None:
    """`ha backup /dev/stdout` of root would put a file in the place of the device."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    assert 2 == main(["ha", "backup", str(pipe)])
    assert pipe.is_fifo()
    assert "no regular file" in capsys.readouterr().err


def test_a_damaged_backup_is_not_written_over_a_good_one(answers: Answers, capsys: Capture, tmp_path: Path) -> None:
    """The only good backup would be lost when a master's answer breaks off."""
    good = tmp_path / "b.json"
    good.write_text("good")
    answers.update(HA)
    whole = HA["GET /v1/backup"]
    assert isinstance(whole, bytes)
    answers["GET /v1/backup"] = whole[:-20]

    assert main(["ha", "backup", str(good)]) == 7
    assert good.read_text() == "good"


def test_old_records_are_shown_as_such(answers: Answers, capsys: Capture) -> None:
    """A user would act on an hour-old picture of the cluster."""
    answers["GET /v1/cluster"] = msgspec.structs.replace(CLUSTER, stale_secs=90.0)

    assert "stale" in (shown := out_of(capsys, "cluster"))
    assert "1m30s old: ZooKeeper is away" in shown
    assert "last leader" in shown


@pytest.mark.parametrize("args", ["bundle ls", "bundle show etl-42", "cluster", "supervisor ls", "ha leader"])
def test_what_comes_from_old_records_is_said_to_on_every_command(answers: Answers, capsys: Capture, args: str) -> None:
    """A user would miss the last change, and not know that the masters cannot have heard of it."""
    leads = LeaderView(leader=MasterId("m1"), epoch=7, since=1.0)
    answers.update({"GET /v1/bundles": [BUNDLE], "GET /v1/bundles/etl-42": BUNDLE, "GET /v1/cluster": CLUSTER})
    answers.update({"GET /v1/leader": leads, "stale": 7})
    code = main([*args.split(), "-q"])
    printed = capsys.readouterr()

    assert (code, "warning" in printed.out) == (0, False)
    assert printed.err == "warning: the records behind this are 7 s old: ZooKeeper is away\n"


def test_a_leader_of_old_records_is_called_the_last_one(answers: Answers, capsys: Capture) -> None:
    """A user would take the leader of before the outage for the present one."""
    leads = LeaderView(leader=MasterId("m1"), epoch=7, since=1.0, stale_secs=42.0)
    answers["GET /v1/leader"] = leads
    shown, told = out_of(capsys, "ha", "leader"), json_of(capsys, "ha", "leader")

    assert "last leader  m1" in shown
    assert "42s ago" in shown
    assert told["stale_secs"] == 42.0


def test_the_doctor_without_a_cluster_names_what_is_wrong_and_what_to_do(capsys: Capture) -> None:
    """The doctor would fail in the situation for which it is made."""
    code = main(["doctor", "--masters", "http://127.0.0.1:1"])
    out = capsys.readouterr().out

    assert code == 5
    assert "fail  reachable" in out
    assert "hint: reachable: Check client.masters" in out


def test_tables_show_sizes_and_ages_for_people(answers: Answers, capsys: Capture) -> None:
    """A table full of plain byte counts is hard to read."""
    answers.update({"GET /v1/bundles": [BUNDLE], "GET /v1/cluster": CLUSTER})
    bundles = out_of(capsys, "bundle", "ls").splitlines()
    cluster = out_of(capsys, "cluster")

    assert bundles[0].split() == ["ID", "STATE", "SIZE", "FILES", "REPLICAS", "AGE", "PINNED", "DIGEST"]
    assert bundles[1].split()[:6] == ["etl-42", "available", "1.5", "KiB", "3", "2/2"]
    assert "1m30s" in cluster
    assert "zone=a" in cluster


def test_tables_show_what_versions_share(answers: Answers, capsys: Capture) -> None:
    """People would count blocks twice that two versions share."""
    shared = msgspec.structs.replace(BUNDLE, own_bytes=512)
    host = msgspec.structs.replace(SUPERVISOR, bytes=4096, own_bytes=1024)
    answers.update(
        {"GET /v1/bundles": [shared], "GET /v1/cluster": msgspec.structs.replace(CLUSTER, supervisors=[host])}
    )
    bundles = out_of(capsys, "bundle", "ls").splitlines()
    hosts = out_of(capsys, "supervisor", "ls").splitlines()

    assert bundles[0].split()[:4] == ["ID", "STATE", "SIZE", "OWN"]
    assert bundles[1].split()[:6] == ["etl-42", "available", "1.5", "KiB", "512", "B"]
    assert "4.0 KiB" in hosts[1]
    assert "1.0 KiB" in hosts[1]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TorrentdistError("no_leader"), 5),
        (TorrentdistError("unauthorized"), 4),
    ],
    ids=["no leader", "no token"],
)
def test_the_error_of_a_master_is_the_error_of_the_command(
    answers: Answers, capsys: Capture, error: TorrentdistError, code: int
) -> None:
    """A script cannot handle a failure whose code changes on the way."""
    answers["GET /v1/leader"] = error
    exit_code = main(["ha", "leader", "-o", "json"])

    out, err = capsys.readouterr()
    assert (exit_code, out) == (code, "")
    assert err == f"error[{error.code}]: {error.message}\nhint: {error.hint}\n"


def test_a28_a_bundle_in_use_is_not_removed(answers: Answers, capsys: Capture) -> None:
    """A28: the exit code tells a script that the bundle is still there, and who uses it."""
    answers["DELETE /v1/bundles/etl-42"] = TorrentdistError("in_use", id="etl-42", detail="job nightly")
    exit_code = main(["bundle", "rm", "etl-42"])

    assert exit_code == 9
    assert "job nightly" in capsys.readouterr().err


DONE = HostProgress(supervisor=SupervisorId("s1"), state=HostState.DONE, done=100, size=100)
STUCK = HostProgress(supervisor=SupervisorId("s2"), state=HostState.STUCK, done=50, size=100, reason="disk full")


def test_a_distribution_that_reaches_every_host_succeeds(answers: Answers, capsys: Capture) -> None:
    """The promise in one command: exit 0 means that every host has it."""
    answers["POST /v1/bundles/etl-42/distribute"] = fleet(DONE)
    view = json_of(capsys, "bundle", "distribute", "etl-42")

    assert view.keys() >= {"id", "digest", "hosts", "done", "failed", "seconds"}
    assert (view["hosts"], view["done"], view["failed"]) == (1, 1, [])


def test_a_distribution_that_misses_hosts_exits_10_and_names_them(answers: Answers, capsys: Capture) -> None:
    """A host that lacks the bundle would be found only when its job fails."""
    answers["POST /v1/bundles/etl-42/distribute"] = answers["GET /v1/bundles/etl-42/hosts"] = fleet(DONE, STUCK)
    code = main(["bundle", "distribute", "etl-42", "--timeout", "0.1s", "-o", "json"])

    out, err = capsys.readouterr()
    assert code == 10
    assert msgspec.json.decode(out)["failed"][0]["supervisor"] == "s2"
    assert err.startswith("error[partly]: bundle etl-42 is on 1 of 2 hosts; missing: s2 (stuck at 50 %: disk full)\n")


@pytest.mark.parametrize("share", ["50%", "0"])
def test_a_share_that_is_reached_is_enough(answers: Answers, capsys: Capture, share: str) -> None:
    """If this fails, a user who asked for half of the hosts is told that the other half failed."""
    answers["POST /v1/bundles/etl-42/distribute"] = fleet(DONE, STUCK)
    code = main(["bundle", "distribute", "etl-42", "--wait", share])

    assert (code, capsys.readouterr().err) == (0, "")


def test_verify_finds_what_differs_and_exits_7(answers: Answers, capsys: Capture, tmp_path: Path) -> None:
    """Damage that is reported as fine is run as code; damage without a path can't be mended."""
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "good").write_text("good")
    (bundle / "bad").write_text("right")
    meta = make_metafile(bundle)
    answers.update({"GET /v1/bundles/etl-42/metafile": meta.raw, "digest": meta.digest})

    assert json_of(capsys, "bundle", "verify", "etl-42", str(bundle))["damaged"] == []
    (bundle / "bad").write_text("wrong")
    damaged = json_of(capsys, "bundle", "verify", "etl-42", str(bundle), code=7)["damaged"]
    assert [found["path"] for found in damaged] == ["bad"]
    assert out_of(capsys, "bundle", "verify", "etl-42", str(bundle), "-q", code=7) == "bad\n"
