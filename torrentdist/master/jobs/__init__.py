"""Jobs on a master: their life, their workers' places, what the leader owes them."""
