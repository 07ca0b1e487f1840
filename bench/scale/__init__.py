"""What the lab cannot hold: large fleets in a simulator, links without limits, one setting at a time."""
