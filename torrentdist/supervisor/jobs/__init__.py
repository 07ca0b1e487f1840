"""The jobs of this host: assignments, running workers, and reports to the masters."""
