"""What a new version of a bundle costs: bytes on the links of hosts that have the version before,
and the time of a fleet."""
