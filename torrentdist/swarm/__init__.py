"""BitTorrent: the engine, the conductor and the directory of swarms. Only this package imports
libtorrent."""
