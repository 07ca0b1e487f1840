"""Deadlines of tests that wait for something.

Always: a test that runs beside others waits three times as long, because they may keep both
processors busy. Whether something is quick is measured by tests that run alone, and by bench/.
"""

from __future__ import annotations

import os

FACTOR = 3.0 if "PYTEST_XDIST_WORKER" in os.environ else 1.0


def patient(seconds: float) -> float:
    """Returns how long a test waits for what a quiet machine does within these seconds."""
    return FACTOR * seconds
