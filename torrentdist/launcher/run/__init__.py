"""One run of a worker: its specification, its lease, and the two processes that watch over it."""
