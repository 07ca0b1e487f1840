"""How many examples a property test runs.

Always: each test names its own usual number, and `make property` multiplies all of them by the same
factor.
"""

from __future__ import annotations

import os

TIMES = int(os.environ.get("TORRENTDIST_PROPERTY_TIMES", "1"))


def examples(usual: int) -> int:
    return usual * TIMES
