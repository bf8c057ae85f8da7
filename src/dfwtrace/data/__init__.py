"""Rows of the data: read from files, examined, cut into shards."""
