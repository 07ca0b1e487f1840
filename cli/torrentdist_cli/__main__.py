"""`python -m torrentdist_cli` is `torrentdist`."""

import sys

from torrentdist_cli.main import main

sys.exit(main())
