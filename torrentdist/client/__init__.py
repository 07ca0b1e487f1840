"""The client: finds the leader from any master and survives its failover."""
