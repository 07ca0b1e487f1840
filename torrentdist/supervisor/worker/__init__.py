"""Values that describe a worker, and the plan of what happens to it next."""
