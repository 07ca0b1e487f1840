"""What hosts with identities of their own get in ZooKeeper: a place, and grants of barriers."""
