"""Defines a word. Executors get this module as a file of the bundle."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


def words(line: Column) -> Column:
    return F.explode(F.split(F.lower(line), "[^a-z]+"))
