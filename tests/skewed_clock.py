"""A daemon on a host whose wall clock jumps: `python skewed_clock.py master --config FILE.toml`.

It is `torrentdist` with a clock that is wrong by the seconds in FILE.skew, which a test may write
at any time.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

_true_time = time.time
_skew = Path(sys.argv[-1]).with_suffix(".skew")


def _skewed_time() -> float:
    try:
        return _true_time() + float(_skew.read_text())
    except (OSError, ValueError):
        return _true_time()


time.time = _skewed_time

from torrentdist_cli.main import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
