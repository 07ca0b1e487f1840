"""How many examples a property test runs.

Always: each test names how many would be plenty, `make test` runs a part of them, and `make
property` runs 50 times as many as `make test`.
"""

from __future__ import annotations

import os

TIMES = int(os.environ.get("TORRENTDIST_PROPERTY_TIMES", "1"))
PART = 0.3
FEWEST = 5


def examples(plenty: int) -> int:
    return max(FEWEST, round(plenty * PART)) * TIMES
