"""What others than masters have in ZooKeeper: the places of hosts, their grants of barriers, and
resource groups."""
