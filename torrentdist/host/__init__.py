"""What a master and a supervisor share: a host's store, engine and agent at work, the HTTP shell,
logs, signals."""
