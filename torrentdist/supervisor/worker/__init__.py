"""A worker as values: its states, the plan of what happens to it next, its reports."""
