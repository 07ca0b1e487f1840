"""Resource groups at a master: it shows them, changes their resources, and lets members in."""
