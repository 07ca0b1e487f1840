"""The jobs of this host: what is assigned, what runs, what the masters are told."""
