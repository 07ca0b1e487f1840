"""The hub view of the gateway: bundles as repositories of Hugging Face's library."""
