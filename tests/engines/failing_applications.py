"""What tests of failures have in common: an application that looks which hosts it runs on, and an
environment that no host has."""

from __future__ import annotations

import subprocess
import sys

from engines.spark_programs import SparkPrograms
from engines.torrentdist_site import TorrentdistSite

WAITS = "torrentdist: waiting for"
WAIT_SECS = 900.0
LOOKS = """
import json, socket, time
from pyspark.sql import SparkSession

def look(_):
    time.sleep(1)
    return socket.gethostname()

spark = SparkSession.builder.getOrCreate()
print("ANSWER " + json.dumps(sorted(set(spark.sparkContext.parallelize(range(9), 9).map(look).collect()))), flush=True)
spark.stop()
"""


def write_program(spark: SparkPrograms) -> str:
    """Returns the path of the application at the client."""
    return spark.write("looks_around.py", LOOKS)


def upload_environment(site: TorrentdistSite, spark: SparkPrograms, bundle: str) -> None:
    """Uploads a virtual environment without packages, in which no other bundle has a part."""
    folder = spark.home / bundle
    subprocess.run([sys.executable, "-m", "venv", "--copies", "--without-pip", str(folder)], check=True)
    (folder / "own.bin").write_bytes(bundle.encode() * 200_000)
    site.command(spark.client, "upload", f"/srv/{bundle}", "--id", bundle)
