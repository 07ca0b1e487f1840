"""The directory of swarms that every master keeps in memory: which peers are in which swarm, and
what each peer is told."""
