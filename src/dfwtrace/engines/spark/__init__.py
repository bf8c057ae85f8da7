"""Shards on an Apache Spark cluster."""
