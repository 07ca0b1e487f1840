"""What runs inside or beside PySpark."""
