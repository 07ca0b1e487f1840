"""Leader election: which master leads, for how long it may act, and the fence around its
changes."""
