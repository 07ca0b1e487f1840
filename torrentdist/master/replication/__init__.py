"""Which bundles a master holds: it fetches what it lacks and drops what was removed."""
