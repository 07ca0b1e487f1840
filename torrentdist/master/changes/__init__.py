"""How a leader changes records: decided on a snapshot, committed once, remembered for a retry."""
