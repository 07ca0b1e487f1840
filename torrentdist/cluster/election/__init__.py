"""Which master leads, for how long it may act, and the fence around what it changes."""
