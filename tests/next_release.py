"""A daemon of the release after this one, as far as its records go: `python -m next_release master
--config FILE`.

It speaks a later schema, which brought a field that this release knows already: so the same program
is both releases.
"""

from __future__ import annotations

import sys

from torrentdist.model import records

THIS = records.SCHEMA
records.SCHEMA, records.OLDEST_READABLE = THIS + 1, THIS  # before anybody else looks at them

from torrentdist.cluster.records import record_schema  # noqa: E402
from torrentdist_cli.main import main  # noqa: E402

record_schema.ADDED["/code-distributor/*"] = {"pinned": THIS + 1}

if __name__ == "__main__":
    sys.exit(main())
