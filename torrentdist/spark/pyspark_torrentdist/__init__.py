"""What Spark finds by itself: it imports every installed module named pyspark_* and takes its DefaultSource.

Must not do: anything more. A failure in here would fail every Python data source of the user.
"""

from torrentdist.spark.datasource import TorrentdistDataSource as DefaultSource

__all__ = ["DefaultSource"]
