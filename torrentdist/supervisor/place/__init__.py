"""This host's place in the cluster: its registration, and what it is told to keep and run."""
