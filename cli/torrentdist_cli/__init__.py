"""The command line: a thin shell over torrentdist.client."""

import sys

# httpx brings a command line of its own, which loads rich and pygments: a fifth of the time that ours takes to start.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
