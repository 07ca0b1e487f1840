"""Which peers are in which swarm, as every master keeps it in memory, and what they are told."""
