"""What a job is: job.toml, its Spark table, and what flags may override."""
