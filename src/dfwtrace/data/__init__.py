"""Rows of the data: examined, cut into shards, read from files."""
