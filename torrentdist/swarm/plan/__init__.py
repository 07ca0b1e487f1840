"""The plan of a swarm: the pieces that each receiver fetches first, and its neighbours. Pure."""
