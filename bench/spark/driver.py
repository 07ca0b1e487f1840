"""The driver of bench/spark/spark_run.py: every executor fetches each URI; prints the time.

Always: all executors run and are warm before the first URI.
Never: run Python in an executor.
"""

from __future__ import annotations

import json
import sys
import time

from pyspark.sql import SparkSession


def main() -> None:
    executors = int(sys.argv[1])
    builder = SparkSession.builder
    for key, value in json.loads(sys.argv[2]).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    context = spark.sparkContext

    def everywhere() -> None:
        """Runs one task on each executor; an executor has one core."""
        spark.range(0, executors, 1, executors).write.format("noop").mode("overwrite").save()

    while context._jsc.sc().getExecutorMemoryStatus().size() < executors + 1:
        time.sleep(0.1)
    for _ in range(3):
        everywhere()
    print("ready", flush=True)
    for line in sys.stdin:
        began = time.monotonic()
        context.addArchive(line.strip())
        added = time.monotonic()
        everywhere()
        answer = {
            "application": context.applicationId,
            "driver_seconds": added - began,
            "seconds": time.monotonic() - added,
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
