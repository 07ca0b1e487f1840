"""A daemon whose event loop hangs on SIGUSR2 while its other threads go on."""

from __future__ import annotations

import signal
import sys
import time

from torrentdist.host.event_loop import watchdog

watchdog.PATIENCE = 14
"""Longer than the leader's patience, so that the leader misses the daemon before it ends."""
signal.signal(signal.SIGUSR2, lambda *_: time.sleep(1_000_000))

from torrentdist_cli.main import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
