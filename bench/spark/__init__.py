"""What Spark users wait for: their archives, and the report."""
