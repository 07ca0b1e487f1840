"""Runs one of our modules with changed settings, to measure what each setting is worth.

`python -m bench.lab.changed_settings KEY=VALUE,... MODULE ARGUMENT...`. A key is a setting of
libtorrent, or one of OURS: `piece_length` (of new metafiles), `blocks` (requests of a receiver to
all its peers together), `queue_secs` (the same, by a peer's rate), `look_ms` (between two looks at
the peers' pieces), `deadline_ms` (for the next pieces of a receiver's own share), `shares` (number
of receivers that have a share).

Always: only these settings change.
Never: become part of the product. A better value becomes the default.
"""

from __future__ import annotations

import contextlib
import runpy
import sys

from torrentdist.bundle import metafile_maker
from torrentdist.swarm.engine import request_limits, session_settings
from torrentdist.swarm.engine.transfer import Transfer
from torrentdist.swarm.plan import conductor, crowd, request_window

NEXT = 8
"""Number of pieces of its own share for which a receiver sets a deadline."""


def hurry(milliseconds: int) -> None:
    conduct = Transfer.conduct

    def hurrying(self: Transfer) -> None:
        conduct(self)
        own = [piece for piece, priority in enumerate(self.priorities) if priority == conductor.OWN]
        if (handle := self.handle) is not None:
            with contextlib.suppress(RuntimeError):  # the torrent may have left the session
                for piece in own[:NEXT]:
                    handle.set_piece_deadline(piece, milliseconds)

    Transfer.conduct = hurrying  # type: ignore[method-assign]


def apply(overrides: dict[str, int]) -> None:
    for key, value in overrides.items():
        if key == "piece_length":
            metafile_maker.choose_piece_length = lambda _, value=value: value  # type: ignore[misc]
        elif key == "blocks":
            request_window.BLOCKS_UNDER_WAY = value  # type: ignore[misc]
        elif key == "queue_secs":
            request_window.queue_secs = lambda *_, value=value: value
        elif key == "look_ms":
            conductor.LOOK_SECS = value / 1000  # type: ignore[misc]
        elif key == "deadline_ms":
            hurry(value)
        elif key == "shares":
            conductor.SHARES = crowd.SHARES = value  # type: ignore[attr-defined, misc]
        elif key == "max_out_request_queue":
            request_limits.MOST_ASKED = value  # type: ignore[misc]
        else:
            changed = session_settings.Setting(key, value, "measured")
            session_settings.SETTINGS = (*(s for s in session_settings.SETTINGS if s.key != key), changed)  # type: ignore[misc]


def parsed(text: str) -> dict[str, int]:
    return {key: int(value) for key, value in (pair.split("=") for pair in text.split(",") if pair)}


if __name__ == "__main__":
    _, overrides, module, *arguments = sys.argv
    apply(parsed(overrides))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
