"""Where applications in YARN are found: tags, Hadoop's configuration, and ResourceManagers."""

from __future__ import annotations

import contextlib
import os
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from scripted_http import ScriptedHttp

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import JobId
from torrentdist.supervisor.yarn import resource_manager
from torrentdist.supervisor.yarn.application_plan import YarnApplication
from torrentdist.supervisor.yarn.yarn_place import YarnPlace, fencing_in, tag_of_job, tag_of_run
from torrentdist.supervisor.yarn.yarn_site import resource_managers, urls_in

RM = "yarn.resourcemanager"
TAG = tag_of_job("cluster-1", JobId("daily"))
PLACE = YarnPlace(resource_managers=("http://rm1:8088", "http://rm2:8088"), tag=TAG, user="etl")
LISTED = {
    "id": "application_17_3",
    "state": "RUNNING",
    "finalStatus": "UNDEFINED",
    "trackingUrl": "http://rm2:8088/proxy/application_17_3/",
    "diagnostics": "",
    "applicationTags": f"team,{TAG},{TAG}:42",
}


def test_tags_tell_jobs_and_runs_apart() -> None:
    """If this fails, one job's supervisor kills another job's application."""
    jobs = [("c1", "daily"), ("c2", "daily"), ("c1", "Daily"), ("c1", "d" * 128), ("c1", "d" * 127)]
    tags = {tag_of_run(tag_of_job(cluster, JobId(job)), 2**63) for cluster, job in jobs}

    assert len(jobs) == len(tags)
    assert all(len(tag) <= 100 and tag == tag.lower() for tag in tags)
    assert 42 == fencing_in(f"a, {tag_of_run(TAG, 42)}", TAG)
    assert [None] * 4 == [fencing_in(tags, TAG) for tags in ("", TAG, f"{TAG}x:42", f"{TAG}:-4")]


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({f"{RM}.hostname": "rm"}, ["http://rm:8088"]),
        ({}, ["http://127.0.0.1:8088"]),
        ({f"{RM}.hostname": "rm", f"{RM}.webapp.address": "${yarn.resourcemanager.hostname}:9"}, ["http://rm:9"]),
        ({f"{RM}.hostname": "rm", "yarn.http.policy": "HTTPS_ONLY"}, ["https://rm:8090"]),
        (
            {f"{RM}.ha.enabled": "true", f"{RM}.ha.rm-ids": "a, b", f"{RM}.hostname.a": "one"}
            | {f"{RM}.webapp.address.b": "two:80"},
            ["http://one:8088", "http://two:80"],
        ),
    ],
)
def test_hadoops_configuration_names_the_resource_managers(properties: dict[str, str], expected: list[str]) -> None:
    """If this fails, applications are looked for where no ResourceManager is."""
    assert expected == list(urls_in(properties))


def test_a_value_that_names_a_long_one_often_takes_no_memory() -> None:
    """If this fails, a job with a small yarn-site.xml has its host's supervisor killed for want of
    memory."""
    long = {"long": "x" * 2**20, **{f"p{number}": "${long}" * 20 for number in range(10)}}
    tracemalloc.start()
    try:
        found = urls_in({**long, f"{RM}.hostname": "rm"})
        with pytest.raises(TorrentdistError, match="more than"):
            urls_in({**long, f"{RM}.hostname": "${p1}"})
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert ("http://rm:8088",) == found
    assert most < 8 * 2**20


def test_a_site_file_is_read_as_hadoop_reads_it(tmp_path: Path) -> None:
    """If this fails, a job needs a configuration of its own."""
    text = "<property>\n<name> {} </name><value>rm&#49;</value><final>true</final></property>"
    (tmp_path / "yarn-site.xml").write_text(f"<configuration>{text.format(f'{RM}.hostname')}</configuration>")

    assert ("http://rm1:8088",) == resource_managers({"HADOOP_CONF_DIR": str(tmp_path)})


@pytest.mark.parametrize("content", [None, "<configuration>", "x" * 5_000_000], ids=["none", "torn", "huge"])
def test_a_site_file_that_cannot_be_used_is_named(tmp_path: Path, content: str | None) -> None:
    """If this fails, a user reads a traceback instead of the file's name."""
    if content is not None:
        (tmp_path / "yarn-site.xml").write_text(content)

    with pytest.raises(TorrentdistError, match=r"yarn-site\.xml"):
        resource_managers({"YARN_CONF_DIR": str(tmp_path)})
    with pytest.raises(TorrentdistError, match="HADOOP_CONF_DIR"):
        resource_managers({})


def test_a_pipe_instead_of_a_site_file_is_refused_at_once(tmp_path: Path) -> None:
    """If this fails, a job that names a directory of its own takes one of the supervisor's threads
    for ever, and a few jobs take all of them."""
    os.mkfifo(tmp_path / "yarn-site.xml")

    def release() -> None:  # if somebody does wait
        with contextlib.suppress(OSError):
            os.close(os.open(tmp_path / "yarn-site.xml", os.O_WRONLY | os.O_NONBLOCK))

    timer = threading.Timer(5.0, release)
    timer.start()
    with pytest.raises(TorrentdistError, match="no regular file"):
        resource_managers({"HADOOP_CONF_DIR": str(tmp_path)})
    timer.cancel()


def answers(apps: object) -> Callable[[httpx.Request], httpx.Response]:
    """The first ResourceManager is a standby, which answers with a page for people."""

    def script(request: httpx.Request) -> httpx.Response:
        if request.url.host == "rm1":
            return httpx.Response(200, text="This is standby RM. Redirecting to the current active RM")
        return httpx.Response(200, json={"apps": apps})

    return script


@pytest.mark.anyio
@pytest.mark.parametrize("apps", [{"app": [LISTED]}, {"app": LISTED}])
async def test_the_active_resource_manager_tells(apps: object) -> None:
    """If this fails, an application is not found when the other ResourceManager is active."""
    expected = YarnApplication("application_17_3", 42, "RUNNING", "UNDEFINED", LISTED["trackingUrl"])

    assert [expected] == await resource_manager.applications(ScriptedHttp(answers(apps)), PLACE, 42)


@pytest.mark.anyio
@pytest.mark.parametrize("apps", [None, {}, {"app": []}, {"app": [LISTED | {"applicationTags": "other"}]}])
async def test_no_application_is_an_answer(apps: object) -> None:
    """If this fails, the first run of a job waits for ever."""
    assert [] == await resource_manager.applications(ScriptedHttp(answers(apps)), PLACE, 42)


@pytest.mark.anyio
@pytest.mark.parametrize("status", [200, 307, 401, 503])
async def test_what_is_no_list_is_no_answer(status: int) -> None:
    """If this fails, an error page counts as an empty list, and a job runs twice."""
    http = ScriptedHttp(lambda request: httpx.Response(status, json={"RemoteException": {}}))

    with pytest.raises(TorrentdistError, match="YARN cannot be asked"):
        await resource_manager.applications(http, PLACE, 42)


@pytest.mark.anyio
@pytest.mark.parametrize(("status", "refused"), [(202, False), (200, False), (403, True), (404, True)])
async def test_a_refused_kill_is_an_error(status: int, refused: bool) -> None:
    """If this fails, `job kill` says that YARN ends an application which it does not end."""
    asked: list[httpx.Request] = []

    def script(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(status, json={"state": "KILLED"})

    http = ScriptedHttp(script)
    if refused:
        with pytest.raises(TorrentdistError, match=f"application_17_3 is not killed, status {status}"):
            await resource_manager.kill(http, PLACE, "application_17_3")
    else:
        await resource_manager.kill(http, PLACE, "application_17_3")

    assert ("PUT", b'{"state":"KILLED"}') == (asked[0].method, asked[0].content)
    assert "/ws/v1/cluster/apps/application_17_3/state?user.name=etl" == asked[0].url.raw_path.decode()
