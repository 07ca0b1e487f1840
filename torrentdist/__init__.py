"""torrentdist puts a Spark job bundle on every host of a cluster, and keeps it there.

Always: importing the package loads nothing but this file.
Never: this file imports a library.
"""

from __future__ import annotations

__version__ = "0.1.0"

RESERVED_NAMES = frozenset({"upload", "download", "distribute", "submit", "Cluster"})
"""Names reserved for the Python API. Until it exists, no module and no value of this package may
use them."""
