"""The Python API: `torrentdist.upload`, `download`, `path`, `distribute`, and the clients behind
them."""
