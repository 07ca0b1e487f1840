"""The directory of swarms at work in a master."""
