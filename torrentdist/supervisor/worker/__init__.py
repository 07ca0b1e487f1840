"""A worker as values: its states, its life, and the plan of what happens to it next."""
