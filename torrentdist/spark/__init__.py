"""Code that runs inside or beside PySpark: bundles in tasks, the cluster as tables, and the report.

Never: import PySpark or anything large here. Every Python worker imports this module.
"""

from torrentdist.spark.bundles import add_bundle, bundle_path

__all__ = ["add_bundle", "bundle_path"]
