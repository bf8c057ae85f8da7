"""Shards on the executors of a Spark cluster."""
