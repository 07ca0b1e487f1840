"""A daemon that writes the records of the next release: `python -m next_release master --config
FILE`.

Its schema is later than this release's, and adds a field that this release already knows, so one
program can play both releases.
"""

from __future__ import annotations

import sys

from torrentdist.model import records

THIS = records.SCHEMA
records.SCHEMA, records.OLDEST_READABLE = THIS + 1, THIS  # before any other module reads them

from torrentdist.cluster.records import record_schema  # noqa: E402
from torrentdist_cli.main import main  # noqa: E402

record_schema.ADDED["/code-distributor/*"] = {"pinned": THIS + 1}

if __name__ == "__main__":
    sys.exit(main())
