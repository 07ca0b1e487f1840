"""Jobs as values: job.toml, its Spark table, and what flags may override."""
