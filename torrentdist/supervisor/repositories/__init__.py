"""Bundles as repositories that package managers know, served by the gateway."""
