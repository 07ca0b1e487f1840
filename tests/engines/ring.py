"""`make engines`: runs the tests of this folder inside a lab, which ends with everything in it.

`python -m engines.ring [arguments of pytest]` needs root. Ends with pytest's code, or with 75 where
this machine can have no lab.
"""

from __future__ import annotations

import os
import sys

import pytest

from bench.lab import namespaces as labs

CANNOT = 75
RING = "tests/engines"


def main() -> int:
    if reason := labs.why_not() if not os.environ.get(labs.INSIDE) else "":
        print(f"engines: no lab on this machine: {reason}", file=sys.stderr)
        return CANNOT
    labs.enter("engines.ring", sys.argv[1:])
    os.environ[INSIDE_LAB] = "1"
    return pytest.main(["-q", *sys.argv[1:], RING])


INSIDE_LAB = "TORRENTDIST_ENGINES"
"""Set for tests that run inside the lab."""

if __name__ == "__main__":
    sys.exit(main())
