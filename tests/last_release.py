"""A daemon of the last release, as far as it matters to others: `python -m last_release master
--config FILE`.

It reads and writes records of schema 1, and refuses bundles with packs.
"""

import sys

from torrentdist.model import records

records.SCHEMA, records.OLDEST_READABLE = 1, 1  # before any other module reads them

from torrentdist.bundle import metafile  # noqa: E402
from torrentdist_cli.main import main  # noqa: E402

metafile.PACKED_SCHEMA = -1

if __name__ == "__main__":
    sys.exit(main())
