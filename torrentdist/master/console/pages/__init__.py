"""The pages of the console, a router for each kind of thing that they show."""
