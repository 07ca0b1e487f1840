"""Which bundles this host keeps, and reading them."""
