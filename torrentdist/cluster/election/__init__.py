"""Leader election: the queue of masters, how long the first one may act, and the fence around its
changes. Whether a master is ready to lead is decided in master/leading/gate.py."""
