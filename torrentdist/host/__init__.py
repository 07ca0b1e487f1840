"""The parts that a master and a supervisor share: store, engine and agent, HTTP, logs and
signals."""
