"""What the masters agree on in ZooKeeper: session, election, epoch, records. kazoo is imported in
one file only."""
