"""Why no worker runs twice: barriers, leases, and the proof that lets one run on without
ZooKeeper."""
