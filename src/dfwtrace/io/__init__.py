"""Deprecated: data files are read by `dfwtrace.data`, others by `dfwtrace.files`."""
