"""FsCodeDistributor through HttpFS: one door to HDFS, for hosts that reach no DataNode."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from engines.engine_hosts import EngineLab, java_home
from engines.hadoop import CONF, Hadoop
from engines.hdfs_contract import PLUGIN, HdfsContract, make_place, options_of

from bench.lab.namespaces import ROOT, wait_until
from torrentdist.model.errors import TorrentdistError
from torrentdist.testing import PluginHosts
from torrentdist.testing.loopback_hosts import LoopbackHosts
from torrentdist.testing.sample_trees import SMALL

JARS = ROOT / "build/engines-httpfs/jars"
PORT = 14000
DAEMON = "httpfs"
HOME = "/srv/httpfs"
START_SECS = 400.0
OPENS = ("--add-opens=java.base/java.lang=ALL-UNNAMED",)


@pytest.fixture(scope="module")
def web(engine_lab: EngineLab, hadoop: Hadoop) -> Iterator[str]:
    """Starts HttpFS on `client`, and returns its host and port."""
    if not JARS.exists():
        pytest.skip("HttpFS is not fetched: scripts/engines-httpfs")
    host = engine_lab.named("client")
    for folder in ("conf", "log", "temp"):
        (engine_lab.srv(host) / "httpfs" / folder).mkdir(parents=True)
    places = {"home": HOME, "config": f"{HOME}/conf", "log": f"{HOME}/log", "temp": f"{HOME}/temp"}
    command = ["java", "-Xmx200m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *OPENS]
    command += [f"-Dhttpfs.{name}.dir={path}" for name, path in places.items()]
    command += ["-cp", f"{CONF}:{JARS}/*", "org.apache.hadoop.fs.http.server.HttpFSServerWebServer"]
    site = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in {"httpfs.http.port": PORT, "httpfs.hadoop.config.dir": CONF}.items()
    )
    (engine_lab.srv(host) / "httpfs/conf/httpfs-site.xml").write_text(f"<configuration>{site}</configuration>")
    engine_lab.start(host, command, name=DAEMON, variables=hadoop.variables() | {"JAVA_HOME": java_home()})
    web = f"{host.name}:{PORT}"
    wait_until(lambda: answers(web), "HttpFS", START_SECS)
    yield web
    if engine_lab.runs(DAEMON):
        engine_lab.kill(DAEMON)


def answers(web: str) -> bool:
    try:
        urllib.request.urlopen(f"http://{web}/webhdfs/v1/?op=LISTSTATUS&user.name=root", timeout=10).close()
    except (urllib.error.URLError, OSError):
        return False
    return True


class TestFsCodeDistributorOnHttpFs(HdfsContract):
    """The fixture `web` is HttpFS."""


def test_a_fetch_says_that_httpfs_is_gone(engine_lab: EngineLab, hadoop: Hadoop, web: str, tmp_path: Path) -> None:
    """If this fails, a fetch hangs or claims success while HttpFS is down."""
    with LoopbackHosts(tmp_path / "hosts") as hosts:
        trio = PluginHosts(hosts, PLUGIN, options_of(web, make_place(hadoop)), 60.0)
        metafile = trio.a.offer("etl-42", SMALL)
        engine_lab.end(DAEMON)
        failure = trio.b.failure("etl-42", metafile)
        for each in trio:
            each.plugin.close()

    assert isinstance(failure, TorrentdistError)
    assert "refused" in str(failure).lower()
