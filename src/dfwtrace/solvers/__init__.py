"""Solvers yield iterates; the runner follows them to a result."""
