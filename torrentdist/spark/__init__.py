"""What runs inside or beside PySpark: bundles in drivers and tasks, the cluster as tables, the reports' pipeline.

Must not do: import PySpark or anything large here; this is imported once per Python worker.
"""

from torrentdist.spark.bundles import add_bundle, bundle_path

__all__ = ["add_bundle", "bundle_path"]
