"""Registers our data source: Spark imports every installed module pyspark_* and uses its
DefaultSource.

Never: do anything else. A failure here would break every Python data source of the user.
"""

from torrentdist.spark.datasource import TorrentdistDataSource as DefaultSource

__all__ = ["DefaultSource"]
