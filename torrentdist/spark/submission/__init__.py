"""`torrentdist spark-submit`: what a command of Spark says, and what its engine needs so that
executors find their bundles."""
