"""A whole cluster on one machine: embedded ZooKeeper, masters, supervisors."""
