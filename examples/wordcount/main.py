"""Counts the words of the texts in its own bundle, which the swarm brought to this host."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from words import words

MOST = 5


def main() -> None:
    data = Path(__file__).parent / sys.argv[1]
    spark = SparkSession.builder.getOrCreate()
    found = spark.read.text(str(data)).select(words(F.col("value")).alias("word")).where("word <> ''")
    counts = found.groupBy("word").count().orderBy(F.desc("count"), "word")
    print(f"{found.count():,} words in {data}")
    for row in counts.limit(MOST).collect():
        print(f"{row['count']:>10,}  {row['word']}")
    spark.stop()


main()
