"""A daemon whose event loop can be made to hang, while its other threads go on: by SIGUSR2."""

from __future__ import annotations

import signal
import sys
import time

from torrentdist.host.process import watchdog

watchdog.PATIENCE = 14
"""So that its leader misses it before it ends."""
signal.signal(signal.SIGUSR2, lambda *_: time.sleep(1_000_000))

from torrentdist_cli.main import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
