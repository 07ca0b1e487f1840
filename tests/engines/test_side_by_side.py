"""One environment brought to YARN's hosts in three ways, over links of 50 Mbit/s: as an archive
through HDFS, as the gateway's archive, and as a path in `ids_dir`.

Always: the environment is a directory at the client, or an archive made of it before; the time
counts from there to the application's end. The driver is in the cluster.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from typing import NamedTuple

import pytest
from engines.engine_hosts import EngineLab, LinkCount, shaped
from engines.environments import make_environment
from engines.hadoop import Hadoop
from engines.spark_programs import LONGEST_SECS, PLAIN, Ended, SparkPrograms
from engines.torrentdist_site import TorrentdistSite

MBIT = 50.0
NEW_SHARE = 0.2
"""Most of the second version that a host fetches anew."""
USES = """
import sys
from pyspark.sql import SparkSession

def use(_):
    import pandas, pyarrow, time
    time.sleep(1)
    return pandas.__file__

spark = SparkSession.builder.getOrCreate()
assert spark.sparkContext.parallelize(range(4), 4).map(use).distinct().count()
spark.stop()
"""


class Way(NamedTuple):
    name: str
    version: str
    secs: float
    spark_secs: float
    """How long spark-submit took of it."""
    down: int
    """Most bytes that came down one host's link."""
    client_up: int
    stored: int
    """Bytes that HDFS wrote, each copy counted."""


@pytest.fixture(scope="module")
def versions(engine_lab: EngineLab, spark: SparkPrograms) -> dict[str, int]:
    """Two versions of the environment at the client, as directories and archives: their sizes. In
    the second pandas is patched."""
    old = make_environment(spark.home / "env-old", "of the bundle")
    subprocess.run(["cp", "-a", str(old.path), str(spark.home / "env-new")], check=True)
    for file in (spark.home / "env-new").glob("lib/python*/site-packages/pandas/**/*.py"):
        file.write_text(file.read_text() + "# patched\n")
    for name in ("old", "new"):
        folder = spark.home / f"env-{name}"
        subprocess.run(["tar", "-czf", f"{folder}.tar.gz", "-C", str(folder), "."], check=True)
    return {"directory": old.size, "archive": (spark.home / "env-old.tar.gz").stat().st_size}


class Comparison:
    def __init__(self, lab: EngineLab, hadoop: Hadoop, site: TorrentdistSite, spark: SparkPrograms) -> None:
        self._lab, self._hadoop, self._site, self._spark = lab, hadoop, site, spark
        self._program = spark.write("uses.py", USES)

    def hdfs(self, version: str) -> Way:
        archive = {"--archives": f"/srv/env-{version}.tar.gz#env", "spark.pyspark.python": "./env/bin/python3"}
        return self._measured("HDFS", version, options=archive)

    def gateway(self, version: str) -> Way:
        url = f"http://127.0.0.1:7070/bundles/gate-{version}/archive.tar.gz#env"
        archive = {"--archives": url, "spark.pyspark.python": "./env/bin/python3"}
        return self._measured("gateway", version, bundle=f"gate-{version}", options=archive)

    def ids(self, version: str) -> Way:
        own = self._site.of_user("spark-submit", "--env", f"path-{version}", "--label", "kind=w")
        return self._measured("ids", version, bundle=f"path-{version}", program=tuple(own))

    def _measured(
        self,
        name: str,
        version: str,
        *,
        bundle: str = "",
        program: tuple[str, ...] = PLAIN,
        options: Mapping[str, object] | None = None,
    ) -> Way:
        hosts, client = self._hadoop.workers, self._spark.client
        with shaped(self._lab, [*hosts, client], MBIT):
            links, up, stored = LinkCount(hosts), LinkCount([client]), self._hadoop.written()
            began = time.monotonic()
            if bundle:
                self._site.command(client, "upload", f"/srv/env-{version}", "--id", bundle)
            uploaded = time.monotonic()
            ended = self._submit(options or {}, program)
            ends = time.monotonic()
        assert ended.code == 0, ended.output[-4000:] + self._hadoop.container_logs(ended.application)
        sent = up.up()[client.name]
        written = self._hadoop.written() - stored
        way = Way(name, version, ends - began, ends - uploaded, max(links.down().values()), sent, written)
        print(way)
        return way

    def _submit(self, options: Mapping[str, object], program: tuple[str, ...]) -> Ended:
        asked = self._spark.yarn_options(2) | {"--deploy-mode": "cluster", **options}
        return self._spark.submit(asked, [self._program], program=program, secs=2 * LONGEST_SECS)


def test_a_path_costs_each_host_one_copy_and_a_new_version_what_is_new(
    engine_lab: EngineLab, hadoop: Hadoop, site: TorrentdistSite, spark: SparkPrograms, versions: dict[str, int]
) -> None:
    """If this fails, docs/engines.md promises more than YARN's users get. It takes long: six
    applications on slow links."""
    compared = Comparison(engine_lab, hadoop, site, spark)
    ways: dict[tuple[str, str], Way] = {}
    print(versions)
    for way in (compared.ids, compared.hdfs, compared.gateway):
        for bundle in ("env-43", "env-44", *(f"{kind}-{name}" for kind in ("path", "gate") for name in ("old", "new"))):
            site.tried(engine_lab.named("head"), "bundle", "rm", bundle)  # hosts would fetch it again
        for host in [*hadoop.workers, spark.client]:
            site.restart(host, keep=False)
        for version in ("old", "new"):
            measured = way(version)
            ways[measured.name, version] = measured
    whole = versions["directory"]

    assert ways["ids", "old"].down < 1.3 * whole
    assert ways["ids", "new"].down < NEW_SHARE * whole
    assert ways["ids", "old"].stored < whole / 5
    assert ways["HDFS", "old"].stored > 3 * versions["archive"]
