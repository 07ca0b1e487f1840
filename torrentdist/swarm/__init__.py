"""BitTorrent: the engine, the conductor and the directory of swarms. libtorrent is imported here
and nowhere else."""
