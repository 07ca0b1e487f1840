"""The parts of a master that keep and use its directory of swarms."""
