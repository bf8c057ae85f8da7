"""Files: what is written to disk, and what is read from it."""
