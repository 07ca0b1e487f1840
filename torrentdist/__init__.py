"""torrentdist puts a Spark job bundle on every host of a cluster, and keeps it there."""

__version__ = "0.1.0"
