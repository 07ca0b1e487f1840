"""The systems that large clusters use for this, Kraken and Dragonfly, as their documentation sets
them up."""
